//! A set of addresses kept as ranges.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Addresses, as disjoint, non-adjacent ranges.
///
/// # Invariants
/// Ranges are non-empty, and between two of them lies at least one address.
#[derive(Clone, Default, Debug)]
pub(crate) struct Ranges(BTreeMap<usize, usize>);

impl Ranges {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// Whether every address of `range` is in the set.
    pub(crate) fn contains(&self, range: &Range<usize>) -> bool {
        self.0
            .range(..=range.start)
            .next_back()
            .is_some_and(|(_, end)| *end >= range.end)
    }

    /// Whether any address of `range` is in the set.
    pub(crate) fn overlaps(&self, range: &Range<usize>) -> bool {
        let last = self.0.range(..range.end).next_back();
        !range.is_empty() && last.is_some_and(|(_, end)| *end > range.start)
    }

    pub(crate) fn insert(&mut self, range: Range<usize>) {
        if range.is_empty() || self.contains(&range) {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        let touching: Vec<usize> = self
            .0
            .range(..=range.end)
            .rev()
            .take_while(|(_, until)| **until >= range.start)
            .map(|(from, _)| *from)
            .collect();
        for from in touching {
            if let Some(until) = self.0.remove(&from) {
                start = start.min(from);
                end = end.max(until);
            }
        }
        self.0.insert(start, end);
    }

    pub(crate) fn remove(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let touching: Vec<(usize, usize)> = self
            .0
            .range(..range.end)
            .rev()
            .take_while(|(_, until)| **until > range.start)
            .map(|(from, until)| (*from, *until))
            .collect();
        for (from, until) in touching {
            self.0.remove(&from);
            if from < range.start {
                self.0.insert(from, range.start);
            }
            if until > range.end {
                self.0.insert(range.end, until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_set_of_addresses(
            ops in prop::collection::vec((any::<bool>(), 0_usize..64, 0_usize..16), 1..80)
        ) {
            let mut ranges = Ranges::default();
            let mut model = [false; 96];
            for (insert, start, len) in ops {
                model[start..start + len].fill(insert);
                if insert {
                    ranges.insert(start..start + len);
                } else {
                    ranges.remove(start..start + len);
                }
                let mut seen = [false; 96];
                let mut last_end = None;
                for range in ranges.iter() {
                    prop_assert!(!range.is_empty());
                    prop_assert!(last_end.is_none_or(|end| range.start > end), "not merged");
                    last_end = Some(range.end);
                    seen[range].fill(true);
                }
                prop_assert_eq!(seen, model);
                for probe in 0..80 {
                    prop_assert_eq!(ranges.contains(&(probe..probe + 3)), model[probe..probe + 3] == [true; 3]);
                    prop_assert_eq!(ranges.overlaps(&(probe..probe + 3)), model[probe..probe + 3] != [false; 3]);
                }
            }
        }
    }
}
