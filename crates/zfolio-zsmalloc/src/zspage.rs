//! Zspage records and the lists of a class's groups.
//!
//! A record describes one run of frames cut into slots. Records live in one
//! array by [`ZspageId`]; the zspages of a class are on doubly linked lists
//! through their records, one list per fullness group, the newest member first.
//! A thirteenth list keeps *damaged* zspages, whose list of free slots was
//! overwritten: nothing is allocated from them again, their objects stay good.
//!
//! # Invariants
//!
//! Checked by `ZsPool::validate`:
//! 1. `inuse <= fresh <= objs`; slots at `fresh` and above were never used, the
//!    free list reaches exactly the `fresh - inuse` free ones below;
//! 2. a zspage is on the list `group` says, and `group` is that of `inuse`;
//! 3. `counts` are the lists' lengths, and bit `g` of `nonempty` is set exactly
//!    when list `g` has a member.

use core::num::NonZeroU32;

use zfolio_mm::Pfn;

use crate::chunked::Chunked;
use crate::fullness::{Fullness, GROUPS};
use crate::handle::Handle;
use crate::slot::NO_SLOT;

/// Number of a zspage record, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ZspageId(NonZeroU32);

impl ZspageId {
    /// The id of a value, `None` for 0.
    pub(crate) const fn new(value: u32) -> Option<Self> {
        match NonZeroU32::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// The value, from 1.
    pub(crate) const fn get(self) -> u32 {
        self.0.get()
    }

    /// The record's index.
    const fn record(self) -> u32 {
        self.0.get() - 1
    }
}

/// List of the zspages that nothing is allocated from any more.
pub(crate) const DAMAGED: u8 = 12;

/// Lists per class: the fullness groups and the damaged ones.
pub(crate) const LISTS: usize = GROUPS + 1;

/// One zspage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zspage {
    /// First frame.
    pub(crate) base: Pfn,
    /// Neighbours on the list of its group; `next` also links free records.
    next: Option<ZspageId>,
    prev: Option<ZspageId>,
    /// Handle of the one object of a page-sized class, which has no header.
    pub(crate) owner: Option<Handle>,
    /// Slots in use.
    pub(crate) inuse: u16,
    /// First free slot below `fresh`, or [`NO_SLOT`].
    pub(crate) free: u16,
    /// Slots from here on were never used and have no header.
    pub(crate) fresh: u16,
    /// Objects with at least one pin.
    pub(crate) pinned: u16,
    /// Position of its class in the table.
    pub(crate) class: u8,
    /// The list it is on.
    pub(crate) group: u8,
}

const _: () = assert!(size_of::<Zspage>() == 28);

impl Zspage {
    /// An unused zspage at `base`, on no list yet.
    pub(crate) const fn new(base: Pfn, class: u8) -> Self {
        Self {
            base,
            next: None,
            prev: None,
            owner: None,
            inuse: 0,
            free: NO_SLOT,
            fresh: 0,
            pinned: 0,
            class,
            group: 0,
        }
    }

    /// The list it belongs on, with `objs` slots in its class.
    pub(crate) fn group_for(&self, objs: u16) -> u8 {
        if self.group == DAMAGED {
            return DAMAGED;
        }
        // At most 11.
        u8::try_from(Fullness::of(self.inuse, objs).index()).unwrap_or(DAMAGED)
    }
}

/// Every zspage record of a pool.
#[derive(Debug)]
pub(crate) struct Zspages {
    records: Chunked<Zspage>,
    /// First unused record, linked through `next`.
    free: Option<ZspageId>,
    /// Records in use.
    live: usize,
}

impl Zspages {
    /// No records.
    pub(crate) const fn new() -> Self {
        Self {
            records: Chunked::new(),
            free: None,
            live: 0,
        }
    }

    /// Zspages.
    pub(crate) const fn live(&self) -> usize {
        self.live
    }

    /// Records, in use or not.
    pub(crate) const fn records(&self) -> usize {
        self.records.len() as usize
    }

    /// Takes a record; `None` when there are 2^32 - 1.
    pub(crate) fn insert(&mut self, zspage: Zspage) -> Option<ZspageId> {
        let id = match self.free {
            Some(id) => {
                self.free = self.get(id).next;
                *self.get_mut(id) = zspage;
                id
            }
            None => ZspageId::new(self.records.push(zspage)?.checked_add(1)?)?,
        };
        self.live += 1;
        Some(id)
    }

    /// Gives a record back; its zspage must be on no list.
    pub(crate) fn remove(&mut self, id: ZspageId) {
        let free = self.free;
        self.get_mut(id).next = free;
        self.free = Some(id);
        self.live -= 1;
    }

    /// The record of a zspage.
    ///
    /// # Panics
    /// For an id this array never gave out: ids do not leave the crate.
    pub(crate) fn get(&self, id: ZspageId) -> &Zspage {
        self.records
            .get(id.record())
            .expect("zspage id out of range")
    }

    /// The record of a zspage, to change. Panics as [`Self::get`].
    pub(crate) fn get_mut(&mut self, id: ZspageId) -> &mut Zspage {
        self.records
            .get_mut(id.record())
            .expect("zspage id out of range")
    }
}

/// The lists of one class.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Lists {
    heads: [Option<ZspageId>; LISTS],
    counts: [u32; LISTS],
    /// Bit per list with a member.
    nonempty: u16,
}

impl Lists {
    /// Zspages on list `group`.
    pub(crate) fn count(&self, group: usize) -> usize {
        self.counts[group] as usize
    }

    /// Zspages of the class.
    pub(crate) fn zspages(&self) -> usize {
        self.counts.iter().map(|count| *count as usize).sum()
    }

    /// Whether list `group` is marked as having a member.
    pub(crate) fn is_nonempty(&self, group: usize) -> bool {
        self.nonempty >> group & 1 != 0
    }

    /// The head of the fullest list that has a free slot: 99 % down to 0 %.
    pub(crate) fn fullest_with_room(&self) -> Option<ZspageId> {
        let with_room = self.nonempty & ((1 << Fullness::FULL.index()) - 1);
        let group = with_room.checked_ilog2()?;
        self.heads[group as usize]
    }

    /// Puts a zspage first on list `group` and notes that in its record.
    pub(crate) fn push(&mut self, zspages: &mut Zspages, id: ZspageId, group: u8) {
        let list = usize::from(group);
        let head = self.heads[list];
        if let Some(head) = head {
            zspages.get_mut(head).prev = Some(id);
        }
        let record = zspages.get_mut(id);
        record.next = head;
        record.prev = None;
        record.group = group;
        self.heads[list] = Some(id);
        self.counts[list] += 1;
        self.nonempty |= 1 << group;
    }

    /// Takes a zspage off the list it is on.
    pub(crate) fn remove(&mut self, zspages: &mut Zspages, id: ZspageId) {
        let Zspage {
            next, prev, group, ..
        } = *zspages.get(id);
        let list = usize::from(group);
        match prev {
            Some(prev) => zspages.get_mut(prev).next = next,
            None => self.heads[list] = next,
        }
        if let Some(next) = next {
            zspages.get_mut(next).prev = prev;
        }
        self.counts[list] -= 1;
        if self.counts[list] == 0 {
            self.nonempty &= !(1 << group);
        }
    }

    /// The members of list `group`, newest first.
    pub(crate) fn iter<'a>(
        &self,
        zspages: &'a Zspages,
        group: usize,
    ) -> impl Iterator<Item = (ZspageId, &'a Zspage)> {
        let with_record = move |id: ZspageId| (id, zspages.get(id));
        let head = self.heads[group].map(with_record);
        core::iter::successors(head, move |(_, record)| record.next.map(with_record))
    }
}

impl Zspage {
    /// The zspage before it on its list.
    pub(crate) const fn prev(&self) -> Option<ZspageId> {
        self.prev
    }
}
