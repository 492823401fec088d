//! `zfolio compact`: every process of a run compacts now, once: its pool, and by messages its arena too.
//!
//! By messages a thread of ours does it. Without privilege the program's threads do, as they make calls or
//! run; so one all of whose threads sleep is not waited for, but named: it compacts as soon as it runs.

use crate::options::asking::Compact;
use crate::requests::client::ask;
use crate::requests::message::{Answer, Request};
use std::fs;
use std::process::ExitCode;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};
use zfolio_host::exit::{Failure, Status, one_line};
use zfolio_host::find_run::locate;
use zfolio_host::segment_file::SharedSegment;
use zfolio_host::slots::used;
use zfolio_host::standard_output::print;
use zfolio_host::statistics;
use zfolio_runtime::segment::{Counter, ProcessSlot, Segment, Used, faults, state};

/// How long processes may take.
const COMPACTS_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks.
const EVERY: Duration = Duration::from_millis(10);
/// A process whose threads have not run for so long sleeps.
const SLEEPS_AFTER: Duration = Duration::from_millis(300);

/// What is counted, and how a line says it.
const COUNTS: [(Counter, &str); 3] = [
    (Counter::ObjsMoved, "objects moved"),
    (Counter::PagesCompacted, "pages of the pool freed"),
    (Counter::PgmigrateSuccess, "pages of the arena moved"),
];
/// Of these, what there is without messages: compaction of zspages.
const OF_ZSPAGES: usize = 2;

/// A process that compacts.
struct Process {
    index: usize,
    turn: u64,
    pid: u32,
    name: String,
    /// A thread of ours does it.
    by_messages: bool,
    before: [u64; COUNTS.len()],
    blocks: u64,
    rest: Rest,
    answer: Answered,
}

/// What is known of a process's answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answered {
    /// It has not come.
    Not,
    /// It has done it, or has ended.
    Done,
    /// It sleeps, and does it later.
    Later,
}

/// For how long a process has been at rest.
struct Rest {
    /// How often its threads have left a processor, as of the last look; none: one was running.
    switches: Option<u64>,
    since: Instant,
}

/// Asks the run, waits until all have done it that can, and prints what came of it.
///
/// # Errors
/// There is no such run, it refuses, or a process has not done it in time.
pub(crate) fn compact(args: &Compact) -> Result<ExitCode, Failure> {
    let path = locate(Some(&args.which))?;
    let segment = SharedSegment::open(&path).map_err(|error| {
        let mend = "name a running zfolio run, or its segment";
        Failure::new(Status::Internal, path.display(), error, mend)
    })?;
    let mut processes = compacting(&segment);
    let Answer::Compacting(number) = ask(&path, &Request::Compact)? else {
        let mend = "use the zfolio that started the run";
        let why = "it answers something else";
        return Err(Failure::new(Status::Internal, path.display(), why, mend));
    };
    wait(&segment, &mut processes, number);
    let mut lines: Vec<String> = processes
        .iter()
        .filter_map(|process| process.line(&segment))
        .collect();
    let is_late = |process: &&Process| process.answer == Answered::Not;
    let late = processes.iter().filter(is_late).count();
    if lines.is_empty() && late == 0 {
        lines.push("no process has memory moved out".into());
    }
    let lines = lines.iter().map(|line| one_line(line) + "\n");
    print(&lines.collect::<String>())?;
    if late == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let why = format!("{late} of its processes had not done it after {COMPACTS_WITHIN:?}");
    let mend = "look with zfolio stat whether they are stopped";
    Err(Failure::new(Status::Internal, path.display(), why, mend))
}

fn name(slot: &ProcessSlot) -> String {
    let process = statistics::Process::read(slot);
    format!("{} {}", process.pid, process.comm)
}

/// Processes that are managed.
fn compacting(segment: &Segment) -> Vec<Process> {
    let slots = used(segment).into_iter();
    let slots = slots.filter(|used| is_there(used.slot));
    slots
        .map(|Used { index, turn, slot }| Process {
            index,
            turn,
            pid: slot.process.pid.load(Relaxed),
            name: name(slot),
            // (The ways without privilege say which they are.)
            by_messages: matches!(
                slot.process.told_by.load(Relaxed),
                faults::AUTO | faults::MESSAGE
            ),
            before: counts(slot),
            blocks: slot.counter(Counter::FreeHugeBlocks).load(Relaxed),
            rest: Rest {
                switches: None,
                since: Instant::now(),
            },
            answer: Answered::Not,
        })
        .collect()
}

fn counts(slot: &ProcessSlot) -> [u64; COUNTS.len()] {
    COUNTS.map(|(which, _)| slot.counter(which).load(Relaxed))
}

/// The slot of a process, if it is its own still.
fn slot_of<'a>(segment: &'a Segment, process: &Process) -> Option<&'a ProcessSlot> {
    let mut slots = used(segment).into_iter();
    let found = slots.find(|used| (used.index, used.turn) == (process.index, process.turn));
    found.map(|used| used.slot).filter(|slot| is_there(slot))
}

/// Waits until all have done request `number`, or sleep.
fn wait(segment: &Segment, processes: &mut [Process], number: u32) {
    let until = Instant::now() + COMPACTS_WITHIN;
    loop {
        let now = Instant::now();
        for process in &mut *processes {
            let slot = slot_of(segment, process);
            let is_done = slot.is_none_or(|slot| {
                let done = slot.compacted.load(Acquire);
                number.wrapping_sub(done).cast_signed() <= 0
            });
            // (Who slept may have woken up meanwhile.)
            process.answer = if is_done {
                Answered::Done
            } else if !process.by_messages && process.rest.is_sleep(process.pid, now) {
                Answered::Later
            } else {
                Answered::Not
            };
        }
        let is_open = |process: &Process| process.answer == Answered::Not;
        if !processes.iter().any(is_open) || now > until {
            return;
        }
        sleep(EVERY);
    }
}

/// Whether the process of a slot is managed, and lives.
fn is_there(slot: &ProcessSlot) -> bool {
    let pid = i32::try_from(slot.process.pid.load(Relaxed)).ok();
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    slot.state.load(Relaxed) == state::MANAGING
        && pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

impl Rest {
    /// Looks at process `pid`; whether none of its threads has run for a while.
    fn is_sleep(&mut self, pid: u32, now: Instant) -> bool {
        let switches = at_rest(pid);
        if switches.is_none() || switches != self.switches {
            self.switches = switches;
            self.since = now;
        }
        switches.is_some() && now.duration_since(self.since) >= SLEEPS_AFTER
    }
}

/// How often the threads of a process have left a processor, if none of them runs now or waits for a
/// disk. None as well where that cannot be known.
fn at_rest(pid: u32) -> Option<u64> {
    let mut switches = 0_u64;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let status = match fs::read_to_string(task.ok()?.path().join("status")) {
            Ok(status) => status,
            // (It ended just now.)
            Err(_) => return None,
        };
        switches = switches.wrapping_add(switches_at_rest(&status)?);
    }
    Some(switches)
}

/// The same of one thread, by its `status`.
fn switches_at_rest(status: &str) -> Option<u64> {
    let field = |name: &str| {
        let mut lines = status.lines();
        lines
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    let runs = field("State")?.starts_with(['R', 'D']);
    let count = |name| field(name)?.parse::<u64>().ok();
    let [one, other] = ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"].map(count);
    (!runs).then_some(one?.wrapping_add(other?))
}

impl Process {
    /// What it did, or that it sleeps; none for one that has ended or has not answered.
    fn line(&self, segment: &Segment) -> Option<String> {
        let slot = slot_of(segment, self)?;
        match self.answer {
            Answered::Not => return None,
            Answered::Later => {
                return Some(format!(
                    "{}: sleeps in all its threads; it compacts as soon as it runs",
                    self.name
                ));
            }
            Answered::Done => {}
        }
        let now = counts(slot);
        let parts = COUNTS.iter().zip(now).zip(self.before);
        let parts = parts
            .map(|(((_, what), now), before)| format!("{} {what}", now.saturating_sub(before)));
        let mut parts: Vec<String> = parts.collect();
        if !self.by_messages {
            parts.truncate(OF_ZSPAGES);
            return Some(format!("{}: {}", self.name, parts.join(", ")));
        }
        let blocks = slot.counter(Counter::FreeHugeBlocks).load(Relaxed);
        Some(format!(
            "{}: {}; free blocks of 2 MiB: {}, now {blocks}",
            self.name,
            parts.join(", "),
            self.blocks
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_runs_is_not_at_rest() {
        let status = |state: &str| {
            format!(
                "Name:\tState: R\nState:\t{state}\nvoluntary_ctxt_switches:\t7\n\
                 nonvoluntary_ctxt_switches:\t5\n"
            )
        };
        for state in ["S (sleeping)", "T (stopped)"] {
            assert_eq!(switches_at_rest(&status(state)), Some(12));
        }
        for state in ["R (running)", "D (disk sleep)"] {
            assert_eq!(switches_at_rest(&status(state)), None);
        }
        assert_eq!(switches_at_rest("State:\tS (sleeping)\n"), None, "unknown");
    }

    #[test]
    fn one_sleeps_that_has_not_run_for_a_while() {
        let begun = Instant::now();
        let mut rest = Rest {
            switches: None,
            since: begun,
        };
        // (This process runs.)
        let own = std::process::id();
        assert!(!rest.is_sleep(own, begun) && !rest.is_sleep(own, begun + 2 * SLEEPS_AFTER));
    }
}
