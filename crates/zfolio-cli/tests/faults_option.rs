//! `zfolio run --faults`: which way is taken, what is refused and with which status, and where
//! each way is shown. As root (or whoever runs the tests), as a user who may nothing, behind a
//! filter that refuses userfaultfd as containers' do, and behind one that refuses all ways.

#[path = "support/nobody.rs"]
mod nobody;
mod support;

use nobody::Nobody;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::{Guard, Output, compile, finish, managed, skip, tempdir, zfolio};

/// The ways without privilege.
const OTHERS: [&str; 3] = ["in-thread", "guard", "protect"];
/// What only messages have.
const NEED_MESSAGES: [[&str; 2]; 3] = [
    ["--engines", "1"],
    ["--page-cluster", "7"],
    ["--folio", "512K"],
];

/// Refused before anything was started: one line with what to do, and this status.
#[track_caller]
fn refused(output: &Output, status: i32, words: &[&str]) {
    let told = &output.stderr;
    assert_eq!(output.status.code(), Some(status), "{told}");
    assert_eq!(output.stdout, "", "the program was started");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.starts_with("zfolio: ") && told.contains("; "),
        "{told}"
    );
    for word in words {
        assert!(told.contains(word), "{word:?} is not in {told}");
    }
}

/// Whether a way works, as `told` by doctor.
fn works(told: &str, way: &str) -> bool {
    told.contains(&format!("--faults {way} works\n"))
}

fn doctor() -> String {
    finish(&mut zfolio().command(["doctor"]), "").stdout
}

#[test]
fn a_way_and_an_option_that_it_lacks_contradict() {
    for way in OTHERS {
        for option in NEED_MESSAGES {
            let args = [&["run", "--faults", way][..], &option, &["--", "echo", "x"]].concat();
            let output = finish(&mut zfolio().command(args), "");
            refused(&output, 2, &[option[0], "--faults message only", way]);
        }
    }
}

#[test]
fn options_that_need_messages_have_them_where_they_are_permitted() {
    let Some(z) = managed() else { return };
    if !works(&doctor(), "message") {
        return skip("messages are not permitted here");
    }
    for option in NEED_MESSAGES {
        let mut command = z.command(["run", "--stats", "/dev/stdout", "--quiet"]);
        let output = finish(command.args(option).args(["--", "true"]), "");
        let stats: Value = serde_json::from_str(&output.succeeded().stdout).expect("JSON");
        assert_eq!(stats["config"]["faults"], "message", "{option:?}");
        assert_eq!(stats["config"]["faults_asked"], "auto", "{option:?}");
    }
}

#[test]
fn without_privilege_what_needs_messages_is_refused_and_the_rest_goes_another_way() {
    let Some(nobody) = Nobody::new() else { return };
    let told = nobody.zfolio(&["doctor"]).stdout;
    if works(&told, "message") {
        return skip("messages are permitted to everybody here");
    }
    let row = told.split_once("\nwarn  faults by message");
    let (_, rest) = row.unwrap_or_else(|| panic!("{told}"));
    let mend = rest.lines().nth(1).unwrap_or_default();
    assert!(mend.starts_with("      mend: "), "{told}");

    let asked = nobody.run(&["--faults", "message", "--", "echo", "x"]);
    refused(
        &asked,
        71,
        &["--faults message", "userfaultfd", "zfolio doctor"],
    );
    for option in NEED_MESSAGES {
        let args = [&option[..], &["--", "echo", "x"]].concat();
        refused(
            &nobody.run(&args),
            71,
            &[option[0], "--faults message only"],
        );
    }

    let first = OTHERS.into_iter().find(|way| works(&told, way));
    let Some(first) = first else {
        return skip(&format!("no way works: {told}"));
    };
    let output = nobody.run(&["--", "true"]);
    let config = &output.succeeded().stats["config"];
    assert_eq!(config["faults"], first);
    assert_eq!(config["faults_asked"], "auto");
    // (What comes after the first that works is not tried.)
    let why = config["faults_refused"]["message"].as_str();
    match first {
        "in-thread" => assert_eq!(why, None, "{config}"),
        _ => assert!(
            why.is_some_and(|why| why.contains("userfaultfd")),
            "{config}"
        ),
    }
}

#[test]
fn in_thread_is_the_default_with_privilege_too() {
    let Some(z) = managed() else { return };
    let first = ["in-thread", "message", "guard", "protect"]
        .into_iter()
        .find(|way| works(&doctor(), way));
    let mut command = z.command(["run", "--stats", "/dev/stdout", "--quiet"]);
    let output = finish(command.args(["--", "true"]), "");
    let stats: Value = serde_json::from_str(&output.succeeded().stdout).expect("JSON");
    assert_eq!(stats["config"]["faults"].as_str(), first);
    assert_eq!(stats["config"]["faults_asked"], "auto");
}

#[test]
fn stat_shows_how_faults_are_told() {
    const SCRIPT: &str = "
import os, time
blocks = [os.urandom(500) * 2 for _ in range(60000)]
print('ready', flush=True)
time.sleep(600)
";
    let Some(nobody) = Nobody::new() else { return };
    let told = nobody.zfolio(&["doctor"]).stdout;
    for way in OTHERS.into_iter().filter(|way| works(&told, way)) {
        let mut command = nobody.command(nobody.exe());
        command.args(["run", "--quiet", "--faults", way, "--high", "32M"]);
        command.args(["--", "python3", "-c", SCRIPT]);
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = Guard(child.expect("it starts"));
        let mut line = String::new();
        let out = child.0.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        let table = nobody.zfolio(&["stat", &child.0.id().to_string()]);
        let rows: Vec<Vec<&str>> = table
            .succeeded()
            .stdout
            .lines()
            .skip(1)
            .map(|row| row.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0][3], "FAULTS", "{}", table.stdout);
        assert_eq!(rows[1][2..4], ["managing", way], "{}", table.stdout);
    }
}

/// Runs a command behind a filter of system calls; `None` without a C compiler.
struct Filter {
    _dir: tempfile::TempDir,
    program: PathBuf,
}

impl Filter {
    /// One that refuses userfaultfd, as containers' do.
    fn of_containers() -> Option<Self> {
        Self::compiled(include_str!("../../../tests/programs/refuse.c"))
    }

    /// One that refuses Syscall User Dispatch as well, so that no way is left.
    fn of_all_ways() -> Option<Self> {
        const SOURCE: &str = r#"
#include "refuse.h"
#include <stdio.h>
int main(int argc, char **argv) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 59 /* SET_SYSCALL_USER_DISPATCH */, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (argc < 2 || refuse_userfaultfd() != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0) {
        perror("filter");
        return 99;
    }
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return 99;
}
"#;
        Self::compiled(SOURCE)
    }

    fn compiled(source: &str) -> Option<Self> {
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../tests/programs");
        let dir = tempdir();
        let Some(program) = compile(dir.path(), "filter", source, &[include]) else {
            skip("no cc");
            return None;
        };
        Some(Self { _dir: dir, program })
    }

    fn zfolio(&self, args: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.env("ZFOLIO_PRELOAD", zfolio().library());
        finish(command.arg(zfolio().exe()).args(args), "")
    }
}

#[test]
fn where_userfaultfd_is_refused_the_doctor_names_another_way() {
    let Some(filter) = Filter::of_containers() else {
        return;
    };
    let told = filter.zfolio(&["doctor"]).succeeded().stdout.clone();
    for words in [
        "\nwarn  userfaultfd ",
        "\nwarn  regions ",
        "\nwarn  faults in-thread           --faults in-thread does not: userfaultfd for user \
         faults: Operation not permitted",
        "mend: zfolio doctor --seccomp-profile FILE >zfolio.json",
        "\nok    faults by protect          --faults protect works",
        "\nThis machine can run managed programs (`zfolio run`), by --faults ",
        "\nRegions work, by PROT_NONE and SIGSEGV, which is slower (userfaultfd is refused: \
         Operation not permitted",
    ] {
        assert!(told.contains(words), "{words:?} is not in {told}");
    }
    let json = filter.zfolio(&["doctor", "--json"]);
    let json: Value = serde_json::from_str(&json.succeeded().stdout).expect("JSON");
    let next = json["next"].as_str().expect("a command");
    assert!(
        next.starts_with("zfolio run ") && next.ends_with("-- CMD"),
        "{next}"
    );
    let last = told.lines().last().expect("lines");
    assert!(last.starts_with("Next: "), "{told}");
    assert!(told.contains("\n--faults message would need: "), "{told}");
    assert_eq!(json["regions"]["way"], "protection");
    assert_eq!(json["usable"], true);
    let way = json["faults"].as_str().expect("a way");
    assert!(["guard", "protect"].contains(&way), "{way}");

    let asked = filter.zfolio(&["run", "--faults", "in-thread", "--", "echo", "x"]);
    refused(
        &asked,
        71,
        &["--faults in-thread", "not permitted", "zfolio doctor"],
    );
    let stats = ["run", "--quiet", "--stats", "/dev/stdout", "--", "true"];
    let output = filter.zfolio(&stats);
    let stats: Value = serde_json::from_str(&output.succeeded().stdout).expect("JSON");
    assert_eq!(stats["config"]["faults"], way);
    assert!(stats["config"]["faults_refused"]["in-thread"].is_string());
}

#[test]
fn where_no_way_works_nothing_is_started() {
    let Some(filter) = Filter::of_all_ways() else {
        return;
    };
    let doctor = filter.zfolio(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(78), "{}", doctor.stdout);
    for words in ["\nFAIL  faults by message", "\nFAIL  faults by guard"] {
        assert!(doctor.stdout.contains(words), "{}", doctor.stdout);
    }
    let last = doctor.stdout.lines().last().unwrap_or_default();
    assert!(last.starts_with("Next: ") && last.len() > 10, "{last}");
    for asked in ["auto", "message", "protect"] {
        let output = filter.zfolio(&["run", "--faults", asked, "--", "echo", "x"]);
        refused(
            &output,
            71,
            &[&format!("--faults {asked}"), "zfolio doctor"],
        );
    }
    let dir = tempdir();
    let file = dir.path().join("stats.json");
    let stats = file.to_str().expect("a plain path");
    let all_the_same = [
        "run",
        "--allow-unmanaged",
        "--stats",
        stats,
        "--",
        "echo",
        "x",
    ];
    let output = filter.zfolio(&all_the_same);
    assert_eq!(output.succeeded().stdout, "x\n");
    let stats = fs::read_to_string(file).expect("statistics");
    let stats: Value = serde_json::from_str(&stats).expect("JSON");
    assert_eq!(stats["config"]["faults"], Value::Null);
    assert_eq!(stats["processes_managed"], 0);
}
