//! How a program with memory moved out ends, and what few programs do.

mod memory;
mod support;

use memory::compiled;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use support::Output;

/// Runs a program of tests/programs; asserts that memory was out at the time.
#[track_caller]
fn odd(program: &str, args: &[&str]) -> Option<Output> {
    let z = support::by_messages()?;
    let path = compiled(program)?;
    let path = path.to_str().expect("a plain path");
    let options = ["--quiet", "--high", "16M"];
    let command = [&[path, "1"], args].concat();
    support::until(
        || Some(z.run_with(&options, &command, "")),
        |output| {
            let absent = output
                .stdout
                .lines()
                .find_map(|line| line.strip_prefix("absent "))
                .and_then(|rest| rest.split(' ').next())
                .and_then(|number| number.parse::<usize>().ok());
            support::check(absent > Some(90), || {
                format!("{}{}", output.stdout, output.stderr)
            })
        },
    )
}

#[track_caller]
fn ends(program: &str, args: &[&str], status: i32) -> Option<Output> {
    let output = odd(program, args)?;
    assert_eq!(
        output.status.code(),
        Some(status),
        "{args:?}: {}{}",
        output.stdout,
        output.stderr
    );
    Some(output)
}

#[test]
fn the_status_is_the_programs() {
    for (how, status) in [
        ("exit", 31),
        ("_exit", 32),
        ("return", 37),
        ("exit_group", 35),
        ("pthread_exit", 36),
    ] {
        ends("life_end", &[how], status);
    }
    for (how, signal) in [("abort", 6), ("kill", 9), ("segv", 11)] {
        if let Some(output) = odd("life_end", &[how]) {
            assert_eq!(output.status.signal(), Some(signal), "{how}");
        }
    }
}

#[test]
fn members_of_a_tree_are_killed() {
    ends("life_end", &["killed_children"], 33);
    if let Some(output) = ends("life_end", &["killed_parent"], 34) {
        let all = "children that lived on 8 of 8";
        assert!(output.stdout.contains(all), "{}", output.stdout);
    }
}

#[test]
fn its_own_userfaultfd() {
    // Too small to be managed: it works. Managed memory: EBUSY is the answer.
    if let Some(output) = ends("life_odd", &["uffd_small"], 0) {
        assert!(
            output.stdout.contains("register 0 errno 0"),
            "{}",
            output.stdout
        );
    }
    if let Some(output) = ends("life_odd", &["uffd_large"], 0) {
        assert!(
            output.stdout.contains("register -1 errno 16"),
            "{}",
            output.stdout
        );
    }
}

#[test]
fn its_own_seccomp_filter() {
    // For its own thread only: the manager is not concerned.
    for filter in ["uffd", "ioctl", "madvise", "strict"] {
        ends("life_odd", &["seccomp", filter], 0);
    }
    // For all threads: what the manager needs at the start only may go.
    ends("life_odd", &["seccomp_tsync", "uffd"], 0);
    // Else the process ends, and says so or dies of the filter.
    ends("life_odd", &["seccomp_tsync", "ioctl"], 70);
    if let Some(output) = odd("life_odd", &["seccomp_kill", "ioctl"]) {
        assert_eq!(output.status.signal(), Some(31), "{}", output.status);
    }
}

/// The manager's threads end one by one, holding what they hold.
#[test]
fn a_filter_that_kills_threads_ends_the_process() {
    if let Some(output) = ends("life_odd", &["seccomp_kill_thread", "ioctl"], 70) {
        let told = output.stderr.matches(" ended: ").count();
        assert_eq!(told, 1, "{}", output.stderr);
        assert!(output.stderr.contains("30 seconds"), "{}", output.stderr);
        // Thirty turns of the watchdog, each a little more than a second.
        assert!(output.wall < Duration::from_secs(180), "{:?}", output.wall);
    }
    // With the watchdog among them `zfolio run` notices.
    if let Some(output) = ends("life_odd", &["seccomp_kill_thread", "waits"], 70) {
        let told = output.stderr.matches(" ended: the threads").count();
        assert_eq!(told, 1, "{}", output.stderr);
    }
    // What it does not need is killed for, and nobody notices.
    ends("life_odd", &["seccomp_kill_thread", "uffd"], 0);
}

#[test]
fn locking_all_that_comes_in() {
    ends("life_odd", &["mlockall_onfault"], 0);
}
