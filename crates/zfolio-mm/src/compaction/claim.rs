//! The slots of the region being emptied that are free already.
//!
//! They are kept from the owner's allocator, which would hand out just these: the
//! block freed last is taken first. A bit per slot; when all are set the region is
//! one free block, whatever pieces it came in.
//!
//! # Invariants
//! 1. bits outside the region are clear; 2. `pages` is the number of set bits.

use alloc::format;
use alloc::string::String;

use crate::types::{Order, Pfn};

/// Words of 64 bits for a region of the largest order.
const WORDS: usize = Order::HUGE.pages() / 64;

/// A region of at most 512 slots, and which of them are claimed.
#[derive(Debug)]
pub struct Claim {
    base: Pfn,
    order: Order,
    bits: [u64; WORDS],
    pages: usize,
}

impl Default for Claim {
    fn default() -> Self {
        Self::new(Pfn(0), Order::PAGE)
    }
}

impl Claim {
    /// A region of `order` at `base`, nothing of it claimed.
    #[must_use]
    pub fn new(base: Pfn, order: Order) -> Self {
        Self {
            base,
            order,
            bits: [0; WORDS],
            pages: 0,
        }
    }

    /// The region's first slot.
    #[must_use]
    pub fn base(&self) -> Pfn {
        self.base
    }

    /// The region's order.
    #[must_use]
    pub fn order(&self) -> Order {
        self.order
    }

    /// Slots claimed.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Whether the whole region is claimed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.pages == self.order.pages()
    }

    /// Whether all of `at .. at + pages` lies in the region.
    #[must_use]
    pub fn covers(&self, at: Pfn, pages: usize) -> bool {
        at >= self.base && at.index() + pages <= self.base.index() + self.order.pages()
    }

    /// Whether a slot is claimed.
    #[must_use]
    pub fn holds(&self, at: Pfn) -> bool {
        self.covers(at, 1) && self.bit(at.index() - self.base.index())
    }

    /// Claims slots of the region.
    ///
    /// # Panics
    /// When they are not of the region, or claimed already.
    pub fn add(&mut self, at: Pfn, pages: usize) {
        assert!(self.covers(at, pages), "claiming slots of another region");
        let first = at.index() - self.base.index();
        for slot in first..first + pages {
            assert!(!self.bit(slot), "claiming a slot twice");
            self.bits[slot / 64] |= 1 << (slot % 64);
        }
        self.pages += pages;
    }

    /// Takes the first run of claimed slots out; `None` when there is none.
    pub fn pop(&mut self) -> Option<(Pfn, usize)> {
        let slots = self.order.pages();
        let first = (0..slots).find(|slot| self.bit(*slot))?;
        let end = (first..slots)
            .find(|slot| !self.bit(*slot))
            .unwrap_or(slots);
        for slot in first..end {
            self.bits[slot / 64] &= !(1 << (slot % 64));
        }
        self.pages -= end - first;
        Some((self.base.offset(first), end - first))
    }

    /// Checks the invariants at the module's head.
    ///
    /// # Errors
    /// A sentence on the first one found broken.
    pub fn validate(&self) -> Result<(), String> {
        let set = (0..Order::HUGE.pages()).filter(|slot| self.bit(*slot));
        let (mut count, mut last) = (0, 0);
        for slot in set {
            (count, last) = (count + 1, slot);
        }
        if count != self.pages || count > 0 && last >= self.order.pages() {
            return Err(format!(
                "claim at {}: {} pages counted, {count} set, the last {last}",
                self.base, self.pages
            ));
        }
        Ok(())
    }

    fn bit(&self, slot: usize) -> bool {
        self.bits[slot / 64] >> (slot % 64) & 1 != 0
    }
}
