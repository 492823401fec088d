//! The second tier: what stays in the pool becomes denser while the program is idle,
//! and every byte is what it was, in children too; and it is stored densely from the start.

mod memory;
mod support;

use memory::{Case, compiled};
use support::Output;

fn counters(output: &Output) -> String {
    output.stats["total"]["counters"].to_string()
}

/// What leaves is stored at once as zstd does it, where little comes back: the pool is no larger, with
/// time for it or without.
#[test]
fn it_ends_with_no_larger_pool_than_zstd() {
    let (Some(z), Some(program)) = (support::by_messages(), compiled("idle")) else {
        return;
    };
    // (Ended while it is idle: nothing has come back by then.)
    let script = format!("{} & sleep 4; kill $!; wait $!; true", program.display());
    let peak = |compressor, tier| {
        let options = ["--high", "40M", "--compressor", compressor, "--tier", tier];
        let output = z.run_with(&options, &["sh", "-c", &script], "");
        output.succeeded();
        assert!(output.counter("pages_out") > 4096, "{}", output.stats);
        output.counter("pool_peak_bytes")
    };
    let (with, without, zstd) = (
        peak("auto", "auto"),
        peak("auto", "off"),
        peak("zstd", "off"),
    );
    assert!(with <= zstd + zstd / 8, "{with} bytes instead of {zstd}");
    assert!(
        without > zstd * 2,
        "lz4 would have been as good: {without}, {zstd}"
    );
}

/// A dictionary is made of the program's own pages and pays; children read what was made
/// with it, and write what needs none.
#[test]
fn a_dictionary_is_made_and_children_have_it() {
    let case = Case {
        high: "64M",
        options: &["--tier", "auto"],
        ..Case::new("idle", &["phrases"])
    };
    case.run_until(|output| {
        let all = output.counter("recompressed_pages");
        let gained = output.counter("recompress_saved_bytes") > all * 256;
        let spent = output.counter("recompress_cpu_ns") > 0;
        support::check(gained && spent, || counters(output))?;
        let pages = output.counter("dictionary_pages");
        let made = output.counter("dictionary_installed") > 0 && pages > 500;
        let forked = output.counter("forks") >= 3 && output.counter("raw_forks") >= 1;
        let saved = output.counter("dictionary_saved_bytes") > 0;
        let paid = saved && output.counter("dictionary_cpu_ns") > 0;
        support::check(made && forked && paid, || counters(output))
    });
}

#[test]
fn with_a_backing_and_with_engines() {
    let dir = support::tempdir();
    let backing = format!("file:{},size=1G", dir.path().display());
    let options = ["--tier", "auto", "--backing", &backing, "--engines", "1"];
    let case = Case {
        high: "64M",
        options: &options,
        ..Case::new("idle", &["phrases"])
    };
    case.run_until(|output| {
        let pages = output.counter("recompressed_pages");
        support::check(pages > 500 && output.counter("pswpout") > 0, || {
            counters(output)
        })
    });
}

/// Stores, discards, moves and forks at random beside it, with little memory: the
/// pool takes most of it.
#[test]
fn random_operations_beside_it() {
    let case = Case {
        high: "24M",
        options: &["--tier", "auto"],
        ..Case::new("stress", &["6", "13", "4"])
    };
    case.run();
}

#[test]
fn off_and_other_codecs_have_no_tier() {
    for options in [
        &["--tier", "off"][..],
        &["--tier", "auto", "--compressor", "lz4"],
    ] {
        let case = Case {
            options,
            ..Case::new("plain", &["80", "1"])
        };
        if let Some(output) = case.run() {
            for name in [
                "recompressed_pages",
                "recompress_poor",
                "recompress_cpu_ns",
                "dictionary_trainings",
                "dictionary_bytes",
            ] {
                assert_eq!(output.counter(name), 0, "{name}");
            }
        }
    }
}
