//! Namespaces: `zfolio run` as process 1 of a container, and containers within a run.

mod memory;
mod support;

use memory::compiled;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::Guard;

/// The words that start something as process 1 of a pid namespace; none after saying that it
/// is not permitted.
fn namespace() -> Option<&'static [&'static str]> {
    const AS_ROOT: &[&str] = &["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    const AS_USER: &[&str] = &[
        "unshare",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ];
    let works = |words: &&&[&str]| {
        let mut command = Command::new(words[0]);
        let done = command.args(&words[1..]).arg("true").output();
        done.is_ok_and(|done| done.status.success())
    };
    let found = [AS_ROOT, AS_USER].iter().find(works).copied();
    if found.is_none() {
        support::skip("no pid namespace may be made (unshare --pid)");
    }
    found
}

/// `zfolio run -- sh -c SCRIPT` as process 1.
fn as_init(script: &str) -> Option<Command> {
    let z = support::zfolio();
    let words = namespace()?;
    let mut command = Command::new(words[0]);
    command
        .env("ZFOLIO_PRELOAD", z.library())
        .args(&words[1..])
        .arg(z.exe())
        .process_group(0);
    let run = ["run", "--quiet", "--allow-unmanaged", "--high", "32M", "--"];
    command.args(run).args(["sh", "-c", script]);
    Some(command)
}

#[test]
fn the_programs_signal_becomes_a_status() {
    for (script, status) in [
        ("exit 7", 7),
        ("kill -TERM $$; sleep 9", 128 + 15),
        ("kill -KILL $$; sleep 9", 128 + 9),
        ("kill -SEGV $$; sleep 9", 128 + 11),
    ] {
        let Some(mut command) = as_init(script) else {
            return;
        };
        let output = support::finish(&mut command, "");
        let (code, signal) = (output.status.code(), output.status.signal());
        assert_eq!(
            (code, signal),
            (Some(status), None),
            "{script}: {}",
            output.stderr
        );
    }
}

#[test]
fn orphans_are_waited_for() {
    // Nobody but process 1 can take a zombie of another's child away.
    let script = "test $PPID = 1 || exit 3
        orphans=$(for n in 1 2 3 4 5 6 7 8; do (sleep 0.1 >&- & echo $!); done)
        for orphan in $orphans; do
            tries=0
            while test -e /proc/$orphan; do
                tries=$((tries + 1)); test $tries -lt 500 || exit 4; sleep 0.01
            done
        done
        echo $orphans | wc -w";
    let Some(mut command) = as_init(script) else {
        return;
    };
    let output = support::finish(&mut command, "");
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert_eq!(output.stdout.trim(), "8");
}

#[test]
fn signals_are_passed_on() {
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done";
    let Some(mut command) = as_init(script) else {
        return;
    };
    let child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut child = Guard(child);
    let mut line = String::new();
    let stdout = child.0.stdout.take().expect("a pipe");
    let _ = BufReader::new(stdout).read_line(&mut line);
    assert_eq!(line, "ready\n");
    // The first of what `unshare` has started.
    let init = zfolio_host::process_tree::descendants(child.0.id())[0];
    support::kill(init, rustix::process::Signal::TERM);
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.0.try_wait().expect("a child") {
            break status;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it goes on");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(9));
}

/// Two processes of one run that have the same process id, each in a namespace of its own.
#[test]
fn containers_within_a_run_share_its_high() {
    let (Some(z), Some(words)) = (support::real(), namespace()) else {
        return;
    };
    let Some(program) = compiled("plain") else {
        return;
    };
    let one = format!("{} {} 64 300", words.join(" "), program.display());
    let script = format!("{one} & {one} || exit 1; wait $!");
    let run = || Some(z.run_with(&["--high", "40M"], &["bash", "-c", &script], ""));
    support::until(run, |output| {
        output.succeeded();
        let managed = output.stats["processes_managed"].as_u64();
        let peak = &output.stats["shared_resident_peak_bytes"];
        let peak = peak.as_u64().expect("a number") >> 20;
        support::check(managed == Some(2) && (24..100).contains(&peak), || {
            format!("{managed:?} managed, {peak} MiB at once, of 128 and of `high` 40")
        })
    });
}
