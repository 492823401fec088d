//! One buddy allocator over a set of slots.
//!
//! Free slots are kept as *blocks*: runs of `2^order` slots that start at a
//! multiple of `2^order`, order 0 ..= [`MAX_ORDER`]. The *buddy* of a block is
//! the neighbour it forms the next larger block with: their numbers differ in
//! bit `order` only. Allocation takes the smallest block that is large enough
//! and gives the upper halves back; freeing merges with the buddy as long as
//! that is free too (Knuth, *The Art of Computer Programming* 1, section 2.5,
//! the buddy system).
//!
//! **Policy: last in, first out** per order. The block freed last is the one
//! whose bytes are most likely still in a cache, and the next user is about to
//! write it.
//!
//! # Cost
//!
//! Allocating and freeing touch at most one list per order: ten steps, no
//! search. Only the *first* slot of a free block has metadata, 9 bytes in side
//! tables whose zero value means "nothing": a table of untouched zero pages
//! costs address space, not memory. Blocks of the largest order keep theirs in
//! tables of their own, one cell per 512 slots, so that a whole arena handed
//! over at the start (all blocks of order 9) touches 9 bytes per 2 MiB, not a
//! page.
//!
//! # Invariants
//!
//! Checked by [`Buddy::validate`]:
//! 1. a block is aligned to its order and inside `0..slots`;
//! 2. no slot is in two blocks;
//! 3. no two buddies of an order below the largest are both free (they would
//!    have merged);
//! 4. `marks` is `order + 1` in the cell of each free block, 0 elsewhere;
//! 5. `free_pages = sum(blocks[o] << o)`, and bit `o` of `nonempty` is set
//!    exactly when `blocks[o] != 0`;
//! 6. `in_pageblock[b]` is the number of free slots in `512 b .. 512 (b + 1)`.

use alloc::vec;
use alloc::vec::Vec;

use crate::types::{MAX_ORDER, ORDERS, Order, Pfn};

mod check;

/// Slots under one block of the largest order: a pageblock.
pub const BLOCK_SLOTS: usize = 1 << MAX_ORDER;

/// The largest number of slots an allocator manages: 1 TiB of arena.
pub const MAX_SLOTS: usize = 1 << 28;

/// Index of `next` in a link cell.
const NEXT: usize = 0;
/// Index of `prev` in a link cell.
const PREV: usize = 1;

/// A buddy allocator: which slots of `0..slots` are free, in what blocks.
///
/// Starts with nothing free; whoever owns the slots frees them into it.
#[derive(Clone, Debug)]
pub struct Buddy {
    /// Slots managed, a multiple of [`BLOCK_SLOTS`].
    slots: usize,
    /// `[next, prev]` per cell, as pfn + 1, 0 = none. Cells
    /// `0 .. slots / 512` belong to blocks of the largest order, the rest,
    /// one per slot, to all smaller orders.
    links: Vec<[u32; 2]>,
    /// Per cell: order + 1 of the free block that starts there, or 0.
    marks: Vec<u8>,
    /// First block of each order's list, as pfn + 1, 0 = none.
    heads: [u32; ORDERS],
    /// Free blocks of each order.
    blocks: [usize; ORDERS],
    /// Bit `o` is set when order `o` has a free block.
    nonempty: u16,
    /// Free slots.
    free_pages: usize,
    /// Free slots per pageblock, at most 512 each.
    in_pageblock: Vec<u16>,
}

impl Buddy {
    /// An allocator over slots `0..slots` with none of them free.
    ///
    /// Takes 9 bytes of address space per slot (and a little per pageblock); no page of it is touched.
    ///
    /// # Panics
    /// When `slots` is not a multiple of [`BLOCK_SLOTS`] or exceeds
    /// [`MAX_SLOTS`].
    #[must_use]
    pub fn new(slots: usize) -> Self {
        assert!(
            slots.is_multiple_of(BLOCK_SLOTS),
            "slots must be a multiple of 512"
        );
        assert!(slots <= MAX_SLOTS, "more than 2^28 slots");
        let cells = slots / BLOCK_SLOTS + slots;
        Self {
            slots,
            // Zeroed allocations: the allocator hands out untouched pages.
            links: vec![[0u32; 2]; cells],
            marks: vec![0u8; cells],
            heads: [0; ORDERS],
            blocks: [0; ORDERS],
            nonempty: 0,
            free_pages: 0,
            in_pageblock: vec![0; slots / BLOCK_SLOTS],
        }
    }

    /// Slots managed, free or not.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Free slots.
    #[must_use]
    pub fn free_pages(&self) -> usize {
        self.free_pages
    }

    /// Free blocks of exactly `order`.
    #[must_use]
    pub fn free_blocks(&self, order: Order) -> usize {
        self.blocks[order.index()]
    }

    /// Free slots of one pageblock: slots `512 * block ..` and the 511 after it.
    ///
    /// # Panics
    /// When `block` is outside the slots.
    #[must_use]
    pub fn free_in_pageblock(&self, block: usize) -> usize {
        usize::from(self.in_pageblock[block])
    }

    /// The order of the largest free block, `None` when nothing is free.
    #[must_use]
    pub fn largest_free_order(&self) -> Option<Order> {
        let log = self.nonempty.checked_ilog2()?;
        u8::try_from(log).ok().and_then(Order::new)
    }

    /// The first slots of the free blocks of `order`, the one freed last first.
    pub fn iter_free(&self, order: Order) -> impl Iterator<Item = Pfn> {
        core::iter::successors(from_link(self.heads[order.index()]), move |&at| {
            from_link(self.links[self.cell(at, order)][NEXT])
        })
    }

    /// Takes a block of `order`: from the smallest order that has one, the
    /// upper halves going back. `None` when no block is large enough.
    pub fn alloc(&mut self, order: Order) -> Option<Pfn> {
        let fitting = self.nonempty & (u16::MAX << order.get());
        if fitting == 0 {
            return None;
        }
        let from = u8::try_from(fitting.trailing_zeros())
            .ok()
            .and_then(Order::new)?;
        self.take_head(from, order)
    }

    /// Takes the largest free block; what exceeds `max` goes back, so that the
    /// block returned has the order of the largest free one or `max`, whichever
    /// is smaller. `None` when nothing is free.
    pub fn take_largest(&mut self, max: Order) -> Option<(Pfn, Order)> {
        let from = self.largest_free_order()?;
        let order = from.min(max);
        self.take_head(from, order).map(|at| (at, order))
    }

    /// Takes the whole free block that starts at `at`, whatever its order: how
    /// folio compaction isolates. `None` when none starts there.
    ///
    /// # Panics
    /// When `at` is outside the slots.
    pub fn take_block(&mut self, at: Pfn) -> Option<Order> {
        let order = self.block_at(at)?;
        self.unlink(at, order);
        self.count(at, order, |slots, pages| slots - pages);
        Some(order)
    }

    /// Gives a block back and merges it as far as its buddies are free.
    ///
    /// The block need not have been allocated as this block: any aligned run of
    /// slots that are not free may be given.
    ///
    /// # Panics
    /// When the block is misaligned or outside the slots, or the same block is
    /// free already. Debug builds also find every partial overlap with free
    /// slots.
    pub fn free(&mut self, at: Pfn, order: Order) {
        assert!(at.is_aligned(order), "freeing a misaligned block");
        assert!(
            self.contains(at, order.pages()),
            "freeing slots outside the arena"
        );
        assert!(
            self.marks[self.cell(at, order)] != mark(order),
            "double free of a block"
        );
        debug_assert!(
            !self.overlaps_free(at, order.pages()),
            "freeing slots that are free"
        );
        self.count(at, order, |slots, pages| slots + pages);
        let (mut at, mut order) = (at, order);
        while let Some(larger) = Order::new(order.get() + 1) {
            let buddy = Pfn(at.0 ^ (1 << order.get()));
            if self.marks[self.cell(buddy, order)] != mark(order) {
                break;
            }
            self.unlink(buddy, order);
            at = at.min(buddy);
            order = larger;
        }
        self.push(at, order);
    }

    /// Gives any run of `pages` slots back, as the fewest aligned blocks.
    ///
    /// # Panics
    /// As [`Self::free`].
    pub fn free_range(&mut self, at: Pfn, pages: usize) {
        assert!(self.contains(at, pages), "freeing slots outside the arena");
        let end = at.index() + pages;
        let mut at = at;
        while at.index() < end {
            let order = largest_aligned(at, end - at.index());
            self.free(at, order);
            at = at.offset(order.pages());
        }
    }

    /// Whether any of the `pages` slots from `at` is free. Takes time in
    /// proportion to `pages`: for assertions and checks.
    #[must_use]
    pub fn overlaps_free(&self, at: Pfn, pages: usize) -> bool {
        // A free block that covers `at` starts at `at` rounded down to its own
        // order; any other that overlaps starts inside the run.
        let covered = Order::all().any(|order| {
            let start = Pfn(at.0 & !(mask(order)));
            self.contains(start, order.pages())
                && self.marks[self.cell(start, order)] == mark(order)
        });
        covered
            || (at.index()..at.index() + pages)
                .filter_map(|slot| u32::try_from(slot).ok().map(Pfn))
                .any(|slot| slot.index() < self.slots && self.block_at(slot).is_some())
    }

    /// The order of the free block that starts at `at`, if one does.
    ///
    /// # Panics
    /// When `at` is outside the slots.
    #[must_use]
    pub fn block_at(&self, at: Pfn) -> Option<Order> {
        let small = self.marks[self.cell(at, Order::PAGE)];
        let found = if small == 0 && at.is_aligned(Order::HUGE) {
            self.marks[self.cell(at, Order::HUGE)]
        } else {
            small
        };
        found.checked_sub(1).and_then(Order::new)
    }

    /// Whether all of `at .. at + pages` are slots of this allocator.
    fn contains(&self, at: Pfn, pages: usize) -> bool {
        at.index()
            .checked_add(pages)
            .is_some_and(|end| end <= self.slots)
    }

    /// Takes the first block of `from`, keeps its lower part of `order` and
    /// gives the upper halves back. No merge can follow: a half's buddy is the
    /// part just taken.
    fn take_head(&mut self, from: Order, order: Order) -> Option<Pfn> {
        let at = from_link(self.heads[from.index()])?;
        self.unlink(at, from);
        self.count(at, order, |slots, pages| slots - pages);
        for half in Order::all().rev().filter(|o| (order..from).contains(o)) {
            self.push(at.offset(half.pages()), half);
        }
        Some(at)
    }

    /// Counts a block's slots in or out of the free ones.
    fn count(&mut self, at: Pfn, order: Order, change: impl Fn(usize, usize) -> usize) {
        self.free_pages = change(self.free_pages, order.pages());
        let cell = &mut self.in_pageblock[at.index() / BLOCK_SLOTS];
        // At most 512: a pageblock's slots.
        *cell = u16::try_from(change(usize::from(*cell), order.pages())).unwrap_or(u16::MAX);
    }

    /// Where the metadata of a block of `order` at `at` is.
    fn cell(&self, at: Pfn, order: Order) -> usize {
        if order == Order::HUGE {
            at.index() / BLOCK_SLOTS
        } else {
            self.slots / BLOCK_SLOTS + at.index()
        }
    }

    /// Puts a block first in its order's list and marks it.
    fn push(&mut self, at: Pfn, order: Order) {
        let cell = self.cell(at, order);
        let head = self.heads[order.index()];
        if let Some(old) = from_link(head) {
            let old = self.cell(old, order);
            self.links[old][PREV] = to_link(at);
        }
        self.links[cell] = [head, 0];
        self.marks[cell] = mark(order);
        self.heads[order.index()] = to_link(at);
        self.blocks[order.index()] += 1;
        self.nonempty |= 1 << order.get();
    }

    /// Takes a block out of its order's list and clears its mark.
    fn unlink(&mut self, at: Pfn, order: Order) {
        let cell = self.cell(at, order);
        let [next, prev] = self.links[cell];
        match from_link(prev) {
            Some(prev) => {
                let prev = self.cell(prev, order);
                self.links[prev][NEXT] = next;
            }
            None => self.heads[order.index()] = next,
        }
        if let Some(next) = from_link(next) {
            let next = self.cell(next, order);
            self.links[next][PREV] = prev;
        }
        self.marks[cell] = 0;
        self.blocks[order.index()] -= 1;
        if self.blocks[order.index()] == 0 {
            self.nonempty &= !(1 << order.get());
        }
    }
}

/// The largest order of an aligned block at `at` within `pages` (at least 1).
fn largest_aligned(at: Pfn, pages: usize) -> Order {
    Order::all()
        .rev()
        .find(|order| at.is_aligned(*order) && order.pages() <= pages)
        .unwrap_or(Order::PAGE)
}

/// The mark of a free block of `order`; 0 is kept for "no block".
fn mark(order: Order) -> u8 {
    order.get() + 1
}

/// The low bits of a slot's number within a block of `order`.
fn mask(order: Order) -> u32 {
    (1 << order.get()) - 1
}

/// A slot as a link; 0 is kept for "none". Slots are below 2^28.
fn to_link(at: Pfn) -> u32 {
    at.0 + 1
}

/// The slot a link names.
fn from_link(link: u32) -> Option<Pfn> {
    link.checked_sub(1).map(Pfn)
}
