//! Who waits for whom: counts of transits, which the core lock guards, and *bells*, the words that
//! threads sleep on.

use crate::memory::Vpn;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_sys::lock::{futex_wait, futex_wake};

/// Most stages.
pub(in crate::memory) const STAGES: usize = 64;

/// How many stages have pages in transit, and who waits for there to be none. Under the core
/// lock.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Transits {
    under_way: usize,
    /// Threads that wait until nothing is under way.
    wanting: usize,
}

/// Which bells are to be rung after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ring {
    Nothing,
    /// Nothing is under way: for those that want that.
    Quiet,
    /// Nobody wants that any more: for those at the gate.
    Gate,
}

impl Transits {
    /// Nothing is under way, and nobody waits for that.
    pub(crate) const fn new() -> Self {
        Self {
            under_way: 0,
            wanting: 0,
        }
    }

    /// Whether something may begin.
    pub(crate) const fn may_begin(self) -> bool {
        self.wanting == 0
    }

    pub(crate) const fn is_quiet(self) -> bool {
        self.under_way == 0
    }

    /// A stage has pages in transit from here on. Only where that [may](Self::may_begin) be.
    pub(crate) const fn begin(&mut self) {
        debug_assert!(self.may_begin());
        self.under_way += 1;
    }

    /// It has none any more.
    pub(crate) const fn end(&mut self) -> Ring {
        self.under_way -= 1;
        if self.under_way == 0 && self.wanting > 0 {
            Ring::Quiet
        } else {
            Ring::Nothing
        }
    }

    /// A thread waits until nothing is under way.
    pub(crate) const fn want(&mut self) {
        self.wanting += 1;
    }

    /// It has waited.
    pub(crate) const fn have(&mut self) -> Ring {
        self.wanting -= 1;
        if self.wanting == 0 {
            Ring::Gate
        } else {
            Ring::Nothing
        }
    }
}

/// How long a waiter sleeps before it looks whether whom it waits for is there, ns.
const LOOKS_EVERY: u64 = 1_000_000_000;

/// Threads wait for it to ring. The lowest bit: somebody listens; above it, how often it rang
/// for somebody.
#[derive(Default)]
pub(crate) struct Bell(AtomicU32);

/// The value of a bell somebody listens to.
pub(super) const fn listened(value: u32) -> u32 {
    value | 1
}

/// The value after it rang; the same where nobody listens.
pub(super) const fn rung(value: u32) -> u32 {
    if value & 1 == 0 {
        value
    } else {
        value.wrapping_add(1)
    }
}

impl Bell {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Begins to wait: what [`Self::wait`] is given. The core lock is held, and what is waited
    /// for has not come.
    pub(crate) fn listen(&self) -> u32 {
        let value = listened(self.0.load(Ordering::Relaxed));
        self.0.store(value, Ordering::Relaxed);
        value
    }

    /// Rings; whether there is anybody to be [woken](Self::wake). The core lock is held.
    #[must_use]
    pub(crate) fn ring(&self) -> bool {
        let before = self.0.load(Ordering::Relaxed);
        let after = rung(before);
        self.0.store(after, Ordering::Release);
        before != after
    }

    /// Wakes those that listened before it rang.
    pub(crate) fn wake(&self) {
        futex_wake(&self.0, i32::MAX.cast_unsigned());
    }

    /// Waits until it has rung since `heard` was listened to; or it takes long: then `false`.
    pub(crate) fn wait(&self, heard: u32) -> bool {
        futex_wait(&self.0, heard, Some(LOOKS_EVERY));
        self.0.load(Ordering::Acquire) != heard
    }
}

/// Bells of the whole process.
pub(crate) struct Bells {
    /// Rings when nothing is in transit, for those that want that.
    pub(super) quiet: Bell,
    /// Rings when something may begin again.
    pub(super) gate: Bell,
}

impl Bells {
    pub(crate) const fn new() -> Self {
        Self {
            quiet: Bell::new(),
            gate: Bell::new(),
        }
    }
}

/// Which spans are protected, by stage. Under the core lock.
pub(crate) struct Frozen {
    spans: [(Vpn, Vpn); STAGES],
    count: usize,
}

impl Frozen {
    pub(crate) const fn new() -> Self {
        Self {
            spans: [(0, 0); STAGES],
            count: 0,
        }
    }

    /// The stage whose span any of `pages` is in.
    pub(in crate::memory) fn stage_of(&self, pages: &Range<Vpn>) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let meets = |(start, end): &(Vpn, Vpn)| *start < pages.end && pages.start < *end;
        self.spans.iter().position(meets)
    }

    pub(super) fn add(&mut self, stage: usize, pages: &Range<Vpn>) {
        self.spans[stage] = (pages.start, pages.end);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, stage: usize) {
        self.spans[stage] = (0, 0);
        self.count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frozen_spans_are_found_by_any_of_their_pages() {
        let mut frozen = Frozen::new();
        assert_eq!(frozen.stage_of(&(0..usize::MAX)), None);
        frozen.add(3, &(10..20));
        frozen.add(0, &(30..31));
        assert_eq!(frozen.stage_of(&(19..20)), Some(3));
        assert_eq!(frozen.stage_of(&(20..30)), None);
        assert_eq!(frozen.stage_of(&(29..31)), Some(0));
        frozen.remove(3);
        assert_eq!(frozen.stage_of(&(0..30)), None);
        frozen.remove(0);
        assert_eq!(frozen.stage_of(&(0..usize::MAX)), None);
    }
}
