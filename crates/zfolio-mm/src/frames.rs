//! The three allocators (backed, hole, kept) over one index space.
//!
//! A free slot of the arena either has a page frame behind it ([`Kind::Backed`],
//! [`Kind::Kept`]) or not ([`Kind::Hole`]); each kind has its own [`Buddy`]. A slot in use is
//! in none. A frame arrives in a hole by a move or by populating it, and
//! leaves a backed slot by a move or by being released, so a slot taken as one
//! kind is often given back as the other: that is how frames change kind here.
//!
//! # Invariants
//!
//! Checked by [`Frames::validate`]:
//! 1. each allocator's own (see [`crate::buddy`]);
//! 2. no slot is free in two of them;
//! 3. the free pages of all kinds are `slots` at most; the rest is in use.

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
    /// A page frame that is kept for the pool. It frees and takes a few at a time, all over
    /// the arena: where those were anybody's, they cut up every run that others free, and
    /// in the end the arena's addresses (Linux groups pages by mobility for the same reason).
    Kept,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Backed, Self::Hole, Self::Kept];
}

/// Which slots of the arena are free, by kind and block.
#[derive(Clone, Debug)]
pub struct Frames {
    backed: Buddy,
    holes: Buddy,
    kept: Buddy,
}

impl Frames {
    /// Book-keeping for slots `0..slots`, all of them free holes.
    ///
    /// Takes 27 bytes of address space per slot and touches 13 bytes
    /// per 512 slots. Lower slots are handed out first.
    ///
    /// # Panics
    /// As [`Buddy::new`].
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let [backed, kept] = [Buddy::new(slots), Buddy::new(slots)];
        let mut holes = Buddy::new(slots);
        // Last in, first out: free from the top so that the bottom comes first.
        for block in (0..slots).step_by(Order::HUGE.pages()).rev() {
            holes.free(Pfn(0).offset(block), Order::HUGE);
        }
        Self {
            backed,
            holes,
            kept,
        }
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
    /// As [`Buddy::free`]; debug builds also find slots free as another kind.
    pub fn free(&mut self, kind: Kind, at: Pfn, order: Order) {
        debug_assert!(
            !self.is_free_as_other(kind, at, order.pages()),
            "freeing slots that are free as another kind"
        );
        self.of_mut(kind).free(at, order);
    }

    /// Gives any run of `pages` slots back as `kind`.
    ///
    /// # Panics
    /// As [`Self::free`].
    pub fn free_range(&mut self, kind: Kind, at: Pfn, pages: usize) {
        debug_assert!(
            pages == 0 || !self.is_free_as_other(kind, at, pages),
            "freeing slots that are free as another kind"
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

    /// Slots in use: free as no kind.
    #[must_use]
    pub fn used_pages(&self) -> usize {
        let free = Kind::ALL.map(|kind| self.free_pages(kind));
        self.slots() - free.iter().sum::<usize>()
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
            Kind::Kept => &self.kept,
        }
    }

    /// The allocator of one kind.
    fn of_mut(&mut self, kind: Kind) -> &mut Buddy {
        match kind {
            Kind::Backed => &mut self.backed,
            Kind::Hole => &mut self.holes,
            Kind::Kept => &mut self.kept,
        }
    }

    fn is_free_as_other(&self, kind: Kind, at: Pfn, pages: usize) -> bool {
        let mut others = Kind::ALL.into_iter().filter(|other| *other != kind);
        others.any(|other| self.of(other).overlaps_free(at, pages))
    }

    /// Checks the invariants at the module's head. Takes time and memory in
    /// proportion to the slots: for tests.
    ///
    /// # Errors
    /// A sentence on the first invariant found broken.
    pub fn validate(&self) -> Result<(), String> {
        for kind in Kind::ALL {
            let own = self.of(kind).validate();
            own.map_err(|error| format!("{kind:?}: {error}"))?;
            for order in Order::all() {
                for at in self.of(kind).iter_free(order) {
                    if self.is_free_as_other(kind, at, order.pages()) {
                        return Err(format!("{at} order {} is free twice", order.get()));
                    }
                }
            }
        }
        let free: usize = Kind::ALL.map(|kind| self.free_pages(kind)).iter().sum();
        if free > self.slots() {
            return Err(format!("{free} free slots of {}", self.slots()));
        }
        Ok(())
    }
}
