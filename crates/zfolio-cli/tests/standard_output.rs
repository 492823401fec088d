//! What is printed where nobody reads any more, which is no failure, and where there is no room, which is
//! told in one line.

mod live;
#[path = "support/nobody.rs"]
mod nobody;
mod support;

use live::Live;
use std::fs::OpenOptions;
use std::io::pipe;
use std::process::Stdio;

/// Commands that print and need no run.
const ALONE: [&[&str]; 7] = [
    &["run", "--print-config"],
    &["doctor"],
    &["doctor", "--json"],
    &["schema", "stats"],
    &["completions", "bash"],
    &["usemem", "1M"],
    &["bench", "cleanup"],
];

/// The status, and what is told on standard error, of `zfolio WORDS` with that standard output.
fn ends(words: &[&str], stdout: impl Into<Stdio>) -> (Option<i32>, String) {
    let mut command = support::zfolio().command(words);
    command.env("ZFOLIO_CONFIG", "none").stdout(stdout.into());
    let output = command.output().expect("zfolio runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), told)
}

#[track_caller]
fn goes_well(words: &[&str]) {
    let (usual, told) = ends(words, Stdio::null());
    assert!(
        told.is_empty() && matches!(usual, Some(0 | 78)),
        "{words:?}: {told}"
    );
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    assert_eq!(
        ends(words, writer),
        (usual, String::new()),
        "{words:?}: nobody reads"
    );
    let full = OpenOptions::new().write(true).open("/dev/full");
    let (status, told) = ends(words, full.expect("/dev/full"));
    assert_eq!(status, Some(73), "{words:?}: {told}");
    let begin = "zfolio: standard output: No space left on device (os error 28); ";
    assert!(
        told.starts_with(begin) && told.lines().count() == 1,
        "{words:?}: {told}"
    );
}

#[test]
fn commands_end_well_where_nobody_reads() {
    for words in ALONE {
        // (It looks for what root's experiments have left.)
        if words.get(1) != Some(&"cleanup") || rustix::process::geteuid().is_root() {
            goes_well(words);
        }
    }
}

#[test]
fn those_that_look_at_a_run_do_so_too() {
    let Some(live) = Live::start(&[]) else { return };
    let pid = live.pid();
    for words in [
        &["stat", &pid][..],
        &["stat", "--json", &pid],
        &["stat", "--watch", &pid],
        &["metrics", &pid],
        &["top", "--once", &pid],
        &["set", &pid, "--high", "33M"],
        &["compact", &pid],
    ] {
        // (To watch it ends where nobody reads, and only there.)
        if words[1] == "--watch" {
            let (reader, writer) = pipe().expect("a pipe");
            drop(reader);
            assert_eq!(ends(words, writer), (Some(0), String::new()));
        } else {
            goes_well(words);
        }
    }
    live.end();
}
