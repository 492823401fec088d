//! Extents: the book-keeping for 2 MiB of the program's address space.

use crate::address_space::place::{PackedPlace, Place};
use crate::page::{EXTENT_PAGES, GROUP_PAGES, Vpn, group_of};
use crate::policy::readahead::Rush;
use crate::policy::refault::{RefaultRecord, StoreClock};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use zfolio_mm::PAGE_SHIFT;

const GROUPS: usize = EXTENT_PAGES / GROUP_PAGES;
const EXTENT_SHIFT: usize = 21;

/// What is kept for a group: 64 KiB of address space.
///
/// # Invariants
/// `tracked` is the number of words whose place is not `Present`, `gone` that of those whose
/// place is `Gone`.
pub(crate) struct Group {
    words: [PackedPlace; GROUP_PAGES],
    /// When each page came back, or was stored.
    past: [RefaultRecord; GROUP_PAGES],
    /// When the last three loads were, the latest first, by the clock of
    /// [`Rush`].
    loaded_at: [u32; 3],
    /// A bit per page that came because of another one and of whose use nothing is known
    /// yet.
    unasked: u16,
    /// A bit per page that came ahead of its fault and is not known to have been touched since.
    /// None that is stored or dropped has it.
    ahead: u16,
    /// Rounds of the clock hand for which the group is left alone, which refused to move.
    left_alone: u8,
    /// Loads from the pool since the group was last moved out, saturating.
    loads: u8,
    tracked: u8,
    gone: u8,
}

impl Group {
    const EMPTY: Self = Self {
        words: [PackedPlace::PRESENT; GROUP_PAGES],
        past: [RefaultRecord::NOTHING; GROUP_PAGES],
        loaded_at: [0; 3],
        unasked: 0,
        ahead: 0,
        left_alone: 0,
        loads: 0,
        tracked: 0,
        gone: 0,
    };

    fn set(&mut self, index: usize, place: Place) {
        let was = self.words[index].place();
        let is = |place, other| u8::from(place == other);
        self.tracked = self.tracked + is(was, Place::Present) - is(place, Place::Present);
        self.gone = self.gone + is(place, Place::Gone) - is(was, Place::Gone);
        if matches!(place, Place::Stored(_) | Place::Gone) {
            self.ahead &= !(1 << index);
        }
        self.words[index] = PackedPlace::new(place);
    }

    /// A page was loaded because it was touched; `rush`: with all of the group, which says
    /// nothing of what neighbours are worth.
    pub(crate) fn note_load(&mut self, judge: &mut Rush, rush: bool) {
        judge.note(&mut self.loaded_at);
        self.loads = if rush {
            0
        } else {
            self.loads.saturating_add(1)
        };
    }

    /// Loads since the group was last moved out, and when the last three were.
    pub(crate) const fn recent_loads(&self) -> (u8, [u32; 3]) {
        (self.loads, self.loaded_at)
    }

    /// The group leaves: its loads until now.
    pub(crate) fn take_loads(&mut self) -> u8 {
        core::mem::take(&mut self.loads)
    }

    /// The hand passes the group over for so many rounds.
    pub(crate) fn leave_alone(&mut self, rounds: u8) {
        self.left_alone = rounds;
    }

    /// Whether the hand passes it over.
    pub(crate) const fn is_left_alone(&self) -> bool {
        self.left_alone > 0
    }
}

/// 2 MiB of address space. Groups that nothing was noted of are not there: a program may
/// touch one page in each extent of a large reservation.
#[derive(Default)]
pub(crate) struct Extent {
    groups: [Option<Box<Group>>; GROUPS],
    /// The program had a huge page here when it was moved out.
    huge: bool,
    /// Pages whose place is not `Present`.
    away: u16,
}

impl Extent {
    fn is_tracked(&self) -> bool {
        self.away > 0
    }

    /// Whether the program had a huge page here when it was moved out.
    pub(crate) const fn is_huge(&self) -> bool {
        self.huge
    }

    /// It had one, or had none.
    pub(crate) fn set_huge(&mut self, huge: bool) {
        self.huge = huge;
    }

    /// Pages that are not in place.
    pub(crate) const fn away(&self) -> usize {
        self.away as usize
    }

    /// Records where page `index` of the extent is.
    fn set(&mut self, index: usize, place: Place) {
        let is = |place| u16::from(place != Place::Present);
        self.away = self.away + is(place) - is(self.place(index));
        let group = self.groups[index / GROUP_PAGES].get_or_insert_with(|| Box::new(Group::EMPTY));
        group.set(index % GROUP_PAGES, place);
    }

    fn has_gone(&self) -> bool {
        self.groups.iter().flatten().any(|group| group.gone > 0)
    }

    /// Where page `index` of the extent is.
    pub(crate) fn place(&self, index: usize) -> Place {
        let group = self.groups[index / GROUP_PAGES].as_ref();
        group.map_or(Place::Present, |group| {
            group.words[index % GROUP_PAGES].place()
        })
    }

    /// What is kept for the group of page `vpn`, if anything is.
    pub(crate) fn known_group(&self, vpn: Vpn) -> Option<&Group> {
        self.groups[group_of(vpn)].as_deref()
    }

    /// The group of page `vpn`, made if needed.
    pub(crate) fn group(&mut self, vpn: Vpn) -> &mut Group {
        self.groups[group_of(vpn)].get_or_insert_with(|| Box::new(Group::EMPTY))
    }

    /// What is known of page `vpn`.
    pub(crate) fn past(&mut self, vpn: Vpn) -> &mut RefaultRecord {
        &mut self.group(vpn).past[vpn % GROUP_PAGES]
    }

    /// Ticks for which page `index` of the extent is spared, if it is present.
    pub(crate) fn present(&self, index: usize, clock: &StoreClock) -> Option<u8> {
        let Some(group) = &self.groups[index / GROUP_PAGES] else {
            return Some(0);
        };
        let page = index % GROUP_PAGES;
        let present = group.words[page].place() == Place::Present;
        present.then(|| group.past[page].spared(clock))
    }

    /// One round less for which groups of `pages` are left alone.
    pub(crate) fn pass(&mut self, pages: Range<Vpn>) {
        let groups = &mut self.groups[group_of(pages.start)..=group_of(pages.end - 1)];
        for group in groups.iter_mut().flatten() {
            group.left_alone = group.left_alone.saturating_sub(1);
        }
    }

    /// Marks pages, of which those count that are in place, as brought ahead of their fault.
    pub(crate) fn mark_ahead<'a>(&mut self, pages: impl Iterator<Item = &'a Vpn>) {
        for page in pages {
            if matches!(
                self.place(*page % EXTENT_PAGES),
                Place::Present | Place::Clean(_)
            ) {
                self.group(*page).ahead |= 1 << (*page % GROUP_PAGES);
            }
        }
    }

    /// Takes that mark off a page; whether it had one.
    fn take_ahead(&mut self, vpn: Vpn) -> bool {
        let Some(group) = &mut self.groups[group_of(vpn)] else {
            return false;
        };
        let bit = 1 << (vpn % GROUP_PAGES);
        let was = group.ahead & bit != 0;
        group.ahead &= !bit;
        was
    }

    /// Marks pages as brought without having been asked for.
    pub(crate) fn mark_unasked<'a>(&mut self, pages: impl Iterator<Item = &'a Vpn>) {
        for page in pages {
            self.group(*page).unasked |= 1 << (page % GROUP_PAGES);
        }
    }

    /// Takes that mark off a page; whether it had one.
    pub(crate) fn take_unasked(&mut self, vpn: Vpn) -> bool {
        let Some(group) = &mut self.groups[group_of(vpn)] else {
            return false;
        };
        let bit = 1 << (vpn % GROUP_PAGES);
        let was = group.unasked & bit != 0;
        group.unasked &= !bit;
        was
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
            Some(self.map.entry(key).or_default())
        };
        let Some(extent) = extent else { return };
        let was = extent.place(index);
        if was != place {
            self.kept = self.kept + held(place) - held(was);
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

    /// Takes the marks off pages that are known now to have been touched since they were
    /// brought ahead of their fault; how many had one.
    pub(crate) fn take_ahead(&mut self, pages: impl Iterator<Item = Vpn>) -> usize {
        let marked = |page: &Vpn| {
            self.get_mut(*page)
                .is_some_and(|extent| extent.take_ahead(*page))
        };
        pages.filter(marked).count()
    }

    /// The extent of page `vpn`, made if needed.
    pub(crate) fn entry(&mut self, vpn: Vpn) -> &mut Extent {
        self.map.entry(split(vpn).0).or_default()
    }

    /// Pages in `range` that are not `Present`, in address order.
    pub(crate) fn tracked(&self, range: Range<Vpn>) -> impl Iterator<Item = (Vpn, Place)> + '_ {
        let keys = split(range.start).0..=split(range.end).0;
        let groups = self.map.range(keys).flat_map(|(key, extent)| {
            let first = key * EXTENT_PAGES;
            let known = extent.groups.iter().enumerate();
            known.filter_map(move |(index, group)| {
                let group = group.as_deref().filter(|group| group.tracked > 0)?;
                Some((first + index * GROUP_PAGES, group))
            })
        });
        groups.flat_map(move |(base, group)| {
            let from = range.start.saturating_sub(base).min(GROUP_PAGES);
            let until = range.end.saturating_sub(base).min(GROUP_PAGES);
            (from..until.max(from)).filter_map(move |index| {
                let place = group.words[index].place();
                (place != Place::Present).then_some((base + index, place))
            })
        })
    }

    /// The first pages of `left` that are not `Present`, as many as `into` has room for,
    /// in address order; `left` is what comes after them then.
    pub(crate) fn first_tracked<'a>(
        &self,
        left: &mut Range<Vpn>,
        into: &'a mut [(Vpn, Place)],
    ) -> &'a [(Vpn, Place)] {
        let mut count = 0;
        for (page, place) in self.tracked(left.clone()).zip(into.iter_mut()) {
            *place = page;
            count += 1;
        }
        left.start = into[..count].last().map_or(left.end, |(vpn, _)| vpn + 1);
        &into[..count]
    }

    /// Takes the word off the pages of `range` that are `Gone`.
    pub(crate) fn forget_gone(&mut self, range: Range<Vpn>) {
        let keys = split(range.start).0..=split(range.end).0;
        for (key, extent) in self.map.range_mut(keys) {
            let first = key * EXTENT_PAGES;
            for group in 0..GROUPS {
                let group_of = extent.groups[group].as_ref();
                if group_of.is_none_or(|group| group.gone == 0) {
                    continue;
                }
                let pages = group * GROUP_PAGES..(group + 1) * GROUP_PAGES;
                for index in pages.filter(|index| range.contains(&(first + index))) {
                    if extent.place(index) == Place::Gone {
                        extent.set(index, Place::Present);
                    }
                }
            }
        }
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
            .extract_if(keys, |_, extent| !extent.is_tracked())
            .for_each(drop);
    }

    /// Whether any page of the extent of `vpn` is `Gone`.
    pub(crate) fn has_gone(&self, vpn: Vpn) -> bool {
        self.get(vpn).is_some_and(Extent::has_gone)
    }

    /// Checks the invariant of every extent.
    #[cfg(test)]
    pub(crate) fn validate(&self) -> Result<(), alloc::string::String> {
        let groups = || {
            let groups = self.map.values().flat_map(|extent| &extent.groups);
            groups.flatten()
        };
        let words = groups().flat_map(|group| group.words);
        let kept = words
            .filter(|w| !matches!(w.place(), Place::Present | Place::Gone))
            .count();
        if kept != self.kept {
            return Err(alloc::format!("{kept} pages kept, counted {}", self.kept));
        }
        for extent in self.map.values() {
            let groups = extent.groups.iter().flatten();
            let away: usize = groups.map(|group| usize::from(group.tracked)).sum();
            if away != extent.away() {
                return Err(alloc::format!("{away} away, counted {}", extent.away()));
            }
        }
        for group in groups() {
            let count = |wanted: fn(Place) -> bool| {
                let words = group.words.iter();
                words.filter(|word| wanted(word.place())).count()
            };
            let tracked = count(|place| place != Place::Present);
            let gone = count(|place| place == Place::Gone);
            if tracked != usize::from(group.tracked) || gone != usize::from(group.gone) {
                return Err(alloc::format!(
                    "{tracked} tracked and {gone} gone, counted {} and {}",
                    group.tracked,
                    group.gone
                ));
            }
        }
        Ok(())
    }
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
            let mut left = from..from + len;
            let mut batch = [(0, Place::Present); 7];
            let mut seen = std::vec::Vec::new();
            loop {
                let some = extents.first_tracked(&mut left, &mut batch);
                if some.is_empty() { break; }
                seen.extend_from_slice(some);
            }
            let want: std::vec::Vec<_> = model.range(from..from + len).map(|(k, v)| (*k, *v)).collect();
            prop_assert_eq!(seen, want);
            extents.forget_gone(from..from + len);
            model.retain(|vpn, place| !(from..from + len).contains(vpn) || *place != Place::Gone);
            extents.validate().unwrap();
            extents.prune(0..4000);
            let all: std::vec::Vec<_> = extents.tracked(0..4000).collect();
            prop_assert_eq!(all.len(), model.len());
        }
    }
}
