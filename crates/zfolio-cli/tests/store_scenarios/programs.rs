//! Programs that fork, have threads, start others and take signals.

use super::place::{Place, url};
use crate::servers::Server;
use crate::servers::session::STEP;
use crate::support;
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SCRIPT: &str = "
import hashlib, os, subprocess, threading
blocks = [bytes([i % 251]) * 3000 + os.urandom(1000) for i in range(5500)]
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

pub(crate) fn forks_and_threads(of: &Place<'_>) {
    let threads: &[&str] = &["3", "11", "2"];
    forks_behind(of, "", &[("stress", threads), ("python3", &["-c", SCRIPT])]);
}

/// Children of forks by libc and without, and other programs, where `before` stands before the store.
pub(crate) fn forks_behind(of: &Place<'_>, before: &str, others: &[(&str, &[&str])]) {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let servers = [server];
    let backing = format!("{before}{}", url(&servers, ""));
    let options = ["--high", "16M", "--backing", &backing, "--max-pool", "20"];
    let forks: [(&str, &[&str]); 2] = [("forks", &["libc"]), ("forks", &["raw"])];
    // (By guard and protect a raw fork is what it is in-thread.)
    let is_raw_too = matches!(of.way, "message" | "in-thread");
    let forks = &forks[..if is_raw_too { 2 } else { 1 }];
    for (program, args) in forks.iter().chain(others) {
        let is_script = *program == "python3";
        let path = match is_script {
            true => Some(PathBuf::from(program)),
            false => of.program(program),
        };
        let Some(path) = path else { return };
        let command = [&[path.to_str().expect("a path")], *args].concat();
        let Some(output) = of.run(&options, &command) else {
            return;
        };
        output.succeeded();
        assert!(
            output.counter("pswpout") > 0,
            "{}: {}",
            of.way,
            output.stats
        );
        let failed = output.counter("backing_read_fail");
        assert_eq!(failed, 0, "{}: {program}", of.way);
        if is_script {
            assert_eq!(output.stdout, "right\n", "{}", of.way);
            let read = output.counter("pswpin");
            assert!(read > 500, "{}: {}", of.way, output.stats);
        }
    }
    assert_eq!(servers[0].keys(), 0, "children's values are deleted too");
}

/// A thread waits for a store that does not answer; another maps, moves and unmaps memory that
/// has nothing to do with it.
pub(crate) fn one_waits(of: &Place<'_>) {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let servers = [server];
    let Some(mut session) = of.begin(&["far_beside", "40"], &url(&servers, "")) else {
        return;
    };
    session.step("fill 1");
    session.step("ready");
    servers[0].signal(Signal::STOP);
    let begin = Instant::now();
    session.step("start");
    std::thread::sleep(Duration::from_millis(400));
    session.step("beside 200");
    let took = begin.elapsed();
    session.ask("end");
    let early = session.done(Duration::from_secs(1));
    servers[0].signal(Signal::CONT);
    assert!(!early, "{}: nothing was in the store", of.way);
    assert!(took < Duration::from_secs(10), "{}: {took:?}", of.way);
    assert!(session.done(STEP), "{}: it is waited for", of.way);
    session.ends().succeeded();
}

pub(crate) fn signals(of: &Place<'_>) {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let servers = [server];
    let url = url(&servers, ",on-lost=wait,deadline=1");
    let Some(mut session) = of.begin(&["far_beside", "40"], &url) else {
        return;
    };
    session.step("fill 1");
    session.step("ready");
    servers[0].signal(Signal::STOP);
    // (It has long come to a page that is not there by the fifth of them.)
    session.ask("signals 8");
    let came = session.done(Duration::from_secs(30));
    assert!(came, "{}: they do not come", of.way);
    std::thread::sleep(Duration::from_secs(1));
    support::kill(session.program(), Signal::TERM);
    let ended = session.ends();
    servers[0].signal(Signal::CONT);
    // (`zfolio run` ends by the signal that has ended the program.)
    let by = ended.status.signal();
    assert_eq!(
        by,
        Some(15),
        "{}: {}\n{}",
        of.way,
        ended.status,
        ended.stderr
    );
}
