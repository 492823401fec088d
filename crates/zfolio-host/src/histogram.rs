//! Latency histograms, read: counts, percentiles, merged kinds.
//!
//! The runtime counts into buckets a quarter of a power of two wide
//! (`zfolio_runtime::segment::Histogram`); a percentile is told as its bucket's upper
//! bound, so it is at most 25 % too high and never too low.

use std::sync::atomic::Ordering::Relaxed;
use zfolio_runtime::segment::{BUCKETS, Histogram};

/// A copy of one or several histograms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latency {
    buckets: [u64; BUCKETS],
    /// Largest value, ns.
    pub max_ns: u64,
    /// Sum of all values, ns.
    pub sum_ns: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            max_ns: 0,
            sum_ns: 0,
        }
    }
}

impl Latency {
    /// Copies a histogram that may be changing meanwhile.
    pub fn read(from: &Histogram) -> Self {
        let mut buckets = [0; BUCKETS];
        for (to, from) in buckets.iter_mut().zip(&from.buckets) {
            *to = u64::from(from.load(Relaxed));
        }
        Self {
            buckets,
            max_ns: from.max.load(Relaxed),
            sum_ns: from.sum.load(Relaxed),
        }
    }

    /// Counts another's values as well.
    pub fn merge(&mut self, other: &Self) {
        for (to, from) in self.buckets.iter_mut().zip(&other.buckets) {
            *to += from;
        }
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// What was counted since `before`, an earlier copy of the same. The largest of these values
    /// is not known: the largest of all stands for it.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        for (now, then) in since.buckets.iter_mut().zip(&before.buckets) {
            *now = now.saturating_sub(*then);
        }
        since.sum_ns = since.sum_ns.saturating_sub(before.sum_ns);
        since
    }

    /// Buckets from the fastest: no value in one reaches its bound in ns (the last has none), and how many
    /// values are in it.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let last = BUCKETS - 1;
        let bound = move |at| (at < last).then(|| Histogram::upper_bound(at));
        let counts = self.buckets.iter().enumerate();
        counts.map(move |(at, count)| (bound(at), *count))
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Mean, ns; 0 without values.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count()).unwrap_or(0)
    }

    /// A value at least `percent` % of all values do not exceed, ns; 0 without
    /// values. Never above the largest value seen.
    pub fn percentile_ns(&self, percent: u64) -> u64 {
        let count = self.count();
        let rank = (count * percent).div_ceil(100).max(1);
        let mut below = 0;
        for (index, in_bucket) in self.buckets.iter().enumerate() {
            below += in_bucket;
            if below >= rank {
                // The last bucket has no upper bound of its own.
                let bound = if index + 1 == BUCKETS {
                    u64::MAX
                } else {
                    Histogram::upper_bound(index)
                };
                return bound.min(self.max_ns);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU32, AtomicU64};

    fn recorded(values: &[u64]) -> Latency {
        let histogram = Histogram {
            buckets: [const { AtomicU32::new(0) }; BUCKETS],
            max: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        };
        for value in values {
            histogram.record(*value);
        }
        Latency::read(&histogram)
    }

    #[test]
    fn nothing_is_zero() {
        let none = Latency::default();
        assert_eq!(
            (none.count(), none.mean_ns(), none.percentile_ns(50)),
            (0, 0, 0)
        );
    }

    #[test]
    fn a_merge_counts_both() {
        let mut one = recorded(&[100, 200, 300]);
        one.merge(&recorded(&[5_000]));
        assert_eq!((one.count(), one.max_ns, one.mean_ns()), (4, 5_000, 1_400));
        assert_eq!(one.percentile_ns(100), 5_000);
    }

    #[test]
    fn what_came_since_is_told_apart() {
        let before = recorded(&[100, 200, 300]);
        let after = recorded(&[100, 200, 300, 5_000, 7_000]);
        let since = after.since(&before);
        assert_eq!((since.count(), since.mean_ns()), (2, 6_000));
        assert!((5_000..7_000).contains(&since.percentile_ns(50)));
        assert_eq!(before.since(&after).count(), 0, "another began anew");
    }

    #[test]
    fn buckets_have_bounds_that_grow_and_all_values() {
        let all: Vec<_> = recorded(&[20, 5_000, u64::MAX / 2]).buckets().collect();
        assert_eq!(all.len(), BUCKETS);
        assert_eq!(all.iter().map(|(_, count)| count).sum::<u64>(), 3);
        assert_eq!(all[BUCKETS - 1], (None, 1));
        let bounds: Vec<u64> = all.iter().filter_map(|(bound, _)| *bound).collect();
        assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(bounds.len(), BUCKETS - 1);
    }

    proptest! {
        #[test]
        fn percentiles_bound_the_exact_ones(
            mut values in proptest::collection::vec(16_u64..10_000_000_000, 1..200),
            percent in 1_u64..=100,
        ) {
            let latency = recorded(&values);
            values.sort_unstable();
            let rank = (values.len() * usize::try_from(percent).unwrap()).div_ceil(100);
            let exact = values[rank - 1];
            let told = latency.percentile_ns(percent);
            prop_assert!(told >= exact, "{told} < {exact}");
            prop_assert!(told <= exact + exact / 4 + 1, "{told} > {exact} + 25 %");
            prop_assert_eq!(latency.count(), values.len() as u64);
        }
    }
}
