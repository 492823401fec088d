//! Futex words: who sleeps, and how to wake them.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use zfolio_sys::lock::{futex_wait, futex_wake};

/// The words that threads of ours sleep on.
#[derive(Default)]
pub(crate) struct Wakeups {
    /// Bumped to wake sleeping fault threads.
    fault: AtomicU32,
    /// Bumped to wake the control thread.
    control: AtomicU32,
    /// Whether the control thread sleeps, or is about to.
    control_sleeps: AtomicBool,
    /// Until when it stays awake all the same, monotonic ns.
    awake_until_ns: AtomicU64,
    /// Whether it serves faults meanwhile.
    awake_helps: AtomicBool,
    /// Bumped when frames were freed and somebody waits for them.
    frames: AtomicU32,
    frame_waiters: AtomicU32,
}

impl Wakeups {
    /// How often the control thread was woken: for [`Self::control_sleep`].
    pub(crate) fn control_seq(&self) -> u32 {
        self.control.load(Ordering::Acquire)
    }

    /// Whether the control thread was woken since its number was `seq`.
    pub(crate) fn is_control_called(&self, seq: u32) -> bool {
        self.control.load(Ordering::Relaxed) != seq
    }

    /// Whether the control thread sleeps, or is about to.
    pub(crate) fn control_sleeps(&self) -> bool {
        self.control_sleeps.load(Ordering::Relaxed)
    }

    /// The control thread is at work.
    pub(crate) fn control_works(&self) {
        self.control_sleeps.store(false, Ordering::Relaxed);
    }

    /// The control thread is about to sleep: from now on it is woken for what it is to do. It
    /// looks whether there is anything once more before it does sleep.
    pub(crate) fn control_stops(&self) {
        self.control_sleeps.store(true, Ordering::SeqCst);
    }

    /// The control thread sleeps until it is woken (its number is not `seq` any more), `nap` ns
    /// at most.
    pub(crate) fn control_sleep(&self, seq: u32, nap: Option<u64>) {
        futex_wait(&self.control, seq, nap);
    }

    /// Has the control thread stay awake until then, monotonic ns, and serve faults if it
    /// `helps`.
    pub(crate) fn stay_awake(&self, until_ns: u64, helps: bool) {
        self.awake_helps.store(helps, Ordering::Relaxed);
        self.awake_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// It may sleep again.
    pub(crate) fn stop_staying_awake(&self) {
        self.awake_until_ns.store(0, Ordering::Relaxed);
    }

    /// Until when it stays awake, monotonic ns.
    pub(crate) fn awake_until_ns(&self) -> u64 {
        self.awake_until_ns.load(Ordering::Relaxed)
    }

    /// Whether it serves faults meanwhile.
    pub(crate) fn awake_helps(&self) -> bool {
        self.awake_helps.load(Ordering::Relaxed)
    }

    /// How often a fault thread was woken: for [`Self::sleep_as_sibling`].
    pub(crate) fn sibling_seq(&self) -> u32 {
        self.fault.load(Ordering::Acquire)
    }

    /// A fault thread sleeps until one is woken: the number is not `seq` any more.
    pub(crate) fn sleep_as_sibling(&self, seq: u32) {
        futex_wait(&self.fault, seq, None);
    }

    /// Whether a thread waits for frames.
    pub(crate) fn are_frames_awaited(&self) -> bool {
        self.frame_waiters.load(Ordering::Acquire) > 0
    }

    /// In the child of a fork: the threads that waited are the parent's.
    pub(crate) fn forget_frame_waiters(&self) {
        self.frame_waiters.store(0, Ordering::Relaxed);
    }

    /// Wakes the control thread.
    pub(crate) fn wake_control(&self) {
        self.control.fetch_add(1, Ordering::Release);
        futex_wake(&self.control, 1);
    }

    /// Has another fault thread look for work.
    pub(crate) fn wake_sibling(&self) {
        self.fault.fetch_add(1, Ordering::Release);
        futex_wake(&self.fault, 1);
    }

    /// Tells threads that wait for frames that there may be some.
    pub(crate) fn frames_freed(&self) {
        if self.are_frames_awaited() {
            self.frames.fetch_add(1, Ordering::Release);
            futex_wake(&self.frames, u32::MAX);
        }
    }

    /// Sleeps until frames were freed, 1 ms at most.
    pub(crate) fn await_frames(&self) {
        let seen = self.frames.load(Ordering::Acquire);
        self.frame_waiters.fetch_add(1, Ordering::AcqRel);
        futex_wait(&self.frames, seen, Some(1_000_000));
        self.frame_waiters.fetch_sub(1, Ordering::AcqRel);
    }
}

/// For which threads of the program the control thread stays awake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AwakeFor {
    /// For one thread: it keeps its processor from falling asleep.
    One,
    /// For several: it serves them as well.
    Several,
}
