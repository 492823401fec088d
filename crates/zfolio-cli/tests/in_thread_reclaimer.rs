//! A thread of ours that reclaims beside the program's (`--background-reclaim`), as a user without any
//! privilege, in the ways in which the thread that faults serves itself.

mod memory;
mod nobody;
mod support;

use memory::compiled;
use nobody::{Nobody, WAYS};
use support::Output;

/// Runs cases of the program; `None` where it cannot be.
#[track_caller]
fn run(way: &str, when: &str, cases: &[&str]) -> Option<Output> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        support::skip("there is one processor: nothing reclaims beside the program");
        return None;
    }
    let (nobody, program) = (Nobody::new()?, compiled("inthread_reclaimer")?);
    let program = nobody.program(&program);
    let command = [&[program.to_str().expect("a plain path")], cases].concat();
    let options = ["--high", "12M", "--background-reclaim", when];
    let output = nobody.run_with(way, &options, &command)?;
    output.succeeded();
    assert_eq!(output.stats["config"]["background_reclaim"], when);
    for process in output.stats["processes"].as_array().expect("processes") {
        // A child of the case `filtered` filters its own calls, and goes on unmanaged for that.
        let said = process["message"].as_str().unwrap_or_default();
        let expected = match said.starts_with("it filters its system calls") {
            true => "unmanaged",
            false => "managing",
        };
        assert_eq!(process["state"], expected, "{process}");
    }
    Some(output)
}

/// It is there from the first page that leaves, so all that a program does meets it.
#[test]
fn a_program_does_what_it_does_without_it() {
    for way in WAYS {
        if let Some(output) = run(way, "eager", &[]) {
            let closed = output.counter("pgsteal_kswapd");
            assert!(closed > 1000, "{way}: {closed} pages");
        }
    }
}

/// It comes where memory runs short, and goes.
#[test]
fn it_comes_by_itself() {
    let cases = ["forked", "told_each", "beside_threads"];
    if let Some(output) = run("in-thread", "auto", &cases) {
        let (closed, all) = (
            output.counter("pgsteal_kswapd"),
            output.counter("pages_out"),
        );
        assert!(closed > 1000 && closed <= all, "{closed} of {all} pages");
    }
}

/// It can be had to stay away.
#[test]
fn it_stays_away_where_it_is_not_wanted() {
    for way in WAYS {
        if let Some(output) = run(way, "off", &["forked"]) {
            assert_eq!(output.counter("pgsteal_kswapd"), 0, "{way}");
            assert!(output.counter("pages_out") > 1000, "{way}");
        }
    }
}
