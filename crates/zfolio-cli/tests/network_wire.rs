//! A Redis store over networks that are slow, lose packets or are cut; over TLS; with a node
//! that answers with garbage; with a server whose clock jumps.

mod memory;
mod servers;
mod support;

use servers::Server;
use servers::net::Net;
use servers::session::{STEP, Session};
use servers::tap::Tap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn find(bytes: &[u8], piece: &[u8]) -> bool {
    bytes.windows(piece.len()).any(|window| window == piece)
}

/// Fills, checks, looks at pages at random; all must be right.
fn is_right(url: &str, pages: u32, how: &str) {
    let Some(mut session) = Session::begin(url, "24") else {
        return;
    };
    session.step("fill 1");
    session.step("check");
    session.step(&format!("random {pages}"));
    let ended = session.ends();
    ended.succeeded();
    assert!(ended.counter("pswpin") > 100, "{how}: {}", ended.stats);
    assert_eq!(ended.counter("backing_read_fail"), 0, "{how}");
}

#[test]
fn a_store_that_is_far_away_is_waited_for() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let tap = Tap::before(server.port);
    let url = format!("redis://127.0.0.1:{}", tap.port);
    for (us, pages) in [(100, 1000), (1000, 500), (10_000, 100)] {
        tap.delay(Duration::from_micros(us));
        is_right(&url, pages, &format!("{us} us later"));
    }
}

#[test]
fn networks_that_are_slow_or_lose_packets_are_waited_for() {
    let Some(net) = Net::make(0) else { return };
    let Some(server) = Server::start_as(&net.address, &net.within(), &[], |_| {}) else {
        return;
    };
    let url = format!("redis://{}:{}", net.address, server.port);
    for (how, pages) in [
        ("delay 100us", 1000),
        ("delay 1ms", 500),
        ("delay 10ms", 100),
        ("delay 1ms loss 1%", 100),
    ] {
        if !net.is(how) {
            return;
        }
        is_right(&url, pages, how);
    }
}

#[test]
fn a_network_that_is_cut_is_waited_for_or_done_without() {
    let nets: Option<Vec<_>> = (1..3).map(Net::make).collect();
    let Some(nets) = nets else { return };
    let servers: Option<Vec<_>> = nets
        .iter()
        .map(|net| Server::start_as(&net.address, &net.within(), &[], |_| {}))
        .collect();
    let Some(servers) = servers else { return };
    let hosts: Vec<_> = servers
        .iter()
        .map(|server| format!("{}:{}", server.address, server.port))
        .collect();
    // One of two for good: the other copy. The only one for a while: it is waited for.
    for (url, comes_back) in [
        (format!("redis://{},copies=2", hosts.join(",")), false),
        (format!("redis://{}", hosts[0]), true),
    ] {
        let Some(mut session) = Session::begin(&url, "24") else {
            return;
        };
        session.step("fill 1");
        session.step("check");
        nets[0].is_cut(true);
        session.ask("check");
        if comes_back {
            std::thread::sleep(Duration::from_secs(3));
            nets[0].is_cut(false);
        }
        assert!(session.done(STEP), "{url}\n{}", session.told());
        session.step("random 500");
        nets[0].is_cut(false);
        let ended = session.ends();
        ended.succeeded();
        assert_eq!(ended.counter("backing_read_fail"), 0, "{url}");
        assert!(comes_back || ended.store("other_copy") > 0, "{url}");
    }
}

const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";

/// What a server is started with that speaks TLS on a port as well, by the certificate in `dir`.
/// (Its --port is the plain one, which redis-cli uses.)
fn by_tls(dir: &Path) -> Vec<String> {
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let port = servers::free_port().to_string();
    let options = [
        ("--tls-port", port),
        ("--tls-cert-file", path(CERTIFICATE)),
        ("--tls-key-file", path(KEY)),
        ("--tls-ca-cert-file", path(CERTIFICATE)),
        ("--tls-auth-clients", "no".to_owned()),
    ];
    let pair = |(name, value): (&str, String)| [name.to_owned(), value];
    options.into_iter().flat_map(pair).collect()
}

fn words(options: &[String]) -> Vec<&str> {
    options.iter().map(String::as_str).collect()
}

/// A certificate of its own authority for 127.0.0.1, made by openssl; `None`, loudly, without it.
fn certificate(dir: &Path) -> Option<()> {
    let made = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .args(["-keyout", KEY, "-out", CERTIFICATE, "-subj", "/CN=test"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(dir)
        .output();
    match made {
        Ok(made) if made.status.success() => Some(()),
        _ => {
            support::skip("openssl makes no certificate");
            None
        }
    }
}

#[test]
fn nothing_can_be_read_on_the_wire_and_with_tls_no_key_either() {
    let dir = support::tempdir();
    let Some(()) = certificate(dir.path()) else {
        return;
    };
    for tls in [false, true] {
        let mut options = by_tls(dir.path());
        options.extend(["--requirepass", "hunter22"].map(str::to_owned));
        let Some(server) = Server::start(&words(&options)) else {
            return;
        };
        let to = server.tls_port.filter(|_| tls).unwrap_or(server.port);
        let tap = Tap::before(to);
        let scheme = if tls { "rediss" } else { "redis" };
        let url = format!("{scheme}://:hunter22@127.0.0.1:{}", tap.port);
        let options = ["--compressor", "none"];
        let session = Session::begin_as(&url, &["secret", "32"], &options, |command| {
            command.env("SSL_CERT_FILE", dir.path().join(CERTIFICATE));
        });
        let Some(session) = session else { return };
        assert!(session.done(STEP), "it is not ready: {}", session.told());
        let seen = tap.seen();
        assert!(seen.len() > 16 << 20, "{} bytes went over it", seen.len());
        for piece in [&b"treasure"[..], b"buried", b"the oak"] {
            assert!(!find(&seen, piece), "{}", String::from_utf8_lossy(piece));
        }
        for piece in [&b"hunter22"[..], b"GETRANGE"] {
            let text = String::from_utf8_lossy(piece);
            assert_eq!(find(&seen, piece), !tls, "{text}, TLS {tls}");
        }
        support::kill(session.run.0.id(), rustix::process::Signal::KILL);
    }
}

/// The nodes speak TLS with one another too; the one that takes over is found and asked by TLS.
#[test]
fn a_cluster_by_tls_loses_a_primary() {
    let dir = support::tempdir();
    let Some(()) = certificate(dir.path()) else {
        return;
    };
    let nodes = servers::cluster_with(|| {
        let mut options = by_tls(dir.path());
        options.extend(["--tls-cluster", "yes", "--tls-replication", "yes"].map(str::to_owned));
        options
    });
    let Some(mut nodes) = nodes else { return };
    let port = nodes[0].tls_port.expect("a port");
    let url = format!("rediss://127.0.0.1:{port},wait=1");
    let session = Session::begin_as(&url, &["stepped", "40"], &[], |command| {
        command.env("SSL_CERT_FILE", dir.path().join(CERTIFICATE));
    });
    let Some(mut session) = session else { return };
    session.step("fill 1");
    for node in &nodes {
        let told = node.cli(&["CLIENT", "LIST", "TYPE", "normal"]);
        let by = |port: u16| told.matches(&format!("laddr=127.0.0.1:{port} ")).count();
        assert_eq!(by(node.port), 1, "redis-cli alone: {told}");
        let asked = node.has_replica() == (by(node.tls_port.expect("a port")) > 0);
        assert!(asked, "primaries, by TLS: {told}");
    }
    session.survives_a_primary(&mut nodes);
}

#[test]
fn a_server_that_nobody_vouches_for_is_refused() {
    let dir = support::tempdir();
    let Some(()) = certificate(dir.path()) else {
        return;
    };
    let Some(server) = Server::start(&words(&by_tls(dir.path()))) else {
        return;
    };
    let Some(z) = support::real() else { return };
    let url = format!("rediss://127.0.0.1:{}", server.tls_port.expect("a port"));
    let output = z.run_with(&["--high", "64M", "--backing", &url], &["true"], "");
    assert_eq!(output.status.code(), Some(73), "{}", output.stderr);
    assert!(output.stderr.contains("certificate"), "{}", output.stderr);
}

#[test]
fn a_node_that_answers_with_garbage_gives_no_wrong_byte() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let tap = Tap::before(server.port);
    let url = format!("redis://127.0.0.1:{},deadline=5", tap.port);
    let Some(mut session) = Session::begin(&url, "40") else {
        return;
    };
    session.step("fill 1");
    session.step("check");
    tap.change(true);
    session.ask("check");
    assert!(!session.done(STEP), "wrong bytes were read");
    let ended = session.ends();
    assert_eq!(ended.status.code(), Some(70), "{}", ended.stderr);
    let told = ended.stderr.lines().any(|line| line.contains("backing"));
    assert!(told, "{}", ended.stderr);
}

/// gettimeofday(2) and its like, so many seconds off; the number is a file's.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long none, *off = &none;
__attribute__((constructor)) static void begin(void) {
    int fd = open(getenv("CLOCK_OFF"), O_RDONLY);
    void *at = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) off = at;
}
int gettimeofday(struct timeval *at, void *zone) {
    int done = syscall(SYS_gettimeofday, at, zone);
    at->tv_sec += *off;
    return done;
}
int clock_gettime(clockid_t which, struct timespec *at) {
    int done = syscall(SYS_clock_gettime, which, at);
    if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) at->tv_sec += *off;
    return done;
}
time_t time(time_t *at) {
    struct timeval now;
    gettimeofday(&now, 0);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The clock of the store decides when values expire; nothing here looks at one that jumps.
#[test]
fn a_clock_that_jumps_loses_values_that_are_found_to_be_lost() {
    let dir = support::tempdir();
    let flags = ["-shared", "-fPIC"];
    let Some(library) = support::compile(dir.path(), "clock.so", CLOCK, &flags) else {
        support::skip("no C compiler");
        return;
    };
    let file = dir.path().join("off");
    fs::write(&file, vec![0; 4096]).expect("a file");
    let jump = |seconds: i64| {
        // (In place: it is mapped.)
        let mut open = fs::OpenOptions::new();
        let open = open.write(true).open(&file).expect("a file");
        open.write_at(&seconds.to_le_bytes(), 0).expect("written");
    };
    let started = Server::start_as("127.0.0.1", &[], &[], |command| {
        command.env("LD_PRELOAD", &library).env("CLOCK_OFF", &file);
    });
    let Some(server) = started else { return };
    let url = format!("redis://127.0.0.1:{}", server.port);
    let Some(mut session) = Session::begin(&url, "40") else {
        return;
    };
    session.step("fill 1");
    // Back by a day: values live longer.
    jump(-86_400);
    session.step("check");
    session.step("fill 2");
    session.step("check");
    // Ahead by two: all that was there has expired.
    jump(86_400);
    session.ask("check");
    assert!(!session.done(STEP), "wrong bytes were read");
    session
        .ends()
        .was_ended("the backing does not have it any more");
}

#[test]
fn bandwidth_is_kept_and_what_went_is_shown_while_the_run_lasts() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{},bandwidth=512K", server.port);
    let begin = Instant::now();
    let Some(mut session) = Session::begin(&url, "40") else {
        return;
    };
    session.step("fill 1");
    let z = support::zfolio();
    let pid = session.run.0.id().to_string();
    let told = |words: &[&str]| {
        let output = z.command(words).arg(&pid).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let json: serde_json::Value = serde_json::from_str(&told(&["stat", "--json"])).expect("JSON");
    let store = &json["store"];
    let number = |name: &str| {
        store[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {store}"))
    };
    let most = (begin.elapsed().as_secs() + 2) * (512 << 10);
    assert!(number("sent_bytes") < most, "{store} of {most}");
    assert!(number("held_back") > 0, "{store}");
    session.step("check");
    assert!(told(&["stat"]).contains("store: "), "{}", told(&["stat"]));
    let metrics = told(&["metrics"]);
    for name in ["read_seconds_bucket", "sent_bytes_total", "held_back_total"] {
        assert!(metrics.contains(&format!("zfolio_store_{name}")), "{name}");
    }
    session.ends().succeeded();
}
