//! `zfolio bench` as a command: what is refused. (What it measures is tested
//! beside the code: a whole experiment takes long in a debug build.)

mod support;

use support::{finish, tempdir, zfolio};

/// Refused at once by every experiment, in one line.
#[track_caller]
fn refused(args: &[&str], status: i32, told: &str) {
    for experiment in ["zsmalloc", "compaction"] {
        let command = [&["bench", experiment], args].concat();
        let output = finish(&mut zfolio().command(&command), "");
        assert_eq!(output.status.code(), Some(status), "{}", output.stderr);
        assert_eq!(output.stdout, "");
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert!(output.stderr.starts_with("zfolio: "), "{}", output.stderr);
        assert!(output.stderr.contains(told), "{}", output.stderr);
    }
}

#[test]
fn mistakes_are_told_before_the_work_begins() {
    refused(&["--runs", "0"], 2, "--runs");
    refused(&["--runs", "many"], 2, "--runs");
    refused(&["--seed", "-1"], 2, "-1");
    refused(&["more"], 2, "more");
    refused(&["--json", "/no/such/directory/x.json"], 73, "--json");
    refused(&["--plot", "/"], 73, "--plot");
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_other_alone() {
    let dir = tempdir();
    let json = dir.path().join("out.json");
    let json = json.to_str().expect("a plain path");
    refused(&["--json", json, "--plot", "/no/such/x.svg"], 73, "--plot");
    let left = std::fs::read_dir(dir.path()).expect("a directory").count();
    assert_eq!(left, 0);
}
