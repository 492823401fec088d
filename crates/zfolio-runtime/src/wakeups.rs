//! Futex words: who sleeps, and how to wake them.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use zfolio_sys::lock::{futex_wait, futex_wake};

/// The words that threads of ours sleep on.
#[derive(Default)]
pub(crate) struct Wakeups {
    /// Bumped to wake sleeping fault threads.
    pub(crate) fault: AtomicU32,
    /// Bumped to wake the control thread.
    pub(crate) control: AtomicU32,
    /// 1 while the control thread sleeps, or is about to.
    pub(crate) control_sleeps: AtomicU32,
    /// Until when it stays awake all the same, monotonic ns.
    pub(crate) awake_until_ns: AtomicU64,
    /// Whether it serves faults meanwhile.
    pub(crate) awake_helps: AtomicBool,
    /// Bumped when frames were freed and somebody waits for them.
    pub(crate) frames: AtomicU32,
    pub(crate) frame_waiters: AtomicU32,
}

impl Wakeups {
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
        if self.frame_waiters.load(Ordering::Acquire) > 0 {
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
