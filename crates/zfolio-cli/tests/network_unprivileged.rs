//! A Redis store behind the pool without privilege: as a user who may nothing, in each of the ways
//! in which the thread that faults serves itself.

mod memory;
mod nobody;
mod servers;
mod support;

use memory::compiled;
use nobody::{Nobody, WAYS};
use rustix::process::Signal;
use servers::Server;
use servers::session::{STEP, Session};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

/// Calls `with` for each way that there is here, with how to begin a session in it.
fn in_each_way(program: &[&str], with: impl Fn(&str, &dyn Fn(&str) -> Session)) {
    let Some(nobody) = Nobody::new() else { return };
    let Some(path) = compiled(program[0]) else {
        return;
    };
    let path = nobody.program(&path);
    for way in WAYS {
        if nobody.command(way).is_none() {
            continue;
        }
        with(way, &|backing| {
            let command = nobody.command(way).expect("it was there");
            Session::begin_by(command, &path, backing, program, &[], |_| {})
        });
    }
}

#[test]
fn what_is_sent_comes_back_and_nothing_is_left() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{}", server.port);
    in_each_way(&["stepped", "48"], |way, begin| {
        let mut session = begin(&url);
        session.step("fill 1");
        session.step("check");
        assert!(server.keys() > 25, "{way}: {} values", server.keys());
        session.step("fill 2");
        session.step("random 8000");
        session.step("check");
        let ended = session.ends();
        ended.succeeded();
        assert_eq!(ended.stats["config"]["faults"], way);
        let peak = ended.counter("resident_peak_bytes");
        assert!(peak < 16 << 20, "{way}: {peak} bytes resident");
        assert!(ended.counter("pswpout") > 2000, "{}", ended.stats);
        assert!(ended.counter("pswpin") > 2000, "{}", ended.stats);
        for name in ["backing_refused", "backing_write_fail", "backing_read_fail"] {
            assert_eq!(ended.counter(name), 0, "{way}: {name}");
        }
        assert!(ended.store("sent_bytes") > 1 << 20, "{}", ended.stats);
        assert_eq!(server.keys(), 0, "{way}: a run deletes what it had");
    });
}

#[test]
fn forks_threads_and_other_programs() {
    const SCRIPT: &str = "
import hashlib, os, subprocess, threading
blocks = [bytes([i % 251]) * 3000 + os.urandom(1000) for i in range(8000)]
want = [hashlib.md5(b).digest() for b in blocks]
def right(part=1):
    assert all(hashlib.md5(b).digest() == w for b, w in list(zip(blocks, want))[::part])
threads = [threading.Thread(target=right, args=(n,)) for n in (1, 2, 3)]
for t in threads: t.start()
for t in threads: t.join()
for _ in range(2):
    child = os.fork()
    if child == 0:
        right()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert subprocess.run(['true']).returncode == 0
for fd in range(3, 1100):
    try:
        os.close(fd)
    except OSError:
        pass
right()
os.execvp('sh', ['sh', '-c', 'echo right'])
";
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let Some(nobody) = Nobody::new() else { return };
    let url = format!("redis://127.0.0.1:{}", server.port);
    let options = ["--high", "16M", "--backing", &url, "--max-pool", "20"];
    let programs: [(&str, &[&str]); 3] = [
        ("forks", &["libc"]),
        ("forks", &["raw"]),
        ("stress", &["3", "11", "2"]),
    ];
    for way in WAYS {
        for (program, args) in programs {
            let Some(path) = compiled(program) else {
                return;
            };
            let path = nobody.program(&path);
            let mut command = vec![path.to_str().expect("a path")];
            command.extend(args);
            let Some(output) = nobody.run_with(way, &options, &command) else {
                continue;
            };
            output.succeeded();
            assert!(output.counter("pswpout") > 0, "{way}: {}", output.stats);
            assert_eq!(output.counter("backing_read_fail"), 0, "{way}: {program}");
        }
        if let Some(output) = nobody.run_with(way, &options, &["python3", "-c", SCRIPT]) {
            output.succeeded();
            assert_eq!(output.stdout, "right\n", "{way}");
            assert!(output.counter("pswpin") > 500, "{way}: {}", output.stats);
        }
    }
    assert_eq!(server.keys(), 0, "children's values are deleted too");
}

/// A thread waits for a store that does not answer; another maps, moves and unmaps memory that
/// has nothing to do with it.
#[test]
fn who_waits_holds_nobody_else_up() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{}", server.port);
    in_each_way(&["far_beside", "40"], |way, begin| {
        let mut session = begin(&url);
        session.step("fill 1");
        server.signal(Signal::STOP);
        let begin = Instant::now();
        session.step("start");
        std::thread::sleep(Duration::from_millis(400));
        session.step("beside 200");
        let took = begin.elapsed();
        session.ask("end");
        let early = session.done(Duration::from_secs(1));
        server.signal(Signal::CONT);
        assert!(!early, "{way}: nothing was in the store");
        assert!(took < Duration::from_secs(10), "{way}: {took:?}");
        assert!(session.done(STEP), "{way}: it is waited for");
        session.ends().succeeded();
    });
}

#[test]
fn signals_come_to_who_waits() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{},on-lost=wait,deadline=1", server.port);
    in_each_way(&["far_beside", "40"], |way, begin| {
        let mut session = begin(&url);
        session.step("fill 1");
        server.signal(Signal::STOP);
        // (It has long come to a page that is not there by the fifth of them.)
        session.ask("signals 8");
        assert!(
            session.done(Duration::from_secs(30)),
            "{way}: they do not come"
        );
        std::thread::sleep(Duration::from_secs(1));
        support::kill(session.program(), Signal::TERM);
        let ended = session.ends();
        server.signal(Signal::CONT);
        // (`zfolio run` ends by the signal that has ended the program.)
        let by = ended.status.signal();
        assert_eq!(by, Some(15), "{way}: {}\n{}", ended.status, ended.stderr);
    });
}

#[test]
fn a_server_that_stands_still_is_waited_for_as_promised() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let at = format!("redis://127.0.0.1:{}", server.port);
    in_each_way(&["stepped", "40"], |way, begin| {
        for (choices, stands, right) in [
            (",deadline=20", 2000, true),
            (",deadline=2", 6000, false),
            (",deadline=1,on-lost=wait", 3000, true),
        ] {
            let mut session = begin(&format!("{at}{choices}"));
            session.step("fill 1");
            server.signal(Signal::STOP);
            let begin = Instant::now();
            session.ask("check");
            let early = session.done(Duration::from_millis(stands));
            assert!(!early || !right, "{way}: nothing was in the store");
            if right {
                server.signal(Signal::CONT);
                assert!(session.done(STEP), "{way}{choices}");
                session.ends().succeeded();
            } else {
                session
                    .ends()
                    .was_ended("the backing did not answer in time");
                assert!(begin.elapsed() < Duration::from_secs(20), "{way}");
                server.signal(Signal::CONT);
            }
        }
    });
}

#[test]
fn a_full_store_leaves_pages_where_they_are() {
    let limits = ["--maxmemory", "4mb", "--maxmemory-policy", "noeviction"];
    let Some(server) = Server::start(&limits) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{},size=1G", server.port);
    in_each_way(&["stepped", "48"], |way, begin| {
        let mut session = begin(&url);
        session.step("fill 1");
        session.step("check");
        session.step("random 4000");
        let ended = session.ends();
        ended.succeeded();
        assert!(ended.counter("pswpout") > 0, "{way}: {}", ended.stats);
        assert!(ended.counter("backing_write_fail") > 0, "{}", ended.stats);
        assert!(ended.stderr.contains("it is full"), "{}", ended.stderr);
    });
}

#[test]
fn a_value_that_has_gone_ends_the_program() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{}", server.port);
    in_each_way(&["stepped", "40"], |way, begin| {
        for (script, words) in [
            (
                "for _,k in ipairs(redis.call('KEYS','zf:*')) do local l=redis.call('STRLEN',k) \
                 for at=20,l-1,64 do redis.call('SETRANGE',k,at,'?') end end",
                "the backing gave something else",
            ),
            (
                "redis.call('FLUSHALL')",
                "the backing does not have it any more",
            ),
        ] {
            let mut session = begin(&url);
            session.step("fill 1");
            session.step("check");
            server.cli(&["EVAL", script, "0"]);
            session.ask("check");
            assert!(!session.done(STEP), "{way}: wrong bytes were read");
            session.ends().was_ended(words);
        }
    });
}

#[test]
fn a_pager_that_is_killed_has_a_successor() {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let url = format!("redis://127.0.0.1:{}", server.port);
    in_each_way(&["stepped", "40"], |way, begin| {
        let mut session = begin(&url);
        session.step("fill 1");
        for turn in 0..2 {
            session.ask(&format!("fill {turn}"));
            std::thread::sleep(Duration::from_millis(150));
            support::kill(session.pager(), Signal::KILL);
            assert!(session.done(STEP), "{way}: filling goes on");
            session.step("check");
        }
        let ended = session.ends();
        ended.succeeded();
        assert!(ended.store("pagers") >= 3, "{way}: {}", ended.stats);
        assert_eq!(ended.counter("backing_read_fail"), 0);
        assert_eq!(server.keys(), 0, "it knows its predecessors' values");
    });
}

#[test]
fn a_server_that_is_killed_is_done_without() {
    in_each_way(&["stepped", "40"], |way, begin| {
        let servers: Option<Vec<_>> = (0..3).map(|_| Server::start(&[])).collect();
        let Some(mut servers) = servers else { return };
        let hosts: Vec<_> = servers
            .iter()
            .map(|server| format!("127.0.0.1:{}", server.port))
            .collect();
        let mut session = begin(&format!("redis://{},copies=2", hosts.join(",")));
        session.step("fill 1");
        session.step("check");
        session.ask("fill 2");
        std::thread::sleep(Duration::from_millis(100));
        servers[1].kill();
        assert!(session.done(STEP), "{way}: filling goes on");
        session.step("check");
        session.step("fill 3");
        session.step("check");
        session.step("random 4000");
        let ended = session.ends();
        ended.succeeded();
        assert!(ended.store("other_copy") > 0, "{way}: {}", ended.stats);
        assert_eq!(ended.counter("backing_read_fail"), 0);
        assert_eq!(servers[0].keys() + servers[2].keys(), 0);
    });
}
