//! What is in a store comes back, cannot be read there, and goes with the run.

use super::place::{Place, url};
use crate::servers::Server;
use crate::servers::session::{STEP, Session, keepers};
use crate::support;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// (By messages the process is managed once a thread of ours has been given a processor, and has more until then.)
pub(crate) fn comes_back(of: &Place<'_>) {
    support::until(
        || came_back(of),
        |peak| support::check(*peak < 16 << 20, || format!("{}: {peak} bytes", of.way)),
    );
}

/// Bytes that were resident at most.
fn came_back(of: &Place<'_>) -> Option<u64> {
    let server = Server::start(&["--requirepass", "se:c,r@et"])?;
    let url = format!("redis://:se%3ac,r%40et@127.0.0.1:{}", server.port);
    let mut session = of.begin(&["stepped", "48"], &url)?;
    session.step("fill 1");
    session.step("check");
    no_password_is_shown(&session);
    let begin = Instant::now();
    while server.keys() <= 25 {
        let many = format!("{}: {} values", of.way, server.keys());
        assert!(begin.elapsed() < Duration::from_secs(20), "{many}");
        session.step("check");
    }
    let exchange = exchange_of(&session);
    session.step("fill 2");
    session.step("random 8000");
    session.step("check");
    let ended = session.ends();
    ended.succeeded();
    assert_eq!(ended.stats["config"]["faults"], of.way);
    assert!(ended.counter("pswpout") > 2000, "{}", ended.stats);
    assert!(ended.counter("pswpin") > 2000, "{}", ended.stats);
    of.had_all_taken(&ended);
    assert!(ended.store("sent_bytes") > 1 << 20, "{}", ended.stats);
    assert!(ended.store("received_bytes") > 1 << 20, "{}", ended.stats);
    assert!(ended.stderr.contains("zfolio: store: "), "{}", ended.stderr);
    assert_eq!(server.keys(), 0, "{}: a run deletes what it had", of.way);
    assert!(!exchange.exists(), "{exchange:?} is left");
    Some(ended.counter("resident_peak_bytes"))
}

/// What `ps` shows of the run and what it has started.
fn no_password_is_shown(session: &Session) {
    let run = session.run.0.id();
    let own = run.to_string();
    for pid in keepers(run).split_whitespace().chain([&own[..]]) {
        for file in ["cmdline", "environ"] {
            let shown = fs::read(format!("/proc/{pid}/{file}")).expect("it lives");
            let shown = String::from_utf8_lossy(&shown);
            let told = ["se:c", "se%3ac"].iter().any(|word| shown.contains(word));
            assert!(!told, "the password is in {file} of {pid}: {shown}");
        }
    }
}

fn exchange_of(session: &Session) -> PathBuf {
    let fds = fs::read_dir(format!("/proc/{}/fd", session.pager())).expect("it lives");
    let mut links = fds.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let exchange = links.find(|link| link.to_string_lossy().ends_with(".exchange"));
    exchange.expect("the exchange is open")
}

pub(crate) fn is_secret(of: &Place<'_>) {
    let Some(server) = Server::start(&["--appendonly", "yes"]) else {
        return;
    };
    // Not compressed: without encryption the text would be there as it is.
    let options = ["--compressor", "none"];
    let servers = [server];
    let begun = of.begin_with(&["secret", "48"], &url(&servers, ""), &options);
    let Some(session) = begun else { return };
    assert!(session.done(STEP), "{}: it is not ready", of.way);
    servers[0].cli(&["SAVE"]);
    let mut bytes = Vec::new();
    for file in servers[0].files() {
        match fs::read(file) {
            Ok(content) => bytes.extend(content),
            // (A file that the server was writing has its own name by now.)
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
        }
    }
    assert!(bytes.len() > 16 << 20, "values are in its files");
    assert!(find(&bytes, b"zf:"), "and keys");
    for piece in [&b"treasure"[..], b"buried", b"the oak"] {
        assert!(!find(&bytes, piece), "{}", String::from_utf8_lossy(piece));
    }
    support::kill(session.run.0.id(), Signal::KILL);
}

fn find(bytes: &[u8], piece: &[u8]) -> bool {
    bytes.windows(piece.len()).any(|window| window == piece)
}
