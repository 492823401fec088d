//! `zfolio inspect`: everything of a process in place while a debugger or a profiler looks into it.
//!
//! | file | concept |
//! |---|---|
//! | `found` | which processes are meant |
//! | `room` | whether there is room for what has to come back |
//! | `sent` | making the thread that holds a process which has none of ours |
//!
//! The run is asked to hold the processes, and does so as long as our connection to it is open:
//! however this process ends, nothing is held after it
//! ([`inspection`](zfolio_runtime::segment::inspection)).

mod found;
mod free_memory;
mod sent;

use crate::options::asking::Inspect;
use crate::requests::client::asked;
use crate::requests::message::{Answer, Request};
use crate::supervise::{Outcome, Supervisor};
use found::{Found, Target, find, find_all, is_there};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::signal as sig;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};
use zfolio_host::exit::{Failure, Status, one_line};
use zfolio_host::find_run::locate;
use zfolio_host::segment_file::SharedSegment;
use zfolio_host::size::human;
use zfolio_runtime::segment::inspection::{LEASES, held};
use zfolio_runtime::segment::{Counter, Segment};
use zfolio_sys::syscall::Errno;

/// So long a process may do nothing before it is said not to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// And one that is stopped: nobody may let it go on.
const STOPPED_WITHIN: Duration = Duration::from_secs(2);
/// So long a process must have said that it is held.
const STAYS_FOR: Duration = Duration::from_millis(40);
/// Between two looks.
const EVERY: Duration = Duration::from_millis(10);
/// Between two threads that are sent, if the first has found its lease gone.
const SENT_AGAIN: Duration = Duration::from_secs(1);

/// Holds the process, runs the command, and ends as it does.
///
/// # Errors
/// The process cannot be held, or the command not be started.
pub(crate) fn inspect(args: &Inspect) -> Result<ExitCode, Failure> {
    let pid = args.pid;
    if is_there(pid).is_none() {
        let mend = "look with ps, or zfolio stat";
        let what = format!("process {pid}");
        return Err(Failure::new(Status::NoProcess, what, "there is none", mend));
    }
    let path = locate(Some(Path::new(&pid.to_string()))).map_err(|_| unmanaged(pid, ""))?;
    let segment = SharedSegment::open(&path).map_err(|error| {
        let mend = "look as the user who started the run, or as root";
        Failure::new(Status::Internal, path.display(), error, mend)
    })?;
    let targets = targets(args, &segment)?;
    let began = Instant::now();
    let deadline = args
        .timeout
        .map(|seconds| began + Duration::from_secs(seconds));
    let mut hold = None;
    if !targets.is_empty() {
        let out = check_room(args, &segment, &targets)?;
        let turns = targets.iter().map(|target| target.slot.1).collect();
        let (answer, stream) = asked(&path, &Request::Inspect(turns))?;
        if answer != Answer::Holding {
            let mend = "use the zfolio that started the run";
            let why = "it answers something else";
            return Err(Failure::new(Status::Internal, path.display(), why, mend));
        }
        for target in &targets {
            wait(&segment, target)?;
        }
        let until = match (args.command.is_empty(), args.timeout) {
            (false, _) => "until the command ends".to_owned(),
            (true, None) => "until this ends".to_owned(),
            (true, Some(seconds)) => format!("for {seconds} s"),
        };
        say(&format!(
            "zfolio: {}: all is in memory, {} came back in {:.1} s; nothing is moved out {until}.",
            named(&targets),
            human(out),
            began.elapsed().as_secs_f64()
        ));
        hold = Some(stream);
    }
    let code = match args.command.split_first() {
        Some((program, rest)) => run(Command::new(program).args(rest), deadline),
        None => {
            rest(hold.as_ref(), &targets, deadline);
            Ok(ExitCode::SUCCESS)
        }
    };
    // (Before a command that ended by a signal is followed.)
    drop(hold);
    code
}

/// The processes to be held; none where nothing was ever out.
fn targets(args: &Inspect, segment: &Segment) -> Result<Vec<Target>, Failure> {
    let pid = args.pid;
    if args.tree {
        let all = find_all(segment, pid);
        if all.is_empty() {
            return Err(unmanaged(pid, "nor is any process below it"));
        }
        if all.len() > LEASES {
            let why = format!("{} processes are managed below it", all.len());
            let mend = format!("name one of them: {LEASES} can be held at a time");
            return Err(Failure::new(Status::Usage, "--tree", why, mend));
        }
        return Ok(all);
    }
    match find(segment, pid) {
        Found::Managed(target) => Ok(vec![target]),
        Found::AllThere => {
            say(&format!(
                "zfolio: process {pid}: nothing of it was ever moved out, so nothing is held."
            ));
            Ok(Vec::new())
        }
        Found::Unmanaged(why) => Err(unmanaged(pid, &why)),
    }
}

fn unmanaged(pid: u32, why: &str) -> Failure {
    let why = match why {
        "" => "it is not managed".to_owned(),
        why => format!("it is not managed: {why}"),
    };
    let mend =
        "look into it without zfolio inspect, or name a managed one (zfolio stat, or --tree)";
    Failure::new(Status::NotManaged, format!("process {pid}"), why, mend)
}

/// Says how much has to come back; how much that is, bytes.
fn check_room(args: &Inspect, segment: &Segment, targets: &[Target]) -> Result<u64, Failure> {
    let out = targets.iter().map(|target| target.out(segment));
    let out = out.fold(0, u64::saturating_add);
    let free = targets
        .iter()
        .map(|target| free_memory::free_for(target.pid));
    let free = free.min().unwrap_or(u64::MAX);
    say(&format!(
        "zfolio: {}: {} has to come back, {} is free for it.",
        named(targets),
        human(out),
        human(free)
    ));
    if args.force || free_memory::is_enough(free, out) {
        return Ok(out);
    }
    let why = format!("{} are out and {} are free", human(out), human(free));
    let mend = "free some memory, or say --force";
    Err(Failure::new(Status::NoRoom, named(targets), why, mend))
}

fn named(targets: &[Target]) -> String {
    let names = targets
        .iter()
        .map(|target| format!("{} {}", target.pid, target.name));
    one_line(&names.collect::<Vec<_>>().join(", "))
}

/// Waits until all of a process is there, as long as it gets on.
fn wait(segment: &Segment, target: &Target) -> Result<(), Failure> {
    let what = || one_line(&format!("process {} {}", target.pid, target.name));
    let failed = |why: &str, mend: &str| Failure::new(Status::NoAnswer, what(), why, mend);
    let (mut progress, mut since) = (0, Instant::now());
    let (mut sent, mut held_since) = (None::<Instant>, None::<Instant>);
    loop {
        let Some((slot, stopped)) = target.slot(segment).zip(is_there(target.pid)) else {
            let mend = "look with zfolio stat";
            return Err(Failure::new(
                Status::NoProcess,
                what(),
                "it has ended",
                mend,
            ));
        };
        let state = slot.held.load(Acquire);
        // (It may just be letting go of another inspector's hold: then it says so in a moment.)
        if state == held::HELD {
            let since = *held_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= STAYS_FOR {
                return Ok(());
            }
        } else {
            held_since = None;
        }
        let entry = slot.process.hold_entry.load(Relaxed);
        let again = sent.is_none_or(|sent| sent.elapsed() > SENT_AGAIN);
        if entry != 0 && state == held::NO && again && !stopped {
            sent::send(target.pid, entry).map_err(|errno| refused(errno, &failed))?;
            sent = Some(Instant::now());
        }
        let come = slot.counter(Counter::PagesIn).load(Relaxed);
        let now = come.wrapping_mul(4).wrapping_add(u64::from(state)) + 1;
        if now != progress {
            (progress, since) = (now, Instant::now());
        }
        let patience = if stopped {
            STOPPED_WITHIN
        } else {
            ANSWERS_WITHIN
        };
        if since.elapsed() > patience {
            return Err(match stopped {
                true => failed(
                    "it is stopped, and cannot bring anything",
                    "kill -CONT it first",
                ),
                false => failed(
                    &format!("it has done nothing for {ANSWERS_WITHIN:?}"),
                    "look with zfolio stat whether it goes on",
                ),
            });
        }
        sleep(EVERY);
    }
}

fn refused(errno: Errno, failed: &dyn Fn(&str, &str) -> Failure) -> Failure {
    match errno {
        Errno::PERM | Errno::ACCES => failed(
            "it may not be traced, or is traced already",
            "look as its user where that is permitted (kernel.yama.ptrace_scope), or as root",
        ),
        Errno::NOENT => failed(
            "what its slot says is not where our library is",
            "use the zfolio that started the run",
        ),
        errno => failed(
            &format!("none of its threads could be stopped (errno {})", errno.0),
            "look with ps whether they sleep in the kernel",
        ),
    }
}

/// Runs the command to its end, which is ours; past the deadline it is asked to end.
fn run(command: &mut Command, deadline: Option<Instant>) -> Result<ExitCode, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let started = Supervisor::install().and_then(|supervisor| supervisor.start(command));
    let running = started.map_err(|error| {
        let status = match error.kind() {
            std::io::ErrorKind::NotFound => Status::NotFound,
            _ => Status::NotExecutable,
        };
        Failure::new(status, &name, error, "check the command")
    })?;
    if let Some(deadline) = deadline {
        let pid = i32::try_from(running.pid()).ok().and_then(Pid::from_raw);
        spawn(move || {
            sleep(deadline.saturating_duration_since(Instant::now()));
            // (Once it has ended we do at once: the id is still its.)
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        });
    }
    let outcome: Outcome = running.wait().map_err(|error| {
        let mend = "please report this with the output of zfolio doctor";
        Failure::new(Status::Internal, "waiting for the command", error, mend)
    })?;
    Ok(outcome.follow())
}

/// Waits for a signal, the deadline, or the end of the processes or of the run.
fn rest(hold: Option<&UnixStream>, targets: &[Target], deadline: Option<Instant>) {
    let Some(stream) = hold else { return };
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [sig::SIGINT, sig::SIGTERM, sig::SIGHUP] {
        let _ = signal_hook::flag::register(signal, Arc::clone(&ended));
    }
    let _ = stream.set_read_timeout(Some(EVERY * 5));
    let mut byte = [0];
    while !ended.load(Relaxed) && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        let run_ended = matches!(std::io::Read::read(&mut &*stream, &mut byte), Ok(0));
        let all_over = targets.iter().all(|target| is_there(target.pid).is_none());
        if run_ended || all_over {
            return;
        }
    }
}

/// A line on standard error, whoever reads it.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", one_line(line));
}
