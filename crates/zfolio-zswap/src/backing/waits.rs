//! Reads that a store is waited for at length by, which the watchdog is to know of.

use crate::backing::cells::now;
use core::sync::atomic::{AtomicU32, Ordering};

/// A read that takes longer than this is one, ns.
const LONG_NS: u64 = 500_000_000;

/// Reads of this process that have taken longer than that and go on.
static LONG_READS: AtomicU32 = AtomicU32::new(0);

/// Whether a store is being waited for at length, which is no hang: a read has a deadline of
/// its own, or none because that was asked for.
#[must_use]
pub fn store_is_waited_for() -> bool {
    LONG_READS.load(Ordering::Relaxed) > 0
}

/// In the child of a fork, where nobody reads yet.
pub(crate) fn forget_reads() {
    LONG_READS.store(0, Ordering::Relaxed);
}

/// A read; counted in [`LONG_READS`] from the moment it has taken long.
pub(crate) struct Waiting {
    since: u64,
    is_long: bool,
}

impl Waiting {
    /// One that has begun at `since`.
    pub(crate) const fn new(since: u64) -> Self {
        Self {
            since,
            is_long: false,
        }
    }

    pub(crate) fn look(&mut self) {
        if !self.is_long && now().saturating_sub(self.since) > LONG_NS {
            self.is_long = true;
            LONG_READS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.is_long {
            LONG_READS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
