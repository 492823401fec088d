//! `zfolio stat --json` and `--watch`: what `--stats` has, while a run lasts.

mod live;
#[path = "support/nobody.rs"]
mod nobody;
mod support;

use live::{Live, zfolio};
use nobody::Nobody;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use support::Output;

fn parsed(output: &Output) -> Value {
    serde_json::from_str(&output.succeeded().stdout).expect("JSON")
}

/// Every path of keys in an object; lists are looked into by their first.
fn keys(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, below) in map {
                let path = format!("{path}.{key}");
                keys(below, &path, found);
                found.insert(path);
            }
        }
        Value::Array(list) => {
            if let Some(first) = list.first() {
                keys(first, path, found);
            }
        }
        _ => {}
    }
}

fn keys_of(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    keys(value, "", &mut found);
    found
}

/// Whether a look while it lasted and the statistics at its end have the same figures.
#[track_caller]
fn agree(now: &Value, end: &Value) {
    for part in ["total", "processes", "groups"] {
        assert_eq!(keys_of(&now[part]), keys_of(&end[part]), "{part}");
    }
    assert!(keys_of(&now["total"]).len() > 200, "figures are compared");
    for key in ["zfolio", "processes_loaded", "processes_managed"] {
        assert_eq!(now[key], end[key], "{key}");
    }
    for key in keys_of(&now["config"]) {
        let key = &key[1..];
        assert_eq!(now["config"][key], end["config"][key], "{key}");
    }
    let managing = &now["processes"][0];
    assert_eq!(managing["state"], "managing", "{managing}");
    assert_eq!(managing["pid"], end["processes"][0]["pid"]);
    let counters = |of: &Value| of["total"]["counters"].as_object().cloned().expect("all");
    let (now, end) = (counters(now), counters(end));
    let count = |of: &serde_json::Map<String, Value>, name: &str| of[name].as_u64().expect("one");
    for name in ["pages_out", "pages_in", "zswpout", "zswpin", "pgmajfault"] {
        let (then, at_end) = (count(&now, name), count(&end, name));
        assert!(0 < then && then <= at_end, "{name}: {then}, then {at_end}");
    }
}

#[test]
fn json_has_every_figure_while_the_run_lasts() {
    let Some(mut live) = Live::start(&[]) else {
        return;
    };
    live.reads();
    let now = parsed(&zfolio(&["stat", "--json", &live.pid()]));
    assert_eq!(now["run_pid"].to_string(), live.pid());
    assert_eq!(now["config"]["high_bytes"], 32 << 20);
    let table = zfolio(&["stat", &live.pid()]).succeeded().stdout.clone();
    let line = table.lines().find(|line| line.starts_with("mm_stat "));
    let line = line.unwrap_or_else(|| panic!("no mm_stat: {table}"));
    let columns: Vec<u64> = line
        .split(' ')
        .skip(1)
        .map(|column| column.parse().expect("a number"))
        .collect();
    assert_eq!(columns.len(), 10, "{line}");
    assert!(columns[0] > columns[1] && columns[1] > 0, "{line}");
    agree(&now, &live.end());
}

#[test]
fn json_has_them_in_the_ways_without_privilege() {
    let Some(nobody) = Nobody::new() else { return };
    let doctor = nobody.zfolio(&["doctor"]).stdout;
    for way in ["in-thread", "guard", "protect"] {
        if !doctor.contains(&format!("--faults {way} works\n")) {
            support::skip(&format!("--faults {way} does not work here"));
            continue;
        }
        let mut live = Live::start_as(&nobody, &["--faults", way]);
        live.reads();
        let now = parsed(&nobody.zfolio(&["stat", "--json", &live.pid()]));
        assert_eq!(now["processes"][0]["faults_told_by"], way);
        assert_eq!(now["config"]["faults"], way);
        agree(&now, &live.end());
    }
}

#[test]
fn watching_goes_on_until_the_run_ends() {
    let Some(mut live) = Live::start(&[]) else {
        return;
    };
    let mut watching: Command =
        support::zfolio().command(["stat", "--json", "--watch=0.1", &live.pid()]);
    let mut watching = support::Guard(
        watching
            .stdout(Stdio::piped())
            .spawn()
            .expect("stat starts"),
    );
    let out = watching.0.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(out).lines();
    let mut next = || -> Option<Value> {
        let line = lines.next()?.expect("a line");
        Some(serde_json::from_str(&line).expect("an object a line"))
    };
    let faults = |seen: &Value| seen["total"]["faults"]["all"]["count"].as_u64();
    let first = next().expect("a first look");
    live.reads();
    let mut later = next().expect("a second look");
    for _ in 0..100 {
        if faults(&later) > faults(&first) {
            break;
        }
        later = next().expect("it lasts");
    }
    assert!(faults(&later) > faults(&first), "{later}");
    assert!(later["time_s"].as_f64() > first["time_s"].as_f64());
    let (_, table) = (live.reads(), zfolio(&["stat", "--watch=0", &live.pid()]));
    assert_eq!(table.status.code(), Some(2), "{}", table.stderr);
    live.end();
    while next().is_some() {}
    let status = watching.0.wait().expect("it is ours");
    assert!(status.success(), "{status}");
}
