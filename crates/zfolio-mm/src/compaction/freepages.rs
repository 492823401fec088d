//! Isolated free blocks, by order.
//!
//! Free blocks are isolated whole. A folio takes the smallest block that is large
//! enough; the upper halves go to the lower orders, and a block that was not used
//! after all comes back. What is left in the end goes back to the owner.

use alloc::string::String;

use crate::buddy::Buddy;
use crate::types::{ORDERS, Order, Pfn};

/// A store of isolated free blocks.
pub trait FreePages {
    /// Whether a larger block may be split for a smaller folio.
    const SPLITS: bool;

    /// An empty store for an arena of `slots` slots.
    fn new(slots: usize) -> Self;

    /// Pages in the store.
    fn pages(&self) -> usize;

    /// Blocks of `order`.
    fn blocks(&self, order: Order) -> usize;

    /// Takes a block in: one just isolated, or one that [`Self::take`] gave.
    fn put(&mut self, at: Pfn, order: Order);

    /// A block of exactly `order`, split off a larger one if need be and allowed.
    fn take(&mut self, order: Order) -> Option<Pfn>;

    /// Takes any block out, large ones first; `None` when the store is empty.
    fn pop(&mut self) -> Option<(Pfn, Order)>;

    /// Checks the store's own invariants. Takes time in proportion to the slots: for
    /// tests.
    ///
    /// # Errors
    /// A sentence on the first invariant found broken.
    fn validate(&self) -> Result<(), String>;

    /// Whether `at` is in a block of the store. Slow: for tests.
    fn holds(&self, at: Pfn) -> bool;

    /// Takes any run in, as the fewest aligned blocks.
    fn put_run(&mut self, at: Pfn, pages: usize) {
        let (mut at, mut left) = (at, pages);
        while left > 0 {
            let mut order = Order::holding_at_most(left);
            while !at.is_aligned(order) {
                order = Order::new(order.get() - 1).unwrap_or(Order::PAGE);
            }
            self.put(at, order);
            at = at.offset(order.pages());
            left -= order.pages();
        }
    }

    /// Whether folios of which `need[o]` are of order `o` all find a place here and in
    /// `more[o]` blocks elsewhere: `None`, or the largest order of which one does not.
    /// Exact: aligned blocks are a buddy
    /// system, in which handing out the largest first never wastes any.
    fn short_of(&self, need: &[usize; ORDERS], more: &[usize; ORDERS]) -> Option<Order> {
        let mut spare = 0;
        Order::all().rev().find(|order| {
            let have = spare * 2 + self.blocks(*order) + more[order.index()];
            spare = have.saturating_sub(need[order.index()]);
            have < need[order.index()]
        })
    }
}

/// Blocks that split and merge: a buddy allocator of their own.
///
/// Isolated pages carry no mark of the owner's allocator, which is why the kernel
/// cannot merge them. Here the marks of free blocks are in a side table, a byte a
/// slot that costs memory only where it was written, and a second table keeps the
/// isolated ones.
#[derive(Debug)]
pub struct Merging(Buddy);

impl FreePages for Merging {
    const SPLITS: bool = true;

    fn new(slots: usize) -> Self {
        Self(Buddy::new(slots))
    }

    fn pages(&self) -> usize {
        self.0.free_pages()
    }

    fn blocks(&self, order: Order) -> usize {
        self.0.free_blocks(order)
    }

    fn put(&mut self, at: Pfn, order: Order) {
        self.0.free(at, order);
    }

    fn take(&mut self, order: Order) -> Option<Pfn> {
        self.0.alloc(order)
    }

    fn pop(&mut self) -> Option<(Pfn, Order)> {
        self.0.take_largest(Order::HUGE)
    }

    fn validate(&self) -> Result<(), String> {
        self.0.validate()
    }

    fn holds(&self, at: Pfn) -> bool {
        self.0.overlaps_free(at, 1)
    }
}
