//! Every operation on an address space, with the pages it concerns present,
//! standing by, being stored, stored, and partly back.
//!
//! The programs say how many pages were absent at the moment of the operation;
//! they never read what they press with, so what came back is the area's.

mod memory;
mod support;

use memory::Case;
use std::time::Duration;
use support::Output;

/// Pages of an area (`AREA` in tests/programs/life.h).
const AREA: usize = 192;
/// Compressing takes long, in large folios: pages are met while being stored.
const SLOW: &[&str] = &["--compressor", "zstd:12", "--folio", "256K"];

/// Runs all cases of a program in all states.
#[track_caller]
fn life(program: &str, cases: usize, options: &[&str]) -> Option<Output> {
    let seed = std::env::var("ZFOLIO_LIFE_SEED").unwrap_or_else(|_| "1".into());
    let args = [&*seed, "all", "all"];
    let case = Case {
        high: "16M",
        options,
        limit: Duration::from_secs(600),
        ..Case::new(program, &args)
    };
    case.run_until(|output| states(output, cases))
}

/// What the cases say of the states in which they met their areas.
fn states(output: &Output, cases: usize) -> Result<(), String> {
    let mut told = 0;
    for line in output.stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, state, "absent", absent, "of", _] = words[..] else {
            panic!("{line}");
        };
        let absent: usize = absent.parse().expect("a number");
        let least = match state {
            "present" => 0,
            // (As much as reading ahead has left.)
            "partly" => AREA / 8,
            _ => AREA / 2,
        };
        support::check(absent >= least, || format!("the state was not met: {line}"))?;
        told += 1;
    }
    assert_eq!(told, cases * 5, "{}", output.stdout);
    let standby = output.counter("standby_refault");
    let least = 30 * cases as u64;
    support::check(standby > least, || {
        format!("{standby} pages came back from standby")
    })
}

#[test]
fn mapping_calls() {
    if let Some(output) = life("life_map", 10, &[]) {
        assert!(output.counter("remaps") >= 15 && output.counter("unmaps") > 100);
    }
    life("life_map", 10, SLOW);
}

#[test]
fn advice_protection_and_locks() {
    if let Some(output) = life("life_advise", 10, &[]) {
        assert!(output.counter("removes") >= 20, "{}", output.stats);
    }
    life("life_advise", 10, SLOW);
}

#[test]
fn processes() {
    if let Some(output) = life("life_fork", 11, &[]) {
        let counted = (output.counter("forks"), output.counter("raw_forks"));
        assert!(counted.0 >= 30 && counted.1 >= 15, "{counted:?}");
    }
}

#[test]
fn input_and_output() {
    life("life_io", 6, &[]);
}

#[test]
fn others_look_at_it() {
    life("life_remote", 3, &[]);
}

#[test]
fn threads_and_signals() {
    life("life_thread", 6, &[]);
}
