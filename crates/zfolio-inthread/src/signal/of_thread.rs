//! What a thread has of the three signals that are ours.

use super::posted::Posted;
use super::sent::Sent;
use super::waiting::Waiting;
use core::sync::atomic::{AtomicUsize, Ordering};

/// What a thread has of them.
pub(crate) struct OfThread {
    /// Which of them the program believes blocked.
    pub(crate) masked: AtomicUsize,
    /// Those that were sent to this thread meanwhile.
    pub(crate) sent: Sent,
    /// Those that are on their way to this thread.
    pub(crate) posted: Posted,
    /// Those that it waits for (rt_sigtimedwait).
    pub(crate) waiting: Waiting,
}

impl OfThread {
    /// A thread begins.
    pub(crate) fn reset(&self) {
        self.forget();
        self.waiting.clear();
        self.masked.store(0, Ordering::Relaxed);
    }

    /// In the child of a fork: what was sent is the parent's.
    pub(crate) fn forget(&self) {
        self.sent.clear();
        self.posted.clear();
    }
}
