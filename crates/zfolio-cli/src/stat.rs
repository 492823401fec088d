//! `zfolio stat`: the figures of a tree that is running, as a table.

use crate::fitting::high_now;
use crate::tree::staying;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_host::exit::{Failure, Status, one_line};
use zfolio_host::find_run::locate;
use zfolio_host::segment_file::SharedSegment;
use zfolio_host::size::human;
use zfolio_host::statistics::{Process, Tree};
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::segment::{Counter, Segment};

/// Prints the table of the named segment, or of the newest.
///
/// # Errors
/// When there is none, or it cannot be read.
pub(crate) fn stat(which: Option<&Path>, classes: bool) -> Result<ExitCode, Failure> {
    let path = locate(which)?;
    let segment = SharedSegment::open(&path).map_err(|error| {
        Failure::new(
            Status::Internal,
            path.display(),
            error,
            "name a running zfolio run, or its segment",
        )
    })?;
    let tree = Tree::read(&segment);
    println!(
        "{} (high {}{})",
        path.display(),
        human(high_now(&segment)),
        shared(&segment),
    );
    for group in &tree.groups {
        println!("{}", one_line(&group.line()));
    }
    print!("{}", table(&tree));
    if classes {
        let with = |process: &&Process| !process.figures.classes.is_empty();
        for process in tree.processes.iter().filter(with) {
            print!(
                "\n{} {}\n{}",
                process.pid, process.comm, process.figures.classes
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What those that share `high` have, if they do.
fn shared(segment: &Segment) -> String {
    if segment.config().shared.load(Relaxed) == 0 {
        return " for each".into();
    }
    let now = human(segment.groups[0].resident_bytes.load(Relaxed));
    let peak = human(segment.groups[0].resident_peak.load(Relaxed));
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
        assert_eq!(rows.len(), 3);
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
        slot.told_by.store(faults::IN_THREAD, Relaxed);
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

    #[test]
    fn a_path_is_taken_as_it_is() {
        let path = Path::new("/x/y.control");
        assert_eq!(locate(Some(path)), Ok(path.to_path_buf()));
        let nobody = locate(Some(Path::new("4294967295")));
        assert_eq!(
            nobody.map_err(|failure| failure.status),
            Err(Status::NotFound)
        );
    }
}
