//! Ending a process that its manager can no longer serve, nor end.
//!
//! A system call filter that a program puts on all its threads binds the
//! manager's too, and may end them one by one. While the watchdog lives it ends
//! the process with a line; once it is gone as well the program would hang at
//! its next page that is out. So `zfolio run` looks from outside.
//!
//! Every process of the tree can write to the segment, one that gave up its privileges
//! too, and `zfolio run` may have more. So what stands there only says which process to look
//! at. A process is ended for what is true of itself, as /proc has it, and nobody
//! else can bring about:
//!
//! - it is a descendant of ours, after a descriptor of it was opened: its id is nobody
//!   else's from then on;
//! - it has the segment of this run mapped, and a mapping begins where its slot says that
//!   its arena is;
//! - it has no thread that is named as a watchdog.
//!
//! For some seconds that must be so, and another thread of its manager's gone as well
//! (those left may wait for that one, or for a lock it held: for ever). It rules out a
//! process that is exiting (no mappings any more), one that has called exec (where addresses
//! are not random its next arena may lie there as well: only the last slot of a process
//! id is looked at, which is claimed before there is an arena), and a stranger.

use rustix::io::Result;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};
use zfolio_host::exit::one_line;
use zfolio_host::owners::own_id_in_proc;
use zfolio_host::slots::{ByTurn, used};
use zfolio_host::statistics::Process;
use zfolio_runtime::segment::{ProcessSlot, Segment, Used, WATCHDOG_NAME, state};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Looks in a row before a process is ended.
const TIMES: u32 = 5;
/// What is told of it.
const WHY: &str = "the threads that bring its memory back have ended, by its own system call \
                   filter, it seems";

/// Looks once a second at every process of a tree.
pub(crate) struct Orphaned {
    last: Instant,
    times: ByTurn<u32>,
    ended: Vec<u32>,
    /// See [`file_of`]: the segment's.
    file: Option<String>,
}

impl Orphaned {
    /// Begins at `now`, for the processes that have `segment` mapped.
    pub(crate) fn new(segment: &Segment, now: Instant) -> Self {
        let address = std::ptr::from_ref(segment).addr();
        Self {
            last: now,
            times: ByTurn::default(),
            ended: Vec::new(),
            file: file_of(address),
        }
    }

    /// Whether `pid` was ended here.
    pub(crate) fn has_ended(&self, pid: u32) -> bool {
        self.ended.contains(&pid)
    }

    /// Looks if a second has gone by, ends who is unattended, and returns a
    /// line for each.
    pub(crate) fn look(&mut self, segment: &Segment, now: Instant) -> Vec<String> {
        if now.saturating_duration_since(self.last) < EVERY {
            return Vec::new();
        }
        self.last = now;
        // (The shared slot is several processes', nobody knows whose.)
        let slots: Vec<Used<'_>> = used(segment)
            .into_iter()
            .filter(|used| used.turn != 0)
            .collect();
        let mut lines = Vec::new();
        for (nth, &Used { index, turn, slot }) in slots.iter().enumerate() {
            let times = self.times.of(index, turn);
            let pid = slot.process.pid.load(Relaxed);
            let mut later = slots[nth + 1..].iter();
            let mut is_last = || !later.any(|later| later.slot.process.pid.load(Relaxed) == pid);
            *times = if is_unattended(slot) && is_last() {
                *times + 1
            } else {
                0
            };
            if *times < TIMES {
                continue;
            }
            *times = 0;
            if matches!(end(slot, self.file.as_deref()), Ok(true)) {
                self.ended.push(slot.process.pid.load(Relaxed));
                slot.set_message(WHY);
                slot.said.told.store(1, Relaxed);
                slot.state.store(state::FAILED, Release);
                lines.push(line(&Process::read(slot)));
            }
        }
        lines
    }
}

/// Whether the manager named its threads, and the watchdog and another have gone.
fn is_unattended(slot: &ProcessSlot) -> bool {
    let pid = slot.process.pid.load(Relaxed);
    let has_gone = |id: &AtomicU32| {
        let id = id.load(Relaxed);
        id != 0 && !Path::new(&format!("/proc/{pid}/task/{id}")).exists()
    };
    let [watchdog, others @ ..] = &slot.process.threads;
    slot.state.load(Acquire) == state::MANAGING && has_gone(watchdog) && others.iter().any(has_gone)
}

/// The file of the mapping of ours that begins at `address`, as lists of mappings name it:
/// device and inode, with a blank at either end. (A path may be reused, or be another's in
/// another mount namespace.)
fn file_of(address: usize) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let mapping = maps
        .lines()
        .find(|mapping| mapping.starts_with(&format!("{address:x}-")))?;
    let mut fields = mapping.split(' ').skip(3);
    Some(format!(" {} {} ", fields.next()?, fields.next()?))
}

/// Kills the process that the slot names if it is one of ours that nobody serves. `file`:
/// that of the segment.
fn end(slot: &ProcessSlot, file: Option<&str>) -> Result<bool> {
    let Some(file) = file else {
        return Ok(false);
    };
    if own_id_in_proc() != Some(std::process::id()) {
        return Ok(false); // /proc is another pid namespace's, and its ids not ours
    }
    let pid = slot.process.pid.load(Relaxed);
    let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(false);
    };
    // Opened first: from here on the id is nobody else's.
    let process = pidfd_open(raw, PidfdFlags::empty())?;
    let arena = format!("{:x}-", slot.process.arena.load(Relaxed));
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    if !maps.lines().any(|mapping| mapping.starts_with(&arena))
        || !maps.lines().any(|mapping| mapping.contains(file))
        || has_watchdog(pid)
        || !is_unattended(slot)
        || !is_descendant(pid)
    {
        return Ok(false);
    }
    pidfd_send_signal(&process, Signal::KILL)?;
    Ok(true)
}

/// Whether the process is a child of ours, or a child's child, and so on. (The kernel's lists
/// of children may leave one out while another ends.)
fn is_descendant(pid: u32) -> bool {
    let parent = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        fields.split(' ').nth(1)?.parse().ok()
    };
    let line = std::iter::successors(parent(&pid), parent);
    line.take_while(|pid| *pid > 0)
        .any(|pid| pid == std::process::id())
}

/// Whether a thread of the process is named as a watchdog; if that cannot be told, yes.
fn has_watchdog(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    let names = tasks
        .flatten()
        .map(|task| fs::read(task.path().join("comm")));
    names.into_iter().any(|name| match name {
        Ok(name) => name.trim_ascii_end() == WATCHDOG_NAME.as_bytes(),
        // It has just ended, or cannot be looked at.
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    })
}

fn line(process: &Process) -> String {
    one_line(&format!(
        "zfolio: process {} ({}) ended: {WHY}; run it without zfolio, or its filter in \
         another mode",
        process.pid, process.comm
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A child in the first slot, whose manager named `threads`, and an arena
    /// where it has a mapping, or `elsewhere`.
    fn ended(threads: [u32; 3], elsewhere: bool) -> (Vec<String>, Child) {
        ended_of(threads, elsewhere, false)
    }

    /// The same, and whether it called exec and claimed another slot since.
    fn ended_of(threads: [u32; 3], elsewhere: bool, exec: bool) -> (Vec<String>, Child) {
        looked(threads, elsewhere, exec, true)
    }

    /// The same; `member`: whether it has the run's segment mapped.
    fn looked(
        threads: [u32; 3],
        elsewhere: bool,
        exec: bool,
        member: bool,
    ) -> (Vec<String>, Child) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let start = maps.split('-').next().unwrap();
        let arena = u64::from_str_radix(start, 16).unwrap() + u64::from(elsewhere);
        let segment = crate::example::example();
        let slot = &segment.slots[0];
        slot.process.pid.store(child.id(), Relaxed);
        slot.process.arena.store(arena, Relaxed);
        if exec {
            let next = segment.claim(child.id());
            segment.slots[next].process.arena.store(arena, Relaxed);
        }
        for (id, thread) in slot.process.threads.iter().zip(threads) {
            id.store(if thread == 1 { child.id() } else { thread }, Relaxed);
        }
        let begin = Instant::now();
        let mut unattended = Orphaned::new(&segment, begin);
        if member {
            // (Its program stands for the segment.)
            let mut fields = maps.lines().next().unwrap().split(' ').skip(3);
            let file = format!(" {} {} ", fields.next().unwrap(), fields.next().unwrap());
            unattended.file = Some(file);
        }
        let lines: Vec<String> = (1..300)
            .flat_map(|look| unattended.look(&segment, begin + look * Duration::from_millis(50)))
            .collect();
        assert_eq!(unattended.has_ended(child.id()), !lines.is_empty());
        (lines, child)
    }

    fn lives(mut child: Child) -> bool {
        let lives = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        lives
    }

    /// No thread has this id.
    const GONE: u32 = u32::MAX >> 2;

    #[test]
    fn a_process_without_its_managers_threads_is_ended_with_a_line() {
        // The last of three may sleep until the second wakes it.
        for threads in [[GONE, GONE, GONE], [GONE, GONE, 1], [GONE, 1, GONE]] {
            let (lines, mut child) = ended(threads, false);
            assert_eq!(lines.len(), 1, "{threads:?}: {lines:?}");
            assert!(lines[0].contains(&child.id().to_string()), "{lines:?}");
            assert!(!child.wait().unwrap().success());
        }
    }

    /// Its arena may lie where the last image's did.
    #[test]
    fn one_that_has_called_exec_is_not() {
        let (lines, child) = ended_of([GONE, GONE, GONE], false, true);
        assert_eq!(lines, Vec::<String>::new());
        assert!(lives(child));
    }

    #[test]
    fn what_a_process_writes_of_another_does_not_end_it() {
        // It has not mapped the segment.
        let (lines, child) = looked([GONE, GONE, GONE], false, false, false);
        assert_eq!(lines, Vec::<String>::new());
        assert!(lives(child));
    }

    #[test]
    fn a_stranger_is_not_ended() {
        let slot_of = |pid: u32| {
            let segment = crate::example::example();
            let slot = &segment.slots[0];
            slot.process.pid.store(pid, Relaxed);
            slot.state.store(state::MANAGING, Relaxed);
            for id in &slot.process.threads {
                id.store(GONE, Relaxed);
            }
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            let start = maps.split('-').next().unwrap_or_default();
            let arena = u64::from_str_radix(start, 16).unwrap_or(0);
            slot.process.arena.store(arena, Relaxed);
            segment
        };
        // Ourselves: no descendant of ours.
        let segment = slot_of(std::process::id());
        let file = file_of(std::ptr::from_ref::<Segment>(&segment).addr());
        assert!(file.is_some());
        assert_eq!(end(&segment.slots[0], file.as_deref()), Ok(false));
    }

    #[test]
    fn nobody_else_is() {
        for (threads, elsewhere) in [
            ([GONE, 1, 1], false),      // all faults are served
            ([1, GONE, GONE], false),   // the watchdog sees to it
            ([0, 0, 0], false),         // none named yet
            ([GONE, GONE, GONE], true), // another image
        ] {
            let (lines, child) = ended(threads, elsewhere);
            assert_eq!(lines, Vec::<String>::new(), "{threads:?} {elsewhere}");
            assert!(lives(child), "{threads:?} {elsewhere}");
        }
    }
}
