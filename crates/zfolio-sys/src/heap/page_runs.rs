//! Runs of whole units of a reservation: first fit from the lowest address over a bitmap.
//!
//! Freed runs are one with their free neighbours at once, since the bitmap has no borders
//! between them, and nothing is remembered of them elsewhere: however often blocks of
//! however different sizes come and go, no address is lost.
//!
//! # Invariants
//! - A bit is 1 while its unit is part of a block that was handed out, else 0; the bits
//!   after the last unit are 1.
//! - `used` is the number of units with a 1.

/// Bytes of a unit.
pub(super) const UNIT: usize = 16 << 10;

const BITS: usize = u64::BITS as usize;

/// Words of a bitmap for `units` units.
pub(super) const fn words(units: usize) -> usize {
    units.div_ceil(BITS)
}

/// The bitmap, wherever it lies, and how many units it is of.
pub(super) struct PageRuns<W> {
    bits: W,
    units: usize,
    used: usize,
}

impl<W: AsRef<[u64]> + AsMut<[u64]>> PageRuns<W> {
    /// All units free. `bits` are zeros, at least [`words`] of them.
    pub(super) fn new(mut bits: W, units: usize) -> Self {
        let mut rest = bits.as_mut()[units / BITS..].iter_mut();
        if let Some(word) = rest.next() {
            *word = !0 << (units % BITS);
        }
        rest.for_each(|word| *word = !0);
        Self {
            bits,
            units,
            used: 0,
        }
    }

    /// Units in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Takes `count` units that lie together; the first of them.
    pub(super) fn take(&mut self, count: usize) -> Option<usize> {
        let first = self.find(count)?;
        self.mark(first, count, true);
        self.used += count;
        Some(first)
    }

    /// Gives back what [`Self::take`] gave. False, and nothing is changed, if not all of it
    /// is in use.
    pub(super) fn give(&mut self, first: usize, count: usize) -> bool {
        let within = first
            .checked_add(count)
            .is_some_and(|end| end <= self.units);
        let ours = within && self.free_at(first, count).is_none();
        if ours {
            self.mark(first, count, false);
            self.used -= count;
        }
        ours
    }

    /// The first of the lowest `count` free units that lie together.
    fn find(&self, count: usize) -> Option<usize> {
        let mut first = 0;
        while first + count <= self.units {
            match self.used_at(first, count) {
                None => return Some(first),
                // (All of a word in use is passed over at once.)
                Some(at) => first = at + self.used_from(at),
            }
        }
        None
    }

    /// How many units from `at` are in use, at least: up to the end of their word.
    fn used_from(&self, at: usize) -> usize {
        let word = self.bits.as_ref()[at / BITS] >> (at % BITS);
        let ones = word.trailing_ones() as usize;
        ones.clamp(1, BITS - at % BITS)
    }

    /// The last unit in use of `count` from `first`.
    fn used_at(&self, first: usize, count: usize) -> Option<usize> {
        self.any(first, count, |word| word)
    }

    /// The last free unit of `count` from `first`.
    fn free_at(&self, first: usize, count: usize) -> Option<usize> {
        self.any(first, count, |word| !word)
    }

    /// The last of `count` units from `first` whose bit is 1 after `of`.
    fn any(&self, first: usize, count: usize, of: impl Fn(u64) -> u64) -> Option<usize> {
        let bits = self.bits.as_ref();
        let end = first + count;
        let mut to = end;
        while to > first {
            let index = (to - 1) / BITS;
            let from = first.max(index * BITS);
            let found = of(bits[index]) & mask(from % BITS, to - from);
            if found != 0 {
                return Some(index * BITS + (BITS - 1 - found.leading_zeros() as usize));
            }
            to = from;
        }
        None
    }

    fn mark(&mut self, first: usize, count: usize, used: bool) {
        let bits = self.bits.as_mut();
        let (mut from, end) = (first, first + count);
        while from < end {
            let to = end.min((from / BITS + 1) * BITS);
            let mask = mask(from % BITS, to - from);
            let word = &mut bits[from / BITS];
            *word = if used { *word | mask } else { *word & !mask };
            from = to;
        }
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub(super) fn validate(&self) {
        let bits = self.bits.as_ref();
        let ones: usize = bits.iter().map(|word| word.count_ones() as usize).sum();
        let beyond = bits.len() * BITS - self.units;
        assert_eq!(ones, self.used + beyond);
    }
}

/// `count` ones from bit `from`, all in one word.
const fn mask(from: usize, count: usize) -> u64 {
    (!0 >> (BITS - count)) << from
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn runs(units: usize) -> PageRuns<Vec<u64>> {
        PageRuns::new(std::vec![0; words(units)], units)
    }

    #[test]
    fn sizes_that_differ_each_time_use_no_addresses_up() {
        let mut runs = runs(1000);
        for round in 0..10_000 {
            let count = 200 + round * 37 % 600;
            let at = runs.take(count).expect("all is free");
            assert_eq!(at, 0, "round {round}");
            assert!(runs.give(at, count));
        }
        assert_eq!(runs.used(), 0);
    }

    #[test]
    fn what_is_not_in_use_is_not_taken_back() {
        let mut runs = runs(100);
        let at = runs.take(10).unwrap();
        assert!(!runs.give(at, 11));
        assert!(!runs.give(95, 6));
        assert!(!runs.give(usize::MAX, 2));
        assert!(runs.give(at, 10));
        assert!(!runs.give(at, 10));
    }

    proptest! {
        /// Against a vector of flags, searched unit by unit.
        #[test]
        fn behaves_like_flags(
            units in 1_usize..300,
            ops in prop::collection::vec((1_usize..90, any::<prop::sample::Index>(), any::<bool>()), 1..200),
        ) {
            let mut runs = runs(units);
            let mut model = std::vec![false; units];
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (count, which, takes) in ops {
                if takes || live.is_empty() {
                    let want = (0..(units + 1).saturating_sub(count))
                        .find(|at| model[*at..at + count].iter().all(|used| !used));
                    prop_assert_eq!(runs.take(count), want);
                    if let Some(at) = want {
                        model[at..at + count].fill(true);
                        live.push((at, count));
                    }
                } else {
                    let (at, count) = live.swap_remove(which.index(live.len()));
                    prop_assert!(runs.give(at, count));
                    model[at..at + count].fill(false);
                }
                runs.validate();
                prop_assert_eq!(runs.used(), model.iter().filter(|used| **used).count());
            }
        }
    }
}
