//! Zspage records.
//!
//! A record describes one run of frames cut into slots. Records live in one
//! array by [`ZspageId`]; the zspages of a class are on doubly linked lists
//! through their records ([`crate::lists`]).
//!
//! # Invariants
//!
//! Checked by `ZsPool::validate`:
//! 1. `inuse <= fresh <= objs`; slots at `fresh` and above were never used, the
//!    free list reaches exactly the `fresh - inuse` free ones below, unless the
//!    zspage is damaged;
//! 2. a zspage is on the list `group` says, and `group` is that of `inuse`, or
//!    [`DAMAGED`].

use zfolio_mm::Pfn;

use crate::chunked::Chunked;
use crate::grouping::Grouping;
use crate::handle::Handle;
use crate::slot::NO_SLOT;
use crate::zspage_id::ZspageId;

/// Group of the zspages that nothing is allocated from any more.
pub(crate) const DAMAGED: u16 = u16::MAX;

/// One zspage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zspage {
    /// First frame.
    pub(crate) base: Pfn,
    /// Neighbours on the list of its group; `next` also links free records.
    pub(crate) next: Option<ZspageId>,
    pub(crate) prev: Option<ZspageId>,
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
    /// The group whose list it is on.
    pub(crate) group: u16,
    /// Position of its class in the table.
    pub(crate) class: u16,
}

const _: () = assert!(size_of::<Zspage>() == 28);

impl Zspage {
    /// An unused zspage at `base`, on no list yet.
    pub(crate) const fn new(base: Pfn, class: u16) -> Self {
        Self {
            base,
            next: None,
            prev: None,
            owner: None,
            inuse: 0,
            free: NO_SLOT,
            fresh: 0,
            pinned: 0,
            group: 0,
            class,
        }
    }

    /// The group it belongs in, with `objs` slots in its class.
    pub(crate) fn group_for<G: Grouping>(&self, objs: u16) -> u16 {
        if self.group == DAMAGED {
            return DAMAGED;
        }
        G::of(self.inuse, objs)
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
