//! Runs the self-checking programs of `tests/programs` under `zfolio run`.
//!
//! A program verifies every byte it looks at and ends with 0, 1 (a wrong
//! byte) or 2 (the case could not be set up). What is asserted here besides:
//! no process failed, memory really went out and came back (a run in which
//! nothing moved proves nothing), and it ended in time: a hang is shown with
//! what every thread of the tree waits in.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use crate::support::{self, Output, Zfolio, processes};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use zfolio_host::process_tree::Watched;

/// Longest a program may take; most take two seconds. Reached only by a hang.
pub const LIMIT: Duration = Duration::from_secs(240);

/// One program at a time: each has several threads, and `high` is tight.
static ALONE: Mutex<()> = Mutex::new(());

/// How to run a program.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// File name in `tests/programs` without `.c`.
    pub program: &'a str,
    /// Its arguments.
    pub args: &'a [&'a str],
    /// `--high`.
    pub high: &'a str,
    /// Other options of `zfolio run`.
    pub options: &'a [&'a str],
    /// Longest it may take.
    pub limit: Duration,
}

impl<'a> Case<'a> {
    /// `program` with 40 MiB, which is less than half of what any of them has.
    pub fn new(program: &'a str, args: &'a [&'a str]) -> Self {
        Self {
            program,
            args,
            high: "40M",
            options: &[],
            limit: LIMIT,
        }
    }

    /// Runs it and checks all that holds for every program. `None` where
    /// nothing can be managed, which is said.
    #[track_caller]
    pub fn run(&self) -> Option<Output> {
        self.run_until(|_| Ok(()))
    }

    /// As [`Self::run`], until the run was what the case is about: see
    /// [`support::until`].
    #[track_caller]
    pub fn run_until(&self, met: impl Fn(&Output) -> Result<(), String>) -> Option<Output> {
        support::until(
            || self.run_once(),
            |output| {
                for name in ["pages_out", "pages_in", "zswpout", "zswpin"] {
                    let moved = output.counter(name);
                    support::check(moved > 1000, || {
                        format!("{name} is {moved}: memory did not move")
                    })?;
                }
                met(output)
            },
        )
    }

    #[track_caller]
    fn run_once(&self) -> Option<Output> {
        let z = support::by_messages()?;
        let program = compiled(self.program)?;
        let output = {
            let _alone = ALONE
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            self.run_alone(z, &program)
        };
        output.succeeded();
        assert_eq!(
            failed(&output.stats),
            Vec::<String>::new(),
            "{}",
            output.stderr
        );
        Some(output)
    }

    /// Runs it with another library and environment, and checks only that it
    /// ends in time. Several may run at once.
    #[track_caller]
    pub fn ends(&self, z: &Zfolio, library: &Path, env: (&str, &str)) -> Output {
        let dir = support::tempdir();
        let stats = dir.path().join("stats.json");
        let mut command = z.command(["run", "--high", self.high, "--stats"]);
        command.env("ZFOLIO_PRELOAD", library).env(env.0, env.1);
        command.arg(&stats).args(self.options).arg("--");
        command.arg(compiled(self.program).expect("cc"));
        command.args(self.args);
        let mut output = in_time(&mut command, self.limit);
        if let Ok(text) = fs::read_to_string(&stats) {
            output.stats = serde_json::from_str(&text).expect("--stats writes JSON");
        }
        output
    }

    fn run_alone(&self, z: &Zfolio, program: &Path) -> Output {
        let dir = support::tempdir();
        let stats = dir.path().join("stats.json");
        let mut command = z.command(["run", "--quiet", "--high", self.high, "--stats"]);
        command.arg(&stats);
        command.args(support::in_another_way(self.options));
        command.arg("--");
        command.arg(program).args(self.args);
        let mut output = in_time(&mut command, self.limit);
        if let Ok(text) = fs::read_to_string(&stats) {
            output.stats = serde_json::from_str(&text).expect("--stats writes JSON");
        }
        output
    }
}

/// Messages of processes that ended themselves.
fn failed(stats: &Value) -> Vec<String> {
    let processes = stats["processes"].as_array().map_or(&[][..], Vec::as_slice);
    processes
        .iter()
        .filter(|process| process["state"].as_str() == Some("failed"))
        .map(ToString::to_string)
        .collect()
}

/// Runs a command to its end, or kills it and fails with what every thread was waiting in.
#[track_caller]
fn in_time(command: &mut Command, limit: Duration) -> Output {
    let begin = Instant::now();
    let ended = processes::run_to_end(command, "", limit, |_| {});
    Output::of(ended, Watched::default(), begin)
}

/// The program, compiled once for each test binary; `None` after saying that
/// there is no compiler.
pub fn compiled(name: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    static ONE: Mutex<()> = Mutex::new(());
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/programs")
        .join(name)
        .with_extension("c");
    let program = BUILT.get_or_init(support::tempdir).path().join(name);
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if !program.exists() {
        let built = Command::new("cc")
            .args(["-O2", "-g", "-Wall", "-Wextra", "-pthread", "-o"])
            .arg(&program)
            .arg(&source)
            .output();
        let Ok(built) = built else {
            support::skip("no C compiler");
            return None;
        };
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
    }
    Some(program)
}
