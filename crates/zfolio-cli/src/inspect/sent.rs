//! Sends a thread of a process to make the one that holds it, where the process has no thread of
//! ours that looks (`--faults in-thread`, `guard`, `protect`).
//!
//! As a debugger does when it calls a function: the thread is stopped, goes on at an address in
//! our library's text for one system call, and has all its registers back. A call that it was in
//! goes on as after any stop by a tracer.
//!
//! The segment says which address that is, and any member of the run may have written there, one
//! with fewer rights than this process has: so it is looked at first. It has to be in a file's text
//! that nobody can write to, and right behind our mark.
//!
//! If this process is killed between the two, some ten microseconds, the thread ends the program by
//! an illegal instruction: as with any debugger.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};
use zfolio_runtime::segment::inspection::ENTRY_MARK;
use zfolio_sys::syscall::Errno;
use zfolio_sys::tracee::{Registers, Stop, Tracee};

/// How long one thread may take to stop, ns.
const STOPS_NS: u64 = 500_000_000;
/// How long it may take to go on where it was, once it has been sent elsewhere, ns: not before it
/// is lost.
const BACK_NS: u64 = 60_000_000_000;
/// How long it is tried.
const TRIED_FOR: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(5);
/// Stops that are looked at on the way to the one that is waited for.
const MOST_STOPS: u32 = 64;

/// Has some thread of process `pid` make the thread that begins at `entry`.
///
/// # Errors
/// None could be sent: what the last try met. `NOENT`: that is no address of ours.
pub(super) fn send(pid: u32, entry: u64) -> Result<(), Errno> {
    if !is_ours(pid, entry) {
        return Err(Errno::NOENT);
    }
    let began = Instant::now();
    loop {
        let mut last = Errno::SRCH;
        for thread in threads(pid) {
            match send_one(thread, entry) {
                Ok(()) => return Ok(()),
                Err(errno) => last = errno,
            }
        }
        // (Not now: it is in a sequence, or in a call that cannot be stopped.)
        let later = matches!(last, Errno::AGAIN | Errno::TIMEDOUT);
        if !later || began.elapsed() > TRIED_FOR {
            return Err(last);
        }
        sleep(PAUSE);
    }
}

/// Whether a thread of process `pid` is sent to our library by it.
fn is_ours(pid: u32, entry: u64) -> bool {
    let Some(from) = entry.checked_sub(ENTRY_MARK.len() as u64) else {
        return false;
    };
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let is_text = maps.lines().any(|line| is_text_with(line, from..entry + 1));
    let mut found = [0; ENTRY_MARK.len()];
    let read = File::open(format!("/proc/{pid}/mem"))
        .and_then(|memory| memory.read_exact_at(&mut found, from));
    is_text && read.is_ok() && found == ENTRY_MARK
}

/// Whether a line of `maps` is of a file's text, which all of `range` is in.
fn is_text_with(line: &str, range: Range<u64>) -> bool {
    let mut words = line.split_whitespace();
    let mapped = words.next().and_then(|word| word.split_once('-'));
    let number = |word: &str| u64::from_str_radix(word, 16).ok();
    let Some((start, end)) = mapped.and_then(|(from, to)| Some((number(from)?, number(to)?)))
    else {
        return false;
    };
    let is_text = words.next() == Some("r-xp");
    let has_file = words.nth(2).is_some_and(|inode| inode != "0");
    is_text && has_file && start <= range.start && range.end <= end
}

/// The threads of a process, the first one first.
fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let names = entries.flatten().flatten().map(|entry| entry.file_name());
    let mut threads: Vec<u32> = names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect();
    threads.sort_unstable();
    threads
}

fn send_one(thread: u32, entry: u64) -> Result<(), Errno> {
    let mut tracee = Tracee::seize(thread)?;
    tracee.interrupt()?;
    until(&mut tracee, Stop::Asked, STOPS_NS, Tracee::go_on)?;
    let registers = tracee.registers()?;
    if !registers.is_in_call() && tracee.is_in_sequence() {
        tracee.go_on(0)?;
        return Err(Errno::AGAIN);
    }
    let mask = tracee.mask()?;
    // (The new thread blocks them all from its first instruction on.)
    tracee.set_mask(!0)?;
    let called = call(&mut tracee, &registers.at(entry));
    if called.is_err() {
        // (Wherever it is: it has to be stopped for what follows.)
        tracee.stop(BACK_NS)?;
    }
    tracee.set_registers(&registers)?;
    tracee.set_mask(mask)?;
    // Once more through a stop: the kernel looks there whether a call is to be begun again.
    tracee.interrupt()?;
    tracee.go_on(0)?;
    until(&mut tracee, Stop::Asked, BACK_NS, Tracee::go_on)?;
    drop(tracee);
    called
}

/// Makes the call at the registers' address; it is stopped after it.
fn call(tracee: &mut Tracee, at: &Registers) -> Result<(), Errno> {
    let to_call = |tracee: &mut Tracee, _: u32| tracee.go_to_call();
    tracee.set_registers(at)?;
    for _ in ["it begins", "it has been made"] {
        tracee.go_to_call()?;
        until(tracee, Stop::Call, BACK_NS, to_call)?;
    }
    let result = tracee.registers()?.result();
    match i32::try_from(result) {
        Ok(error) if error < 0 => Err(Errno(-error)),
        _ => Ok(()),
    }
}

/// Waits for such a stop, and has the thread go on from others as `on` does it.
fn until(
    tracee: &mut Tracee,
    wanted: Stop,
    within: u64,
    on: impl Fn(&mut Tracee, u32) -> Result<(), Errno>,
) -> Result<(), Errno> {
    for _ in 0..MOST_STOPS {
        match tracee.wait(within)? {
            stop if stop == wanted => return Ok(()),
            Stop::Signal(signal) => on(tracee, signal)?,
            Stop::Asked | Stop::Call => on(tracee, 0)?,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_anywhere_but_to_our_text() {
        let text = "7f00-8f00 r-xp 00001000 08:01 77 /lib/libzfolio_preload.so";
        assert!(is_text_with(text, 0x7f10..0x7f21));
        assert!(!is_text_with(text, 0x7ef0..0x7f01), "it begins before");
        assert!(!is_text_with(text, 0x8ef0..0x8f01), "it ends after");
        for other in [
            "7f00-8f00 rwxp 00001000 08:01 77 /lib/x",
            "7f00-8f00 r--p 00001000 08:01 77 /lib/x",
            "7f00-8f00 r-xs 00001000 08:01 77 /lib/x",
            "7f00-8f00 r-xp 00000000 00:00 0",
            "",
        ] {
            assert!(!is_text_with(other, 0x7f10..0x7f21), "{other}");
        }
        // (This command's text has no mark where a test begins.)
        let here = nobody_is_sent_anywhere_but_to_our_text as fn() as usize as u64;
        let me = std::process::id();
        assert_eq!(send(me, here), Err(Errno::NOENT));
        assert_eq!(send(me, 5), Err(Errno::NOENT));
    }
}
