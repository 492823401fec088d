//! A user without any privilege, and programs that run managed as that user.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

#[path = "../support/nobody.rs"]
mod user;

use crate::support::{self, Output};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The ways in which the thread that faults serves itself.
pub const WAYS: [&str; 3] = ["in-thread", "guard", "protect"];

/// A user who may nothing, and programs where that user can read them.
#[derive(Debug)]
pub struct Nobody {
    user: user::Nobody,
    /// What doctor told that user.
    works: String,
}

impl Nobody {
    /// `None` after saying why it cannot be.
    pub fn new() -> Option<Self> {
        support::real()?;
        let user = user::Nobody::new()?;
        let works = user.zfolio(&["doctor"]).stdout;
        Some(Self { user, works })
    }

    /// A copy of the program that the user can run.
    pub fn program(&self, path: &Path) -> PathBuf {
        let to = self.user.path(path.file_name().expect("a name"));
        if !to.exists() {
            support::copy_executable(path, &to);
        }
        to
    }

    /// Runs a program under one of the ways; `None` where this kernel does not have it.
    #[track_caller]
    pub fn run(&self, way: &str, high: &str, program: &[&str]) -> Option<Output> {
        let output = self.run_with(way, &["--high", high], program)?;
        output.succeeded();
        // A process that gave up was not managed to its end.
        for process in output.stats["processes"].as_array().expect("processes") {
            assert_eq!(process["state"], "managing", "{process}");
            assert_eq!(process["faults_told_by"], way, "{process}");
        }
        Some(output)
    }

    /// As [`Self::run`], with other options, to whatever end.
    #[track_caller]
    pub fn run_with(&self, way: &str, options: &[&str], program: &[&str]) -> Option<Output> {
        if !self.works.contains(&format!("--faults {way} works\n")) {
            support::skip(&format!("--faults {way}: {}", self.works));
            return None;
        }
        let args = [&["--quiet", "--faults", way], options, &["--"], program].concat();
        Some(self.user.run(&args))
    }

    /// `zfolio run` by one of the ways, to which options are to be added; `None` where this
    /// kernel does not have it.
    pub fn command(&self, way: &str) -> Option<Command> {
        if !self.works.contains(&format!("--faults {way} works\n")) {
            support::skip(&format!("--faults {way}: {}", self.works));
            return None;
        }
        let mut command = self.user.command(self.user.exe());
        command.args(["run", "--faults", way]);
        Some(command)
    }

    /// The command's executable, for that user.
    pub fn exe(&self) -> PathBuf {
        self.user.exe()
    }

    /// A directory that the user can write in.
    pub fn directory(&self) -> PathBuf {
        let inside = self.user.writable("x");
        inside.parent().expect("a directory").to_owned()
    }
}
