//! Processes of one run share one `high` without privilege, those that have nothing out yet too.

mod memory;
mod nobody;
mod support;

use memory::compiled;
use nobody::{Nobody, WAYS};
use support::Output;

/// Runs `together` under `high`; what its processes had at most, MiB.
#[track_caller]
fn together(way: &str, high: &str, words: &[&str]) -> Option<(u64, Output)> {
    let (nobody, program) = (Nobody::new()?, compiled("together")?);
    let program = nobody.program(&program);
    let command = [&[program.to_str().expect("a plain path")], words].concat();
    let output = nobody.run_with(way, &["--high", high], &command)?;
    output.succeeded();
    let most = output.stdout.trim().parse().expect("MiB");
    Some((most, output))
}

/// Each of four is far below `high`, and all together are far above it. (Who has mapped all of its memory
/// before the others is told by its ticks that there are others.)
#[test]
fn many_small_processes_keep_to_one_high() {
    for way in WAYS {
        for (how, allowed) in [("grown", 60), ("mapped", 90)] {
            let run = || together(way, "48M", &["4", "32", how]);
            support::until(run, |(most, output)| {
                let peak = &output.stats["shared_resident_peak_bytes"];
                support::check(*most <= allowed, || {
                    format!("{way}, {how}: {most} MiB of 128, and {peak} by what they said")
                })
            });
        }
    }
}

/// What a parent and its children share counts once: nothing has to leave.
#[test]
fn what_is_shared_by_a_fork_counts_once() {
    for way in WAYS {
        let words = ["4", "4", "grown", "kept", "64"];
        let Some((most, output)) = together(way, "128M", &words) else {
            continue;
        };
        assert!((64..100).contains(&most), "{way}: {most} MiB");
        assert_eq!(output.counter("pages_out"), 0, "{way}");
    }
}
