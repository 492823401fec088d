//! Programs that attack the ways in which the thread that faults serves itself: each theme of
//! `tests/programs/inthread_*.c`, in each way, as a user without privilege.
//!
//! What is run here is what covers most in little time; `inthread_X list` names all cases of a
//! program. What is known not to be as it is bare is in [`KNOWN`] and is not run.

mod memory;
mod nobody;
mod support;

use memory::compiled;
use nobody::{Nobody, WAYS};
use std::io::Write;
use std::process::Command;

/// Less than the programs go over, so that all that is not touched is out.
const HIGH: &str = "12M";

/// Program, case, and why it is not as it is bare (docs/in-thread.md).
const KNOWN: &[(&str, &str, &str)] = &[
    (
        "inthread_coroutines",
        "preemptive",
        "handlers that leave by swapcontext and are come back to",
    ),
    (
        "inthread_fds",
        "few",
        "ends management: a child has no number for what it needs",
    ),
    (
        "inthread_fds",
        "listed",
        "descriptors that serve faults are seen",
    ),
    (
        "inthread_forks",
        "sharing_and_running",
        "ends management: it has no thread-local storage",
    ),
    ("inthread_forks", "vfork_shares", "vfork is a fork"),
    (
        "inthread_forks",
        "not_dumpable",
        "ends management: such a process has no files of its own in /proc",
    ),
    (
        "inthread_limits",
        "most_mappings",
        "slow: tens of thousands of ranges",
    ),
    (
        "inthread_odd",
        "memory_of_who_is_traced",
        "what is out is not there for a tracer",
    ),
    (
        "inthread_regs",
        "gate_of_32_bits",
        "ends management: int $0x80",
    ),
    (
        "inthread_signals",
        "on_the_stack_that_was_interrupted",
        "handlers of SIGSEGV run on the signal stack",
    ),
    (
        "inthread_signals",
        "stacks_that_nobody_uses",
        "faults use the signal stack that is set",
    ),
];

/// Cases of a program, one process for all of them in each way.
#[track_caller]
fn in_each_way(name: &str, cases: &[&str]) {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled(name)) else {
        return;
    };
    for (of, case, why) in KNOWN {
        if *of == name {
            let _ = writeln!(std::io::stderr().lock(), "KNOWN: {of} {case}: {why}");
            assert!(!cases.contains(case), "{case} is known to differ");
        }
    }
    let there = Command::new(&program).arg("list").output().expect("a list");
    let there = String::from_utf8_lossy(&there.stdout).into_owned();
    for case in cases {
        assert!(
            there.lines().any(|line| line == *case),
            "{name} has no {case}"
        );
    }
    let program = nobody.program(&program);
    let mut command = vec![program.to_str().expect("a plain path")];
    command.extend(cases);
    for way in WAYS {
        if let Some(output) = nobody.run(way, HIGH, &command) {
            // (A run in which nothing moved proves nothing.)
            assert!(output.counter("pages_out") > 1000, "{}", output.stats);
        }
    }
}

#[test]
fn files() {
    in_each_way(
        "inthread_files",
        &["between", "extents", "whole", "file_size_limit"],
    );
}

#[test]
fn sockets() {
    let cases = [
        "many_messages",
        "filters",
        "large_datagrams",
        "select_beyond_1024",
    ];
    in_each_way("inthread_sockets", &cases);
}

#[test]
fn calls_that_sleep() {
    in_each_way("inthread_ipc", &["while_asleep", "system_v"]);
}

#[test]
fn calls_that_few_make() {
    in_each_way("inthread_odd", &["memory_seen", "unknown_ones", "traced"]);
}

#[test]
fn registers() {
    in_each_way("inthread_regs", &["vectors"]);
}

/// Sealing and opening choose the widest instructions that there are.
#[test]
fn registers_beside_a_backing() {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("inthread_regs")) else {
        return;
    };
    let program = nobody.program(&program);
    let command = [program.to_str().expect("a plain path"), "vectors"];
    let backing = format!("file:{},size=1G", nobody.directory().display());
    let options = ["--high", HIGH, "--max-pool", "2", "--backing", &backing];
    for way in WAYS {
        if let Some(output) = nobody.run_with(way, &options, &command) {
            output.succeeded();
            for name in ["pswpout", "pswpin"] {
                let count = output.counter(name);
                assert!(count > 500, "{way}: {name} is {count}: {}", output.stats);
            }
        }
    }
}

/// What a system call must not change is changed by nothing of ours but what is called in
/// `zfolio_sys::wide_registers::keeping`.
#[test]
fn only_sealing_uses_wide_registers() {
    // (As names of crates and modules are mangled, with their lengths.)
    const KEPT: [&str; 7] = [
        "3aes",
        "3ctr",
        "5ghash",
        "7polyval",
        "8chacha20",
        "8poly1305",
        "9core_arch",
    ];
    let Some(z) = support::real() else { return };
    let mut command = Command::new("objdump");
    let output = command.args(["-d", "--no-show-raw-insn"]).arg(z.library());
    let Ok(output) = output.output() else {
        support::skip("needs objdump");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut function, mut wide, mut others) = ("", 0, Vec::new());
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(">:") {
            function = name.rsplit('<').next().unwrap_or(name);
        }
        let instruction = line.split('\t').nth(1).unwrap_or_default();
        // (All that have wide vectors or masks begin so, and two others.)
        let is_wide = instruction.starts_with(['v', 'k']) && !instruction.starts_with("ver");
        if is_wide && KEPT.iter().any(|of| function.contains(of)) {
            wide += 1;
        } else if is_wide {
            others.push(format!("{function}: {instruction}"));
        }
    }
    assert_eq!(others, Vec::<String>::new());
    assert!(
        wide > 100,
        "{wide}: the library is not what this test takes it for"
    );
}

#[test]
fn the_address_space() {
    let cases = [
        "protecting",
        "guards",
        "sealing",
        "advising_itself",
        "heap_end",
        "sparse",
        "failing_halfway",
        "resizing_beside_calls",
        "reading_all",
    ];
    in_each_way("inthread_maps", &cases);
}

#[test]
fn signals() {
    let cases = [
        "masks",
        "masks_of_contexts",
        "wait_while_blocked",
        "handlers_while_waiting",
        "identities_while_waiting",
        "handlers_around_calls_with_masks",
        "taken_while_waiting",
        "sent_to_the_process",
        "sent_beside_calls",
        "stacks",
    ];
    in_each_way("inthread_signals", &cases);
}

#[test]
fn threads() {
    let cases = ["signals_on_provided_stacks", "cancelled"];
    in_each_way("inthread_threads", &cases);
}

#[test]
fn threads_that_fault_at_once() {
    let cases = [
        "same_pages",
        "no_write_is_lost",
        "beside_changes",
        "beside_forks",
        "beside_calls",
        "beside_discards",
    ];
    in_each_way("inthread_transit", &cases);
}

#[test]
fn children() {
    let cases = [
        "storm",
        "forks_beside_maps",
        "cleared_and_sharing",
        "exec_in_a_thread",
        "spawned_beside_faults",
        "dropped_at_fork",
        "wiped_at_fork",
        "wiped_untouched",
        "odd_flags",
    ];
    in_each_way("inthread_forks", &cases);
}

#[test]
fn descriptors() {
    let cases = ["all_closed", "tables_apart", "numbers_beside_forks"];
    in_each_way("inthread_fds", &cases);
}

#[test]
fn code_that_is_made() {
    let cases = [
        "code_in_turns",
        "by_several_threads",
        "writable_code",
        "code_mapped_twice",
    ];
    in_each_way("inthread_code", &cases);
}

#[test]
fn sites_of_calls() {
    let cases = [
        "forms",
        "jumped_into",
        "in_a_handler",
        "by_several_at_once",
        "forks_in_a_handler",
    ];
    in_each_way("inthread_sites", &cases);
}

/// However much is reserved, and wherever the kernel puts it: the layout differs from run to run.
#[test]
fn calls_of_libc_become_jumps() {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("inthread_sites")) else {
        return;
    };
    let program = nobody.program(&program);
    let command = [program.to_str().expect("a plain path"), "of_libc"];
    for high in ["16M", "1G", "8G"] {
        for way in WAYS.repeat(4) {
            if let Some(output) = nobody.run_with(way, &["--high", high], &command) {
                output.succeeded();
            }
        }
    }
}

#[test]
fn pages_that_leave_as_they_came() {
    let cases = [
        "by_one",
        "by_several",
        "by_both_sides",
        "beside_a_writer",
        "by_the_kernel",
        "below_a_stack",
    ];
    in_each_way("inthread_clean", &cases);
}

#[test]
fn faults_of_the_programs_own() {
    in_each_way(
        "inthread_barriers",
        &["by_several", "mapped_by_faults", "told"],
    );
}

#[test]
fn faults_on_what_is_ours_no_more() {
    let cases = [
        "protected_beside",
        "locked_beside",
        "mapped_over_beside",
        "barriers_beside",
    ];
    // (A process for each: what one leaves alone the next finds left alone.)
    for case in cases {
        in_each_way("inthread_stale", &[case]);
    }
}

#[test]
fn memory_that_becomes_usable() {
    let cases = [
        "static_data",
        "by_steps",
        "by_pages",
        "at_once",
        "again",
        "prefaulted",
        "mapped_prefaulted",
    ];
    // (A process for each: what one closes the next finds closed.)
    for case in cases {
        in_each_way("inthread_usable", &[case]);
    }
}

#[test]
fn moves_of_several_mappings() {
    let cases = [
        "over_a_hole_between",
        "over_a_hole_behind",
        "of_what_is_not_managed",
        "refused_in_part",
        "sealed_in_part",
        "from_one_to_the_next",
        "cold_and_locked",
    ];
    in_each_way("inthread_moves", &cases);
}

/// What zfolio maps while the program runs does not lie in holes that the program has made.
#[test]
fn holes_that_a_program_maps_over() {
    // (A process for each: what it maps for itself it maps once.)
    for case in ["unmapped_again", "mapped_over", "in_threads", "in_a_child"] {
        in_each_way("inthread_holes", &[case]);
    }
}

/// It leaves as other memory does, and stays read-only.
#[test]
fn memory_made_read_only() {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("inthread_readonly")) else {
        return;
    };
    let program = nobody.program(&program);
    let cases = [
        "leaves",
        "with_barrier",
        "in_parts",
        "forked",
        "calls",
        "moved",
        "discarded",
        "emptied",
        "sparse",
        "over_a_hole",
        "code_that_is_made",
        "beside_threads",
    ];
    for case in cases {
        let command = [program.to_str().expect("a plain path"), case];
        for way in WAYS {
            if let Some(output) = nobody.run(way, HIGH, &command) {
                output.succeeded();
                assert!(output.counter("pages_out") > 1000, "{way}: {case}");
            }
        }
    }
}

/// In-thread it leaves as other memory does; by the other ways it is left alone.
#[test]
fn memory_that_is_written_and_run() {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("inthread_rwx")) else {
        return;
    };
    let program = nobody.program(&program);
    let path = program.to_str().expect("a plain path");
    let cases = [
        "leaves",
        "changes_itself",
        "calls",
        "stacks",
        "forked",
        "protections",
        "moved",
        "discarded",
        "beside_threads",
    ];
    for case in cases {
        if let Some(output) = nobody.run("in-thread", HIGH, &[path, case]) {
            output.succeeded();
            assert!(output.counter("pages_out") > 1000, "{case}");
            let stays = output.counter("stays_executable_bytes");
            assert!(stays < 1 << 20, "{case}: {stays}");
        }
    }
    for way in ["guard", "protect"] {
        if let Some(output) = nobody.run(way, HIGH, &[path, "beside_threads"]) {
            output.succeeded();
        }
    }
}

#[test]
fn many_ranges() {
    in_each_way("inthread_limits", &["mappings", "many_small_ones"]);
}

#[test]
fn calls_where_there_is_no_stack() {
    in_each_way(
        "inthread_stacks",
        &[
            "nothing_below",
            "interrupted",
            "little_stack",
            "left_by_a_jump",
            "forks",
            "side_by_side",
        ],
    );
    // (By itself: once code has run on a stack in managed memory handlers run on the signal stack.)
    in_each_way("inthread_stacks", &["interrupted_there"]);
}

#[test]
fn coroutines() {
    in_each_way("inthread_coroutines", &["from_the_beginning", "jumping"]);
}

#[test]
fn timers() {
    in_each_way("inthread_timers", &["to_threads"]);
}

#[test]
fn threads_that_are_stopped_as_they_run() {
    let cases = [
        "undisturbed",
        "interrupted_as_asked",
        "waited_for",
        "timers_of_its_own",
        "many_threads",
    ];
    in_each_way("inthread_ticks", &cases);
}

#[test]
fn random_calls_beside_a_shadow() {
    in_each_way("inthread_random", &["alone"]);
}
