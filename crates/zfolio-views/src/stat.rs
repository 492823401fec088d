//! `zfolio stat`: the figures of a run that lasts, as a table or as JSON.

use crate::args::Stat;
use crate::document::Document;
use crate::look::{Look, Seen};
use crate::slowdown::Slowdown;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use zfolio_host::exit::{Failure, Status, one_line};
use zfolio_host::group_state::GroupState;
use zfolio_host::shown::MmStat;
use zfolio_host::size::human;
use zfolio_host::standard_output::print;
use zfolio_host::statistics::{Process, Tree};
use zfolio_host::staying;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::segment::{Counter, Segment};

/// Between two looks whether the run has ended.
const OFTEN: Duration = Duration::from_millis(50);

/// Prints the figures of the named run, or of the newest.
///
/// # Errors
/// When there is none, or it cannot be read.
pub fn stat(args: &Stat) -> Result<ExitCode, Failure> {
    let mut look = Look::find(args.which.which.as_deref())?;
    let mut next = Instant::now();
    loop {
        let seen = look.look();
        let text = if args.json {
            json(&look, &seen, args.watch.is_some())?
        } else {
            let classes = args.classes.then(|| classes(&seen.tree));
            text(&look, &seen) + &classes.unwrap_or_default()
        };
        let end = if args.watch.is_some() && !args.json {
            "\n"
        } else {
            ""
        };
        let somebody_reads = print(&(text + end))?;
        let Some(every) = args.watch.filter(|_| somebody_reads) else {
            return Ok(ExitCode::SUCCESS);
        };
        next += every;
        loop {
            if look.has_ended() {
                return Ok(ExitCode::SUCCESS);
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(OFTEN));
        }
    }
}

/// An object: on a line of its own where others follow.
fn json(look: &Look, seen: &Seen, one_line: bool) -> Result<String, Failure> {
    let document = Document::new(look, seen);
    let made = if one_line {
        serde_json::to_string(&document)
    } else {
        serde_json::to_value(&document).map(|value| format!("{value:#}"))
    };
    let made = made.map(|text| text + "\n");
    made.map_err(|error| Failure::new(Status::Internal, "JSON", error, "please report this"))
}

fn text(look: &Look, seen: &Seen) -> String {
    let mut text = format!(
        "{} (high {}{}{})\n",
        look.path().display(),
        human(seen.config.high_bytes()),
        limits(look.segment()),
        shared(look.segment()),
    );
    if let Some(slowdown) = Slowdown::read(look.segment()) {
        text.push_str(&slowdown.line());
        text.push('\n');
    }
    text.push_str(&seen.config.lines());
    text.push_str(&behind(look.segment(), &seen.tree));
    if let Some(store) = &seen.store {
        text.push_str(&store.words());
        text.push('\n');
    }
    for group in &seen.tree.groups {
        text.push_str(&one_line(&group.line()));
        text.push('\n');
    }
    text + &table(&seen.tree)
}

/// What is in files and in a store behind the pools, and what may be; empty without.
fn behind(segment: &Segment, tree: &Tree) -> String {
    let sizes = segment.config().backing.sizes();
    let bytes = |which| tree.total.get(which);
    let store = bytes(Counter::BackingStoreBytes);
    let files = bytes(Counter::BackingBytes).saturating_sub(store);
    let part = |name: &str, used: u64, size: u64| match size {
        0 => None,
        _ => Some(format!("{} of {} in {name}", human(used), human(size))),
    };
    let parts = [
        part("files", files, sizes.near),
        part("a store", store, sizes.far),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("backing: {}\n", parts.join(", then ")),
    }
}

/// Each pool's table of classes, where there is one.
fn classes(tree: &Tree) -> String {
    let with = |process: &&Process| !process.figures.classes.is_empty();
    let tables = tree.processes.iter().filter(with);
    let tables = tables.map(|process| {
        format!(
            "\n{} {}\n{}",
            process.pid, process.comm, process.figures.classes
        )
    });
    tables.collect()
}

/// What limits the run besides `high`.
fn limits(segment: &Segment) -> String {
    let config = segment.config();
    let max = match config.limits.max.load(Relaxed) {
        0 => String::new(),
        max => format!(", max {}", human(max)),
    };
    max + &GroupState::limits(&segment.groups[0])
}

/// What those that share `high` have, if they do.
fn shared(segment: &Segment) -> String {
    if segment.config().limits.shared.load(Relaxed) == 0 {
        return " for each".into();
    }
    let now = human(segment.groups[0].usage.resident_bytes.load(Relaxed));
    let peak = human(segment.groups[0].usage.resident_peak.load(Relaxed));
    format!(", shared: {now} resident, {peak} at most")
}

fn table(tree: &Tree) -> String {
    let mut text = format!(
        "{:>8} {:<16} {:<9} {:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}\n",
        "PID", "COMMAND", "STATE", "FAULTS", "PROGRAM", "RESIDENT", "POOL", "OUT", "IN", "RATIO"
    );
    for process in &tree.processes {
        text.push_str(&row(process));
    }
    for process in &tree.processes {
        text.push_str(&engines(process));
    }
    text.push_str(&format!("mm_stat {}\n", MmStat::of(&tree.total)));
    for process in &tree.processes {
        if let Some(words) = staying::words(&process.figures) {
            text.push_str(&format!(
                "{:>8} {words} when most was above high\n",
                process.pid
            ));
        }
    }
    text
}

/// What became of the units of a process's engines; empty without engines.
fn engines(process: &Process) -> String {
    let count = |which| process.figures.get(which);
    if count(Counter::EngineSubmitted) + count(Counter::EngineInline) == 0 {
        return String::new();
    }
    let mut text = format!(
        "{:>8} engines: {} submitted, {} completed, {} taken back, {} timed out, {} times busy; {} inline; {} verified, {} mismatched\n",
        process.pid,
        count(Counter::EngineSubmitted),
        count(Counter::EngineCompleted),
        count(Counter::EngineTakenBack),
        count(Counter::EngineTimeouts),
        count(Counter::EngineBusy),
        count(Counter::EngineInline),
        count(Counter::EngineVerified),
        count(Counter::EngineMismatched),
    );
    for line in process.figures.queue_lines() {
        text.push_str(&format!("{:>8} {line}\n", process.pid));
    }
    text
}

fn row(process: &Process) -> String {
    let figures = &process.figures;
    let bytes = |which| human(figures.get(which));
    let pages = |which| human(figures.get(which).saturating_mul(PAGE_SIZE as u64));
    let ratio = figures
        .most_held
        .ratio()
        .map_or("-".to_owned(), |ratio| format!("{ratio:.1}x"));
    // Nothing is told of the faults of a process that never was managed.
    let faults = if process.was_managed() {
        process.told_by
    } else {
        "-"
    };
    format!(
        "{:>8} {:<16} {:<9} {faults:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {ratio:>6}\n",
        process.pid,
        process.comm,
        process.state_name(),
        bytes(Counter::ProgramBytes),
        bytes(Counter::ResidentBytes),
        bytes(Counter::PoolBytes),
        pages(Counter::PagesOut),
        pages(Counter::PagesIn),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_runtime::segment::faults;

    #[test]
    fn a_table_has_a_row_for_every_process() {
        let own = crate::example::example();
        let text = table(&Tree::read(&own));
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 4);
        assert_eq!(
            rows[3],
            format!("mm_stat {}", MmStat::of(&Tree::read(&own).total))
        );
        assert!(
            rows[1].contains("python3") && rows[1].ends_with("3.2x"),
            "{}",
            rows[1]
        );
        assert!(
            rows[2].contains("unmanaged") && rows[2].ends_with('-'),
            "{}",
            rows[2]
        );
        let slot = &own.slots[0];
        let words = |text: &str| -> Vec<String> {
            let row = text.lines().nth(1).expect("a row").split_whitespace();
            row.map(str::to_owned).collect()
        };
        assert_eq!(words(&text)[3], "message");
        assert!(rows[2].contains(" unmanaged - "), "{}", rows[2]);
        slot.process.told_by.store(faults::IN_THREAD, Relaxed);
        assert_eq!(words(&table(&Tree::read(&own)))[3], "in-thread");
        for (which, value) in [
            (Counter::EngineSubmitted, 90),
            (Counter::EngineTakenBack, 7),
            (Counter::EngineInline, 3),
        ] {
            slot.set(which, value);
        }
        let text = table(&Tree::read(&own));
        let last = text.lines().nth(3).expect("a line of engines");
        for part in [
            "90 submitted",
            "7 taken back",
            "0 timed out",
            "3 inline",
            "0 mismatched",
        ] {
            assert!(last.contains(part), "{last}");
        }
        let queue = text.lines().nth(4).expect("a line of a queue");
        assert!(
            queue.contains("engine 1, queue 2 (compress): 9 submitted, 0 comp"),
            "{queue}"
        );
    }
}
