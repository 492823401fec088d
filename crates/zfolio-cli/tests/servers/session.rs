//! A run of `stepped` behind a store, step by step; every wait of it has a bound.

use super::{Server, pipe};
use crate::memory::compiled;
use crate::support::{self, Guard};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest that a step may take.
pub(crate) const STEP: Duration = Duration::from_secs(60);

/// A run of `stepped` with a store, under way.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) run: Guard,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    pub(crate) stats: TempDir,
    /// What was written to standard error yet.
    told: Arc<Mutex<Vec<u8>>>,
    /// Ends when nobody has it open any more.
    stderr: JoinHandle<()>,
    /// The pipe it is, as /proc names it.
    pipe: String,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stderr: String,
    pub(crate) stats: Value,
}

impl Ended {
    #[track_caller]
    pub(crate) fn succeeded(&self) -> &Self {
        assert!(self.status.success(), "{}\n{}", self.status, self.stderr);
        self
    }

    /// Was ended by its manager, with these words.
    #[track_caller]
    pub(crate) fn was_ended(&self, words: &str) {
        assert_eq!(self.status.code(), Some(70), "{}", self.stderr);
        assert!(self.stderr.contains(words), "{}", self.stderr);
        assert!(self.counter("backing_read_fail") > 0, "{}", self.stats);
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.stats["total"]["counters"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {}", self.stats))
    }

    pub(crate) fn store(&self, name: &str) -> u64 {
        self.stats["store"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {}", self.stats))
    }
}

impl Session {
    /// `None` where the machine cannot, which is said.
    pub(crate) fn begin(backing: &str, mib: &str) -> Option<Self> {
        Self::begin_as(backing, &["stepped", mib], &[], |_| {})
    }

    pub(crate) fn begin_as(
        backing: &str,
        program: &[&str],
        options: &[&str],
        change: impl Fn(&mut Command),
    ) -> Option<Self> {
        let z = support::real()?;
        let path = compiled(program[0])?;
        Some(Self::begin_by(
            z.command(["run"]),
            &path,
            backing,
            program,
            options,
            change,
        ))
    }

    /// By `command`, to which the options of the run are added, `path` with the arguments of
    /// `program`.
    pub(crate) fn begin_by(
        mut command: Command,
        path: &Path,
        backing: &str,
        program: &[&str],
        options: &[&str],
        change: impl Fn(&mut Command),
    ) -> Self {
        let stats = support::tempdir();
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(stats.path(), open).expect("a directory of ours");
        command.args(["--high", "8M", "--max-pool", "20", "--stats"]);
        command.arg(stats.path().join("stats.json"));
        command.args(["--backing", backing]).args(options).arg("--");
        command.arg(path).args(&program[1..]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        change(&mut command);
        let mut run = Guard(command.spawn().expect("zfolio starts"));
        let output = BufReader::new(run.0.stdout.take().expect("a pipe"));
        let mut error = run.0.stderr.take().expect("a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let pipe = pipe::name(&error);
        let told: Arc<Mutex<Vec<u8>>> = Arc::default();
        let into = told.clone();
        let stderr = std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(read @ 1..) = error.read(&mut some) {
                held(&into).extend_from_slice(&some[..read]);
            }
        });
        Self {
            input: run.0.stdin.take(),
            run,
            lines,
            stats,
            told,
            stderr,
            pipe,
        }
    }

    /// Asks for a step, and does not wait for it.
    pub(crate) fn ask(&mut self, step: &str) {
        let input = self.input.as_mut().expect("a pipe");
        let _ = writeln!(input, "{step}");
    }

    /// Waits for a step; whether it was done.
    pub(crate) fn done(&self, within: Duration) -> bool {
        self.lines.recv_timeout(within).is_ok()
    }

    #[track_caller]
    pub(crate) fn step(&mut self, step: &str) {
        self.ask(step);
        assert!(self.done(STEP), "{step} is not done: {}", self.waits());
    }

    /// The end of input, and the run's, and then of standard error, which the pager has too: it
    /// ends when its members have ended, whatever the store does.
    #[track_caller]
    pub(crate) fn ends(mut self) -> Ended {
        drop(self.input.take());
        let begin = Instant::now();
        let mut status = None;
        while status.is_none() {
            assert!(begin.elapsed() < STEP, "it does not end: {}", self.waits());
            std::thread::sleep(Duration::from_millis(5));
            status = self.run.0.try_wait().expect("it can be waited for");
        }
        let begin = Instant::now();
        while !self.stderr.is_finished() {
            let late = begin.elapsed() >= STEP;
            assert!(!late, "standard error stays open: {}", self.waits());
            std::thread::sleep(Duration::from_millis(5));
        }
        let text = fs::read_to_string(self.stats.path().join("stats.json"));
        Ended {
            status: status.expect("it ended"),
            stderr: self.told(),
            stats: serde_json::from_str(&text.expect("--stats was written")).expect("JSON"),
        }
    }

    /// Fills and checks memory, most of it while a primary of `nodes` is killed: nothing is lost.
    #[track_caller]
    pub(crate) fn survives_a_primary(mut self, nodes: &mut Vec<Server>) -> Ended {
        self.step("fill 1");
        self.step("check");
        self.ask("fill 2");
        std::thread::sleep(Duration::from_millis(100));
        let primary = nodes.iter().position(Server::has_replica);
        nodes.remove(primary.expect("a primary")).kill();
        assert!(self.done(STEP), "filling goes on: {}", self.waits());
        self.step("check");
        self.step("random 4000");
        let ended = self.ends();
        ended.succeeded();
        assert!(ended.counter("pswpin") > 1000, "{}", ended.stats);
        assert_eq!(ended.counter("backing_read_fail"), 0, "{}", ended.stats);
        ended
    }

    /// Standard error so far.
    pub(crate) fn told(&self) -> String {
        String::from_utf8_lossy(&held(&self.told)).into_owned()
    }

    /// Who has standard error open and what they wait in; what was told so far.
    fn waits(&self) -> String {
        format!("{}\n{}", pipe::holders(&self.pipe), self.told())
    }

    /// The pager of the run.
    pub(crate) fn pager(&self) -> u32 {
        self.child(|words| words == b"zfolio\0pager\0")
    }

    /// The program itself.
    pub(crate) fn program(&self) -> u32 {
        self.child(|words| !words.starts_with(b"zfolio\0"))
    }

    fn child(&self, is_one: impl Fn(&[u8]) -> bool) -> u32 {
        let run = self.run.0.id();
        let list = fs::read_to_string(format!("/proc/{run}/task/{run}/children"));
        let list = list.expect("children") + &keepers(run);
        let mut pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
        let is_one = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline"));
            is_one(&words.unwrap_or_default())
        };
        pids.find(is_one).expect("a child")
    }
}

/// Children of all threads of a process.
pub(crate) fn keepers(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let lists = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("children")));
    lists.flatten().collect()
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
