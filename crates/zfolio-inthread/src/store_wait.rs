//! Since when a thread waits for a page from a store, whatever signals it has meanwhile.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What a thread waits for from a store: a page, since when (CLOCK_MONOTONIC, ns; 0: it does
/// not), and when it last gave up for a signal.
#[repr(C)]
pub(crate) struct StoreWait {
    page: AtomicUsize,
    since: AtomicU64,
    left: AtomicU64,
}

/// A wait that goes on after a signal has the deadline it had, if it goes on so soon, ns.
const SAME_WAIT_NS: u64 = 1_000_000_000;

impl StoreWait {
    /// Begins to wait for a page, or goes on; since when.
    pub(crate) fn begin(&self, page: usize, now: u64) -> u64 {
        let left = self.left.load(Ordering::Relaxed);
        let same = self.page.swap(page, Ordering::Relaxed) == page
            && now.saturating_sub(left) < SAME_WAIT_NS;
        let since = self.since.load(Ordering::Relaxed);
        if same && since != 0 {
            return since;
        }
        self.since.store(now, Ordering::Relaxed);
        now
    }

    /// Gives up for a signal.
    pub(crate) fn leave(&self, now: u64) {
        self.left.store(now, Ordering::Relaxed);
    }

    /// It does not wait any more.
    pub(crate) fn end(&self) {
        self.since.store(0, Ordering::Relaxed);
    }
}
