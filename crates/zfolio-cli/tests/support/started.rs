//! A run under way, and what is asked of it.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use crate::support::{self, Guard, Output, Zfolio, finish};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;
/// Longest that something may take to come true.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A run under way.
pub struct Started {
    pub guard: Guard,
    pub stats: PathBuf,
    pub _dir: tempfile::TempDir,
}

impl Started {
    /// `zfolio run OPTIONS -- PROGRAM`, with its input and output kept.
    pub fn start(z: &Zfolio, options: &[&str], program: &[&str]) -> Self {
        let dir = support::tempdir();
        let stats = dir.path().join("stats.json");
        let mut command = z.command(["run", "--stats"]);
        command.arg(&stats).args(options).arg("--").args(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        Self {
            guard: Guard(command.spawn().expect("zfolio starts")),
            stats,
            _dir: dir,
        }
    }

    pub fn pid(&self) -> u32 {
        self.guard.0.id()
    }

    /// The program; 0: there is none.
    pub fn program(&self) -> u32 {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        children.unwrap_or_default().trim().parse().unwrap_or(0)
    }

    /// Resident memory of the program, bytes.
    pub fn resident(&self) -> u64 {
        let child = self.program();
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok());
        kib.unwrap_or(0) * 1024
    }

    /// Waits until the program has said that.
    #[track_caller]
    pub fn until_told(&mut self, words: &str) {
        let mut said = vec![0; words.len()];
        let output = self.guard.0.stdout.as_mut().expect("kept");
        std::io::Read::read_exact(output, &mut said).expect("it says something");
        assert_eq!(said, words.as_bytes());
    }

    /// Waits until the program's resident memory is as it should be.
    #[track_caller]
    pub fn until_resident(&self, what: &str, met: impl Fn(u64) -> bool) {
        let began = Instant::now();
        while !met(self.resident()) {
            let now = self.resident() / MIB;
            assert!(began.elapsed() < PATIENCE, "{now} MiB resident, not {what}");
            sleep(Duration::from_millis(2));
        }
    }

    pub fn has_ended(&mut self) -> bool {
        self.guard.0.try_wait().expect("it is ours").is_some()
    }

    /// Waits for its end: status, what it said, its statistics.
    pub fn end(mut self) -> (Option<i32>, String, serde_json::Value) {
        let child: &mut Child = &mut self.guard.0;
        drop(child.stdin.take());
        let mut told = String::new();
        let mut error = child.stderr.take().expect("kept");
        std::io::Read::read_to_string(&mut error, &mut told).expect("read");
        let status = child.wait().expect("it ends").code();
        let stats = fs::read_to_string(&self.stats).unwrap_or_default();
        (
            status,
            told,
            serde_json::from_str(&stats).unwrap_or_default(),
        )
    }
}

pub fn zfolio(z: &Zfolio, words: &[&str]) -> Output {
    finish(&mut z.command(words), "")
}

/// `zfolio set` of a run; what it says.
#[track_caller]
pub fn set(z: &Zfolio, run: &Started, words: &[&str]) -> String {
    let pid = run.pid().to_string();
    let output = zfolio(z, &[&["set", &pid], words].concat());
    output.succeeded().stdout.clone()
}

pub fn is_refused(output: &Output, status: i32, words: &str) {
    assert_eq!(output.status.code(), Some(status), "{}", output.stderr);
    assert!(output.stderr.contains(words), "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
}
