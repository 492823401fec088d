//! Tools that look into the program, signal its threads, or wrap it, and
//! processes that zfolio does not reach.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Output, Zfolio};

/// `tests/programs/strangers.c`, which says what it does.
fn program(dir: &Path) -> Option<PathBuf> {
    let source = include_str!("../../../tests/programs/strangers.c");
    let built = support::compile(dir, "strangers", source, &["-pthread"]);
    if built.is_none() {
        support::skip("no C compiler");
    }
    built
}

/// Whether a command can be run here.
fn has(command: &[&str]) -> bool {
    let found = Command::new(command[0]).args(&command[1..]).output();
    let found = found.is_ok_and(|done| done.status.success());
    if !found {
        support::skip(&format!("{} does not work here", command.join(" ")));
    }
    found
}

/// Runs words of which `@` is the program, with a limit of `seconds`.
fn run(z: &Zfolio, dir: &Path, seconds: u32, words: &[&str]) -> Option<Output> {
    let program = program(dir)?;
    let program = program.to_str().expect("a plain path");
    let seconds = seconds.to_string();
    let limit = ["timeout", "-s", "KILL", &seconds];
    let words = words
        .iter()
        .map(|word| if *word == "@" { program } else { word });
    let words: Vec<&str> = limit.into_iter().chain(words).collect();
    Some(z.run("40M", &words))
}

/// The tracer reads what a write is given, of memory that is out, while every
/// thread that it has is stopped.
#[test]
fn a_tracer_reads_arguments_that_are_out() {
    let Some(z) = support::real() else { return };
    if !has(&["strace", "-V"]) {
        return;
    }
    let dir = support::tempdir();
    let trace = dir.path().join("trace");
    let to = trace.to_str().expect("a plain path");
    let strace = ["strace", "-f", "-s", "64", "-o", to, "@", "writes"];
    let Some(output) = run(z, dir.path(), 300, &strace) else {
        return;
    };
    output.succeeded();
    assert!(output.counter("pages_in") > 1000, "{}", output.stderr);
    let trace = std::fs::read_to_string(&trace).expect("a trace");
    // Every page has its number in it, of which the last is told here.
    assert!(trace.contains("page 16383 of many"), "its last write");
}

/// A process that lost our variables is told of, with how much it used and why.
#[test]
fn a_process_with_a_cleared_environment_is_told() {
    let Some(z) = support::real() else { return };
    let dir = support::tempdir();
    let Some(output) = run(z, dir.path(), 100, &["env", "-i", "@", "holds"]) else {
        return;
    };
    let told = &output.succeeded().stderr;
    assert!(told.contains("cleared of LD_PRELOAD"), "{told}");
    assert!(told.contains("64 MiB (high 40M)"), "{told}");
    assert!(!told.contains("nothing needed managing"), "{told}");
    let stranger = &output.stats["unreached"][0];
    assert_eq!(stranger["comm"], "strangers", "{}", output.stats);
    assert!(stranger["anonymous_bytes"].as_u64() > Some(60 << 20));
}

/// So is one that does not see the control segment.
#[test]
fn a_sandbox_with_a_dev_of_its_own_is_told() {
    let Some(z) = support::real() else { return };
    let bwrap = [
        "bwrap",
        "--bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--unshare-pid",
    ];
    let probe: Vec<&str> = bwrap.iter().copied().chain(["true"]).collect();
    if !has(&probe) {
        return;
    }
    let dir = support::tempdir();
    let words: Vec<&str> = bwrap.iter().copied().chain(["@", "holds"]).collect();
    let Some(output) = run(z, dir.path(), 100, &words) else {
        return;
    };
    let told = &output.succeeded().stderr;
    assert!(told.contains("--bind /dev/shm /dev/shm"), "{told}");
    assert!(!told.contains("nothing needed managing"), "{told}");
}

/// Nothing is told of a program that is managed, nor of a small one.
#[test]
fn those_that_are_reached_are_not_told() {
    let Some(z) = support::real() else { return };
    let dir = support::tempdir();
    for words in [&["@", "holds"][..], &["env", "-i", "sleep", "1"]] {
        let Some(output) = run(z, dir.path(), 100, words) else {
            return;
        };
        let told = &output.succeeded().stderr;
        assert!(!told.contains("could not be managed"), "{told}");
        assert_eq!(output.stats["unreached"].as_array().map(Vec::len), Some(0));
    }
}
