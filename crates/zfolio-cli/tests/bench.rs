//! `zfolio bench` as a command: what is refused, and one experiment that runs
//! programs, small. (What the others measure is tested beside the code: a whole
//! experiment takes long in a debug build.)

mod support;

use serde_json::Value;
use support::{check, finish, real, tempdir, until, zfolio};

/// Refused at once by every experiment, in one line.
#[track_caller]
fn refused(args: &[&str], status: i32, told: &str) {
    for experiment in ["zsmalloc", "compaction", "arena", "tier"] {
        let command = [&["bench", experiment], args].concat();
        let output = finish(&mut zfolio().command(&command), "");
        assert_eq!(output.status.code(), Some(status), "{}", output.stderr);
        assert_eq!(output.stdout, "");
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert!(output.stderr.starts_with("zfolio: "), "{}", output.stderr);
        assert!(output.stderr.contains(told), "{}", output.stderr);
    }
}

#[test]
fn mistakes_are_told_before_the_work_begins() {
    refused(&["--runs", "0"], 2, "--runs");
    refused(&["--runs", "many"], 2, "--runs");
    refused(&["--seed", "-1"], 2, "-1");
    refused(&["more"], 2, "more");
    refused(&["--json", "/no/such/directory/x.json"], 73, "--json");
    refused(&["--plot", "/"], 73, "--plot");
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_other_alone() {
    let dir = tempdir();
    let json = dir.path().join("out.json");
    let json = json.to_str().expect("a plain path");
    refused(&["--json", json, "--plot", "/no/such/x.svg"], 73, "--plot");
    let left = std::fs::read_dir(dir.path()).expect("a directory").count();
    assert_eq!(left, 0);
}

/// `bench arena`, small: what it printed, and its figures.
fn arena() -> Option<(String, Value)> {
    let z = real()?;
    let dir = tempdir();
    let [json, plot] = ["out.json", "out.svg"].map(|name| dir.path().join(name));
    let words = [
        "bench", "arena", "--size", "48M", "--rounds", "2", "--runs", "1",
    ];
    let mut command = z.command(words);
    command.arg("--json").arg(&json).arg("--plot").arg(&plot);
    let output = finish(&mut command, "");
    output.succeeded();
    let plot = std::fs::read_to_string(plot).expect("a drawing");
    assert!(plot.starts_with("<svg") && plot.contains("free blocks of 2 MiB"));
    let json = std::fs::read_to_string(json).expect("figures");
    Some((output.stdout, serde_json::from_str(&json).expect("JSON")))
}

#[test]
fn an_arena_is_compacted_where_that_is_on_and_there_alone() {
    let figure = |json: &Value, arena: usize, which: &str, label: &str| {
        let found = &json["arenas"][arena][which][0]["figures"][label];
        found.as_f64().unwrap_or_else(|| panic!("{label}: {found}"))
    };
    let run = || {
        let (text, json) = arena()?;
        for arena in 0..2 {
            for (which, on) in [("off", false), ("on", true)] {
                let run = &json["arenas"][arena][which][0];
                assert_eq!(run["stats"]["config"]["folio_compaction"], on);
                assert_eq!(run["stats"]["processes"][0]["state"], "managing");
                assert!(run["looks"].as_u64() > Some(0));
                let held = figure(&json, arena, which, "held per stored");
                assert!(held >= 1.0, "{held}: less is held than stored");
            }
            for label in ["pgmigrate_success", "compact_stall", "compact_daemon_wake"] {
                assert_eq!(figure(&json, arena, "off", label), 0.0, "{label}");
            }
        }
        let figures = json["arenas"][0]["on"][0]["figures"].as_object();
        for label in figures.expect("figures").keys() {
            let rows = text.lines().filter(|line| line.starts_with(label.as_str()));
            assert!(rows.count() >= 2, "{label} in each of two tables:\n{text}");
        }
        Some(json)
    };
    until(run, |json| {
        let moved = figure(json, 1, "on", "pgmigrate_success");
        let out = figure(json, 1, "on", "thp_swpout");
        check(moved > 0.0 && out > 0.0, || {
            format!("{moved} pages were carried, {out} huge pages went out whole")
        })
    });
}

/// Small: both ways ran, every page was right, and one of them has a tier.
#[test]
fn an_idle_program_has_a_tier_where_that_is_on_and_there_alone() {
    let Some(z) = real() else { return };
    let dir = tempdir();
    let [json, pages] = ["out.json", "pages"].map(|name| dir.path().join(name));
    let words: Vec<u8> = (0..1_u32 << 18)
        .flat_map(|at| (at.wrapping_mul(2_654_435_761) >> 12).to_le_bytes())
        .collect();
    std::fs::write(&pages, words).expect("a file");
    let mut command = z.command([
        "bench", "tier", "--size", "64M", "--high", "32M", "--idle", "3", "--reads", "500",
        "--runs", "1",
    ]);
    command.arg("--json").arg(&json).arg("--corpus").arg(&pages);
    let output = finish(&mut command, "");
    output.succeeded();
    let json = std::fs::read_to_string(json).expect("figures");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    for content in 0..2 {
        for (which, tier) in [("off", "off"), ("auto", "auto")] {
            let run = &json["contents"][content][which][0];
            assert_eq!(run["stats"]["config"]["tier"], tier);
            assert_eq!(run["stats"]["processes"][0]["state"], "managing");
            let read = run["figures"]["random reads afterwards (us)"].as_f64();
            assert!(read > Some(0.0));
            let looks = run["resident"].as_array().expect("looks");
            assert!(looks.len() > 3, "{looks:?}");
        }
        let off = &json["contents"][content]["off"][0]["figures"]["recompressed_pages"];
        assert_eq!(*off, 0.0);
    }
}
