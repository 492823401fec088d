//! Whether units that somebody waits for go to the engines: measured, not assumed.
//!
//! To hand a page over costs two copies, and to wake an engine longer than to decompress a page.
//! Whether that pays depends on the codec, on how many come together, and on whether a
//! processor is idle at that moment. So what a unit takes either way is kept, by how many come
//! together, and the way that takes less is chosen. The other is tried now and then: one batch in
//! [`AGAIN`] without engines where they pay, and where they do not one with engines in as many as
//! `AGAIN` doubled each time that they did not, [`SELDOM`] at most.
//!
//! All is read and written without order: a lost sample does not matter.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Fewest units of a batch that may go to engines.
pub const LEAST: usize = 16;
/// Units from which on a batch is of the second class.
const MANY: usize = 32;
/// Batches after which the other way is tried.
const AGAIN: u32 = 16;
/// The same, where engines were tried in vain again and again.
const SELDOM: u32 = 2048;
/// A sample counts for so much of an average at most: a thread that lost its processor in the
/// middle says nothing of the way.
const AT_MOST: u32 = 4;
/// A new sample is one part in so many of an average.
const WEIGHT: u32 = 4;

/// Who decompresses a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Inline,
    Engines,
}

/// What is known, for batches of [`LEAST`] and of [`MANY`] units.
#[derive(Debug)]
pub(super) struct Judge([Class; 2]);

#[derive(Debug)]
struct Class {
    /// What a unit takes on average, ns; 0: not known.
    inline_ns: AtomicU32,
    engines_ns: AtomicU32,
    /// Batches since the other way was tried.
    since: AtomicU32,
    /// Batches after which it is tried.
    period: AtomicU32,
}

impl Default for Judge {
    fn default() -> Self {
        Self([Class::new(), Class::new()])
    }
}

impl Judge {
    fn class(&self, units: usize) -> &Class {
        &self.0[usize::from(units >= MANY)]
    }

    /// How a batch of so many units is to be done.
    pub(super) fn choose(&self, units: usize) -> Way {
        if units < LEAST {
            return Way::Inline;
        }
        self.class(units).choose()
    }

    /// A batch of so many units took `ns`.
    pub(super) fn note(&self, units: usize, way: Way, ns: u64) {
        if units >= LEAST {
            let each = u32::try_from(ns / units as u64).unwrap_or(u32::MAX);
            self.class(units).note(way, each.max(1));
        }
    }

    /// Forgets all.
    pub(super) fn restart(&self) {
        for class in &self.0 {
            class.inline_ns.store(0, Relaxed);
            class.engines_ns.store(0, Relaxed);
            class.since.store(0, Relaxed);
            class.period.store(AGAIN, Relaxed);
        }
    }
}

impl Class {
    const fn new() -> Self {
        Self {
            inline_ns: AtomicU32::new(0),
            engines_ns: AtomicU32::new(0),
            since: AtomicU32::new(0),
            period: AtomicU32::new(AGAIN),
        }
    }

    /// Whether engines take a tenth less at least.
    fn pays(&self) -> bool {
        let of = |ns: &AtomicU32| u64::from(ns.load(Relaxed));
        of(&self.engines_ns) * 10 <= of(&self.inline_ns) * 9
    }

    fn choose(&self) -> Way {
        if self.inline_ns.load(Relaxed) == 0 {
            return Way::Inline;
        }
        if self.engines_ns.load(Relaxed) == 0 {
            return Way::Engines;
        }
        let other = self.since.fetch_add(1, Relaxed) + 1 >= self.period.load(Relaxed);
        if other {
            self.since.store(0, Relaxed);
        }
        if self.pays() == other {
            Way::Inline
        } else {
            Way::Engines
        }
    }

    fn note(&self, way: Way, ns: u32) {
        let average = match way {
            Way::Inline => &self.inline_ns,
            Way::Engines => &self.engines_ns,
        };
        let known = average.load(Relaxed);
        // (Engines that did not pay were tried long ago.)
        let next = if known == 0 || (way == Way::Engines && !self.pays()) {
            ns
        } else {
            let ns = ns.min(known.saturating_mul(AT_MOST));
            known - known / WEIGHT + ns / WEIGHT
        };
        average.store(next.max(1), Relaxed);
        if way == Way::Engines {
            let period = if self.pays() {
                AGAIN
            } else {
                (self.period.load(Relaxed) * 2).min(SELDOM)
            };
            self.period.store(period, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes through `batches` of `units`, of which one takes what `ns` says; how many went to
    /// engines.
    fn engines(judge: &Judge, units: usize, batches: usize, ns: impl Fn(Way) -> u64) -> usize {
        let each = |_| {
            let way = judge.choose(units);
            judge.note(units, way, ns(way) * units as u64);
            usize::from(way == Way::Engines)
        };
        (0..batches).map(each).sum()
    }

    #[test]
    fn few_units_never_go() {
        let judge = Judge::default();
        assert_eq!(engines(&judge, LEAST - 1, 1000, |_| 1000), 0);
    }

    #[test]
    fn the_way_that_takes_less_is_taken_and_the_other_seldom_tried() {
        let faster = |way| if way == Way::Engines { 600 } else { 1000 };
        let slower = |way| if way == Way::Engines { 3000 } else { 1000 };
        let judge = Judge::default();
        assert!(engines(&judge, 16, 1000, faster) >= 1000 - 1000 / AGAIN as usize - 2);
        // Tried after 1, 32, 64 ... batches.
        assert!(engines(&judge, 32, 1000, slower) <= 6, "another class");
        assert!(engines(&judge, 32, 20_000, slower) <= 16);
        // Idle processors come back: found out after a while.
        engines(&judge, 32, 6000, faster);
        assert!(engines(&judge, 32, 1000, faster) > 900);
        // And go again: found out at once.
        assert!(engines(&judge, 32, 1000, slower) < 16);
    }

    #[test]
    fn as_fast_is_not_faster() {
        let judge = Judge::default();
        assert!(engines(&judge, 32, 10_000, |_| 1000) < 16);
    }

    #[test]
    fn one_sample_that_lost_its_processor_changes_nothing() {
        let judge = Judge::default();
        let slower = |way| if way == Way::Engines { 8000 } else { 1000 };
        engines(&judge, 32, 100, slower);
        judge.note(32, Way::Inline, 32 * 4_000_000);
        assert!(!judge.class(32).pays());
        judge.restart();
        assert_eq!(judge.choose(32), Way::Inline, "nothing is known");
    }
}
