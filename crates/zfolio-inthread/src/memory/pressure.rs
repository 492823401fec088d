//! When a thread of ours reclaims beside the program's threads ([`reclaimer`](super::reclaimer)): asked,
//! noted and woken without a lock.
//!
//! As the kernel's kswapd it is there for pressure that lasts: where the program's threads have made room
//! for [`BEGINS_AT`] pages themselves within [`SPAN_NS`] it is wanted. From then on who comes near the
//! limit calls it. What it has not done in time the program's threads do, as before.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use zfolio_runtime::options::BackgroundReclaim;
use zfolio_sys::lock::{futex_wait, futex_wake};
use zfolio_sys::thread::{Clock, now_ns};

/// Pages that the program's threads closed for themselves in a span: the thread is wanted.
const BEGINS_AT: usize = 64;
/// Bound of that span, ns.
const SPAN_NS: u64 = 20_000_000;
/// Without a call for so long the thread ends, ns.
const IDLE_NS: u64 = 100_000_000;
/// Where it could do nothing it does not try again for so long, ns.
const REST_NS: u64 = 20_000_000;

/// In [`Pressure::word`]: it is called.
const CALLED: u32 = 1;
/// It is to end.
const ENDS: u32 = 2;

/// What is known of it without a lock.
pub(crate) struct Pressure {
    asked: BackgroundReclaim,
    /// Nothing limits the process but `high`: who has to heed more makes room for himself. Changes under
    /// the core lock.
    permitted: AtomicBool,
    /// The thread sleeps on it.
    word: AtomicU32,
    /// There is such a thread.
    is_there: AtomicBool,
    is_wanted: AtomicBool,
    /// When the span began (CLOCK_MONOTONIC, ns), and the pages closed in it. Under the core lock.
    since: AtomicU64,
    closed: AtomicUsize,
}

impl Pressure {
    /// Of a process where there may be such a thread as `asked` has it.
    pub(crate) const fn new(asked: BackgroundReclaim) -> Self {
        Self {
            asked,
            permitted: AtomicBool::new(true),
            word: AtomicU32::new(0),
            is_there: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            since: AtomicU64::new(0),
            closed: AtomicUsize::new(0),
        }
    }

    /// Whether there may be such a thread.
    pub(crate) fn may_be(&self) -> bool {
        self.asked != BackgroundReclaim::Off
    }

    /// Whether one may begin now. The core lock is held.
    pub(crate) fn is_permitted(&self) -> bool {
        self.permitted.load(Ordering::Relaxed)
    }

    /// From here on there may be such a thread, or not: one that is there ends. The core lock is held.
    pub(super) fn permit(&self, may: bool) {
        let might = self.permitted.swap(may, Ordering::Relaxed);
        if might && !may && self.is_there() {
            self.have_it_end();
        }
    }

    /// A thread of the program's has made room for itself, and closed so many pages; `now`: when it began.
    /// The core lock is held.
    pub(super) fn note_made(&self, closed: usize, now: u64) {
        if !self.may_be() || !self.is_permitted() || self.is_there.load(Ordering::Relaxed) {
            return;
        }
        let in_span = now.saturating_sub(self.since.load(Ordering::Relaxed)) < SPAN_NS;
        let before = if in_span {
            self.closed.load(Ordering::Relaxed)
        } else {
            self.since.store(now, Ordering::Relaxed);
            0
        };
        self.closed.store(before + closed, Ordering::Relaxed);
        if before + closed >= BEGINS_AT || self.asked == BackgroundReclaim::Eager {
            self.is_wanted.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the thread is wanted, and not there. Asked by who may begin it.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Whoever tries to begin it takes that it is wanted.
    pub(crate) fn take_wish(&self) {
        self.is_wanted.store(false, Ordering::Relaxed);
    }

    /// Whether there is such a thread.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    /// Calls the thread, where there is one.
    pub(super) fn call(&self) {
        if !self.is_there() {
            return;
        }
        if self.word.load(Ordering::Relaxed) & CALLED == 0
            && self.word.fetch_or(CALLED, Ordering::AcqRel) & CALLED == 0
        {
            futex_wake(&self.word, 1);
        }
    }

    /// The thread is about to begin. Nobody else begins or ends it.
    pub(crate) fn begin(&self) {
        self.word.store(CALLED, Ordering::Relaxed);
        self.is_there.store(true, Ordering::Release);
    }

    /// There is none any more, or it could not be made; or this is the child of a fork.
    pub(crate) fn end(&self) {
        self.is_there.store(false, Ordering::Release);
        self.is_wanted.store(false, Ordering::Relaxed);
        self.closed.store(0, Ordering::Relaxed);
    }

    /// Has the thread end: it works on nothing new.
    pub(crate) fn have_it_end(&self) {
        self.word.fetch_or(ENDS, Ordering::AcqRel);
        futex_wake(&self.word, 1);
    }

    /// Of the thread itself: whether it is to end.
    pub(crate) fn is_to_end(&self) -> bool {
        self.word.load(Ordering::Acquire) & ENDS != 0
    }

    /// Of the thread itself: takes the calls that have come. Before it looks what there is to do, so that a
    /// call which comes meanwhile is not lost.
    pub(crate) fn take_calls(&self) {
        self.word.fetch_and(!CALLED, Ordering::AcqRel);
    }

    /// Of the thread itself: waits for a call; whether there is one.
    pub(crate) fn await_call(&self) -> bool {
        let begun = now_ns(Clock::Monotonic);
        loop {
            match self.word.load(Ordering::Acquire) {
                0 => {}
                word => return word & ENDS == 0,
            }
            let passed = now_ns(Clock::Monotonic).saturating_sub(begun);
            let Some(left) = IDLE_NS.checked_sub(passed).filter(|left| *left > 0) else {
                return false;
            };
            futex_wait(&self.word, 0, Some(left));
        }
    }

    /// Of the thread itself: it could do nothing, and would not the next moment; waits for that long, or until it
    /// is to end.
    pub(crate) fn rest(&self) {
        let begun = now_ns(Clock::Monotonic);
        // (Who calls has been heard: nobody wakes for it.)
        self.word.fetch_or(CALLED, Ordering::AcqRel);
        while !self.is_to_end() {
            let passed = now_ns(Clock::Monotonic).saturating_sub(begun);
            let Some(left) = REST_NS.checked_sub(passed).filter(|left| *left > 0) else {
                return;
            };
            futex_wait(&self.word, CALLED, Some(left));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_that_lasts_wants_the_thread() {
        let pressure = Pressure::new(BackgroundReclaim::Auto);
        pressure.note_made(BEGINS_AT - 1, 1_000);
        assert!(!pressure.is_wanted());
        pressure.note_made(BEGINS_AT - 1, 1_000 + SPAN_NS);
        assert!(!pressure.is_wanted(), "another span");
        pressure.note_made(1, 1_001 + SPAN_NS);
        assert!(pressure.is_wanted());
        pressure.take_wish();
        pressure.begin();
        assert!(!pressure.is_wanted());
        pressure.note_made(BEGINS_AT, 1_002 + SPAN_NS);
        assert!(!pressure.is_wanted(), "it is there");
        pressure.end();
        assert!(!pressure.is_wanted());
    }

    #[test]
    fn where_it_is_off_it_is_never_wanted_and_eager_at_once() {
        let off = Pressure::new(BackgroundReclaim::Off);
        off.note_made(1 << 20, 1);
        assert!(!off.is_wanted());
        let eager = Pressure::new(BackgroundReclaim::Eager);
        eager.note_made(1, 1);
        assert!(eager.is_wanted());
    }

    #[test]
    fn where_it_is_not_permitted_it_is_not_wanted_and_one_that_is_there_ends() {
        let pressure = Pressure::new(BackgroundReclaim::Auto);
        pressure.begin();
        pressure.permit(true);
        assert!(!pressure.is_to_end());
        pressure.permit(false);
        assert!(pressure.is_to_end());
        pressure.end();
        pressure.note_made(BEGINS_AT, 1);
        assert!(!pressure.is_wanted());
        pressure.permit(true);
        pressure.note_made(BEGINS_AT, 1);
        assert!(pressure.is_wanted());
        pressure.begin();
        assert!(!pressure.is_to_end(), "it is another");
    }

    #[test]
    fn a_call_that_comes_while_it_works_is_heard() {
        let pressure = Pressure::new(BackgroundReclaim::Auto);
        pressure.call();
        pressure.begin();
        pressure.take_calls();
        pressure.call();
        assert!(pressure.await_call());
        pressure.take_calls();
        assert!(!pressure.await_call(), "none for a while");
        pressure.have_it_end();
        assert!(!pressure.await_call() && pressure.is_to_end());
        pressure.rest();
    }
}
