//! Small programs that attack, each one rule: `tests/programs/attack_*.c`, by messages and, as a
//! user without privilege, by each of the ways in which the thread that faults serves itself.
//!
//! What is run here has been wrong once; `attack_X list` names all cases of a program. What is
//! known not to be as it is bare is in [`KNOWN`] and is not run.

mod memory;
mod nobody;
mod support;

use memory::compiled;
use nobody::{Nobody, WAYS};
use std::io::Write;
use std::process::Command;

/// Less than the programs go over, so that all that is not touched is out.
const HIGH: &str = "12M";

/// Program, case, in which ways, and why it is not as it is bare (docs/limits.md).
const KNOWN: &[(&str, &str, &str, &str)] = &[
    (
        "attack_calls",
        "old_gate",
        "in the thread that faults",
        "pointers of calls by the vsyscall page are not brought",
    ),
    (
        "attack_calls",
        "own_memory_otherwise",
        "message",
        "/proc/self/mem has nothing of what is out",
    ),
    (
        "attack_calls",
        "pages_asked",
        "message",
        "the page map shows what is out as absent",
    ),
    (
        "attack_space",
        "refused_late",
        "message",
        "the kernel tells of an unmapping that it has refused",
    ),
];

/// Cases of a program, one process for all of them in each way; `others` not by messages.
#[track_caller]
fn in_each_way(name: &str, cases: &[&str], others: &[&str]) {
    for (of, case, way, why) in KNOWN {
        if *of == name {
            let _ = writeln!(
                std::io::stderr().lock(),
                "KNOWN: {of} {case} ({way}): {why}"
            );
        }
    }
    let Some(compiled) = compiled(name) else {
        return;
    };
    let mut program = vec![compiled.to_str().expect("a plain path")];
    program.extend(cases);
    if let Some(zfolio) = support::managed() {
        let options = ["--quiet", "--faults", "message", "--high", HIGH];
        zfolio.run_with(&options, &program, "").succeeded();
    }
    let Some(nobody) = Nobody::new() else {
        return;
    };
    let copy = nobody.program(&compiled);
    let mut program = vec![copy.to_str().expect("a plain path")];
    program.extend(cases.iter().chain(others));
    for way in WAYS {
        if let Some(output) = nobody.run_with(way, &["--high", HIGH], &program) {
            output.succeeded();
            // (A run in which nothing moved proves nothing.)
            assert!(output.counter("pages_out") > 1000, "{}", output.stats);
        }
    }
}

/// Cases of a program, one process for each, not by messages.
#[track_caller]
fn in_each_way_alone(name: &str, cases: &[&str]) {
    let (Some(nobody), Some(compiled)) = (Nobody::new(), compiled(name)) else {
        return;
    };
    let copy = nobody.program(&compiled);
    for (way, case) in WAYS
        .iter()
        .flat_map(|way| cases.iter().map(move |case| (*way, *case)))
    {
        let program = [copy.to_str().expect("a plain path"), case];
        if let Some(output) = nobody.run_with(way, &["--high", HIGH], &program) {
            output.succeeded();
            assert!(output.counter("pages_out") > 1000, "{}", output.stats);
        }
    }
}

#[test]
fn pointers_within_pointers() {
    let cases = [
        "new_futexes",
        "upper_halves",
        "maps_asked",
        "larger_clone",
        "descriptor_table",
        "cookie",
        "addresses_set",
    ];
    in_each_way(
        "attack_calls",
        &cases,
        &["own_memory_otherwise", "pages_asked"],
    );
}

#[test]
fn pointers_that_few_calls_have() {
    let cases = ["signals_peeked", "mapped_from_a_socket", "fanned_out"];
    in_each_way("attack_calls", &cases, &[]);
}

/// Only who is privileged has maps, as a rule.
#[test]
fn values_of_maps() {
    let (Some(compiled), Some(zfolio)) = (compiled("attack_calls"), support::managed()) else {
        return;
    };
    let program = [compiled.to_str().expect("a plain path"), "values_of_maps"];
    for way in WAYS {
        let options = ["--quiet", "--faults", way, "--high", HIGH];
        zfolio.run_with(&options, &program, "").succeeded();
    }
}

#[test]
fn the_processors_state_and_stacks() {
    let cases = [
        "alignment_checked",
        "jumped_behind_a_call",
        "small_signal_stack",
        "stacks_that_go",
        "exact_faults",
    ];
    in_each_way("attack_state", &cases, &[]);
    // (Alone: nothing else of the process has run on a stack in managed memory.)
    in_each_way_alone("attack_state", &["quiet_coroutine"]);
}

#[test]
fn handlers_find_things_as_they_are_bare() {
    in_each_way("inthread_handlers", &[], &[]);
}

#[test]
fn several_at_once() {
    let cases = [
        "one_descriptor",
        "places_in_files",
        "advice_moves",
        "advised_with_holes",
        "forks_beside_all",
    ];
    in_each_way("attack_together", &cases, &[]);
}

#[test]
fn calls_in_pieces() {
    let cases = [
        "interrupted_later",
        "interrupted_first",
        "often_interrupted",
        "other_side_closes",
        "connection_reset",
        "descriptors_once",
        "many_vectors",
    ];
    in_each_way("attack_pieces", &cases, &["little_is_kept"]);
}

#[test]
fn terabytes_of_nothing() {
    let cases = [
        "by_several_threads",
        "changed_as_a_whole",
        "made_usable",
        "more_than_a_number",
        "left",
    ];
    in_each_way_alone("attack_wide", &cases);
}

#[test]
fn memory_of_calls_that_sleep() {
    let cases = ["far_buffers", "crowd_in_calls", "changed_under_a_call"];
    in_each_way("attack_calls", &cases, &[]);
}

#[test]
fn ends_and_signals() {
    let cases = [
        "shared_lock_behind_a_cold_one",
        "single_steps",
        "calls_go_on",
        "calls_go_on_blocked",
        "disarmed_stack",
        "stacks_of_signals",
        "sequences_elsewhere",
        "last_thread_ends",
    ];
    in_each_way("attack_life", &cases, &[]);
}

#[test]
fn children_that_share_for_a_while() {
    in_each_way("attack_life", &["spawned_over_descriptors"], &[]);
}

#[test]
fn sandboxes() {
    let cases = [
        "few_calls",
        "filter_for_all",
        "answered_by_a_handler",
        "strict",
    ];
    in_each_way("attack_life", &cases, &[]);
    in_each_way("attack_life", &["sandboxed_while_sharing"], &[]);
}

#[test]
fn the_address_space() {
    let cases = [
        "no_and_all_lengths",
        "never_executable",
        "lock_refused",
        "advised_otherwise",
        "faults_by_the_device",
        "moved_and_kept",
        "sealed_part",
    ];
    in_each_way("attack_space", &cases, &["refused_late"]);
}

#[test]
fn memory_at_address_0() {
    // (Whom the kernel lets map it: root, mostly.)
    let (Some(zfolio), Some(program)) = (support::real(), compiled("attack_space")) else {
        return;
    };
    let program = program.to_str().expect("a plain path");
    let bare = Command::new(program).arg("address_0").output();
    let told = bare.expect("the program runs").stderr;
    if told.starts_with(b"SKIP") {
        return support::skip(&String::from_utf8_lossy(&told));
    }
    let works = zfolio.command(["doctor"]).output().expect("doctor").stdout;
    let works = String::from_utf8_lossy(&works).into_owned();
    for way in WAYS.into_iter().chain(["message"]) {
        if !works.contains(&format!("--faults {way} works\n")) {
            support::skip(&format!("--faults {way}: {works}"));
            continue;
        }
        let options = ["--quiet", "--faults", way, "--high", HIGH];
        let output = zfolio.run_with(&options, &[program, "address_0"], "");
        output.succeeded();
        assert!(!output.stderr.contains("SKIP"), "{way}: {}", output.stderr);
        assert!(
            output.counter("pages_out") > 1000,
            "{way}: {}",
            output.stats
        );
    }
}
