//! A program that is run to its end.

use super::job::Ran;
use crate::args::BenchChild;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getppid, kill_process, set_parent_process_death_signal,
    waitid,
};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use zfolio_host::exit::{Failure, Status};
use zfolio_host::process_time::ProcessTime;
use zfolio_host::process_tree::Watch;

/// How a run that lasted too long is told.
pub(crate) const ENDED: &str = "it was ended after";

/// Between two looks at a run.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Starts `command` and waits for its end. Meanwhile it is looked at: `look` gets the process that was
/// started and says when it wants to look again, or `None` once the run is to be ended.
pub(crate) fn ended(
    command: &mut Command,
    timeout: Duration,
    watched: bool,
    mut look: impl FnMut(u32) -> Option<Duration>,
) -> Result<Ran, String> {
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
    let waiter = thread::spawn(move || reap(child, &sender));
    let mut killed = false;
    let mut wait = Duration::ZERO;
    let ended = loop {
        match receiver.recv_timeout(wait) {
            Ok(ended) => break Ok(ended),
            Err(RecvTimeoutError::Disconnected) => break Err("waiting for it failed".to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let next = look(pid);
        wait = next.unwrap_or(LOOK);
        if (begin.elapsed() > timeout || next.is_none()) && !killed {
            killed = true;
            end(pid);
        }
    };
    let _ = waiter.join();
    let watched = watch.map(Watch::stop).unwrap_or_default();
    let (status, at, ran) = ended?;
    let joined = |handle: Option<thread::JoinHandle<String>>| {
        handle
            .and_then(|handle| handle.join().ok())
            .unwrap_or_default()
    };
    let (stdout, stderr) = (joined(out), joined(err));
    if killed {
        return Err(format!("{ENDED} {} s", begin.elapsed().as_secs()));
    }
    if !status.success() {
        let last = |text: &str| text.lines().next_back().map(str::to_owned);
        let said = last(&stderr).or_else(|| last(&stdout));
        return Err(format!(
            "{status}: {}",
            said.as_deref().unwrap_or("it said nothing")
        ));
    }
    Ok(Ran {
        stdout,
        wall: (at - begin).as_secs_f64(),
        user: ran.user.as_secs_f64(),
        sys: ran.system.as_secs_f64(),
        resident: watched.peak(),
        high_water: watched.high_water,
        first: watched.root,
        ..Ran::default()
    })
}

/// How it ended, when, and what it ran.
type Ended = (std::process::ExitStatus, Instant, ProcessTime);

fn reap(mut child: Child, to: &std::sync::mpsc::Sender<Ended>) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let over = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let seen = pid.map(|pid| waitid(WaitId::Pid(pid), over));
    let at = Instant::now();
    // While it is not waited for, it can still be asked.
    let ran = ProcessTime::of(child.id()).filter(|_| matches!(seen, Some(Ok(Some(_)))));
    if let Ok(status) = child.wait() {
        let _ = to.send((status, at, ran.unwrap_or_default()));
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
            ended(&mut command, Duration::from_millis(millis), false, |_| {
                Some(LOOK)
            })
        };
        let ran = shell(
            "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done",
            60_000,
        );
        let ran = ran.expect("it ends");
        assert!(
            ran.user > 0.0 && ran.user + ran.sys <= ran.wall + 0.02,
            "{ran:?}"
        );
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
