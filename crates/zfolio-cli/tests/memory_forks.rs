//! Children of forks see what their parent had, each side keeps its own, and
//! nobody hangs.

mod memory;
mod support;

use memory::Case;
use support::Output;

/// Runs `forks NAME`, which must have forked by libc and raw so often.
#[track_caller]
fn forks(name: &str, libc: u64, raw: u64) -> Option<Output> {
    let output = Case::new("forks", &[name]).run()?;
    let counted = (output.counter("forks"), output.counter("raw_forks"));
    assert!(counted.0 >= libc && counted.1 >= raw, "{name}: {counted:?}");
    Some(output)
}

#[test]
fn the_child_has_it_all() {
    forks("libc", 1, 0);
}

#[test]
fn children_of_children() {
    forks("deep", 3, 0);
}

#[test]
fn who_forks_may_end_at_once() {
    // (Who forks last ends before its fork is counted.)
    forks("daemons", 1, 0);
}

#[test]
fn two_hundred_children() {
    forks("many", 200, 0);
}

#[test]
fn six_children_at_once() {
    forks("brood", 6, 0);
}

#[test]
fn beside_threads_that_write() {
    forks("threads", 12, 0);
    forks("raw_threads", 0, 8);
}

#[test]
fn beside_threads_that_map_and_move() {
    forks("movers", 20, 0);
    forks("raw_movers", 0, 8);
}

#[test]
fn raw_forks() {
    forks("raw", 0, 6);
    forks("raw_then_libc", 0, 1);
}

#[test]
fn among_pages_never_touched() {
    forks("holes", 3, 0);
}

#[test]
fn memory_beside_the_library() {
    let ran = forks("beside_library", 1, 0);
    if ran.is_some_and(|output| output.stdout.contains("nothing is free")) {
        support::skip("the loader left no gap beside the preloaded library");
    }
}

#[test]
fn several_threads_fork() {
    forks("together", 10, 10);
}

#[test]
fn in_a_crowd_that_allocates() {
    forks("crowded", 12, 0);
}

#[test]
fn while_the_manager_is_being_made() {
    // Whoever forks meanwhile waits: none of them is served as a raw fork.
    if let Some(output) = forks("starting", 4, 0) {
        assert_eq!(output.counter("raw_forks"), 0, "{}", output.stats);
    }
}

#[test]
fn exec_spawn_system_vfork() {
    forks("exec", 1, 0);
}

#[test]
fn a_fork_that_fails_changes_nothing() {
    forks("failing", 0, 0);
}

#[test]
fn processes_that_gave_up_rights() {
    forks("undumpable", 1, 0);
    forks("few_files", 1, 0);
    if rustix::process::geteuid().is_root() {
        forks("dropped", 1, 0);
    } else {
        support::skip("dropping privileges needs root");
    }
}
