//! One run: the program started, the segment looked at until the churn is over.

use super::plan::{Addresses, Plan};
use crate::rig;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use zfolio_host::find_run;
use zfolio_host::segment_file::SharedSegment;
use zfolio_host::statistics::Tree;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::segment::Counter;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(25);

/// The gauges of one instant.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Look {
    /// Seconds since the start.
    pub(super) at: f64,
    /// Frames of the arena: pool, standby and free, bytes.
    pub(super) held: f64,
    /// What is stored, compressed, bytes.
    pub(super) stored: f64,
    /// `AnonHugePages` of the arena, bytes.
    pub(super) huge: f64,
    /// Free blocks of 2 MiB.
    pub(super) free_blocks: f64,
}

/// A run that succeeded.
#[derive(Clone, Debug, Default)]
pub(super) struct Ran {
    pub(super) seed: u64,
    /// While the churn lasted and something was stored.
    pub(super) looks: Vec<Look>,
    /// What `--stats` wrote.
    pub(super) stats: Value,
    /// Seconds of the churn.
    pub(super) churn: f64,
}

/// Ends with the value, if it has not ended.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            rig::end(self.0.id());
            let _ = self.0.wait();
        }
    }
}

/// A file for statistics, gone with the value.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Plan {
    /// Addresses with which the arena is a limited one: what is reserved is a quarter
    /// of what is left, heap and all (see `zfolio_runtime::process`), and is to hold
    /// twice `high` but not the usual size.
    fn addresses(&self) -> u64 {
        let arena = (3 * self.high).max(128 << 20);
        let others = (288 << 20) + self.high / 2;
        4 * (arena + others) + 2 * self.size + (64 << 20)
    }

    /// Runs the workload once.
    pub(super) fn run(
        &self,
        addresses: Addresses,
        compaction: bool,
        seed: u64,
    ) -> Result<Ran, String> {
        let exe = std::env::current_exe().map_err(|error| error.to_string())?;
        let own = std::process::id();
        let name = format!("zfolio-arena-{own}-{seed}.json");
        let stats = Scratch(std::env::temp_dir().join(name));
        let mut command = Command::new(&exe);
        command
            .env(zfolio_host::PLAIN.0, zfolio_host::PLAIN.1)
            .args(["bench-child", "--parent"])
            .arg(own.to_string());
        command.arg("--").arg(&exe);
        command
            // (In the thread that faults there are no folios of 2 MiB.)
            .args(["run", "--quiet", "--faults", "message", "--high"])
            .arg(self.high.to_string());
        command.arg("--stats").arg(&stats.0);
        if !compaction {
            command.arg("--no-folio-compaction");
        }
        if let Some(folio) = self.folio {
            command.arg("--split-huge-pages").arg("--folio");
            command.arg(folio.bytes().to_string());
        }
        command.arg("--").arg(&exe).args(["bench-work", "arena"]);
        command.arg("--size").arg(self.size.to_string());
        command.arg("--rounds").arg(self.rounds.to_string());
        command.arg("--seed").arg(seed.to_string());
        if addresses == Addresses::Limited {
            command.arg("--addresses").arg(self.addresses().to_string());
        }
        // Each large allocation is a mapping, and its end an unmapping.
        command.env("MALLOC_MMAP_THRESHOLD_", "1048576");
        let (looks, stdout) = self.watch(&mut command)?;
        let text = fs::read_to_string(&stats.0).map_err(|error| error.to_string())?;
        let stats: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let lines = stdout
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let mut phases = lines.filter(|line: &Value| line["phase"] == "churn");
        let churn = phases.next().and_then(|line| line["value"].as_f64());
        if looks.is_empty() {
            return Err("nothing was ever stored: --high is too much for --size".to_owned());
        }
        Ok(Ran {
            seed,
            looks,
            stats,
            churn: churn.ok_or("the workload did not tell how long it took")?,
        })
    }

    /// Runs `command` to its end; what was seen of it, and what it printed.
    fn watch(&self, command: &mut Command) -> Result<(Vec<Look>, String), String> {
        let begin = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("starting it: {error}"))?;
        let mut child = Started(child);
        let churned = AtomicBool::new(false);
        let (out, err) = (child.0.stdout.take(), child.0.stderr.take());
        thread::scope(|scope| {
            let out = scope.spawn(|| lines(out, |_| churned.store(true, Ordering::Release)));
            let err = scope.spawn(|| lines(err, |_| ()));
            let mut looks = Vec::new();
            let status = loop {
                match child.0.try_wait() {
                    Ok(Some(status)) => break Ok(status),
                    Ok(None) => {}
                    Err(error) => break Err(error.to_string()),
                }
                if begin.elapsed() > self.timeout {
                    break Err(format!("{} {} s", rig::ENDED, self.timeout.as_secs()));
                }
                if !churned.load(Ordering::Acquire) {
                    looks.extend(look(child.0.id(), begin));
                }
                thread::sleep(EVERY);
            };
            // Its pipes end with it.
            drop(child);
            let text = |told: thread::ScopedJoinHandle<'_, String>| told.join().unwrap_or_default();
            let (stdout, stderr) = (text(out), text(err));
            let status = status?;
            if status.success() {
                return Ok((looks, stdout));
            }
            let said = stderr.lines().next_back().unwrap_or("it said nothing");
            Err(format!("{status}: {said}"))
        })
    }
}

/// All that a pipe brings; `each` is called for every line.
fn lines(pipe: Option<impl Read>, each: impl Fn(&str)) -> String {
    let mut all = String::new();
    let Some(pipe) = pipe else { return all };
    for line in BufReader::new(pipe).lines().map_while(Result::ok) {
        each(&line);
        all.push_str(&line);
        all.push('\n');
    }
    all
}

/// The gauges of the run with this process id, if it stores something now.
fn look(pid: u32, begin: Instant) -> Option<Look> {
    let path = find_run::locate(Some(Path::new(&pid.to_string()))).ok()?;
    let segment = SharedSegment::open(&path).ok()?;
    let total = Tree::read(&segment).total;
    let get = |which| total.get(which) as f64;
    let pages = get(Counter::StandbyPages) + get(Counter::FreeFrames);
    (get(Counter::StoredPages) > 0.0).then(|| Look {
        at: begin.elapsed().as_secs_f64(),
        held: get(Counter::PoolBytes) + pages * PAGE_SIZE as f64,
        stored: get(Counter::CompressedBytes),
        huge: get(Counter::ArenaAnonThp),
        free_blocks: get(Counter::FreeHugeBlocks),
    })
}
