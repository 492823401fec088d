//! Engines and the codecs only they make affordable: every byte verified, forks
//! included.

mod memory;
mod support;

use memory::Case;
use std::time::Duration;

/// Counters of each queue add up to those of all. (Published between two instants of work that
/// goes on: a queue may have counted a unit that the sum has not yet, and the other way.)
fn sums_are_those_of_the_queues(stats: &serde_json::Value) {
    let total = &stats["total"];
    let processes = stats["processes_managed"].as_u64().expect("a number");
    let queues = total["engine_queues"].as_array().expect("a list");
    for (of_all, name) in [
        ("engine_submitted", "submitted"),
        ("engine_completed", "completed"),
        ("engine_taken_back", "taken_back"),
        ("engine_busy", "busy"),
    ] {
        let each = queues.iter().map(|queue| queue[name].as_u64().expect(name));
        let (each, all) = (each.sum::<u64>(), total["counters"][of_all].as_u64());
        assert!(
            all.expect(of_all).abs_diff(each) <= 64 * processes,
            "{name}: {each} of {all:?}"
        );
    }
}

#[track_caller]
fn with(options: &[&str], program: &str, args: &[&str]) -> Option<support::Output> {
    let case = Case {
        options,
        limit: Duration::from_secs(240),
        ..Case::new(program, args)
    };
    let output = case.run()?;
    let engines = options.iter().position(|option| *option == "--engines");
    let engines = engines.map_or("0", |at| options[at + 1]);
    let engines = engines.split(',').next().expect("a number");
    assert_eq!(output.stats["config"]["engines"].to_string(), engines);
    let count = |name: &str| output.counter(&format!("engine_{name}"));
    let (submitted, inline) = (count("submitted"), count("inline"));
    if engines == "0" {
        assert_eq!((submitted, inline), (0, 0));
        return Some(output);
    }
    // The codec sees all but pages of one word.
    assert!(submitted + inline > 1000, "{}", output.stats);
    let ended = count("completed") + count("taken_back") + count("timeouts");
    // Published between two instants of work that goes on: not all of one.
    assert!(ended <= submitted + 64, "{ended} of {submitted}");
    assert!(count("late") <= count("timeouts"));
    assert!(count("output_bytes") <= count("input_bytes"));
    assert!(count("input_bytes") <= 4096 * count("completed"));
    sums_are_those_of_the_queues(&output.stats);
    let verify = options
        .iter()
        .any(|option| option.contains("verify_compress="));
    assert_eq!(count("verified") > 1000, verify, "{}", output.stats);
    assert_eq!(count("mismatched"), 0);
    Some(output)
}

#[test]
fn children_of_forks_have_engines_of_their_own() {
    with(
        &["--compressor", "zstd", "--engines", "2"],
        "forks",
        &["libc"],
    );
    with(
        &["--compressor", "zstd", "--engines", "2"],
        "forks",
        &["threads"],
    );
    with(&["--engines", "1"], "forks", &["raw_threads"]);
}

/// Loads of many pages go to the engines, huge pages among them; right also where that never
/// pays, and where the engines rest.
#[test]
fn what_comes_back_together_is_decompressed_by_engines() {
    for (engines, handed) in [
        (
            "2,wqs_per_iaa=2,g_comp_wqs_per_iaa=1,decompress=on,distribute_decomps=1",
            true,
        ),
        ("1,decompress=off", false),
    ] {
        let options = ["--compressor", "zstd", "--engines", engines];
        let Some(output) = with(&options, "huge", &[]) else {
            return;
        };
        let count = |name: &str| output.counter(&format!("engine_{name}"));
        assert_eq!(count("decomp_batches") > 0, handed, "{}", output.stats);
        assert_eq!(count("sw_decomp_batches") > 0, !handed, "{}", output.stats);
        assert!(handed || count("decomp_units") == 0);
        let queues = output.stats["total"]["engine_queues"].as_array();
        for queue in queues.expect("a list") {
            let worked = queue["submitted"].as_u64() > Some(0);
            assert!(worked || queue["kind"] == "generic", "{queue}");
        }
    }
}

#[test]
fn engines_of_their_own_accord() {
    let case = Case {
        options: &["--compressor", "zstd", "--engines", "auto"],
        limit: Duration::from_secs(240),
        ..Case::new("faults", &[])
    };
    if let Some(output) = case.run() {
        assert_eq!(output.stats["config"]["engines_auto"], true);
        assert!(output.counter("engine_rests") > 0, "at first they rest");
        assert!(output.counter("engine_inline") > 0, "{}", output.stats);
    }
}

/// Work that goes to queues of every kind, in each way of waiting; what is told of it.
#[test]
fn attributes_are_those_that_were_asked_for() {
    let kinds = "2,wqs_per_iaa=3,g_comp_wqs_per_iaa=2,sync_mode=async_irq,verify_compress=1,\
                 decompress=off";
    let one_at_a_time = "1,sync_mode=sync,descriptors=2,retries=0,distribute_comps=0";
    let polled = "2,sync_mode=async,batch_size=4,share=0,timeout_ns=20000000,verify_compress=on";
    for (engines, names) in [
        (
            kinds,
            &["wqs_per_iaa=3", "g_comp_wqs_per_iaa=2", "verify_compress=1"][..],
        ),
        (
            one_at_a_time,
            &["descriptors=2", "retries=0", "distribute_comps=0"],
        ),
        (polled, &["batch_size=4", "share=0", "timeout_ns=20000000"]),
    ] {
        let options = ["--compressor", "zstd", "--engines", engines];
        let Some(output) = with(&options, "forks", &["libc"]) else {
            return;
        };
        let told = &output.stats["config"]["engine_attributes"];
        for part in names {
            let (name, value) = part.split_once('=').expect("a value");
            assert_eq!(told[name].to_string(), value, "{told}");
        }
        let queues = output.stats["total"]["engine_queues"]
            .as_array()
            .expect("a list");
        let kinds: Vec<&str> = queues
            .iter()
            .filter_map(|queue| queue["kind"].as_str())
            .collect();
        if engines.contains("wqs_per_iaa") {
            assert_eq!(kinds, ["decompress", "compress", "compress"].repeat(2));
            for queue in queues {
                let worked = queue["submitted"].as_u64().expect("a number") > 0;
                assert_eq!(worked, queue["kind"] == "compress", "{queue}");
            }
        } else {
            assert!(kinds.iter().all(|kind| *kind == "generic"), "{kinds:?}");
        }
    }
}

#[test]
fn random_operations_with_engines() {
    let args = &["5", "1", "4"];
    with(&["--compressor", "lz4", "--engines", "3"], "stress", args);
}

#[test]
fn deflate_in_every_form() {
    for codec in ["deflate-iaa", "deflate-iaa:dynamic"] {
        with(&["--compressor", codec], "forks", &["libc"]);
    }
    let canned = ["--compressor", "deflate-iaa:canned", "--engines", "2"];
    with(&canned, "forks", &["libc"]);
}
