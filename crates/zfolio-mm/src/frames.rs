//! The two allocators (backed, hole) over one index space.
//!
//! A free slot of the arena either has a page frame behind it ([`Kind::Backed`])
//! or not ([`Kind::Hole`]); each kind has its own [`Buddy`]. A slot in use is
//! in neither. A frame arrives in a hole by a move or by populating it, and
//! leaves a backed slot by a move or by being released, so a slot taken as one
//! kind is often given back as the other: that is how frames change kind here.
//!
//! # Invariants
//!
//! Checked by [`Frames::validate`]:
//! 1. each allocator's own (see [`crate::buddy`]);
//! 2. no slot is free in both;
//! 3. `free_pages(Backed) + free_pages(Hole) <= slots`; the rest is in use.

use alloc::format;
use alloc::string::String;

use crate::buddy::Buddy;
use crate::types::{Order, Pfn};

/// What is behind a free slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A page frame: usable memory that costs memory.
    Backed,
    /// Nothing: only a place to put a frame.
    Hole,
}

impl Kind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Backed, Self::Hole];

    /// The other kind.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Backed => Self::Hole,
            Self::Hole => Self::Backed,
        }
    }
}

/// Which slots of the arena are free, by kind and block.
#[derive(Clone, Debug)]
pub struct Frames {
    backed: Buddy,
    holes: Buddy,
}

impl Frames {
    /// Book-keeping for slots `0..slots`, all of them free holes.
    ///
    /// Takes 18 bytes of address space per slot and touches 13 bytes
    /// per 512 slots. Lower slots are handed out first.
    ///
    /// # Panics
    /// As [`Buddy::new`].
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let backed = Buddy::new(slots);
        let mut holes = Buddy::new(slots);
        // Last in, first out: free from the top so that the bottom comes first.
        for block in (0..slots).step_by(Order::HUGE.pages()).rev() {
            holes.free(Pfn(0).offset(block), Order::HUGE);
        }
        Self { backed, holes }
    }

    /// Slots of the arena, in use or free.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.holes.slots()
    }

    /// Takes a block of `order`, `None` when no free block of `kind` is large
    /// enough.
    pub fn alloc(&mut self, kind: Kind, order: Order) -> Option<Pfn> {
        self.of_mut(kind).alloc(order)
    }

    /// Takes a contiguous run of exactly `pages` slots (1 ..= 512): a block of
    /// the order that holds it, whose tail is given back. The run starts at a
    /// multiple of that order. `None` when no block is large enough, or for a
    /// length outside 1 ..= 512.
    pub fn alloc_exact(&mut self, kind: Kind, pages: usize) -> Option<Pfn> {
        let order = Order::holding(pages)?;
        let buddy = self.of_mut(kind);
        let at = buddy.alloc(order)?;
        buddy.free_range(at.offset(pages), order.pages() - pages);
        Some(at)
    }

    /// Gives a block back as `kind`, whichever kind it was taken as.
    ///
    /// # Panics
    /// As [`Buddy::free`]; debug builds also find slots free as the other kind.
    pub fn free(&mut self, kind: Kind, at: Pfn, order: Order) {
        debug_assert!(
            !self.of(kind.other()).overlaps_free(at, order.pages()),
            "freeing slots that are free as the other kind"
        );
        self.of_mut(kind).free(at, order);
    }

    /// Gives any run of `pages` slots back as `kind`.
    ///
    /// # Panics
    /// As [`Self::free`].
    pub fn free_range(&mut self, kind: Kind, at: Pfn, pages: usize) {
        debug_assert!(
            pages == 0 || !self.of(kind.other()).overlaps_free(at, pages),
            "freeing slots that are free as the other kind"
        );
        self.of_mut(kind).free_range(at, pages);
    }

    /// Free slots of `kind`.
    #[must_use]
    pub fn free_pages(&self, kind: Kind) -> usize {
        self.of(kind).free_pages()
    }

    /// Free blocks of `kind` of exactly `order`.
    #[must_use]
    pub fn free_blocks(&self, kind: Kind, order: Order) -> usize {
        self.of(kind).free_blocks(order)
    }

    /// The order of the largest free block of `kind`.
    #[must_use]
    pub fn largest_free_order(&self, kind: Kind) -> Option<Order> {
        self.of(kind).largest_free_order()
    }

    /// Slots in use: free as neither kind.
    #[must_use]
    pub fn used_pages(&self) -> usize {
        self.slots() - self.backed.free_pages() - self.holes.free_pages()
    }

    /// Takes the largest free block of `kind`, cut down to `max` when it is
    /// larger. This is how memory is released: the largest backed blocks first,
    /// each given back as a hole.
    pub fn take_free(&mut self, kind: Kind, max: Order) -> Option<(Pfn, Order)> {
        self.of_mut(kind).take_largest(max)
    }

    /// Takes the whole free block of `kind` that starts at `at`, whatever its
    /// order; `None` when none starts there.
    ///
    /// # Panics
    /// When `at` is outside the slots.
    pub fn take_block(&mut self, kind: Kind, at: Pfn) -> Option<Order> {
        self.of_mut(kind).take_block(at)
    }

    /// The allocator of one kind, to look at.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &Buddy {
        match kind {
            Kind::Backed => &self.backed,
            Kind::Hole => &self.holes,
        }
    }

    /// The allocator of one kind.
    fn of_mut(&mut self, kind: Kind) -> &mut Buddy {
        match kind {
            Kind::Backed => &mut self.backed,
            Kind::Hole => &mut self.holes,
        }
    }

    /// Checks the invariants at the module's head. Takes time and memory in
    /// proportion to the slots: for tests.
    ///
    /// # Errors
    /// A sentence on the first invariant found broken.
    pub fn validate(&self) -> Result<(), String> {
        self.backed.validate().map_err(|e| format!("backed: {e}"))?;
        self.holes.validate().map_err(|e| format!("holes: {e}"))?;
        for order in Order::all() {
            for at in self.backed.iter_free(order) {
                if self.holes.overlaps_free(at, order.pages()) {
                    return Err(format!("{at} order {} is free in both", order.get()));
                }
            }
        }
        let free = self.backed.free_pages() + self.holes.free_pages();
        if free > self.slots() {
            return Err(format!("{free} free slots of {}", self.slots()));
        }
        Ok(())
    }
}
