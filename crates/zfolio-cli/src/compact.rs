//! `zfolio compact`: every process of a run compacts its pool and its arena now, once.

use crate::options::asking::Compact;
use crate::requests::client::ask;
use crate::requests::message::{Answer, Request};
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

/// What is counted, and how a line says it.
const COUNTS: [(Counter, &str); 3] = [
    (Counter::ObjsMoved, "objects moved"),
    (Counter::PagesCompacted, "pages of the pool freed"),
    (Counter::PgmigrateSuccess, "pages of the arena moved"),
];

/// A process that compacts.
struct Process {
    index: usize,
    turn: u64,
    name: String,
    before: [u64; COUNTS.len()],
    blocks: u64,
}

/// Asks the run, waits until all have done it, and prints what came of it.
///
/// # Errors
/// There is no such run, it refuses, or a process has not done it in time.
pub(crate) fn compact(args: &Compact) -> Result<ExitCode, Failure> {
    let path = locate(Some(&args.which))?;
    let segment = SharedSegment::open(&path).map_err(|error| {
        let mend = "name a running zfolio run, or its segment";
        Failure::new(Status::Internal, path.display(), error, mend)
    })?;
    let processes = compacting(&segment);
    let Answer::Compacting(number) = ask(&path, &Request::Compact)? else {
        let mend = "use the zfolio that started the run";
        let why = "it answers something else";
        return Err(Failure::new(Status::Internal, path.display(), why, mend));
    };
    let late = wait(&segment, &processes, number);
    let mut lines: Vec<String> = processes
        .iter()
        .filter(|process| !late.contains(&process.index))
        .filter_map(|process| process.line(&segment))
        .collect();
    lines.extend(cannot(&segment));
    if lines.is_empty() && late.is_empty() {
        lines.push("no process has memory moved out".into());
    }
    let lines = lines.iter().map(|line| one_line(line) + "\n");
    print(&lines.collect::<String>())?;
    if late.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let why = format!(
        "{} of its processes had not done it after {COMPACTS_WITHIN:?}",
        late.len()
    );
    let mend = "look with zfolio stat whether they are stopped";
    Err(Failure::new(Status::Internal, path.display(), why, mend))
}

/// Whether the process of a slot compacts on request: by messages a thread of ours does it.
fn compacts(slot: &ProcessSlot) -> bool {
    // (The ways without privilege say which they are.)
    let way = slot.process.told_by.load(Relaxed);
    slot.state.load(Relaxed) == state::MANAGING && matches!(way, faults::AUTO | faults::MESSAGE)
}

fn name(slot: &ProcessSlot) -> String {
    let process = statistics::Process::read(slot);
    format!("{} {}", process.pid, process.comm)
}

fn compacting(segment: &Segment) -> Vec<Process> {
    let slots = used(segment).into_iter();
    let slots = slots.filter(|used| compacts(used.slot) && is_there(used.slot));
    slots
        .map(|Used { index, turn, slot }| Process {
            index,
            turn,
            name: name(slot),
            before: counts(slot),
            blocks: slot.counter(Counter::FreeHugeBlocks).load(Relaxed),
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
    found
        .map(|used| used.slot)
        .filter(|slot| compacts(slot) && is_there(slot))
}

/// Waits until all have done request `number`; those that have not in time, by slot.
fn wait(segment: &Segment, processes: &[Process], number: u32) -> Vec<usize> {
    let until = Instant::now() + COMPACTS_WITHIN;
    loop {
        let late: Vec<usize> = processes
            .iter()
            .filter(|process| {
                slot_of(segment, process).is_some_and(|slot| {
                    let done = slot.compacted.load(Acquire);
                    number.wrapping_sub(done).cast_signed() > 0
                })
            })
            .map(|process| process.index)
            .collect();
        if late.is_empty() || Instant::now() > until {
            return late;
        }
        sleep(EVERY);
    }
}

fn is_there(slot: &ProcessSlot) -> bool {
    let pid = i32::try_from(slot.process.pid.load(Relaxed)).ok();
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

impl Process {
    /// What it did; none for one that has ended.
    fn line(&self, segment: &Segment) -> Option<String> {
        let slot = slot_of(segment, self)?;
        let now = counts(slot);
        let parts = COUNTS.iter().zip(now).zip(self.before);
        let parts = parts
            .map(|(((_, what), now), before)| format!("{} {what}", now.saturating_sub(before)));
        let parts: Vec<String> = parts.collect();
        let blocks = slot.counter(Counter::FreeHugeBlocks).load(Relaxed);
        Some(format!(
            "{}: {}; free blocks of 2 MiB: {}, now {blocks}",
            self.name,
            parts.join(", "),
            self.blocks
        ))
    }
}

/// A line for each process in which nobody compacts on request.
fn cannot(segment: &Segment) -> Vec<String> {
    let slots = used(segment).into_iter().map(|used| used.slot);
    let slots = slots.filter(|slot| {
        slot.state.load(Relaxed) == state::MANAGING && !compacts(slot) && is_there(slot)
    });
    slots
        .map(|slot| {
            let way = statistics::Process::read(slot).told_by;
            format!(
                "{}: with --faults {way} it compacts when memory is short, not on request",
                name(slot)
            )
        })
        .collect()
}
