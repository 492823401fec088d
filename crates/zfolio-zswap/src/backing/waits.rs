//! Calls and reads that the backing is waited for at length by, which the watchdog is to know of.

use crate::backing::cells::now;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What takes longer than this is at length, ns.
const LONG_NS: u64 = 500_000_000;
/// Calls at a time that are noted; any more are made all the same.
const NOTED: usize = 32;

/// Reads of this process from a store that have taken longer than that and go on.
static LONG_READS: AtomicU32 = AtomicU32::new(0);
/// Calls of this process for a file.
static CALLS: Calls = Calls::new();

/// Whether the backing is being waited for at length, which is no hang: a device may be slow,
/// and a read from a store has a deadline of its own, or none because that was asked for.
#[must_use]
pub fn backing_is_waited_for() -> bool {
    LONG_READS.load(Ordering::Relaxed) > 0 || CALLS.any_is_long(now())
}

/// In the child of a fork, where nobody waits yet.
pub(crate) fn forget_waits() {
    LONG_READS.store(0, Ordering::Relaxed);
    CALLS.forget();
}

/// Makes a call that may take as long as a device does.
pub(crate) fn during_call<R>(call: impl FnOnce() -> R) -> R {
    CALLS.during(now(), call)
}

/// Calls that go on. Each is noted by itself: that others end says nothing of one that does not.
struct Calls {
    /// When each began, ns; 0: none.
    since: [AtomicU64; NOTED],
}

impl Calls {
    const fn new() -> Self {
        Self {
            since: [const { AtomicU64::new(0) }; NOTED],
        }
    }

    fn during<R>(&self, begin: u64, call: impl FnOnce() -> R) -> R {
        let place = self.since.iter().find(|place| {
            let taken = place.compare_exchange(0, begin, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok()
        });
        let result = call();
        if let Some(place) = place {
            place.store(0, Ordering::Relaxed);
        }
        result
    }

    fn any_is_long(&self, now: u64) -> bool {
        let mut begun = self.since.iter().map(|place| place.load(Ordering::Relaxed));
        begun.any(|since| since != 0 && now.saturating_sub(since) > LONG_NS)
    }

    fn forget(&self) {
        for place in &self.since {
            place.store(0, Ordering::Relaxed);
        }
    }
}

/// A read from a store; counted in [`LONG_READS`] from the moment it has taken long.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_goes_on_is_told_of_though_others_end() {
        let calls = Calls::new();
        calls.during(7, || {
            for begin in 8..100 {
                calls.during(begin, || ());
            }
            assert!(!calls.any_is_long(7 + LONG_NS));
            assert!(calls.any_is_long(8 + LONG_NS));
        });
        assert!(!calls.any_is_long(u64::MAX), "none goes on");
    }

    #[test]
    fn more_calls_than_are_noted_are_made() {
        fn nested(calls: &Calls, depth: usize) -> usize {
            match depth {
                0 => 0,
                _ => calls.during(1, || nested(calls, depth - 1) + 1),
            }
        }
        let calls = Calls::new();
        assert_eq!(nested(&calls, 2 * NOTED), 2 * NOTED);
        assert!(!calls.any_is_long(u64::MAX));
    }
}
