//! `zfolio run --metrics` and `zfolio metrics`: scraped, and parsed by a parser of OpenMetrics text
//! that refuses what the format does not allow.

mod live;
#[path = "support/nobody.rs"]
mod nobody;
mod support;

use live::{Live, zfolio};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

type Labels = BTreeMap<String, String>;

/// A family: its type, unit and help, and its series.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    unit: String,
    help: String,
    series: Vec<(String, Labels, f64)>,
}

/// Labels of `{a="b",c="d"}`, and what follows.
fn labels(text: &str) -> (Labels, &str) {
    let Some(mut rest) = text.strip_prefix('{') else {
        return (Labels::new(), text);
    };
    let mut found = Labels::new();
    while !rest.starts_with('}') {
        let (name, after) = rest.split_once("=\"").expect("a label");
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{name}"
        );
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect("a value ends") {
                (at, '"') => break at,
                (_, '\\') => match chars.next().expect("what is escaped").1 {
                    'n' => value.push('\n'),
                    c @ ('"' | '\\') => value.push(c),
                    c => panic!("\\{c} in {text}"),
                },
                (_, c) => value.push(c),
            }
        };
        assert!(
            found.insert(name.to_owned(), value).is_none(),
            "twice: {name} in {text}"
        );
        rest = &after[end + 1..];
        if let Some(next) = rest.strip_prefix(',') {
            rest = next;
        } else {
            assert!(rest.starts_with('}'), "{text}");
        }
    }
    (found, &rest[1..])
}

/// Parses OpenMetrics text, by family.
fn parsed(text: &str) -> BTreeMap<String, Family> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in body.lines() {
        if let Some(described) = line.strip_prefix("# ") {
            let mut words = described.splitn(3, ' ');
            let mut word = || words.next().expect("three words").to_owned();
            let (what, name, value) = (word(), word(), word());
            if name != current {
                assert!(!families.contains_key(&name), "{name} in two places");
                current.clone_from(&name);
            }
            let family = families.entry(name.clone()).or_default();
            assert!(family.series.is_empty(), "{line}");
            match what.as_str() {
                "TYPE" => family.kind = value,
                "HELP" => family.help = value,
                "UNIT" => {
                    assert!(name.ends_with(&format!("_{value}")), "{line}");
                    family.unit = value;
                }
                _ => panic!("{line}"),
            }
            continue;
        }
        let end = line.find(['{', ' ']).expect("a name");
        let name = &line[..end];
        let (labels, value) = labels(&line[end..]);
        let value: f64 = value.trim().parse().expect("a number");
        let family = families.get_mut(&current).expect("a family is described");
        let suffix = name
            .strip_prefix(&current)
            .unwrap_or_else(|| panic!("{line} in {current}"));
        let allowed: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("{kind}: {line}"),
        };
        assert!(allowed.contains(&suffix), "{line} is of a {}", family.kind);
        let twice = family
            .series
            .iter()
            .any(|(other, with, _)| other == name && *with == labels);
        assert!(!twice, "twice: {line}");
        family.series.push((name.to_owned(), labels, value));
    }
    for (name, family) in &families {
        assert!(!family.help.is_empty() && !family.kind.is_empty(), "{name}");
        if family.kind == "histogram" {
            check_histogram(name, family);
        }
    }
    families
}

/// Buckets grow up to the count, and the last is without bound.
fn check_histogram(name: &str, family: &Family) {
    let mut by_series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    let (mut counts, mut sums) = (BTreeMap::new(), 0);
    for (full, labels, value) in &family.series {
        let mut labels = labels.clone();
        match full.strip_prefix(name) {
            Some("_bucket") => {
                let bound = labels.remove("le").expect("a bound");
                let bound = if bound == "+Inf" {
                    f64::INFINITY
                } else {
                    bound.parse().expect("a number")
                };
                by_series.entry(labels).or_default().push((bound, *value));
            }
            Some("_count") => assert!(counts.insert(labels, *value).is_none()),
            _ => sums += 1,
        }
    }
    assert_eq!(
        (by_series.len(), sums),
        (counts.len(), counts.len()),
        "{name}"
    );
    for (labels, buckets) in by_series {
        let grows = |two: &[(f64, f64)]| two[0].0 < two[1].0 && two[0].1 <= two[1].1;
        assert!(buckets.windows(2).all(grows), "{labels:?}: {buckets:?}");
        let last = buckets.last().expect("a bucket");
        assert_eq!(
            (last.0, Some(&last.1)),
            (f64::INFINITY, counts.get(&labels))
        );
    }
}

fn sum(families: &BTreeMap<String, Family>, family: &str) -> f64 {
    let family = families
        .get(family)
        .unwrap_or_else(|| panic!("no {family}"));
    family.series.iter().map(|(_, _, value)| value).sum()
}

/// The body of an answer.
fn scraped(mut stream: impl Read + Write) -> String {
    stream
        .write_all(
            b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n",
        )
        .expect("it takes a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(
        head.contains("Content-Type: application/openmetrics-text"),
        "{head}"
    );
    body.to_owned()
}

#[test]
fn a_run_is_scraped_while_it_lasts() {
    let Some(mut live) = Live::start(&["--metrics", "0"]) else {
        return;
    };
    let told = live.told();
    let at = told
        .strip_prefix("zfolio: metrics at http://")
        .and_then(|rest| rest.strip_suffix("/metrics"))
        .unwrap_or_else(|| panic!("{told}"))
        .to_owned();
    assert!(at.starts_with("127.0.0.1:"), "{at}");
    let scrape = || parsed(&scraped(TcpStream::connect(&at).expect("it listens")));
    live.reads();
    let first = scrape();
    live.reads();
    let second = scrape();
    let pages = "zfolio_pages_out";
    assert!(sum(&first, pages) > 1000.0, "{:?}", first[pages]);
    assert!(sum(&second, pages) > sum(&first, pages));
    for name in [
        "zfolio_program_bytes",
        "zfolio_resident_bytes",
        "zfolio_pool_bytes",
    ] {
        assert!(sum(&second, name) > f64::from(1 << 20), "{name}");
        assert_eq!(second[name].unit, "bytes");
    }
    let own = |(_, labels, _): &&(String, Labels, f64)| labels["command"].starts_with("python3");
    let row = second["zfolio_resident_bytes"].series.iter().find(own);
    let (_, labels, _) = row.expect("a row of the program");
    assert!(labels["process"].parse::<u32>().is_ok(), "{labels:?}");
    let (_, info, _) = &second["zfolio_run"].series[0];
    assert_eq!(info["codec"], "auto");
    let high = &second["zfolio_high_bytes"].series[0];
    assert_eq!(high.2, f64::from(32 << 20));
    // The same by the command, and a dashboard of names that are there.
    let printed = zfolio(&["metrics", &live.pid()]);
    let printed = parsed(&printed.succeeded().stdout);
    let names = |of: &BTreeMap<String, Family>| of.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&printed), names(&second));
    check_dashboard(&second);
    let end = live.end();
    let at_end = end["total"]["counters"]["pages_out"].as_f64().expect("one");
    assert!(at_end >= sum(&second, pages), "{at_end}");
    assert!(TcpStream::connect(&at).is_err(), "it listens after the end");
}

/// Every name of the dashboard is a series that is exported.
fn check_dashboard(families: &BTreeMap<String, Family>) {
    let exported: BTreeSet<&str> = families
        .values()
        .flat_map(|family| family.series.iter().map(|(name, _, _)| name.as_str()))
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/grafana/zfolio.json");
    let text = std::fs::read_to_string(path).expect("the dashboard");
    let _: Value = serde_json::from_str(&text).expect("JSON");
    let mut count = 0;
    for (at, _) in text.match_indices("zfolio_") {
        let rest = &text[at..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let name = &rest[..end.unwrap_or(rest.len())];
        assert!(exported.contains(name), "{name} is not exported");
        count += 1;
    }
    assert!(count > 10, "{count}");
}

#[test]
fn a_socket_of_ones_own_is_served_and_removed() {
    let dir = support::tempdir();
    let path = dir.path().join("metrics");
    let option = format!("unix:{}", path.display());
    let Some(mut live) = Live::start(&["--metrics", &option, "--quiet"]) else {
        return;
    };
    live.reads();
    let families = parsed(&scraped(UnixStream::connect(&path).expect("it listens")));
    assert!(sum(&families, "zfolio_pages_in") > 0.0);
    // Somebody who connects and says nothing keeps nobody waiting, nor the end.
    let _silent = UnixStream::connect(&path).expect("it listens");
    live.reads();
    live.end();
    assert!(!path.exists());
    let refused = zfolio(&["run", "--metrics", "unix:/nowhere/x", "--", "true"]);
    assert_eq!(refused.status.code(), Some(73), "{}", refused.stderr);
    let wrong = zfolio(&["run", "--metrics", "example.org:80", "--", "true"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.stderr);
}
