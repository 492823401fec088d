//! By guard and protect mappings are cut, and a process may have so many: a program that touches
//! memory here and there comes to its end all the same, and its own calls are not refused. What it has given
//! back costs nothing, in any way.

mod memory;
mod nobody;
mod support;

use memory::compiled;
use nobody::{Nobody, WAYS};
use std::io::Write;

/// As many pages of 4 GiB as would need more mappings than there are by the kernel's default.
const TOUCHED: [&str; 2] = ["4096", "45000"];
/// More than is cut at most by that.
const ENOUGH: u64 = 100_000;

#[test]
fn memory_touched_here_and_there_does_not_use_up_the_mappings() {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("sparse")) else {
        return;
    };
    let program = nobody.program(&program);
    let command = [&[program.to_str().expect("a plain path")], &TOUCHED[..]].concat();
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("procfs");
    let limit: u64 = limit.trim().parse().expect("a number");
    for way in WAYS {
        let Some(output) = nobody.run_with(way, &["--high", "500M"], &command) else {
            continue;
        };
        output.succeeded();
        let (cut, mended) = (
            output.counter("cut_mappings"),
            output.counter("cut_mappings_mended"),
        );
        assert!(cut < limit, "{way}: {cut}");
        if way == "in-thread" {
            assert_eq!((cut, mended), (0, 0), "{way}: nothing is cut");
        } else if limit < ENOUGH {
            assert!(mended > 1000, "{way}: {mended}");
        } else {
            let _ = writeln!(
                std::io::stderr().lock(),
                "SKIPPED: that cuts are mended by {way}: there may be {limit} mappings here"
            );
        }
    }
}

/// Spots of a reservation, each given back before the next is touched: the words of what was touched would take
/// more than `high`, and the mappings that were cut more than there are.
const SPOTS: &str = "40000";

#[test]
fn what_was_given_back_costs_nothing() {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("given_back")) else {
        return;
    };
    let program = nobody.program(&program);
    let command = [program.to_str().expect("a plain path"), SPOTS];
    for way in WAYS {
        let Some(output) = nobody.run_with(way, &["--high", "64M"], &command) else {
            continue;
        };
        output.succeeded();
        let resident = output.counter("resident_peak_bytes") >> 20;
        assert!(resident <= 80, "{way}: {resident} MiB");
        let mended = output.counter("cut_mappings_mended");
        assert_eq!(mended, 0, "{way}");
    }
}
