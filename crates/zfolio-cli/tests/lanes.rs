//! `tests/lanes`, which runs the test binaries for the gate: with a stand-in for cargo, whose
//! binaries are scripts that write down when they begin and end.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{Output, finish, processes, script, skip, tempdir};
use tempfile::TempDir;

/// As cargo does: it calls its runner for each binary, in the package's directory, and for a doc
/// test, whose binary lies elsewhere.
const CARGO: &str = r#"#!/usr/bin/env python3
import json, os, subprocess, sys
here = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
assert sys.argv[1] == "--config" and sys.argv[3:] == ["test", "--workspace", "--locked"], sys.argv
runner = json.loads(sys.argv[2].partition("=")[2])
for line in open(here + "/binaries"):
    package, name = line.split()
    environment = {**os.environ, "CARGO_PKG_NAME": package, "LOG": here + "/log", "NAME": name}
    os.makedirs(f"{here}/{package}", exist_ok=True)
    subprocess.check_call([*runner, f"{here}/deps/{name}-0123abcd"], cwd=f"{here}/{package}", env=environment)
status = subprocess.call([*runner, here + "/doc/test"], env={**os.environ, "LOG": here + "/log"})
sys.exit(status)
"#;

/// A binary: half a second, and `status` at its end.
fn binary(dir: &Path, name: &str, status: u8) {
    let text = format!(
        "#!/bin/sh\necho begin $NAME >>$LOG\necho \"$NAME in ${{PWD##*/}}\"\necho \"$NAME errs\" >&2\n\
         sleep 0.5\necho end $NAME >>$LOG\nexit {status}\n"
    );
    script(dir, &format!("deps/{name}-0123abcd"), &text);
}

/// A place for them; `None` after saying that there is no Python.
fn checkout() -> Option<TempDir> {
    if Command::new("python3").arg("--version").output().is_err() {
        skip("no python3");
        return None;
    }
    let dir = tempdir();
    for part in ["bin", "deps", "doc"] {
        fs::create_dir(dir.path().join(part)).expect("made");
    }
    script(&dir.path().join("bin"), "cargo", CARGO);
    Some(dir)
}

/// `tests/lanes WORDS`, and what the binaries wrote down.
fn lanes(dir: &Path, words: &[&str]) -> (Output, Vec<String>) {
    let lanes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/lanes");
    let mut command = Command::new(lanes);
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(words);
    command.env("PATH", format!("{}/bin:{path}", dir.display()));
    let output = finish(&mut command, "");
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    let _ = fs::remove_file(dir.join("log"));
    (output, log.lines().map(str::to_owned).collect())
}

#[test]
fn binaries_run_two_at_a_time_and_all_whatever_fails() {
    let Some(dir) = checkout() else { return };
    let dir = dir.path();
    script(
        &dir.join("doc"),
        "test",
        "#!/bin/sh\necho doc >>$LOG; exit 0\n",
    );
    // One that must be alone, one that no list has, one that takes long.
    let binaries = "zfolio-cli peers\nzfolio-cli small\nzfolio-cli life\nzfolio other\n";
    fs::write(dir.join("binaries"), binaries).expect("written");
    for (name, status) in [("peers", 0), ("small", 7), ("life", 0), ("other", 0)] {
        binary(dir, name, status);
    }
    let (output, log) = lanes(dir, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    let told = &output.stdout;
    for part in [
        "life in zfolio-cli\nlife errs\n",
        "other in zfolio\nother errs\n",
        "small errs",
        "zfolio-cli/small FAILED with status 7 after ",
        "lanes: 4 binaries, ",
        " 1 failed\nlanes: failed: zfolio-cli/small\n",
    ] {
        assert!(told.contains(part), "no {part:?}:\n{told}");
    }
    // The doc test as cargo comes to it; the longest first, beside the next; one alone at the end.
    assert_eq!(log[0], "doc");
    let mut first = [&*log[1], &log[2]];
    first.sort_unstable();
    assert_eq!(first, ["begin life", "begin small"], "{log:?}");
    assert_eq!(log[7..], ["begin peers", "end peers"], "{log:?}");

    let mark = dir.join("mark");
    let also = format!("echo also >{}; exit 4", mark.display());
    let (output, log) = lanes(dir, &["--only", "zfolio/", "--also", &also]);
    assert_eq!(log, ["doc", "begin other", "end other"]);
    assert_eq!(fs::read_to_string(&mark).expect("it ran"), "also\n");
    assert!(
        output.stdout.contains("lanes: 2 binaries, "),
        "{}",
        output.stdout
    );
    assert_eq!(output.status.code(), Some(1));

    // One at a time; a binary that hangs is ended.
    binary(dir, "other", 0);
    script(dir, "deps/life-0123abcd", "#!/bin/sh\nexec sleep 60\n");
    let (output, log) = lanes(dir, &["--lanes", "1", "--seconds", "2", "--only", "i"]);
    let told = &output.stdout;
    assert!(told.contains("has not ended in 2 s; what runs:"), "{told}");
    assert!(told.contains("lanes: failed: zfolio-cli/life"), "{told}");
    let order = [
        "doc",
        "begin small",
        "end small",
        "begin other",
        "end other",
        "begin peers",
        "end peers",
    ];
    assert_eq!(log, order);
}

#[test]
fn what_does_not_build_is_its_status() {
    let Some(dir) = checkout() else { return };
    let dir = dir.path();
    script(&dir.join("bin"), "cargo", "#!/bin/sh\nexit 101\n");
    let (output, _) = lanes(dir, &[]);
    assert_eq!(output.status.code(), Some(101), "{}", output.stdout);
    script(&dir.join("bin"), "cargo", "#!/bin/sh\nexit 0\n");
    let (output, _) = lanes(dir, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", output.stdout);
    assert!(
        output.stderr.contains("no test binary"),
        "{}",
        output.stderr
    );
    // A doc test that fails ends it before the binaries run.
    script(&dir.join("bin"), "cargo", CARGO);
    script(&dir.join("doc"), "test", "#!/bin/sh\nexit 9\n");
    fs::write(dir.join("binaries"), "zfolio other\n").expect("written");
    binary(dir, "other", 0);
    let (output, log) = lanes(dir, &[]);
    assert_eq!(output.status.code(), Some(9), "{}", output.stdout);
    assert!(log.is_empty(), "{log:?}");
    let (output, _) = lanes(dir, &["--lanes", "0"]);
    assert_eq!(output.status.code(), Some(2));
    // Nothing to run, or what cannot be started, is no success.
    script(&dir.join("doc"), "test", "#!/bin/sh\nexit 0\n");
    let (output, _) = lanes(dir, &["--only", "nobody"]);
    assert_eq!(output.status.code(), Some(1), "{}", output.stdout);
    fs::remove_file(dir.join("deps/other-0123abcd")).expect("removed");
    let (output, _) = lanes(dir, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", output.stdout);
}

/// Of the tests' own harness: it tells what it waits for, and goes on.
#[test]
fn what_does_not_end_is_told_and_killed() {
    let mut pid = 0;
    let mut run = |script: &str, limit: u64| {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let limit = Duration::from_secs(limit);
        processes::run_to_end(&mut command, "a line\n", limit, |its| pid = its)
    };
    let ended = run("cat; echo told >&2; exit 3", 60).expect("it ends");
    assert_eq!(ended.status.code(), Some(3));
    assert_eq!((&*ended.stdout, &*ended.stderr), ("a line\n", "told\n"));
    // (The script itself is in what is told, as a part of the command.)
    let tells = |told: &str, words: &[&str]| {
        for word in words {
            assert!(told.contains(word), "{word}: {told}");
        }
    };
    let told = run("sleep 72 & echo right; exit 4", 5).expect_err("it is held");
    tells(&told, &["status: 4", ": sleep 72 \n", "stdout:\nright\n"]);
    let told = run("echo begun; sleep 71", 5).expect_err("it goes on");
    tells(&told, &["still ran", ": sleep 71 \n", "stdout:\nbegun\n"]);
    let gone = || !Path::new(&format!("/proc/{pid}/exe")).exists();
    let is_killed = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        gone()
    });
    assert!(is_killed, "{told}");
}
