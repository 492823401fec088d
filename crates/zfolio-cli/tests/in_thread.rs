//! The ways in which the thread that faults serves itself: without any privilege.

mod memory;
mod nobody;
mod support;

use memory::compiled;
use nobody::{Nobody, WAYS};

/// A case of `inthread.c` in each of the ways.
#[track_caller]
fn in_each_way(case: &str) {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("inthread")) else {
        return;
    };
    let program = nobody.program(&program);
    let program = program.to_str().expect("a plain path");
    for way in WAYS {
        if let Some(output) = nobody.run(way, "32M", &[program, case]) {
            assert!(output.counter("pages_out") > 1000, "{}", output.stats);
            assert!(output.counter("pages_in") > 300, "{}", output.stats);
            // What it cost is counted as well.
            let faults = &output.stats["total"]["faults"]["all"];
            assert!(faults["count"].as_u64() > Some(0), "{}", output.stats);
            assert!(faults["p50_ns"].as_u64() > Some(0), "{}", output.stats);
            assert!(output.counter("high_stall_ns") > 0, "{}", output.stats);
        }
    }
}

#[test]
fn calls_do_what_they_do_bare() {
    in_each_way("calls");
}

#[test]
fn calls_keep_their_pages_from_other_threads() {
    in_each_way("race");
}

#[test]
fn signals_and_jumps() {
    in_each_way("signals");
}

#[test]
fn locks_that_the_kernel_walks() {
    in_each_way("locks");
}

#[test]
fn programs_become_others() {
    in_each_way("exec");
}

#[test]
fn children_wait_for_their_parent_and_share_its_descriptors() {
    in_each_way("tasks");
}

#[test]
fn calls_that_fail_in_part_and_memory_the_kernel_knows() {
    in_each_way("space");
}

/// An interpreter with a pool of children, which share `high` with it.
#[test]
fn a_real_program_and_its_children() {
    const SCRIPT: &str = "
import hashlib, os, subprocess
blocks = [bytes([i % 251]) * 3000 + os.urandom(1000) for i in range(16000)]
want = [hashlib.sha256(b).digest() for b in blocks]
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if all(hashlib.sha256(b).digest() == w for b, w in zip(blocks, want)) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert subprocess.run(['echo', 'x'], capture_output=True).stdout == b'x\\n'
assert all(hashlib.sha256(b).digest() == w for b, w in zip(blocks, want))
print('right')
";
    let Some(nobody) = Nobody::new() else {
        return;
    };
    for way in WAYS {
        if let Some(output) = nobody.run(way, "40M", &["python3", "-c", SCRIPT]) {
            assert_eq!(output.stdout, "right\n");
            assert!(output.counter("pages_out") > 3000, "{}", output.stats);
            assert!(output.counter("forks") >= 3, "{}", output.stats);
        }
    }
}

/// What mremap adds is memory that no fault tells of.
#[test]
fn a_buffer_that_grows_keeps_to_high() {
    const SCRIPT: &str = "
grown, piece = bytearray(), bytes(range(256)) * 4096
for _ in range(96):
    grown += piece
assert all(grown[i << 20:(i + 1) << 20] == piece for i in range(96))
print('right')
";
    let Some(nobody) = Nobody::new() else {
        return;
    };
    for way in WAYS {
        if let Some(output) = nobody.run(way, "40M", &["python3", "-c", SCRIPT]) {
            assert_eq!(output.stdout, "right\n");
            let peak = output.stats["total"]["resident_peak_bytes"].as_u64();
            assert!(peak < Some(44 << 20), "{way}: {peak:?}");
        }
    }
}
