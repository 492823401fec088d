//! The kernel says no, at every system call of the two paths: before anything
//! is managed the program runs on unmanaged and that is told once; afterwards
//! it goes on with every byte right, or ends with one line. It never hangs.
//!
//! Failures are made by the debug build of the preload library
//! (`zfolio-sys/src/inject.rs`). The outcomes are printed as a table; all of
//! it with `cargo test --test failures -- --ignored --nocapture`.
//!
//! A test run takes a part of the plans, each day another one, and says which. It is taken
//! again by its number, ZFOLIO_FAILURES_PART=2, and a single plan by its name,
//! ZFOLIO_FAILURES_PLAN=pread:5:300+3.

mod memory;
mod support;

use memory::Case;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use support::{Output, Zfolio};

/// How a run may end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// Managed, to the end.
    Right,
    /// Not managed from the start or never, and told once.
    Unmanaged,
    /// The process was ended, with one line.
    Ended,
    /// The call was not made so often.
    Unmade,
    /// Anything else.
    Wrong,
}

use Outcome::{Ended, Right, Unmade, Unmanaged, Wrong};

/// Before anything is managed: the call, the error, which of them.
const STARTING: &[(&str, u32, &[u32])] = &[
    ("userfaultfd", 1, &[1, 2]),
    ("userfaultfd", 24, &[1]),
    ("api", 22, &[1, 2]),
    ("register", 12, &[1, 2, 3]),
    ("register", 22, &[1]),
    ("open", 24, &[1, 2, 3, 4]),
    ("open", 13, &[3]),
    ("mmap", 12, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ("clone", 11, &[1, 2, 3, 4]),
    ("copy", 12, &[1]),
    ("close_range", 22, &[1]),
    ("pread", 5, &[1, 3]),
];

/// A call, an error, and which of them fail: the first, and every so many after.
type Repeated = (&'static str, u32, &'static [(u32, u32)]);

/// At work: the call, the error, every how many.
const WORKING: &[Repeated] = &[
    ("move", 11, &[(20, 0), (20, 3)]),
    ("move", 12, &[(20, 0), (20, 3)]),
    ("move", 16, &[(20, 0), (20, 3)]),
    ("move", 22, &[(20, 0), (20, 5)]),
    ("move", 17, &[(20, 0), (20, 5)]),
    ("move", 2, &[(20, 0), (20, 5)]),
    ("copy", 11, &[(20, 0), (20, 3)]),
    ("copy", 12, &[(20, 0), (20, 3)]),
    ("copy", 17, &[(20, 5)]),
    ("register", 12, &[(4, 0), (4, 2)]),
    ("register", 16, &[(4, 2)]),
    ("register", 22, &[(4, 2)]),
    ("pagemap_scan", 12, &[(20, 0), (20, 40)]),
    ("pagemap_scan", 4, &[(20, 3)]),
    ("procmap_query", 25, &[(1, 1)]),
    ("procmap_query", 2, &[(3, 2)]),
    ("read", 11, &[(5, 2)]),
    ("read", 4, &[(5, 2)]),
    ("read", 9, &[(20, 0)]),
    // (Every second one would be every reading of the mappings: new memory stays then.)
    ("pread", 5, &[(300, 0), (300, 3)]),
    ("poll", 4, &[(5, 2)]),
    ("poll", 12, &[(5, 2)]),
    ("futex", 4, &[(5, 2)]),
    ("futex", 22, &[(5, 3)]),
    ("wake", 22, &[(1, 2)]),
    ("madvise", 12, &[(5, 0), (5, 2)]),
    ("madvise", 22, &[(5, 0), (5, 2)]),
    ("madvise", 11, &[(5, 2)]),
    ("process_madvise", 38, &[(1, 1)]),
    ("process_madvise", 12, &[(5, 2)]),
];

/// At forks while mappings move: the call, the error, every how many.
const FORKING: &[Repeated] = &[
    // (Whoever moves pages asks twice: of every second question one is refused in each try.)
    ("continue", 11, &[(1, 3)]),
    ("copy", 11, &[(20, 3)]),
    ("copy", 12, &[(20, 3)]),
];

/// Calls that never return.
const STUCK: &[&str] = &["move", "read", "pagemap_scan"];

/// The library with failures in it, built once.
fn library() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = root.join("target/failures");
    let built = Command::new(env!("CARGO"))
        .args(["build", "-q", "-p", "zfolio-preload", "--target-dir"])
        .arg(&target)
        .current_dir(&root)
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the preload library does not build");
    target.join("debug/libzfolio_preload.so")
}

/// Runs `program` with a plan and says how it ended; a wrong byte, another
/// status, a missing or second line are wrong.
fn outcome(z: &Zfolio, library: &Path, program: (&str, &[&str]), plan: &str) -> Outcome {
    let case = Case {
        limit: Duration::from_secs(120),
        ..Case::new(program.0, program.1)
    };
    let dir = support::tempdir();
    let told = dir.path().join("told");
    fs::write(&told, [0; 4096]).expect("a file of a page");
    let full = format!("{plan}:{}", told.display());
    let output = case.ends(z, library, ("ZFOLIO_INJECT", &full));
    let fired = fs::read(&told).expect("the file again")[..4] != [0; 4];
    let of = match classify(&output) {
        // Nothing failed, so nothing is shown.
        Ok(_) if !fired => Unmade,
        Ok(of) => of,
        Err(why) => {
            println!("{plan}: {why}: {}\n{}", output.status, output.stderr);
            Wrong
        }
    };
    println!("{:<24} {:<8} {of:?}", plan, program.0);
    of
}

fn classify(output: &Output) -> Result<Outcome, &'static str> {
    let lines = |what: &str| output.stderr.lines().filter(|l| l.contains(what)).count();
    let managed = output.stats["total"]["counters"]["pages_out"].as_u64() > Some(0);
    match output.status.code() {
        Some(0) if managed && lines(" ended: ") == 0 => Ok(Right),
        Some(0) if lines("nothing was managed") == 1 && lines("ran unmanaged") <= 1 => {
            Ok(Unmanaged)
        }
        Some(0) => Err("not managed, and not told once"),
        Some(70) if lines(" for 30 seconds") != lines(" stood still: ") => {
            Err("the watchdog's end, and not told what waits")
        }
        Some(70) if lines(" ended: ") == 1 => Ok(Ended),
        Some(70) => Err("ended without a line, or with several"),
        _ => Err("a wrong end"),
    }
}

/// A plan, the program it is tried on, and what it may come to.
type Tried = (
    String,
    (&'static str, &'static [&'static str]),
    &'static [Outcome],
);

/// Parts of the plans, of which a test run takes one.
const PARTS: u64 = 4;

/// Which part is taken: today's, unless another one is asked for.
fn part() -> u64 {
    const DAY: u64 = 24 * 60 * 60;
    let asked = std::env::var("ZFOLIO_FAILURES_PART").ok();
    let number = asked.map_or_else(
        || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.expect("a clock after 1970").as_secs() / DAY
        },
        |asked| asked.parse().expect("ZFOLIO_FAILURES_PART is a number"),
    );
    number % PARTS
}

/// Those plans that are `part` of all, every [`PARTS`]th; or the one that is asked for.
fn taken(part: Option<u64>) -> Vec<Tried> {
    let all = plans();
    if let Ok(name) = std::env::var("ZFOLIO_FAILURES_PLAN") {
        let one: Vec<Tried> = all.into_iter().filter(|(plan, ..)| *plan == name).collect();
        assert!(
            !one.is_empty(),
            "ZFOLIO_FAILURES_PLAN={name} is none of the plans"
        );
        return one;
    }
    let Some(part) = part else { return all };
    // (Past the harness's capture: a part that succeeded is told of as well.)
    let line =
        format!("failures: part {part} of {PARTS} of the plans (ZFOLIO_FAILURES_PART={part})");
    let _ = writeln!(std::io::stderr().lock(), "{line}");
    let in_part = |index: usize| index as u64 % PARTS == part;
    let numbered = all.into_iter().enumerate();
    numbered
        .filter(|(index, _)| in_part(*index))
        .map(|(_, plan)| plan)
        .collect()
}

/// All plans.
fn plans() -> Vec<Tried> {
    let starting = STARTING.iter().flat_map(|(call, errno, whens)| {
        let plan = move |when: &u32| format!("{call}:{errno}:{when}");
        whens.iter().map(plan)
    });
    let plain = ("plain", &[][..]);
    let starting = starting.map(|plan| (plan, plain, &[Right, Unmanaged][..]));
    let repeated = |list: &'static [Repeated], program| {
        let plans = list.iter().flat_map(|(call, errno, whens)| {
            whens
                .iter()
                .map(move |(first, step)| format!("{call}:{errno}:{first}+{step}"))
        });
        plans.map(move |plan| (plan, program, &[Right, Ended][..]))
    };
    let working = repeated(WORKING, ("churn", &["1"][..]));
    let forking = repeated(FORKING, ("forks", &["raw_movers"][..]));
    starting.chain(working).chain(forking).collect()
}

fn try_plans(part: Option<u64>) {
    let Some(z) = support::by_messages() else {
        return;
    };
    let library = library();
    let mut wrong = Vec::new();
    for (plan, program, allowed) in taken(part) {
        let of = outcome(z, &library, program, &plan);
        if !allowed.contains(&of) {
            wrong.push(format!("{plan}: {of:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}; one again: ZFOLIO_FAILURES_PLAN=PLAN"
    );
}

#[test]
fn every_plan_is_in_one_part() {
    if std::env::var_os("ZFOLIO_FAILURES_PLAN").is_some() {
        return;
    }
    let in_parts: usize = (0..PARTS).map(|part| taken(Some(part)).len()).sum();
    assert_eq!(in_parts, plans().len());
}

#[test]
fn some_calls_fail() {
    try_plans(Some(part()));
}

#[test]
#[ignore = "takes minutes; some_calls_fail is a part of it"]
fn every_call_fails() {
    try_plans(None);
}

#[test]
fn memory_that_cannot_be_registered_is_told_of() {
    let Some(z) = support::by_messages() else {
        return;
    };
    // (The first three are the manager's own.)
    let of = outcome(z, &library(), ("plain", &[]), "register:12:4+1");
    assert_eq!(of, Unmanaged);
}

/// Each second time it is late: what that cut is made whole by the next.
#[test]
fn a_mapping_registered_late_is_not_cut() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let of = outcome(z, &library(), ("cut", &[]), "register:late:4+2");
    assert_eq!(of, Right);
}

/// Unmapped before the call that registers, mapped anew before what it registered is asked.
#[test]
fn a_mapping_made_anew_meanwhile_is_not_taken_for_the_one_registered() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let of = outcome(z, &library(), ("anew", &[]), "procmap_query:late:4+1");
    assert_eq!(of, Right);
}

#[test]
fn a_call_that_never_returns_ends_the_process() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let library = &library();
    std::thread::scope(|scope| {
        for call in STUCK {
            scope.spawn(move || {
                let plan = format!("{call}:hang:40");
                let of = outcome(z, library, ("churn", &["1"]), &plan);
                assert_eq!(of, Ended, "{plan}");
            });
        }
    });
}
