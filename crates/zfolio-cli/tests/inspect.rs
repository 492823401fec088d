//! `zfolio inspect`: whoever stops all threads of a process and reads finds everything there.

mod memory;
mod support;

use memory::compiled;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::{Guard, Output, Zfolio, finish};

const MIB: u64 = 1 << 20;
/// What the program fills.
const FILLED: u64 = 72;
/// What it may keep.
const HIGH: &str = "20M";
/// Longest that something may take to come true.
const WITHIN: Duration = Duration::from_secs(30);

/// A process under `zfolio run` that has most of its memory out.
struct Held {
    _run: Guard,
    /// The process that is looked into.
    pid: u32,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Where its memory is: addresses and lengths, as it says them.
    place: Vec<String>,
    program: PathBuf,
}

impl Held {
    fn start(z: &Zfolio, way: &str, more: &[&str]) -> Self {
        let program = compiled("inspected").expect("a C compiler");
        let mut command = z.command(["run", "--quiet", "--high", HIGH, "--faults", way, "--"]);
        command.arg(&program).arg(FILLED.to_string()).args(more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("zfolio starts");
        let input = child.stdin.take().expect("kept");
        let mut output = BufReader::new(child.stdout.take().expect("kept"));
        let run = Guard(child);
        let mut line = String::new();
        output.read_line(&mut line).expect("it says something");
        let place: Vec<String> = line.split_whitespace().skip(1).map(str::to_owned).collect();
        assert_eq!(place.len(), 4, "{way}: {line}");
        let pid = child_of(run.0.id());
        let run = Self {
            _run: run,
            pid,
            input,
            output,
            place,
            program,
        };
        run.until_resident("little", |now| now < 32 * MIB);
        run
    }

    /// `zfolio inspect PID OPTIONS -- look ...`, which ends with `status`.
    fn look(&self, z: &Zfolio, options: &[&str], status: &str) -> Output {
        let mut command = self.inspect(z, options);
        command.arg("--").args(self.looking(status));
        finish(&mut command, "")
    }

    /// The command that looks.
    fn looking(&self, status: &str) -> Vec<String> {
        let program = self.program.to_str().expect("a path").to_owned();
        let words = [program, "look".into(), self.pid.to_string()];
        let place = self.place.iter().cloned();
        words
            .into_iter()
            .chain(place)
            .chain([status.into()])
            .collect()
    }

    fn inspect(&self, z: &Zfolio, options: &[&str]) -> Command {
        let mut command = z.command(["inspect"]);
        command.arg(self.pid.to_string()).args(options);
        command
    }

    /// Has the program do something; what it says before it is done.
    #[track_caller]
    fn ask(&mut self, what: &str) -> String {
        writeln!(self.input, "{what}").expect("it reads");
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("it can be read");
            assert!(read > 0, "{what}: it has ended; it said {said}");
            if line == "right\n" {
                return said;
            }
            said += &line;
        }
    }

    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let mut lines = status.lines();
        let of = lines.find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = of.and_then(|of| of.trim().trim_end_matches(" kB").trim().parse().ok());
        kib.unwrap_or(0) * 1024
    }

    #[track_caller]
    fn until_resident(&self, what: &str, met: impl Fn(u64) -> bool) {
        let began = Instant::now();
        while !met(self.resident()) {
            let now = self.resident() / MIB;
            assert!(began.elapsed() < WITHIN, "{now} MiB resident, not {what}");
            sleep(Duration::from_millis(5));
        }
    }

    /// An inspector without a command, that has begun to hold.
    #[track_caller]
    fn hold(&self, z: &Zfolio, options: &[&str]) -> Child {
        let mut command = self.inspect(z, options);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut told = BufReader::new(child.stderr.take().expect("kept"));
        let mut line = String::new();
        while !line.contains("all is in memory") {
            line.clear();
            let read = told.read_line(&mut line).expect("read");
            assert!(read > 0, "it has ended: {:?}", child.wait());
        }
        // (It says nothing more, and need not be read.)
        child.stderr = Some(told.into_inner());
        child
    }

    /// What `zfolio stat` says of it.
    fn stat(&self, z: &Zfolio) -> serde_json::Value {
        let told = finish(
            &mut z.command(["stat", &self.pid.to_string(), "--json"]),
            "",
        );
        let all: serde_json::Value = serde_json::from_str(&told.stdout).expect("JSON");
        let processes = all["processes"].as_array().expect("a list");
        let own = |of: &&serde_json::Value| of["pid"] == self.pid;
        processes.iter().find(own).expect("it is there").clone()
    }

    /// Memory leaves again when something comes in.
    #[track_caller]
    fn until_let_go(&mut self) {
        let began = Instant::now();
        while self.resident() > 32 * MIB {
            self.ask("check");
            assert!(
                began.elapsed() < WITHIN,
                "{} MiB stay",
                self.resident() / MIB
            );
            sleep(Duration::from_millis(20));
        }
    }
}

/// The only child of a process.
fn child_of(pid: u32) -> u32 {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    children.trim().parse().expect("one child")
}

/// Every way in which faults can be told here.
fn ways(z: &Zfolio) -> Vec<&'static str> {
    let mut ways = support::ways_without_privilege(z);
    ways.insert(0, "message");
    ways
}

fn is_refused(output: &Output, status: i32, words: &str) {
    assert_eq!(output.status.code(), Some(status), "{}", output.stderr);
    assert!(output.stderr.contains(words), "{}", output.stderr);
}

#[test]
fn who_stops_all_threads_reads_every_page() {
    let Some(z) = support::real() else { return };
    for way in ways(z) {
        for threads in [&[][..], &["alone"]] {
            let mut run = Held::start(z, way, threads);
            // (Asleep in a read, and in two other calls that nothing ends.)
            let looked = run.look(z, &[], "7");
            assert_eq!(looked.status.code(), Some(7), "{way}: {}", looked.stderr);
            let [has, there] = ["has to come back", "came back in"].map(|words| {
                let lines = looked.stderr.lines().filter(|line| line.contains(words));
                lines.count()
            });
            assert_eq!((has, there), (1, 1), "{way}: {}", looked.stderr);
            run.ask("check");
            run.until_let_go();
            let process = run.stat(z);
            assert_eq!(process["counters"]["inspect_holds"], 1, "{way}");
            assert_eq!(process["state"], "managing", "{way}");
            // Once more, with all of it written meanwhile.
            run.ask("write");
            run.until_let_go();
            let looked = run.look(z, &[], "0");
            assert_eq!(looked.status.code(), Some(0), "{way}: {}", looked.stderr);
            run.ask("fork");
            run.ask("check");
        }
    }
}

/// Without it such a reader gets an error or waits: else the case above shows nothing.
#[test]
fn without_it_what_is_out_cannot_be_read() {
    let Some(z) = support::real() else { return };
    for way in support::ways_without_privilege(z) {
        let run = Held::start(z, way, &[]);
        let words = run.looking("0");
        let (program, rest) = words.split_first().expect("a command");
        let looked = finish(Command::new(program).args(rest), "");
        assert_ne!(looked.status.code(), Some(0), "{way}: {}", looked.stderr);
    }
}

#[test]
fn a_killed_inspector_holds_nothing() {
    let Some(z) = support::real() else { return };
    for way in ways(z) {
        let mut run = Held::start(z, way, &[]);
        let mut inspector = run.hold(z, &[]);
        assert!(run.resident() > FILLED * MIB, "{way}: {}", run.resident());
        assert_eq!(run.stat(z)["state"], "held", "{way}");
        // Nothing leaves, whatever it does.
        for what in ["check", "write", "check"] {
            run.ask(what);
        }
        sleep(Duration::from_millis(300));
        assert!(run.resident() > FILLED * MIB, "{way}: {}", run.resident());
        inspector.kill().expect("killed");
        inspector.wait().expect("it is over");
        run.until_let_go();
        run.ask("check");
        assert_eq!(run.stat(z)["state"], "managing", "{way}");
    }
}

#[test]
fn two_inspectors_and_forks_get_on() {
    let Some(z) = support::real() else { return };
    for way in ways(z) {
        let mut run = Held::start(z, way, &[]);
        let mut first = run.hold(z, &[]);
        let looked = run.look(z, &[], "5");
        assert_eq!(looked.status.code(), Some(5), "{way}: {}", looked.stderr);
        run.ask("fork");
        run.ask("raw");
        assert!(run.resident() > FILLED * MIB, "{way}: one holds it still");
        // By Ctrl-C: it ends as asked.
        support::kill(first.id(), rustix::process::Signal::INT);
        assert!(first.wait().expect("it ends").success(), "{way}");
        run.until_let_go();
        run.ask("fork");
        // For a second, and no longer.
        let began = Instant::now();
        let mut timed = run.hold(z, &["--timeout", "1"]);
        assert!(timed.wait().expect("it ends").success(), "{way}");
        assert!(began.elapsed() >= Duration::from_secs(1), "{way}");
        run.until_let_go();
        let mut command = run.inspect(z, &["--timeout", "2"]);
        command.args(["--", "sleep", "60"]);
        let ended = finish(&mut command, "");
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended.status);
        assert_eq!(signal, Some(15), "{way}: {}", ended.stderr);
    }
}

/// The program's one thread is sent to make a call, whatever it was in, and notices nothing.
#[test]
fn a_sleep_lasts_as_long_as_it_was_to() {
    let Some(z) = support::real() else { return };
    for way in ways(z) {
        let mut run = Held::start(z, way, &["alone"]);
        for _ in 0..5 {
            writeln!(run.input, "nap").expect("it reads");
            sleep(Duration::from_millis(40));
            let mut inspector = run.hold(z, &[]);
            inspector.kill().expect("killed");
            inspector.wait().expect("it is over");
            let mut line = String::new();
            run.output.read_line(&mut line).expect("it says something");
            let took: u64 = line.trim().parse().expect("milliseconds");
            assert!((300..5000).contains(&took), "{way}: {took}");
            line.clear();
            run.output.read_line(&mut line).expect("it says something");
            assert_eq!(line, "right\n", "{way}");
        }
        run.ask("check");
    }
}

#[test]
fn a_process_may_end_while_it_is_held() {
    let Some(z) = support::real() else { return };
    for way in ways(z) {
        let run = Held::start(z, way, &["alone"]);
        let mut inspector = run.hold(z, &[]);
        let Held {
            _run: mut guard,
            input,
            ..
        } = run;
        drop(input);
        assert!(guard.0.wait().expect("it ends").success(), "{way}");
        assert!(inspector.wait().expect("it ends").success(), "{way}");
    }
}

#[test]
fn what_cannot_be_held_is_told() {
    let Some(z) = support::real() else { return };
    let inspect = |words: &[&str]| finish(z.command(["inspect"]).args(words), "");
    is_refused(&inspect(&["4294967295"]), 80, "there is none");
    let me = std::process::id().to_string();
    is_refused(&inspect(&[&me]), 81, "it is not managed");
    is_refused(&inspect(&["x"]), 2, "x");
    is_refused(&inspect(&[&me, "--timeout", "0"]), 2, "--timeout");
    let run = Held::start(z, "auto", &[]);
    let pid = run.pid.to_string();
    is_refused(
        &inspect(&[&pid, "--", "/no/such/command"]),
        127,
        "/no/such/command",
    );
    let none = finish(
        z.command(["inspect", "--tree", &me]).arg("--").arg("true"),
        "",
    );
    is_refused(&none, 81, "not managed");
    let tree = run._run.0.id().to_string();
    let held = inspect(&["--tree", &tree, "--", "sh", "-c", "exit 3"]);
    assert_eq!(held.status.code(), Some(3), "{}", held.stderr);
    assert!(
        held.stderr.contains(&format!("{pid} inspected")),
        "{}",
        held.stderr
    );
    // A process that is stopped brings nothing.
    run.until_resident("little again", |now| now < 32 * MIB);
    support::kill(run.pid, rustix::process::Signal::STOP);
    let stopped = inspect(&[&pid, "--", "true"]);
    support::kill(run.pid, rustix::process::Signal::CONT);
    is_refused(&stopped, 82, "it is stopped");
    assert!(Path::new("/proc").join(&pid).exists());
}

/// A program that has all it needs and was never moved out needs no hold.
#[test]
fn what_was_never_out_is_looked_into_at_once() {
    let Some(z) = support::real() else { return };
    for way in ways(z) {
        let mut command = z.command(["run", "--quiet", "--high", "64M", "--faults", way, "--"]);
        let guard = Guard(
            command
                .args(["sleep", "60"])
                .spawn()
                .expect("zfolio starts"),
        );
        let began = Instant::now();
        let looked = loop {
            sleep(Duration::from_millis(100));
            let pid = fs::read_to_string(format!("/proc/{0}/task/{0}/children", guard.0.id()));
            let pid = pid.unwrap_or_default().trim().to_owned();
            let looked = finish(
                &mut z.command(["inspect", &pid, "--", "sh", "-c", "exit 4"]),
                "",
            );
            if looked.status.code() == Some(4) || began.elapsed() > WITHIN {
                break looked;
            }
        };
        assert_eq!(looked.status.code(), Some(4), "{way}: {}", looked.stderr);
        assert!(
            looked.stderr.contains("nothing is held"),
            "{way}: {}",
            looked.stderr
        );
    }
}
