//! A program that is run to its end.

use super::job::Ran;
use crate::args::BenchChild;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use zfolio_host::exit::{Failure, Status};
use zfolio_host::process_tree::Watch;

/// How a run that lasted too long is told.
pub(crate) const ENDED: &str = "it was ended after";

/// Starts `command` and waits for its end, looking every few milliseconds.
pub(crate) fn ended(
    command: &mut Command,
    timeout: Duration,
    watched: bool,
    mut look: impl FnMut(),
) -> Result<Ran, String> {
    let before = usage();
    let begin = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("starting it: {error}"))?;
    let pid = child.id();
    let watch = watched.then(|| Watch::start(pid, true));
    let out = child.stdout.take().map(|pipe| thread::spawn(|| text(pipe)));
    let err = child.stderr.take().map(|pipe| thread::spawn(|| text(pipe)));
    let (sender, receiver) = channel();
    let waiter = thread::spawn(move || wait(child, &sender));
    let mut killed = false;
    let ended = loop {
        match receiver.recv_timeout(Duration::from_millis(20)) {
            Ok(ended) => break Ok(ended),
            Err(RecvTimeoutError::Disconnected) => break Err("waiting for it failed".to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        look();
        if begin.elapsed() > timeout && !killed {
            killed = true;
            end(pid);
        }
    };
    let _ = waiter.join();
    let watched = watch.map(Watch::stop).unwrap_or_default();
    let (status, at) = ended?;
    let joined = |handle: Option<thread::JoinHandle<String>>| {
        handle
            .and_then(|handle| handle.join().ok())
            .unwrap_or_default()
    };
    let (stdout, stderr) = (joined(out), joined(err));
    if killed {
        return Err(format!("{ENDED} {} s", timeout.as_secs()));
    }
    if !status.success() {
        let last = |text: &str| text.lines().next_back().map(str::to_owned);
        let said = last(&stderr).or_else(|| last(&stdout));
        return Err(format!(
            "{status}: {}",
            said.as_deref().unwrap_or("it said nothing")
        ));
    }
    let after = usage();
    Ok(Ran {
        stdout,
        wall: (at - begin).as_secs_f64(),
        user: after[0] - before[0],
        sys: after[1] - before[1],
        resident: watched.peak(),
        high_water: watched.high_water,
        first: watched.root,
        ..Ran::default()
    })
}

type Ended = (std::process::ExitStatus, Instant);

fn wait(mut child: Child, to: &std::sync::mpsc::Sender<Ended>) {
    if let Ok(status) = child.wait() {
        let _ = to.send((status, Instant::now()));
    }
}

fn text(mut pipe: impl Read) -> String {
    let mut text = Vec::new();
    let _ = pipe.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Ends a program and all it has started: what was started by one that has
/// ended is the group's to end, when the run is undone.
pub(crate) fn end(pid: u32) {
    for pid in zfolio_host::process_tree::descendants(pid)
        .into_iter()
        .chain([pid])
    {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Seconds of all children that were waited for, in user mode and in the kernel.
fn usage() -> [f64; 2] {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN);
    used.map_or([0.0; 2], |used| {
        [used.user_time(), used.system_time()].map(|time| time.num_microseconds() as f64 / 1e6)
    })
}

/// `zfolio bench-child`: enters the group and becomes the program.
///
/// # Errors
/// When it cannot.
pub fn child(args: &BenchChild) -> Result<ExitCode, Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(Status::Internal, what, error, "report this")
    };
    // A manager is told to end its program; a program ends.
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| failed("bench-child", &error))?;
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if parent != Some(args.parent) {
        return Err(failed("bench-child", &"the experiment has ended"));
    }
    if let Some(group) = &args.group {
        fs::write(group, "0").map_err(|error| failed(&group.display().to_string(), &error))?;
    }
    let mut command = Command::new(&args.command[0]);
    let error = command.args(&args.command[1..]).exec();
    Err(failed(&args.command[0].to_string_lossy(), &error))
}

/// Whether a program of this name can be started.
pub(crate) fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(OsStr::new(name)).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_fails_or_lasts_is_told() {
        let shell = |script: &str, millis| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            ended(&mut command, Duration::from_millis(millis), false, || ())
        };
        assert_eq!(
            shell("echo yes", 60_000).map(|ran| ran.stdout),
            Ok("yes\n".to_owned())
        );
        let told = shell("echo no >&2; exit 3", 60_000).map(drop);
        assert!(
            told.as_ref().is_err_and(|told| told.contains("no")),
            "{told:?}"
        );
        let told = shell("exec sleep 1000", 1).map(drop);
        assert!(
            told.as_ref()
                .is_err_and(|told| told.contains("ended after")),
            "{told:?}"
        );
    }
}
