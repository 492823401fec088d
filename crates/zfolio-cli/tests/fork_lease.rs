//! Forks whose child does not answer, or is not where its parent would look for it.

mod memory;
mod support;

use memory::compiled;
use support::Output;

#[track_caller]
fn lease(options: &[&str], args: &[&str]) -> Option<Output> {
    let z = support::by_messages()?;
    let path = compiled("lease")?;
    let path = path.to_str().expect("a plain path");
    let options = [&["--quiet", "--high", "32M"], options].concat();
    let output = z.run_with(&options, &[&[path], args].concat(), "");
    output.succeeded();
    assert!(output.counter("pages_out") > 10_000, "{}", output.stats);
    Some(output)
}

#[test]
fn a_stopped_child_stops_nobody() {
    if let Some(output) = lease(&[], &["stopped"]) {
        let expired = output.counter("fork_leases_expired");
        assert!((1..=6).contains(&expired), "{expired} of 6");
    }
}

#[test]
fn what_a_parent_does_while_its_child_is_late_is_not_the_childs() {
    lease(&[], &["late"]);
}

#[test]
fn forks_beside_locked_memory_that_grows_where_something_was() {
    if let Some(output) = lease(&[], &["locked"]) {
        assert!(output.counter("left_to_the_kernel") > 0, "{}", output.stats);
    }
}

#[test]
fn a_signal_handler_forks_within_a_fork() {
    if let Some(output) = lease(&[], &["handler"]) {
        assert_eq!(output.counter("fork_leases_expired"), 0);
    }
}

#[test]
fn a_long_line_of_forks_leaves_no_mappings() {
    lease(&[], &["line", "80"]);
}

#[test]
fn process_one_of_a_pid_namespace_has_its_memory() {
    let Some(output) = lease(&[], &["namespace"]) else {
        return;
    };
    if output.stdout.contains("no namespace") {
        support::skip("pid namespaces cannot be made here");
        return;
    }
    let dir = support::tempdir();
    let backing = format!("file:{},size=1G", dir.path().display());
    lease(&["--backing", &backing], &["namespace"]);
}
