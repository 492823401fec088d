//! Servers and pagers that are full, stand still or are killed: the program goes on.

use super::place::{Place, url};
use crate::servers::Server;
use crate::servers::session::STEP;
use crate::support::{self, Zfolio};
use rustix::process::Signal;
use std::time::Duration;

pub(crate) fn full(of: &Place<'_>) {
    let limits = ["--maxmemory", "4mb", "--maxmemory-policy", "noeviction"];
    let Some(server) = Server::start(&limits) else {
        return;
    };
    let servers = [server];
    let Some(mut session) = of.begin(&["stepped", "48"], &url(&servers, ",size=1G")) else {
        return;
    };
    session.step("fill 1");
    session.step("check");
    session.step("random 4000");
    let ended = session.ends();
    ended.succeeded();
    assert!(ended.counter("pswpout") > 0, "{}: {}", of.way, ended.stats);
    assert!(ended.counter("backing_write_fail") > 0, "{}", ended.stats);
    assert!(ended.stderr.contains("it is full"), "{}", ended.stderr);
}

/// A server stands still for `ms` while pages are wanted, and goes on.
pub(crate) fn stands(of: &Place<'_>, choices: &str, ms: u64) {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let servers = [server];
    let Some(mut session) = of.begin(&["stepped", "40"], &url(&servers, choices)) else {
        return;
    };
    session.step("fill 1");
    servers[0].signal(Signal::STOP);
    session.ask("check");
    let early = session.done(Duration::from_millis(ms));
    servers[0].signal(Signal::CONT);
    assert!(!early, "{}: nothing was in the store", of.way);
    assert!(session.done(STEP), "{}: it is waited for", of.way);
    let ended = session.ends();
    ended.succeeded();
    assert!(ended.stderr.contains("answers again"), "{}", ended.stderr);
}

pub(crate) fn pager_killed(of: &Place<'_>) {
    let Some((servers, mut session)) = of.filled("") else {
        return;
    };
    for turn in 0..2 {
        session.ask(&format!("fill {turn}"));
        std::thread::sleep(Duration::from_millis(150));
        support::kill(session.pager(), Signal::KILL);
        assert!(session.done(STEP), "{}: filling goes on", of.way);
        session.step("check");
    }
    let ended = session.ends();
    ended.succeeded();
    assert!(ended.store("pagers") >= 3, "{}: {}", of.way, ended.stats);
    assert_eq!(ended.counter("backing_read_fail"), 0, "{}", of.way);
    assert_eq!(servers[0].keys(), 0, "it knows its predecessors' values");
}

/// One of three servers, and there are two copies.
pub(crate) fn killed(of: &Place<'_>) {
    let servers: Option<Vec<_>> = (0..3).map(|_| Server::start(&[])).collect();
    let Some(mut servers) = servers else { return };
    let url = url(&servers, ",copies=2");
    let Some(mut session) = of.begin(&["stepped", "40"], &url) else {
        return;
    };
    session.step("fill 1");
    session.step("check");
    let counts: Vec<u64> = servers.iter().map(Server::keys).collect();
    let all: u64 = counts.iter().sum();
    assert!(counts.iter().all(|of| of * 6 > all), "spread: {counts:?}");
    session.ask("fill 2");
    std::thread::sleep(Duration::from_millis(100));
    servers[1].kill();
    assert!(session.done(STEP), "{}: filling goes on", of.way);
    session.step("check");
    session.step("fill 3");
    session.step("check");
    session.step("random 4000");
    let ended = session.ends();
    ended.succeeded();
    assert!(ended.store("other_copy") > 0, "{}: {}", of.way, ended.stats);
    assert_eq!(ended.counter("backing_read_fail"), 0, "{}", of.way);
    assert_eq!(servers[0].keys() + servers[2].keys(), 0, "{}", of.way);
}

/// A primary of a cluster, while memory is filled.
pub(crate) fn primary_killed(of: &Place<'_>, nodes: &mut Vec<Server>, choices: &str) {
    let url = url(&nodes[..1], choices);
    let Some(session) = of.begin(&["stepped", "40"], &url) else {
        return;
    };
    session.survives_a_primary(nodes);
}

pub(crate) fn refused(z: &Zfolio) {
    let limits = ["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"];
    let Some(server) = Server::start(&limits) else {
        return;
    };
    let servers = [server];
    let refused = |backing: &str, words: &str| {
        let output = z.run_with(&["--high", "64M", "--backing", backing], &["true"], "");
        assert_eq!(output.status.code(), Some(73), "{}", output.stderr);
        assert!(output.stderr.contains(words), "{}", output.stderr);
    };
    refused(&url(&servers, ""), "noeviction");
    servers[0].cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    refused(&url(&servers, ",copies=2"), "2 copies");
    refused("redis://127.0.0.1:1", "--backing redis://127.0.0.1:1");
    let mut doctor = z.command(["doctor", "--backing", &url(&servers, "")]);
    let doctor = doctor.output().expect("it runs");
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    for words in ["noeviction", "a read of 2 KiB", "one copy, no replica"] {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(servers[0].keys(), 0, "doctor leaves nothing");
}
