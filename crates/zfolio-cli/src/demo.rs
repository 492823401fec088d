//! `zfolio demo`: a built-in workload, bare and then with its memory limited.
//!
//! The workload is this same program (`zfolio demo-work`), run twice as a
//! child; its memory is watched from outside, in /proc. What is promised:
//! every record verifies, and the managed run stays within `high` and a
//! margin, though the bare one needed more.

use crate::options::args::{Demo, DemoWork};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::hint::black_box;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use zfolio_bench::sequence::mix;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::process_tree::{Watch, Watched};
use zfolio_host::size::{MIN_HIGH, human, short};
use zfolio_host::standard_output::print;

/// Words in a record: 64 bytes.
const WORDS: usize = 8;
const RECORD: u64 = 8 * WORDS as u64;
/// Random reads of the workload.
const RANDOM_READS: u64 = 100_000;
const NAME: u64 = u64::from_le_bytes(*b"customer");
/// What the managed run may use above `high`: a tenth, and 16 MiB for the
/// program itself and for what it touches while reclaim catches up.
const MARGIN: u64 = 16 << 20;

/// What one run printed and used.
struct Ran {
    phases: Vec<Value>,
    watched: Watched,
    verified: bool,
}

/// Runs the workload twice and compares.
///
/// # Errors
/// When it cannot be run, or did not keep what it promises.
pub(crate) fn demo(args: &Demo) -> Result<ExitCode, Failure> {
    let total = machine::mem_total();
    let (size, high) = (args.size.bytes(total), args.high.bytes(total));
    if high < MIN_HIGH || size <= high {
        let why = format!(
            "--size {} and --high {} compare nothing",
            short(size),
            short(high)
        );
        return Err(Failure::new(
            Status::Usage,
            "demo",
            why,
            "choose 8M <= high < size",
        ));
    }
    let exe = std::env::current_exe().map_err(|error| broken("finding zfolio itself", &error))?;
    let work = [
        OsString::from("demo-work"),
        "--size".into(),
        size.to_string().into(),
    ];
    print(&format!(
        "A program with {} of records, first with all the memory it wants:\n",
        human(size)
    ))?;
    let bare = run(Command::new(&exe).args(&work))?;
    print(&format!("and now in {}, under zfolio run:\n", human(high)))?;
    let mut limited = Command::new(&exe);
    limited
        .env(zfolio_host::PLAIN.0, zfolio_host::PLAIN.1)
        .args(["run", "--high", &high.to_string(), "--"])
        .arg(&exe)
        .args(&work);
    let managed = run(&mut limited)?;
    print(&table(&bare, &managed))?;
    verdict(&bare, &managed, high)
}

fn broken(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Status::Demo, what, error, "run zfolio doctor")
}

fn run(command: &mut Command) -> Result<Ran, Failure> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| broken("starting the workload", &error))?;
    // The bare child is the workload; the managed one's child is.
    let watch = Watch::start(child.id(), true);
    let output = child.wait_with_output();
    let watched = watch.stop();
    let output = output.map_err(|error| broken("waiting for the workload", &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let phases: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if phases.is_empty() {
        return Err(broken(
            "the workload",
            &format!("printed nothing ({})", output.status),
        ));
    }
    let verified = output.status.success() && phases.iter().any(|phase| phase["bad"] == 0);
    Ok(Ran {
        phases,
        watched,
        verified,
    })
}

fn table(bare: &Ran, managed: &Ran) -> String {
    let mut text = format!("{:<22} {:>12} {:>12}\n", "", "before", "after");
    let mut row = |name: &str, before: String, after: String| {
        text.push_str(&format!("{name:<22} {before:>12} {after:>12}\n"));
    };
    row(
        "peak resident memory",
        human(bare.watched.peak()),
        human(managed.watched.peak()),
    );
    for phase in &bare.phases {
        let name = phase["phase"].as_str().unwrap_or("?");
        let seconds = |ran: &Ran| {
            let found = ran
                .phases
                .iter()
                .find(|other| other["phase"] == phase["phase"]);
            found
                .and_then(|phase| phase["seconds"].as_f64())
                .map_or("-".into(), |s| format!("{s:.2} s"))
        };
        row(name, seconds(bare), seconds(managed));
    }
    let word = |ran: &Ran| if ran.verified { "yes" } else { "NO" }.to_owned();
    row("every record right", word(bare), word(managed));
    text
}

fn verdict(bare: &Ran, managed: &Ran, high: u64) -> Result<ExitCode, Failure> {
    let failed = |why: String| {
        Err(Failure::new(
            Status::Demo,
            "demo",
            why,
            "run zfolio doctor and report this",
        ))
    };
    if !(bare.verified && managed.verified) {
        return failed("the records did not verify".into());
    }
    let (allowed, peak) = (high + high / 10 + MARGIN, managed.watched.peak());
    if peak > allowed {
        return failed(format!(
            "memory was not kept: {} used, {} allowed",
            human(peak),
            human(allowed)
        ));
    }
    if bare.watched.peak() <= peak {
        return failed("the bare run needed no more memory than the managed one".into());
    }
    Ok(ExitCode::SUCCESS)
}

/// The workload: fill, read in order, read at random, verify everything.
/// Prints one JSON line a phase.
pub(crate) fn work(args: &DemoWork) -> ExitCode {
    let records = usize::try_from(args.size.bytes(machine::mem_total()) / RECORD)
        .unwrap_or(0)
        .max(1);
    let mut memory: Vec<[u64; WORDS]> = Vec::new();
    timed("fill", || {
        memory.reserve_exact(records);
        memory.extend((0..records as u64).map(record));
        json!({})
    });
    timed("read in order", || {
        let sum = memory
            .iter()
            .step_by(64)
            .fold(0_u64, |sum, record| sum.wrapping_add(record[0]));
        json!({ "sum": black_box(sum) })
    });
    timed("read at random", || {
        let mut seed = 1;
        let mut sum = 0_u64;
        for _ in 0..RANDOM_READS {
            seed = mix(seed);
            let at = usize::try_from(seed % memory.len() as u64).unwrap_or(0);
            sum = sum.wrapping_add(memory[at][1]);
        }
        json!({ "reads": RANDOM_READS, "sum": black_box(sum) })
    });
    let mut bad = 0;
    timed("verify", || {
        bad = (0_u64..)
            .zip(&memory)
            .filter(|(at, found)| record(*at) != **found)
            .count();
        json!({ "records": memory.len(), "bad": bad })
    });
    ExitCode::from(u8::from(bad > 0))
}

fn timed(phase: &str, work: impl FnOnce() -> Value) {
    let begin = Instant::now();
    let mut line = work();
    line["phase"] = phase.into();
    line["seconds"] = begin.elapsed().as_secs_f64().into();
    // (What reads it has no line then, and says so.)
    let _ = print(&format!("{line}\n"));
}

/// Record `at`: a key, small numbers, a name, a price, a group: what the
/// tables of programs are made of. Most of it is shared with the neighbours,
/// so lz4 gets about 3.5:1: what is left of `size` must fit in `high`.
fn record(at: u64) -> [u64; WORDS] {
    let random = mix(at);
    let (small, smaller) = (random & 0xfff, random >> 60);
    let price = 0x4059_0000_0000_0000 | smaller << 44;
    [at, small, NAME, 0, 0, smaller, price, at / 64]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use zfolio_host::process_tree::Sample;

    fn ran(rss: u64, verified: bool) -> Ran {
        let samples = vec![Sample {
            at: Duration::ZERO,
            pid: 1,
            rss,
        }];
        let phases = vec![json!({ "phase": "verify", "seconds": 1.5, "bad": 0 })];
        Ran {
            phases,
            watched: Watched {
                samples,
                high_water: rss,
                root: 0,
            },
            verified,
        }
    }

    fn judged(bare: &Ran, managed: &Ran) -> Option<Status> {
        verdict(bare, managed, 200 << 20)
            .err()
            .map(|failure| failure.status)
    }

    #[test]
    fn promises_are_judged() {
        let (bare, kept) = (ran(512 << 20, true), ran(210 << 20, true));
        assert_eq!(judged(&bare, &kept), None);
        assert_eq!(
            judged(&bare, &ran(240 << 20, true)),
            Some(Status::Demo),
            "too much memory"
        );
        assert_eq!(
            judged(&bare, &ran(210 << 20, false)),
            Some(Status::Demo),
            "wrong data"
        );
        assert_eq!(
            judged(&kept, &kept),
            Some(Status::Demo),
            "nothing was saved"
        );
    }

    #[test]
    fn the_table_sets_both_runs_side_by_side() {
        let text = table(&ran(512 << 20, true), &ran(210 << 20, false));
        assert!(text.contains("512 MiB      210 MiB"), "{text}");
        assert!(
            text.contains("verify                       1.50 s       1.50 s"),
            "{text}"
        );
        assert!(text.contains("yes           NO"), "{text}");
    }

    #[test]
    fn records_differ() {
        assert_ne!(record(1), record(2));
        assert_eq!(record(7), record(7));
    }
}
