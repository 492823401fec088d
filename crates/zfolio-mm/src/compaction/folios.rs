//! What compaction asks of the arena's owner.

use crate::types::{Order, Pfn};

/// What the owner knows of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// A free backed block of this order starts here.
    Free(Order),
    /// A folio starts here.
    Folio {
        /// Its length, 1 ..= 512 pages, within one pageblock.
        pages: usize,
        /// Whether [`Folios::migrate`] may be asked. `false` for what is pinned or
        /// in flight.
        movable: bool,
    },
    /// None of these: a hole, the inside of a folio or free block, something that
    /// compaction itself holds, or a slot the owner knows nothing about.
    Other {
        /// Slots from here of which the same can be said, at least 1. Looking goes
        /// on after them.
        pages: usize,
    },
}

/// How full a pageblock is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageblockCounts {
    /// Free backed slots.
    pub free: usize,
    /// Free holes.
    pub holes: usize,
}

impl PageblockCounts {
    /// Slots in use; the ones that compaction holds count as such.
    #[must_use]
    pub fn used(self) -> usize {
        Order::HUGE.pages() - self.free - self.holes
    }
}

/// Why a folio was not moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refused {
    /// Pinned or otherwise in use just now.
    Busy,
    /// No such folio any more.
    Gone,
}

/// The arena, as seen by compaction.
///
/// # Folios that are not a power of two
///
/// The zspages of the pool are runs of 1 ..= 8 pages that were cut from a block of
/// the order that holds them, the tail given back (`Frames::alloc_exact`). So a folio
/// here is an exact run of `pages`: its target is a block of
/// [`Order::holding`]`(pages)`, of which the tail stays free, and its old place comes
/// free as the exact run. No tail is ever lost to rounding, and as targets start
/// where such a block may, runs keep within one pageblock.
///
/// # Locks
///
/// Compaction takes none. An owner either holds its locks while it lends itself to a
/// step, or takes them in each call: nothing is assumed to stay as it was between
/// two calls, except that what compaction has isolated is its own.
pub trait Folios {
    /// Slots of the arena, a multiple of 512.
    fn slots(&self) -> usize;

    /// What starts at `at`.
    fn look(&self, at: Pfn) -> Found;

    /// Free backed blocks of exactly `order`.
    fn free_blocks(&self, order: Order) -> usize;

    /// Free backed slots.
    fn free_pages(&self) -> usize;

    /// How full a pageblock is: `block` is its first slot / 512.
    fn pageblock(&self, block: usize) -> PageblockCounts;

    /// Takes the whole free backed block that starts at `at` and tells its order;
    /// `None` when none starts there any more.
    fn isolate(&mut self, at: Pfn) -> Option<Order>;

    /// Takes back a run of free backed slots: isolated ones, or ones that a folio
    /// was moved from.
    fn give(&mut self, at: Pfn, pages: usize);

    /// Moves the folio of `pages` pages at `from` to the backed slots at `to`, which
    /// were isolated. On success the folio is at `to`, and the slots at `from`,
    /// backed still, are compaction's.
    ///
    /// # Errors
    /// Why it could not be moved; nothing has changed then.
    fn migrate(&mut self, from: Pfn, to: Pfn, pages: usize) -> Result<(), Refused>;

    /// Cuts the folio at `at` into single pages, each a folio of its own. `false`
    /// when it cannot be: a zspage never can.
    fn split(&mut self, at: Pfn) -> bool {
        let _ = at;
        false
    }

    /// Whether somebody waits for what the owner has locked, or the owner wants the
    /// run to end for another reason. Asked often.
    fn contended(&self) -> bool {
        false
    }
}
