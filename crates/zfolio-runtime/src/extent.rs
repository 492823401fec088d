//! Extents: the book-keeping for 2 MiB of the program's address space.

use crate::word::{Place, Word};
use crate::workingset::{Clock, Past};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use zfolio_mm::{Order, PAGE_SHIFT};

/// Pages in an extent.
pub(crate) const EXTENT_PAGES: usize = Order::HUGE.pages();
/// Pages in a group: the unit of second chance and of read-ahead (64 KiB).
pub(crate) const GROUP_PAGES: usize = Order::K64.pages();
const GROUPS: usize = EXTENT_PAGES / GROUP_PAGES;
const EXTENT_SHIFT: usize = 21;

/// A page of the program: its address >> 12.
pub(crate) type Vpn = usize;

/// 2 MiB of address space.
///
/// # Invariants
/// `tracked` is the number of words whose place is not `Present`.
pub(crate) struct Extent {
    words: [Word; EXTENT_PAGES],
    /// When each page came back, or was stored.
    past: [Past; EXTENT_PAGES],
    /// Rounds of the clock hand for which a group is left alone, which refused to move.
    pub(crate) left_alone: [u8; GROUPS],
    /// Loads from the pool since the group was last moved out, saturating.
    pub(crate) loads: [u8; GROUPS],
    /// When the last three loads of a group were, the latest first, by the clock of
    /// [`Rush`](crate::readahead::Rush).
    pub(crate) loaded_at: [[u32; 3]; GROUPS],
    /// A bit per page that came because of another one and of whose use nothing is known
    /// yet.
    unasked: [u64; EXTENT_PAGES / 64],
    /// The program had a huge page here when it was moved out.
    pub(crate) huge: bool,
    tracked: u16,
}

impl Extent {
    fn empty() -> Self {
        Self {
            words: [Word::default(); EXTENT_PAGES],
            past: [Past::default(); EXTENT_PAGES],
            left_alone: [0; GROUPS],
            loads: [0; GROUPS],
            loaded_at: [[0; 3]; GROUPS],
            unasked: [0; EXTENT_PAGES / 64],
            huge: false,
            tracked: 0,
        }
    }

    /// Where page `index` of the extent is.
    pub(crate) fn place(&self, index: usize) -> Place {
        self.words[index].place()
    }

    /// What is known of page `vpn`.
    pub(crate) fn past(&mut self, vpn: Vpn) -> &mut Past {
        &mut self.past[vpn % EXTENT_PAGES]
    }

    /// Ticks for which page `index` of the extent is spared, if it is present.
    pub(crate) fn present(&self, index: usize, clock: &Clock) -> Option<u8> {
        let present = self.place(index) == Place::Present;
        present.then(|| self.past[index].spared(clock))
    }

    /// One round less for which groups of `pages` are left alone.
    pub(crate) fn pass(&mut self, pages: Range<Vpn>) {
        for rounds in &mut self.left_alone[group_of(pages.start)..=group_of(pages.end - 1)] {
            *rounds = rounds.saturating_sub(1);
        }
    }

    /// Marks pages as brought without having been asked for.
    pub(crate) fn mark_unasked<'a>(&mut self, pages: impl Iterator<Item = &'a Vpn>) {
        for page in pages.map(|page| page % EXTENT_PAGES) {
            self.unasked[page / 64] |= 1 << (page % 64);
        }
    }

    /// Takes that mark off a page; whether it had one.
    pub(crate) fn take_unasked(&mut self, vpn: Vpn) -> bool {
        let (word, bit) = (vpn % EXTENT_PAGES / 64, 1 << (vpn % 64));
        let was = self.unasked[word] & bit != 0;
        self.unasked[word] &= !bit;
        was
    }

    fn set(&mut self, index: usize, place: Place) {
        let was = self.words[index].place() != Place::Present;
        let is = place != Place::Present;
        self.words[index] = Word::new(place);
        self.tracked = self.tracked + u16::from(is) - u16::from(was);
    }
}

/// Every extent we know something of, by address.
///
/// # Invariants
/// `kept` is the number of words that are neither `Present` nor `Gone`.
#[derive(Default)]
pub(crate) struct Extents {
    map: BTreeMap<usize, Box<Extent>>,
    kept: usize,
}

const fn split(vpn: Vpn) -> (usize, usize) {
    (
        vpn >> (EXTENT_SHIFT - PAGE_SHIFT as usize),
        vpn % EXTENT_PAGES,
    )
}

impl Extents {
    /// Pages whose bytes we hold, in whatever form.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Where page `vpn` is.
    pub(crate) fn place(&self, vpn: Vpn) -> Place {
        let (key, index) = split(vpn);
        self.map
            .get(&key)
            .map_or(Place::Present, |extent| extent.place(index))
    }

    /// Records where page `vpn` is now.
    pub(crate) fn set(&mut self, vpn: Vpn, place: Place) {
        let (key, index) = split(vpn);
        let held = |place: Place| usize::from(!matches!(place, Place::Present | Place::Gone));
        let extent = if place == Place::Present {
            self.map.get_mut(&key)
        } else {
            Some(
                self.map
                    .entry(key)
                    .or_insert_with(|| Box::new(Extent::empty())),
            )
        };
        if let Some(extent) = extent {
            self.kept = self.kept + held(place) - held(extent.place(index));
            extent.set(index, place);
        }
    }

    /// The extent of page `vpn`, if known.
    pub(crate) fn get_mut(&mut self, vpn: Vpn) -> Option<&mut Extent> {
        self.map.get_mut(&split(vpn).0).map(Box::as_mut)
    }

    /// The extent of page `vpn`, if known.
    pub(crate) fn get(&self, vpn: Vpn) -> Option<&Extent> {
        self.map.get(&split(vpn).0).map(Box::as_ref)
    }

    /// The extent of page `vpn`, made if needed.
    pub(crate) fn entry(&mut self, vpn: Vpn) -> &mut Extent {
        self.map
            .entry(split(vpn).0)
            .or_insert_with(|| Box::new(Extent::empty()))
    }

    /// Pages in `range` that are not `Present`, in address order.
    pub(crate) fn tracked(&self, range: Range<Vpn>) -> impl Iterator<Item = (Vpn, Place)> + '_ {
        let keys = split(range.start).0..=split(range.end).0;
        self.map
            .range(keys)
            .filter(|(_, extent)| extent.tracked > 0)
            .flat_map(move |(key, extent)| {
                let base = key * EXTENT_PAGES;
                let from = range.start.max(base) - base;
                let until = range.end.saturating_sub(base).min(EXTENT_PAGES);
                (from..until.max(from)).filter_map(move |index| {
                    let place = extent.place(index);
                    (place != Place::Present).then_some((base + index, place))
                })
            })
    }

    /// Collects the pages of `range`, all in one extent, that are stored.
    pub(crate) fn stored(&self, range: &Range<Vpn>, into: &mut Vec<Vpn>) {
        into.clear();
        if let Some(extent) = self.get(range.start) {
            let stored = |page: &Vpn| matches!(extent.place(page % EXTENT_PAGES), Place::Stored(_));
            into.extend(range.clone().filter(stored));
        }
    }

    /// Forgets extents in `range` that hold nothing.
    pub(crate) fn prune(&mut self, range: Range<Vpn>) {
        let keys = split(range.start).0..=split(range.end).0;
        self.map
            .extract_if(keys, |_, extent| extent.tracked == 0)
            .for_each(drop);
    }

    /// Checks the invariant of every extent.
    #[cfg(test)]
    pub(crate) fn validate(&self) -> Result<(), alloc::string::String> {
        let words = self.map.values().flat_map(|extent| extent.words);
        let kept = words
            .filter(|w| !matches!(w.place(), Place::Present | Place::Gone))
            .count();
        if kept != self.kept {
            return Err(alloc::format!("{kept} pages kept, counted {}", self.kept));
        }
        for (key, extent) in &self.map {
            let tracked = extent
                .words
                .iter()
                .filter(|w| w.place() != Place::Present)
                .count();
            if tracked != usize::from(extent.tracked) {
                return Err(alloc::format!(
                    "extent {key:#x}: {tracked} tracked, counted {}",
                    extent.tracked
                ));
            }
        }
        Ok(())
    }
}

/// Index of the group of page `vpn` within its extent.
pub(crate) const fn group_of(vpn: Vpn) -> usize {
    vpn % EXTENT_PAGES / GROUP_PAGES
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap as Model;
    use zfolio_mm::Pfn;

    proptest! {
        #[test]
        fn behaves_like_a_map(
            ops in prop::collection::vec((0_usize..3000, 0_u32..3), 1..200),
            from in 0_usize..3000, len in 0_usize..1500,
        ) {
            let mut extents = Extents::default();
            let mut model = Model::new();
            for (vpn, kind) in ops {
                let place = match kind {
                    0 => Place::Present,
                    1 => Place::Gone,
                    _ => Place::Standby(Pfn(u32::try_from(vpn).unwrap())),
                };
                extents.set(vpn, place);
                if place == Place::Present { model.remove(&vpn); } else { model.insert(vpn, place); }
                prop_assert_eq!(extents.place(vpn), place);
            }
            extents.validate().unwrap();
            let seen: std::vec::Vec<_> = extents.tracked(from..from + len).collect();
            let want: std::vec::Vec<_> = model.range(from..from + len).map(|(k, v)| (*k, *v)).collect();
            prop_assert_eq!(seen, want);
            extents.prune(0..4000);
            let all: std::vec::Vec<_> = extents.tracked(0..4000).collect();
            prop_assert_eq!(all.len(), model.len());
        }
    }
}
