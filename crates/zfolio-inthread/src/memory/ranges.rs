//! Which mappings of the program are managed.
//!
//! Only what the program mapped while its calls were seen is here: private anonymous memory.
//! Memory that it may not both read and write is here too, as *reserved*: it becomes managed
//! when it may.
//!
//! # Invariant
//! Ranges do not overlap, and begin and end at pages. Page 0 is in none: to calls its address
//! means that there is none.

use crate::raw::PAGE;
use alloc::collections::BTreeMap;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// How often managed memory was added, for each of these parts of the address space: who has
/// looked at a part under the lock knows by it that nothing has come since.
static ADDED: [AtomicUsize; PARTS] = [const { AtomicUsize::new(0) }; PARTS];
const PARTS: usize = 256;
/// Bytes of a part; every so many of them have a counter in common.
const PART: usize = 2 << 20;

/// The counter of the part that `address` is in.
pub(crate) fn added(address: usize) -> usize {
    ADDED[address / PART % PARTS].load(Ordering::Relaxed)
}

fn note_added(range: &Range<usize>) {
    let parts = range.start / PART..range.end.div_ceil(PART);
    for part in parts.take(PARTS) {
        ADDED[part % PARTS].fetch_add(1, Ordering::Relaxed);
    }
}

/// A range's kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    /// Its pages may be closed, whatever its [`Self::protection`] is.
    pub(crate) managed: bool,
    /// What the program may do with it, where it is managed.
    pub(crate) protection: Protection,
    /// Registered with userfaultfd, where that is the way.
    pub(crate) registered: bool,
    pub(crate) at_fork: AtFork,
}

impl Kind {
    /// Memory that is managed from now on, or reserved.
    pub(super) const fn new(managed: bool, at_fork: AtFork) -> Self {
        Self {
            managed,
            protection: Protection::ReadWrite,
            registered: false,
            at_fork,
        }
    }

    /// The program has made it read-only: what is managed stays so.
    pub(super) const fn make_read_only(&mut self) {
        if self.managed {
            self.protection = Protection::ReadOnly;
        }
    }

    /// The same with another protection.
    pub(super) const fn with(self, protection: Protection) -> Self {
        Self { protection, ..self }
    }
}

/// The protection of a managed range's mapping, but for what is closed by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Protection {
    #[default]
    ReadWrite,
    /// It was writable, and the program has made it read-only since.
    ReadOnly,
    /// Writable and executable; only where pages can be write-protected by themselves
    /// (`Way::takes_executable`).
    Executable,
}

impl Protection {
    /// Whether, in-thread, pages leave by a copy: a MOVE is of memory that is writable, and not executable, as the
    /// place is that it goes to.
    pub(crate) const fn leaves_by_copy(self) -> bool {
        !matches!(self, Self::ReadWrite)
    }
}

/// What the child of a fork has of a range; by default, the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AtFork {
    /// MADV_DONTFORK: nothing.
    pub(crate) dropped: bool,
    /// MADV_WIPEONFORK: zeros.
    pub(crate) wiped: bool,
}

/// All of them, by their first address.
#[derive(Default)]
pub(crate) struct Ranges {
    map: BTreeMap<usize, (usize, Kind)>,
    /// Pages that are managed.
    managed: usize,
    /// How often something has changed.
    changes: usize,
}

impl Ranges {
    /// Pages of managed ranges.
    pub(crate) fn managed_pages(&self) -> usize {
        self.managed
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.map.len()
    }

    /// How often something has changed; never 0 once something has.
    pub(crate) fn changes(&self) -> usize {
        self.changes
    }

    /// Something else has changed about who is told of faults.
    pub(crate) fn note_change(&mut self) {
        self.changes = self.changes.wrapping_add(1).max(1);
    }

    fn count_pages(&mut self, range: &Range<usize>, kind: Kind, added: bool) {
        if kind.managed {
            let pages = range.len() / PAGE;
            if added {
                self.managed += pages;
            } else {
                self.managed -= pages;
            }
        }
    }

    /// Takes `range` out; `dropped` is told each part of it that was there.
    pub(crate) fn remove(
        &mut self,
        range: &Range<usize>,
        mut dropped: impl FnMut(Range<usize>, Kind),
    ) {
        self.note_change();
        while let Some((part, kind)) = self.first_within(range) {
            let (start, end) = self.whole(part.start);
            self.map.remove(&start);
            self.count_pages(&(start..end), kind, false);
            for rest in [start..part.start, part.end..end] {
                if !rest.is_empty() {
                    self.put(rest, kind);
                }
            }
            dropped(part, kind);
        }
    }

    fn whole(&self, address: usize) -> (usize, usize) {
        self.map
            .range(..=address)
            .next_back()
            .map_or((address, address), |(start, (end, _))| (*start, *end))
    }

    fn put(&mut self, range: Range<usize>, kind: Kind) {
        self.count_pages(&range, kind, true);
        self.map.insert(range.start, (range.end, kind));
    }

    /// Adds a range, over whatever is there. Neighbours of the same kind become one.
    pub(crate) fn add(&mut self, range: Range<usize>, kind: Kind) {
        debug_assert!(range.is_empty() || range.start >= PAGE);
        if range.is_empty() {
            return;
        }
        if kind.managed {
            note_added(&range);
        }
        self.remove(&range, |_, _| {});
        let mut whole = range;
        if let Some((start, (end, of))) = self.map.range(..whole.start).next_back()
            && *end == whole.start
            && *of == kind
        {
            let before = *start..*end;
            self.map.remove(&before.start);
            self.count_pages(&before, kind, false);
            whole.start = before.start;
        }
        if let Some((end, of)) = self.map.get(&whole.end).copied()
            && of == kind
        {
            let after = whole.end..end;
            self.map.remove(&after.start);
            self.count_pages(&after, kind, false);
            whole.end = end;
        }
        self.put(whole, kind);
    }

    /// The parts of `range` that are in ranges, in order.
    pub(crate) fn within(
        &self,
        range: &Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, Kind)> {
        let (from, to) = (range.start, range.end);
        let first = self
            .map
            .range(..=from)
            .next_back()
            .filter(|(_, (end, _))| *end > from)
            .map_or(from, |(start, _)| *start);
        self.map
            .range(first..to.max(first))
            .map(move |(start, (end, kind))| ((*start).max(from)..(*end).min(to), *kind))
            .filter(|(part, _)| !part.is_empty())
    }

    /// The first of them.
    pub(crate) fn first_within(&self, range: &Range<usize>) -> Option<(Range<usize>, Kind)> {
        self.within(range).next()
    }

    /// The range that `address` is in.
    pub(crate) fn at(&self, address: usize) -> Option<(Range<usize>, Kind)> {
        let (start, (end, kind)) = self.map.range(..=address).next_back()?;
        (address < *end).then_some((*start..*end, *kind))
    }

    /// The first managed range that ends after `address`.
    pub(crate) fn managed_from(&self, address: usize) -> Option<Range<usize>> {
        let here = self.at(address).map_or(address, |(range, _)| range.start);
        self.map
            .range(here..)
            .find(|(_, (_, kind))| kind.managed)
            .map(|(start, (end, _))| *start..*end)
    }

    /// The address of the managed page with `before` managed ones below it.
    pub(crate) fn managed_page(&self, before: usize) -> Option<usize> {
        let mut left = before;
        let managed = self.map.iter().filter(|(_, (_, kind))| kind.managed);
        for (start, (end, _)) in managed {
            let pages = (end - start) / PAGE;
            if left < pages {
                return Some(start + left * PAGE);
            }
            left -= pages;
        }
        None
    }

    /// The addresses around `range`, of the parts it is in, where nothing is managed; `None` if
    /// something is in `range` itself.
    pub(crate) fn unmanaged_around(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let mut around = range.start / PART * PART..range.end.next_multiple_of(PART);
        for (managed, _) in self
            .within(&around.clone())
            .filter(|(_, kind)| kind.managed)
        {
            if managed.end <= range.start {
                around.start = managed.end;
            } else if managed.start >= range.end {
                around.end = around.end.min(managed.start);
            } else {
                return None;
            }
        }
        Some(around)
    }

    /// The first part of `range` in which nothing is managed; nothing, at its end, if all of it is.
    pub(crate) fn unmanaged_from(&self, range: Range<usize>) -> Range<usize> {
        let mut start = range.start;
        for (managed, _) in self.within(&range).filter(|(_, kind)| kind.managed) {
            if managed.start > start {
                return start..managed.start;
            }
            start = managed.end;
        }
        start..range.end
    }

    /// Changes the kind of what of `range` is in ranges.
    pub(crate) fn edit(&mut self, range: &Range<usize>, change: impl Fn(&mut Kind)) {
        let mut at = range.start;
        while let Some((part, mut kind)) = self.first_within(&(at..range.end)) {
            at = part.end;
            change(&mut kind);
            self.add(part, kind);
        }
    }

    /// The protection of the managed memory that `address` is in; of any other, as of most.
    pub(crate) fn protection(&self, address: usize) -> Protection {
        let managed = self.at(address).filter(|(_, kind)| kind.managed);
        managed.map_or(Protection::ReadWrite, |(_, kind)| kind.protection)
    }

    /// Whether `address` is in memory that is managed and read-only.
    pub(crate) fn is_read_only(&self, address: usize) -> bool {
        self.protection(address) == Protection::ReadOnly
    }

    /// All ranges.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<usize>, Kind)> {
        self.map
            .iter()
            .map(|(start, (end, kind))| (*start..*end, *kind))
    }

    /// All managed ranges.
    pub(crate) fn all_managed(&self) -> impl Iterator<Item = (Range<usize>, Kind)> {
        self.iter().filter(|(_, kind)| kind.managed)
    }

    /// Marks the range that begins at `start` as registered or not.
    pub(crate) fn set_registered(&mut self, start: usize, registered: bool) {
        self.note_change();
        if let Some((_, kind)) = self.map.get_mut(&start) {
            kind.registered = registered;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn ranges_are_what_a_page_by_page_model_says(
            steps in proptest::collection::vec(
                (1_usize..60, 1_usize..20, 0_u8..6), 1..80)
        ) {
            let mut ranges = Ranges::default();
            let mut model: Vec<Option<Kind>> = std::vec![None; 80];
            for (start, len, what) in steps {
                let range = start * PAGE..(start + len) * PAGE;
                if what == 5 {
                    ranges.edit(&range, |kind| kind.at_fork.dropped = true);
                    for kind in model[start..start + len].iter_mut().flatten() {
                        kind.at_fork.dropped = true;
                    }
                    for (page, kind) in model.iter().enumerate() {
                        prop_assert_eq!(ranges.at(page * PAGE).map(|(_, kind)| kind), *kind);
                    }
                    continue;
                }
                let at_fork = AtFork { dropped: what == 4, wiped: false };
                let kind = match what {
                    0 => None,
                    _ => Some(Kind { managed: what > 1, protection: Protection::ReadWrite, registered: what > 2, at_fork }),
                };
                match kind {
                    None => {
                        let mut seen = Vec::new();
                        ranges.remove(&range, |part, kind| seen.push((part, kind)));
                        for (part, kind) in seen {
                            for page in part.step_by(PAGE) {
                                prop_assert_eq!(model[page / PAGE], Some(kind));
                            }
                        }
                    }
                    Some(kind) => ranges.add(range.clone(), kind),
                }
                model[start..start + len].fill(kind);
                for (page, kind) in model.iter().enumerate() {
                    prop_assert_eq!(ranges.at(page * PAGE).map(|(_, kind)| kind), *kind);
                }
                let managed = model.iter().flatten().filter(|kind| kind.managed).count();
                prop_assert_eq!(ranges.managed_pages(), managed);
                let nth = model.iter().enumerate().filter(|(_, of)| of.is_some_and(|of| of.managed));
                for (before, (page, _)) in nth.enumerate() {
                    prop_assert_eq!(ranges.managed_page(before), Some(page * PAGE));
                }
                prop_assert_eq!(ranges.managed_page(managed), None);
                let asked = start * PAGE..(start + 3) * PAGE;
                let around = ranges.unmanaged_around(&asked);
                let is_managed = |page: usize| model[page].is_some_and(|kind| kind.managed);
                prop_assert_eq!(around.is_none(), (start..start + 3).any(|page| page < 80 && is_managed(page)));
                if let Some(around) = around {
                    prop_assert!(around.start <= asked.start && around.end >= asked.end);
                    for page in around.step_by(PAGE).map(|at| at / PAGE).filter(|page| *page < 80) {
                        prop_assert!(!is_managed(page));
                    }
                }
                let part = ranges.unmanaged_from(range.clone());
                let mut free = range.clone().step_by(PAGE).map(|at| at / PAGE);
                let first = free.find(|page| !is_managed(*page)).map_or(range.end, |page| page * PAGE);
                prop_assert_eq!(part.start, first);
                prop_assert!(part.clone().step_by(PAGE).all(|at| !is_managed(at / PAGE)));
                prop_assert!(part.end == range.end || is_managed(part.end / PAGE));
                let within: usize = ranges.within(&range).map(|(part, _)| part.len() / PAGE).sum();
                prop_assert_eq!(within, if kind.is_some() { len } else { 0 });
            }
        }
    }
}
