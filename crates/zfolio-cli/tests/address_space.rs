//! Changes of the address space that the kernel does not tell of.

mod memory;
mod support;

use memory::compiled;

#[test]
fn what_is_unmapped_without_an_event_is_noticed() {
    let (Some(z), Some(path)) = (support::by_messages(), compiled("lost")) else {
        return;
    };
    let path = path.to_str().expect("a plain path");
    let mut lost = 0;
    for state in ["present", "out"] {
        for after in ["fill", "leave"] {
            let options = ["--quiet", "--high", "32M"];
            let output = z.run_with(&options, &[path, state, after], "");
            output.succeeded();
            assert!(output.counter("pages_out") > 10_000);
            lost += output.counter("registrations_lost");
        }
    }
    assert!(lost > 0, "the kernel tells of it now?");
}

/// Whether a mapping is registered is asked while it is on its way elsewhere: what is
/// not there any more, with an event in flight, has not been lost.
#[test]
fn what_is_being_moved_is_not_taken_for_lost() {
    let (Some(z), Some(path)) = (support::by_messages(), compiled("carried")) else {
        return;
    };
    let path = path.to_str().expect("a plain path");
    for pause in ["100", "1000"] {
        let options = ["--quiet", "--high", "24M"];
        let output = z.run_with(&options, &[path, "4", pause], "");
        output.succeeded();
        assert!(output.counter("remaps") > 100);
        assert!(output.counter("pages_out") > 1000);
        assert_eq!(output.counter("registrations_lost"), 0);
    }
}

/// Threads that discard or remap without a pause leave no moment at which no event is in
/// flight: it is made for whoever waits.
#[test]
fn nobody_waits_for_ever_beside_changes_without_a_pause() {
    let (Some(z), Some(path)) = (support::by_messages(), compiled("restless")) else {
        return;
    };
    let path = path.to_str().expect("a plain path");
    for what in ["discard", "remap"] {
        let options = ["--quiet", "--high", "24M"];
        // (Where the program is held up itself there may be such a moment.)
        support::until(
            || Some(z.run_with(&options, &[path, what], "")),
            |output| {
                output.succeeded();
                assert!(output.counter("pages_in") > 100);
                let holds = output.counter("address_space_holds");
                support::check(holds > 0, || format!("{what}: nothing had to be held"))
            },
        );
    }
}

/// What mremap adds to locked memory is touched by the kernel while its event is in flight.
#[test]
fn locked_memory_grows() {
    let (Some(z), Some(path)) = (support::by_messages(), compiled("grow_locked")) else {
        return;
    };
    let path = path.to_str().expect("a plain path");
    let output = z.run_with(&["--quiet", "--high", "24M"], &[path], "");
    output.succeeded();
    assert!(output.counter("pages_out") > 1000);
    assert!(output.counter("left_to_the_kernel") > 0);
}
