use super::finished::{Finished, Usage};
use super::summary::duration;
use crate::options::backing_options::Checked;
use crate::options::engines::Engines;
use crate::options::fault_ways::Taken;
use crate::options::run_args::{Background, IoUring, Tier};
use crate::options::settings::{Folios, InThread, Settings};
use crate::options::slowdown::Asked;
use crate::supervise::Outcome;
use serde_json::json;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use zfolio_host::compressor::Compressor;
use zfolio_host::controller::{Bought, Forecasts, Level, Lost};
use zfolio_host::statistics::Tree;
use zfolio_mm::Order;
use zfolio_runtime::options::Codec;
use zfolio_runtime::segment::{Counter, faults, state};

fn finished(tree: Tree) -> Finished {
    Finished {
        command: vec!["/usr/bin/python3".into(), "-c".into()],
        pid: 100,
        settings: Settings {
            high: 200 << 20,
            limit: None,
            slowdown: None,
            faults: Taken::by_messages(),
            compressor: Compressor(Codec::LZ4),
            folios: Folios {
                size: Order::K64,
                split_huge_pages: false,
                huge_page_assembly: true,
                page_cluster: None,
                compaction: true,
            },
            engines: Engines::default(),
            tier: Tier::Off,
            in_thread: InThread {
                background: Background::Auto,
                io_uring: IoUring::Refuse,
            },
            quiet: false,
            shared: true,
            behind: Checked::default(),
        },
        tree,
        bought: None,
        unreached: Vec::new(),
        usage: Usage {
            wall: Duration::from_secs(2),
            max_rss: 12 << 20,
            ..Usage::default()
        },
        outcome: Outcome::Exited(3),
        store: None,
    }
}

fn example() -> Tree {
    Tree::read(&crate::example::example())
}

#[test]
fn the_summary_is_three_lines_of_plain_words() {
    assert_eq!(
        finished(example()).summary(),
        [
            "zfolio: python3 needed 474 MiB at its peak and lived in 201 MiB (high 200M); 3 processes, 1 managed.",
            "zfolio: 380 MiB compressed to 120 MiB (3.2x) at most; 1.1 GiB moved out, 781 MiB brought back.",
            "zfolio: cost: 100 page faults served (p50 20 us, p99 20 us), 4.1 s of CPU for zfolio's threads, 0.3 s waiting at high.",
        ]
    );
}

#[test]
fn without_threads_of_ours_the_time_is_the_programs() {
    let segment = crate::example::example();
    for slot in &segment.slots {
        slot.process.told_by.store(faults::GUARD, Relaxed);
    }
    let line = &finished(Tree::read(&segment)).summary()[2];
    assert!(
        line.ends_with("(p50 20 us, p99 20 us), 0.3 s of its threads' time making room at high."),
        "{line}"
    );
    assert!(!line.contains("CPU"), "{line}");
    segment.slots[0].set(Counter::PgstealKswapd, 1000);
    let line = &finished(Tree::read(&segment)).summary()[2];
    assert!(
        line.ends_with("making room at high, 3.8 s of CPU beside them."),
        "{line}"
    );
}

#[test]
fn what_could_not_leave_is_told_where_high_was_not_kept() {
    let segment = crate::example::example();
    segment.slots[0].set(Counter::StaysReadOnly, 96 << 20);
    let kept = finished(Tree::read(&segment)).summary();
    assert_eq!(kept.len(), 3, "{kept:?}");
    segment.slots[0].set(Counter::ResidentPeakSteady, 290 << 20);
    assert_eq!(
        finished(Tree::read(&segment)).summary()[3],
        "zfolio: high was not kept: 96 MiB could not leave (96 MiB read-only)."
    );
}

#[test]
fn the_limit_that_high_was_chosen_for_is_told() {
    let mut finished = finished(example());
    finished.settings.limit = Some(256 << 20);
    let [first, ..] = &finished.summary()[..] else {
        panic!("a summary")
    };
    assert!(first.contains("(high 200M of a limit of 256M)"), "{first}");
    assert_eq!(finished.json()["config"]["limit_bytes"], 256 << 20);
}

#[test]
fn nothing_managed_is_one_line() {
    let mut tree = example();
    tree.processes.clear();
    tree.loaded = 1;
    assert_eq!(
        finished(tree).summary(),
        ["zfolio: nothing needed managing: python3 used 12 MiB at most (high 200M); 1 process."]
    );
    let mut uncounted = finished(Tree::default());
    assert_eq!(
        uncounted.summary(),
        ["zfolio: nothing needed managing: python3 used 12 MiB at most (high 200M)."]
    );
    uncounted.usage.max_rss = 300 << 20;
    assert_eq!(
        uncounted.summary(),
        ["zfolio: nothing was managed: python3 did not load the library (it used 300 MiB)."]
    );
}

#[test]
fn reasons_are_told_once() {
    let mut tree = example();
    tree.processes.push(tree.processes[1].clone());
    assert_eq!(
        finished(tree.clone()).unmanaged(),
        ["zfolio: 2 processes (first: 101 sh) ran unmanaged: userfaultfd: not permitted"]
    );
    assert_eq!(finished(tree.clone()).failures(), Vec::<String>::new());
    tree.processes[0].state = state::FAILED;
    tree.processes[0].message = "decompression failed\nat 0x1000".into();
    assert_eq!(
        finished(tree).failures(),
        ["zfolio: process 100 (python3): decompression failed at 0x1000"]
    );
}

#[test]
fn the_json_has_its_keys() {
    let json = finished(example()).json();
    assert_eq!(json["config"]["high_bytes"], 200 << 20);
    assert_eq!(json["config"]["folio_order"], 4);
    assert_eq!(json["config"]["faults"], "message");
    assert_eq!(json["config"]["faults_refused"], json!({}));
    assert_eq!(json["exit"], json!({ "status": 3, "signal": null }));
    assert_eq!(json["usage"]["wall_s"], 2.0);
    assert_eq!(json["command"][0], "/usr/bin/python3");
    for key in [
        "zfolio",
        "machine",
        "total",
        "processes",
        "processes_loaded",
        "processes_managed",
    ] {
        assert!(!json[key].is_null(), "{key}");
    }
}

#[test]
fn durations_read() {
    assert_eq!(duration(0), "0 ns");
    assert_eq!(duration(21_499), "21 us");
    assert_eq!(duration(6_000_000), "6 ms");
    assert_eq!(duration(300_000_000), "0.3 s");
    assert_eq!(duration(4_100_000_000), "4.1 s");
}

#[test]
fn what_was_bought_is_a_line_and_an_object() {
    let mut finished = finished(example());
    assert!(finished.json()["slowdown"].is_null());
    finished.settings.slowdown = Some(Asked {
        slowdown: 50_000,
        low: 8 << 20,
    });
    finished.bought = Some(Bought {
        lost: Lost {
            all: 0.0432,
            by_calls: 0.001,
        },
        run: 60.0,
        needed: 400 << 20,
        resident: 300 << 20,
        needed_since: 474 << 20,
        resident_since: 250 << 20,
        steps: [9, 2],
        forecasts: Forecasts {
            count: 4,
            expected: 0.08,
            seen: 0.12,
            error: 0.04,
            curve: vec![Level {
                part: 0.75,
                rate: 0.02,
            }],
        },
        ..Bought::default()
    });
    let lines = finished.summary();
    assert_eq!(
        lines.last().map(String::as_str),
        Some(
            "zfolio: slowdown: lived in 250 MiB instead of 474 MiB on average since memory was first taken (300 MiB instead of 400 MiB over all), at about 4.3 % (asked 5 %)."
        )
    );
    let json = finished.json();
    assert_eq!(json["config"]["slowdown_percent"], 5.0);
    assert_eq!(json["slowdown"]["resident_since_bytes"], 250 << 20);
    assert_eq!(json["slowdown"]["steps_down"], 9);
    let bought = finished.bought.as_mut().expect("it was set");
    bought.lost.by_calls = 0.02;
    let lines = finished.summary();
    let last = lines.last().expect("a line");
    let ends = "at about 4.3 %, 2 % of it for its system calls (asked 5 %).";
    assert!(last.ends_with(ends), "{last}");
    assert_eq!(json["slowdown"]["phase"], "young");
    assert_eq!(json["slowdown"]["forecasts"]["judged"], 4);
    assert_eq!(json["slowdown"]["forecasts"]["seen_percent"], 3.0);
    assert_eq!(json["slowdown"]["curve"][0]["had_percent"], 75.0);
    assert_eq!(json["slowdown"]["curve"][0]["lost_percent"], 2.0);
    finished.bought = Some(Bought::default());
    let lines = finished.summary();
    assert!(
        lines[3].contains("nothing was taken: the program ran too shortly"),
        "{lines:?}"
    );
}
