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

/// A library with a thread of its own as soon as it is loaded (OpenBLAS, jemalloc's background threads), and a
/// program that is linked to it. Calls must be seen before that thread is there.
#[test]
fn a_library_starts_a_thread_as_it_is_loaded() {
    const LIBRARY: &str = "
#include <pthread.h>
#include <unistd.h>
volatile long turns;
static void *life(void *of) {
    for (;; turns++) usleep(200);
    return of;
}
__attribute__((constructor)) static void loaded(void) {
    pthread_t thread;
    pthread_create(&thread, 0, life, 0);
}";
    const PROGRAM: &str = "
#include <stdlib.h>
extern volatile long turns;
enum { WORDS = 12 << 20 };
int main(void) {
    long *words = malloc(WORDS * sizeof *words);
    for (long turn = 0; turn < 2; turn++) {
        for (long i = 0; i < WORDS; i++) words[i] = i / 8 + turn;
        for (long i = 0; i < WORDS; i++)
            if (words[i] != i / 8 + turn) return 1;
    }
    return turns > 0 ? 0 : 2;
}";
    let Some(nobody) = Nobody::new() else { return };
    let dir = support::tempdir();
    let library = support::compile(
        dir.path(),
        "libstarter.so",
        LIBRARY,
        &["-shared", "-fPIC", "-pthread"],
    );
    let place = format!("-L{}", dir.path().display());
    let linked = [&*place, "-lstarter", "-Wl,-rpath,$ORIGIN"];
    let (Some(library), Some(program)) = (
        library,
        support::compile(dir.path(), "started", PROGRAM, &linked),
    ) else {
        return support::skip("no C compiler");
    };
    nobody.program(&library);
    let program = nobody.program(&program);
    let program = program.to_str().expect("a plain path");
    for way in WAYS {
        if let Some(output) = nobody.run(way, "32M", &[program]) {
            assert!(output.counter("pages_out") > 1000, "{}", output.stats);
        }
    }
}

/// The child of a fork that becomes another program, or runs on, and a child that shares its parent's memory until
/// then: each is one process.
#[test]
fn a_process_that_becomes_another_program_counts_once() {
    let Some(nobody) = Nobody::new() else { return };
    let script = "/bin/true & wait; (:) & wait; \
        exec python3 -S -c 'import os; os.waitpid(os.posix_spawn(\"/bin/true\", [\"true\"], {**os.environ}), 0)'";
    for way in WAYS {
        let Some(output) = nobody.run_with(way, &["--high", "64M"], &["bash", "-c", script]) else {
            continue;
        };
        output.succeeded();
        // (The shell, which becomes Python, and three children.)
        assert_eq!(
            output.stats["processes_loaded"], 4,
            "{way}: {}",
            output.stats
        );
    }
}

/// Zspages of which half the objects are gone are compacted by who makes room, and every byte is right.
#[test]
fn zspages_that_run_half_empty_are_compacted() {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("scattered")) else {
        return;
    };
    let program = nobody.program(&program);
    let program = program.to_str().expect("a plain path");
    let options = ["--high", "32M", "--compressor", "lz4"];
    for way in WAYS {
        let Some(output) = nobody.run_with(way, &options, &[program]) else {
            continue;
        };
        output.succeeded();
        let mm_stat = &output.stats["total"]["mm_stat"];
        assert!(
            mm_stat["pages_compacted"].as_u64() > Some(32),
            "{way}: {mm_stat}"
        );
        assert!(
            output.counter("objs_moved_pressure") > 0,
            "{way}: {mm_stat}"
        );
    }
}
