//! A user without any privilege, and programs that run managed as that user.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use crate::support::{self, Output, finish, tempdir};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The ways in which the thread that faults serves itself.
pub const WAYS: [&str; 3] = ["in-thread", "guard", "protect"];

/// zfolio and the programs where anybody may read them, and a user who may nothing.
#[derive(Debug)]
pub struct Nobody {
    dir: tempfile::TempDir,
    /// What doctor told that user.
    works: String,
}

impl Nobody {
    /// `None` after saying why it cannot be.
    pub fn new() -> Option<Self> {
        let z = support::real()?;
        let dir = tempdir();
        for (from, name) in [(z.exe(), "zfolio"), (z.library(), "libzfolio_preload.so")] {
            fs::copy(from, dir.path().join(name)).expect("a copy");
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("readable");
        let mut this = Self {
            dir,
            works: String::new(),
        };
        let tried = this.command().arg("true").output();
        if !tried.is_ok_and(|done| done.status.success()) {
            support::skip("needs root and setpriv, to become a user without privilege");
            return None;
        }
        let mut doctor = this.command();
        doctor.arg(this.dir.path().join("zfolio")).arg("doctor");
        this.works = finish(&mut doctor, "").stdout;
        Some(this)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]);
        command.env(
            "ZFOLIO_PRELOAD",
            self.dir.path().join("libzfolio_preload.so"),
        );
        command.env_remove("ZFOLIO_CONTROL");
        command
    }

    pub fn program(&self, path: &Path) -> PathBuf {
        let to = self.dir.path().join(path.file_name().expect("a name"));
        if !to.exists() {
            fs::copy(path, &to).expect("a copy");
        }
        to
    }

    /// Runs a program under one of the ways; `None` where this kernel does not have it.
    #[track_caller]
    pub fn run(&self, way: &str, high: &str, program: &[&str]) -> Option<Output> {
        if !self.works.contains(&format!("--faults {way} works\n")) {
            support::skip(&format!("--faults {way}: {}", self.works));
            return None;
        }
        let stats = self.dir.path().join("stats");
        let _ = fs::create_dir(&stats);
        fs::set_permissions(&stats, fs::Permissions::from_mode(0o777)).expect("writable");
        let stats = stats.join(format!("{way}.json"));
        let mut command = self.command();
        command.arg(self.dir.path().join("zfolio"));
        command.args(["run", "--quiet", "--faults", way, "--high", high, "--stats"]);
        command.arg(&stats).arg("--").args(program);
        let mut output = finish(&mut command, "");
        if let Ok(text) = fs::read_to_string(&stats) {
            output.stats = serde_json::from_str(&text).expect("--stats writes JSON");
        }
        output.succeeded();
        // A process that gave up was not managed to its end.
        for process in output.stats["processes"].as_array().expect("processes") {
            assert_eq!(process["state"], "managing", "{process}");
            assert_eq!(process["faults_told_by"], way, "{process}");
        }
        Some(output)
    }
}
