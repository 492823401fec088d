//! The watchdog: a fault that nobody serves ends the process with one line
//! instead of hanging it.
//!
//! A thread that takes no lock it might wait for, and looks once a second
//! whether what must go on goes on. It counts its own turns and not time: a
//! process that was stopped, or a machine that slept, has lost nothing.

use crate::control::Manager;
use crate::fork_handshake::request;
use crate::health::fatal::{Line, say_signalled};
use crate::segment::THREADS;
use core::fmt::Write;
use core::sync::atomic::Ordering;
use zfolio_sys::limits::with_descriptors;
use zfolio_sys::lock::pause;
use zfolio_sys::own_threads::LastThread;
use zfolio_sys::process::{exit_now, say};
use zfolio_sys::thread::{OwnSignals, pid};
use zfolio_sys::thread_files::wait_channel;
use zfolio_zswap::backing_is_waited_for;

/// Between two looks, ns.
const TURN_NS: u64 = 1_000_000_000;
/// Turns without progress after which the process ends.
const OVERDUE_TURNS: u32 = 30;
/// Turns after which a signal that somebody has sent to this thread alone is told of.
const SIGNALLED_TURNS: u32 = 5;
/// Tries for the core lock in a turn, and the pause between them, ns.
const LOCK_TRIES: u32 = 50;
const LOCK_NS: u64 = 1_000_000;

/// Something that must change, or go away (0), in time.
#[derive(Clone, Copy, Default)]
struct Stuck {
    seen: u64,
    turns: u32,
}

impl Stuck {
    /// Whether `now` is what it has been for too long.
    fn is_overdue(&mut self, now: u64) -> bool {
        if now == 0 || now != self.seen {
            *self = Self {
                seen: now,
                turns: 0,
            };
            return false;
        }
        self.turns += 1;
        self.turns >= OVERDUE_TURNS
    }
}

impl Manager {
    /// The watchdog's life.
    pub(crate) fn watchdog(&self) -> ! {
        let [mut fault, mut unread, mut fork, mut control] = [Stuck::default(); 4];
        let mut locked_out = 0;
        let mut signalled = 0;
        let (mut last_thread, signals) =
            with_descriptors(|| (LastThread::open(), OwnSignals::open()));
        loop {
            pause(TURN_NS);
            if self.scope.has_events()
                && let Some(status) = last_thread.look(pid())
            {
                exit_now(status);
            }
            if signalled < SIGNALLED_TURNS
                && let Some(signal) = signals.pending()
            {
                signalled += 1;
                if signalled == SIGNALLED_TURNS {
                    say_signalled(pid(), signal);
                }
            }
            // A slow device, and a wait that was asked for, are no hangs.
            if self.any_waits_at_max() || backing_is_waited_for() {
                continue;
            }
            let waiting = self.oldest_waiting();
            locked_out = if waiting.is_none() { locked_out + 1 } else { 0 };
            if locked_out >= OVERDUE_TURNS {
                self.overdue("a lock was not released");
            }
            let known = self.serving_since().chain(waiting.flatten());
            if fault.is_overdue(known.min().unwrap_or(0)) {
                self.overdue("a page fault was not served");
            }
            // (Never 0: that is for nothing waiting.)
            let reads = self.reads() + 1;
            let waits = self.fds.program().wait(Some(0));
            if unread.is_overdue(if waits { reads } else { 0 }) {
                self.overdue("events were not read");
            }
            if control.is_overdue(self.control_turns()) {
                self.overdue("reclaim did not go on");
            }
            let asked = self.fork_words().request().load(Ordering::Acquire) == request::PREPARE;
            let generation = u64::from(self.generation()) + 1;
            if fork.is_overdue(if asked { generation } else { 0 }) {
                self.overdue("a fork was not prepared");
            }
        }
    }

    /// When the fault that waits longest, for a thread or for its next try,
    /// was read, if one waits; `None` if the lock cannot be had.
    fn oldest_waiting(&self) -> Option<Option<u64>> {
        for _ in 0..LOCK_TRIES {
            if let Some(core) = self.core.try_lock() {
                return Some(core.inbox.oldest_ns());
            }
            pause(LOCK_NS);
        }
        None
    }

    fn overdue(&self, what: &str) -> ! {
        let why = format_args!("{what} for {OVERDUE_TURNS} seconds");
        self.fail_and_say(why, || self.say_what_is_waited_for())
    }

    /// A line about what waits, and what our threads wait in, for whoever looks into a hang.
    fn say_what_is_waited_for(&self) {
        let mut line = Line::default();
        let _ = write!(line, "zfolio: process {} stood still:", pid());
        let _ = match self.core.try_lock() {
            Some(core) => {
                let [pending, deferred, parked] = core.inbox.lengths();
                let frozen = match core.freeze.is_frozen() {
                    true => ", a fork",
                    false => "",
                };
                let in_flight = match self.is_quiet() {
                    true => "none",
                    false => "some",
                };
                write!(
                    line,
                    " {pending} faults to serve, {deferred} put off, {parked} events put off and \
                     {in_flight} in flight, {} operations, {} children{frozen};",
                    self.operations(),
                    core.inbox.children().len()
                )
            }
            None => line.write_str(" the core lock is held;"),
        };
        for (index, id) in self.stats().process.threads.iter().enumerate() {
            let mut name = [0; 64];
            let id = id.load(Ordering::Relaxed);
            if let Some(waits) = with_descriptors(|| wait_channel(id, &mut name)) {
                let control = if index + 1 == THREADS { "control " } else { "" };
                let _ = write!(line, " {control}{waits}");
            }
        }
        let _ = line.write_str("\n");
        say(line.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_or_is_nothing_is_never_overdue() {
        let mut stuck = Stuck::default();
        assert!((0..200).all(|turn| !stuck.is_overdue(turn / 20)));
        assert!((0..200).all(|_| !stuck.is_overdue(0)));
    }

    #[test]
    fn what_stays_is_overdue_in_the_end() {
        let mut stuck = Stuck::default();
        let turns = (0..).take_while(|_| !stuck.is_overdue(7)).count();
        assert_eq!(turns, OVERDUE_TURNS as usize);
    }
}
