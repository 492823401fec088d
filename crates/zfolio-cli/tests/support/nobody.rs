//! A user without any privilege, for whom zfolio lies where anybody may read it.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use crate::support::{self, Output, finish, tempdir};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// That user, as whom commands are run.
#[derive(Debug)]
pub struct Nobody {
    dir: tempfile::TempDir,
}

impl Nobody {
    /// `None` after saying why it cannot be.
    pub fn new() -> Option<Self> {
        let z = support::zfolio();
        let dir = tempdir();
        for (from, name) in [(z.exe(), "zfolio"), (z.library(), "libzfolio_preload.so")] {
            support::copy_executable(from, &dir.path().join(name));
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("readable");
        let this = Self { dir };
        let tried = this.command("true").output();
        if !tried.is_ok_and(|done| done.status.success()) {
            support::skip("needs root and setpriv, to become a user without privilege");
            return None;
        }
        Some(this)
    }

    /// A command as that user, in a process group of its own.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]);
        command
            .arg("--")
            .arg(program)
            .env("ZFOLIO_PRELOAD", self.path("libzfolio_preload.so"))
            .env_remove("ZFOLIO_CONTROL")
            .env("ZFOLIO_CONFIG", "none")
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// A file in the directory that the user can read.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command's executable, for that user.
    pub fn exe(&self) -> PathBuf {
        self.path("zfolio")
    }

    /// A file that the user can write; its name says what for.
    pub fn writable(&self, name: &str) -> PathBuf {
        let dir = self.path("writable");
        if fs::create_dir(&dir).is_ok() {
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("writable");
        }
        dir.join(name)
    }

    /// `zfolio ARGS`, to its end.
    pub fn zfolio(&self, args: &[&str]) -> Output {
        finish(self.command(self.exe()).args(args), "")
    }

    /// `zfolio run --stats FILE ARGS`, to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        let stats = self.writable("stats.json");
        let _ = fs::remove_file(&stats);
        let mut command = self.command(self.exe());
        command.args(["run", "--stats"]).arg(&stats).args(args);
        let mut output = finish(&mut command, "");
        if let Ok(text) = fs::read_to_string(&stats) {
            output.stats = serde_json::from_str(&text).expect("--stats writes JSON");
        }
        output
    }
}
