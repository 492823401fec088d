//! `zfolio run --metrics` scraped by Prometheus itself: it takes the text, has the series with their
//! types, and keeps them after the run.

mod live;
#[path = "support/nobody.rs"]
mod nobody;
mod support;

use live::Live;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Where the gate says that it is (`ZFOLIO_TEST_PROMETHEUS`), has put it where `CARGO_TARGET_DIR` is
/// not set, or Debian's package has it.
fn prometheus() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unpacked = root.join("target/prometheus/usr/bin/prometheus");
    let asked = std::env::var_os("ZFOLIO_TEST_PROMETHEUS").map(PathBuf::from);
    let all = [asked, Some(unpacked), Some("/usr/bin/prometheus".into())];
    all.into_iter().flatten().find(|path| path.exists())
}

/// The server, in a directory of its own, scraping one place each second.
struct Prometheus {
    _server: support::Guard,
    at: String,
    _dir: tempfile::TempDir,
}

impl Prometheus {
    fn start(target: &str) -> Option<Self> {
        let Some(exe) = prometheus() else {
            support::skip("Prometheus: it is not here (apt-get install prometheus)");
            return None;
        };
        let dir = support::tempdir();
        let config = dir.path().join("prometheus.yml");
        let text = format!(
            "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: zfolio\n    \
             static_configs:\n      - targets: [\"{target}\"]\n"
        );
        fs::write(&config, text).expect("written");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = free.local_addr().expect("an address").to_string();
        drop(free);
        let mut command = Command::new(exe);
        command.arg(format!("--config.file={}", config.display()));
        let data = dir.path().join("data");
        command.arg(format!("--storage.tsdb.path={}", data.display()));
        command.arg(format!("--web.listen-address={at}"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // (A group of its own, which is what a guard ends.)
        command.process_group(0);
        let server = support::Guard(command.spawn().expect("it starts"));
        Some(Self {
            _server: server,
            at,
            _dir: dir,
        })
    }

    /// What it answers; none while it does not.
    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.at).ok()?;
        let wait = Some(Duration::from_secs(10));
        stream.set_read_timeout(wait).expect("a limit");
        let host = &self.at;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    /// The value of a query with one result.
    fn value(&self, query: &str) -> Option<f64> {
        let answer = self.get(&format!("/api/v1/query?query={query}"))?;
        let value = &answer["data"]["result"][0]["value"][1];
        value.as_str()?.parse().ok()
    }
}

/// What `found` finds, once it does.
#[track_caller]
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "never {what}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn prometheus_holds_the_series_after_a_scrape() {
    if prometheus().is_none() {
        return support::skip("Prometheus: it is not here (apt-get install prometheus)");
    }
    let Some(mut live) = Live::start(&["--metrics", "0"]) else {
        return;
    };
    let line = live.told();
    let address = line
        .split_once("http://")
        .and_then(|(_, rest)| rest.split_once("/metrics"));
    let target = address.expect(&line).0.to_owned();
    live.reads();
    let Some(server) = Prometheus::start(&target) else {
        return;
    };
    let brought = until("pages brought back", || {
        server
            .value("sum(zfolio_pages_in_total)")
            .filter(|pages| *pages > 0.0)
    });
    assert_eq!(until("up", || server.value("up")), 1.0);
    assert_eq!(
        until("high", || server.value("zfolio_high_bytes")),
        f64::from(32 << 20)
    );
    // A counter is one to it, and a histogram gives quantiles.
    let types = until("types", || server.get("/api/v1/metadata"));
    let kind = |name: &str| types["data"][name][0]["type"].clone();
    let pages = [kind("zfolio_pages_in"), kind("zfolio_pages_in_total")];
    assert!(pages.contains(&"counter".into()), "{types}");
    assert_eq!(kind("zfolio_fault_seconds"), "histogram");
    let quantile = "histogram_quantile(0.99,sum%20by(le)(zfolio_fault_seconds_bucket))";
    let p99 = until("a quantile", || server.value(quantile));
    assert!(p99 > 0.0 && p99 < 1.1, "{p99}");
    live.reads();
    until("more of them", || {
        server
            .value("sum(zfolio_pages_in_total)")
            .filter(|pages| *pages > brought)
    });
    live.end();
    until("the end", || server.value("up").filter(|up| *up == 0.0));
    // The run has gone, and its series is kept.
    let kept = server.value("sum(last_over_time(zfolio_pages_in_total%5B5m%5D))");
    assert!(kept > Some(brought), "{kept:?}");
}
