//! A managed program that lasts as long as a test looks at it.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use crate::nobody::Nobody;
use crate::support::{self, Guard, Output, finish};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use tempfile::TempDir;

/// `high` of the program.
pub const HIGH: &str = "32M";

/// 60 MB in blocks whose halves are alike; each line it reads makes it look at all.
const PROGRAM: &str = "
import os, sys
blocks = [os.urandom(500) * 2 for _ in range(60000)]
print('ready', flush=True)
for line in sys.stdin:
    if line == 'end\\n':
        break
    assert all(block[:500] == block[500:] for block in blocks)
    print('read', flush=True)
";

/// The program, under `zfolio run`.
#[derive(Debug)]
pub struct Live {
    guard: Guard,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    stats: PathBuf,
    _dir: Option<TempDir>,
}

impl Live {
    /// Starts it with more options of `zfolio run`; `None` where nothing can be managed.
    pub fn start(options: &[&str]) -> Option<Self> {
        let z = support::real()?;
        let dir = support::tempdir();
        let stats = dir.path().join("stats.json");
        let mut command = z.command(["run"]);
        if let Ok(way) = std::env::var("ZFOLIO_TEST_FAULTS") {
            command.args(["--faults", &way]);
        }
        Some(Self::begin(command, stats, options, Some(dir)))
    }

    /// The same by a user without privilege.
    pub fn start_as(nobody: &Nobody, options: &[&str]) -> Self {
        let mut command = nobody.command(nobody.exe());
        command.arg("run");
        Self::begin(command, nobody.writable("live.json"), options, None)
    }

    fn begin(mut command: Command, stats: PathBuf, options: &[&str], dir: Option<TempDir>) -> Self {
        command.args(["--high", HIGH, "--stats"]).arg(&stats);
        command.args(options).args(["--", "python3", "-c", PROGRAM]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut guard = Guard(command.spawn().expect("it starts"));
        let input = guard.0.stdin.take();
        let output = guard.0.stdout.take().expect("a pipe");
        let mut live = Self {
            guard,
            input,
            output: BufReader::new(output),
            stats,
            _dir: dir,
        };
        live.says("ready\n");
        live
    }

    #[track_caller]
    fn says(&mut self, expected: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        if line != expected {
            self.input = None;
            let mut told = String::new();
            if let Some(mut from) = self.guard.0.stderr.take() {
                let _ = std::io::Read::read_to_string(&mut from, &mut told);
            }
            panic!("{line:?}: {told}");
        }
    }

    /// Process id of its `zfolio run`.
    pub fn pid(&self) -> String {
        self.guard.0.id().to_string()
    }

    /// Makes it look at all its memory.
    #[track_caller]
    pub fn reads(&mut self) {
        self.tell("read\n");
        self.says("read\n");
    }

    fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it lasts");
        input.write_all(line.as_bytes()).expect("it reads");
    }

    /// A line of what `zfolio run` says on standard error.
    pub fn told(&mut self) -> String {
        let mut line = Vec::new();
        let from = self.guard.0.stderr.as_mut().expect("a pipe");
        let mut byte = [0];
        while std::io::Read::read(from, &mut byte).expect("it is read") == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Tells it to end, and does not wait.
    pub fn ends(&mut self) {
        self.tell("end\n");
    }

    /// Ends it: what `--stats` wrote.
    #[track_caller]
    pub fn end(mut self) -> Value {
        if self.input.is_some() {
            self.ends();
        }
        let status: ExitStatus = self.guard.0.wait().expect("it is ours");
        assert!(status.success(), "{status}");
        let text = fs::read_to_string(&self.stats).expect("--stats wrote a file");
        serde_json::from_str(&text).expect("JSON")
    }
}

/// `zfolio ARGS`, to its end.
pub fn zfolio(args: &[&str]) -> Output {
    finish(&mut support::zfolio().command(args), "")
}
