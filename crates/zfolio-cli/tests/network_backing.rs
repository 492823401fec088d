//! A Redis store behind the pool: pages go there and come back byte for byte, also when
//! servers are killed, stopped, full or changed by somebody; and nothing can be read there.

mod memory;
mod servers;
mod support;

use memory::compiled;
use rustix::process::Signal;
use servers::session::{STEP, Session, keepers};
use servers::{Server, cluster};
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn what_is_sent_comes_back_and_nothing_is_left() {
    let Some(server) = Server::start(&["--requirepass", "se:c,r@et"]) else {
        return;
    };
    let url = format!("redis://:se%3ac,r%40et@127.0.0.1:{}", server.port);
    let Some(mut session) = Session::begin(&url, "48") else {
        return;
    };
    session.step("fill 1");
    session.step("check");
    let run = session.run.0.id();
    for pid in keepers(run)
        .split_whitespace()
        .chain([&run.to_string()[..]])
    {
        for file in ["cmdline", "environ"] {
            let shown = fs::read(format!("/proc/{pid}/{file}")).expect("it lives");
            let shown = String::from_utf8_lossy(&shown);
            let told = ["se:c", "se%3ac"].iter().any(|word| shown.contains(word));
            assert!(!told, "the password is in {file} of {pid}: {shown}");
        }
    }
    assert!(server.keys() > 25, "{} values", server.keys());
    let fds = fs::read_dir(format!("/proc/{}/fd", session.pager())).expect("it lives");
    let mut links = fds.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let exchange = links.find(|link| link.to_string_lossy().ends_with(".exchange"));
    let exchange = exchange.expect("the exchange is open");
    session.step("fill 2");
    session.step("random 8000");
    session.step("check");
    let ended = session.ends();
    ended.succeeded();
    assert!(ended.counter("pswpout") > 2000, "{}", ended.stats);
    assert!(ended.counter("pswpin") > 2000, "{}", ended.stats);
    for name in ["backing_refused", "backing_write_fail", "backing_read_fail"] {
        assert_eq!(ended.counter(name), 0, "{name}");
    }
    assert!(ended.store("sent_bytes") > 1 << 20, "{}", ended.stats);
    assert!(ended.store("received_bytes") > 1 << 20, "{}", ended.stats);
    assert!(ended.stderr.contains("zfolio: store: "), "{}", ended.stderr);
    assert_eq!(server.keys(), 0, "a run deletes what it had");
    assert!(!exchange.exists(), "{exchange:?} is left");
}

#[test]
fn forks_and_random_operations() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{}", server.port);
    let Some(z) = support::real() else { return };
    let runs: [(&str, &[&str]); 3] = [
        ("forks", &["libc"]),
        ("forks", &["raw"]),
        ("stress", &["3", "11", "2"]),
    ];
    for (program, args) in runs {
        let Some(path) = compiled(program) else {
            return;
        };
        let options = ["--high", "16M", "--backing", &url, "--max-pool", "20"];
        let mut command = vec![path.to_str().expect("a path")];
        command.extend(args);
        let output = z.run_with(&options, &command, "");
        output.succeeded();
        assert!(output.counter("pswpout") > 0, "{program}: {}", output.stats);
        assert_eq!(output.counter("backing_read_fail"), 0, "{program}");
    }
    assert_eq!(server.keys(), 0, "children's values are deleted too");
}

#[test]
fn nothing_can_be_read_in_the_store_or_its_files() {
    let Some(server) = Server::start(&["--appendonly", "yes"]) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{}", server.port);
    // Not compressed: without encryption the text would be there as it is.
    let options = ["--compressor", "none"];
    let Some(session) = Session::begin_as(&url, &["secret", "48"], &options, |_| {}) else {
        return;
    };
    assert!(session.done(STEP), "it is not ready");
    server.cli(&["SAVE"]);
    let mut bytes = Vec::new();
    for file in server.files() {
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

#[test]
fn a_value_that_was_changed_or_has_gone_ends_the_program() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{}", server.port);
    for (script, words) in [
        (
            "for _,k in ipairs(redis.call('KEYS','zf:*')) do local l=redis.call('STRLEN',k) \
             for at=20,l-1,64 do redis.call('SETRANGE',k,at,'?') end end",
            "the backing gave something else",
        ),
        (
            "local all=redis.call('KEYS','zf:*') local first=redis.call('GET',all[1]) \
             for _,k in ipairs(all) do local v=redis.call('GET',k) \
             redis.call('SET',k,string.sub(string.rep(first,3),1,#v)) end",
            "the backing gave something else",
        ),
        (
            "redis.call('FLUSHALL')",
            "the backing does not have it any more",
        ),
    ] {
        let Some(mut session) = Session::begin(&url, "40") else {
            return;
        };
        session.step("fill 1");
        session.step("check");
        server.cli(&["EVAL", script, "0"]);
        session.ask("check");
        assert!(!session.done(STEP), "wrong bytes were read");
        session.ends().was_ended(words);
    }
}

#[test]
fn a_full_store_leaves_pages_where_they_are() {
    let limits = ["--maxmemory", "4mb", "--maxmemory-policy", "noeviction"];
    let Some(server) = Server::start(&limits) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{},size=1G", server.port);
    let Some(mut session) = Session::begin(&url, "48") else {
        return;
    };
    session.step("fill 1");
    session.step("check");
    session.step("random 4000");
    let ended = session.ends();
    ended.succeeded();
    assert!(ended.counter("pswpout") > 0, "{}", ended.stats);
    assert!(ended.counter("backing_write_fail") > 0, "{}", ended.stats);
    assert!(ended.stderr.contains("it is full"), "{}", ended.stderr);
}

#[test]
fn a_store_that_would_lose_pages_is_refused() {
    let limits = ["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"];
    let Some(server) = Server::start(&limits) else {
        return;
    };
    let Some(z) = support::real() else { return };
    let url = format!("redis://127.0.0.1:{}", server.port);
    let refused = |backing: &str, words: &str| {
        let output = z.run_with(&["--high", "64M", "--backing", backing], &["true"], "");
        assert_eq!(output.status.code(), Some(73), "{}", output.stderr);
        assert!(output.stderr.contains(words), "{}", output.stderr);
    };
    refused(&url, "noeviction");
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    refused(&format!("{url},copies=2"), "2 copies");
    refused("redis://127.0.0.1:1", "--backing redis://127.0.0.1:1");
    let doctor = z.command(["doctor", "--backing", &url]).output();
    let told = String::from_utf8_lossy(&doctor.expect("it runs").stdout).into_owned();
    for words in ["noeviction", "a read of 2 KiB", "one copy, no replica"] {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(server.keys(), 0, "doctor leaves nothing");
}

#[test]
fn a_server_that_stands_still_is_waited_for_as_promised() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let at = format!("redis://127.0.0.1:{}", server.port);
    // It goes on in time; it does not; it is waited for beyond any deadline.
    for (choices, stands, right) in [
        (",deadline=20", 2000, true),
        (",deadline=2", 6000, false),
        (",deadline=1,on-lost=wait", 3000, true),
    ] {
        let Some(mut session) = Session::begin(&format!("{at}{choices}"), "40") else {
            return;
        };
        session.step("fill 1");
        server.signal(Signal::STOP);
        let begin = Instant::now();
        session.ask("check");
        let early = session.done(Duration::from_millis(stands));
        assert!(!early || !right, "nothing was in the store");
        if right {
            server.signal(Signal::CONT);
            assert!(session.done(STEP), "{choices}");
            let ended = session.ends();
            ended.succeeded();
            assert!(ended.stderr.contains("answers again"), "{}", ended.stderr);
        } else {
            let ended = session.ends();
            ended.was_ended("the backing did not answer in time");
            assert!(begin.elapsed() < Duration::from_secs(20));
            server.signal(Signal::CONT);
        }
    }
}

#[test]
fn a_pager_that_is_killed_has_a_successor() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{}", server.port);
    let Some(mut session) = Session::begin(&url, "40") else {
        return;
    };
    session.step("fill 1");
    for turn in 0..2 {
        session.ask(&format!("fill {turn}"));
        std::thread::sleep(Duration::from_millis(150));
        support::kill(session.pager(), Signal::KILL);
        assert!(session.done(STEP), "filling goes on");
        session.step("check");
    }
    let ended = session.ends();
    ended.succeeded();
    assert!(ended.store("pagers") >= 3, "{}", ended.stats);
    assert_eq!(ended.counter("backing_read_fail"), 0);
    assert_eq!(server.keys(), 0, "it knows its predecessors' values");
}

#[test]
fn a_server_that_is_killed_is_done_without() {
    let servers: Option<Vec<_>> = (0..3).map(|_| Server::start(&[])).collect();
    let Some(mut servers) = servers else { return };
    let hosts: Vec<_> = servers
        .iter()
        .map(|server| format!("127.0.0.1:{}", server.port))
        .collect();
    let url = format!("redis://{},copies=2", hosts.join(","));
    let Some(mut session) = Session::begin(&url, "40") else {
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
    assert!(session.done(STEP), "filling goes on");
    session.step("check");
    session.step("fill 3");
    session.step("check");
    session.step("random 4000");
    let ended = session.ends();
    ended.succeeded();
    assert!(ended.store("other_copy") > 0, "{}", ended.stats);
    assert_eq!(ended.counter("backing_read_fail"), 0);
    assert_eq!(servers[0].keys() + servers[2].keys(), 0);
}

#[test]
fn a_cluster_loses_a_primary() {
    let Some(mut nodes) = cluster() else { return };
    for choices in [",wait=1", ",copies=2"] {
        let url = format!("redis://127.0.0.1:{}{choices}", nodes[0].port);
        let Some(mut session) = Session::begin(&url, "40") else {
            return;
        };
        session.step("fill 1");
        session.step("check");
        session.ask("fill 2");
        std::thread::sleep(Duration::from_millis(100));
        let primary = nodes.iter().position(Server::has_replica);
        nodes.remove(primary.expect("a primary")).kill();
        assert!(session.done(STEP), "filling goes on");
        session.step("check");
        session.step("random 4000");
        let ended = session.ends();
        ended.succeeded();
        assert!(ended.counter("pswpin") > 1000, "{}", ended.stats);
        assert_eq!(ended.counter("backing_read_fail"), 0);
    }
}
