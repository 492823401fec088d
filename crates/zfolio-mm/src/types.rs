//! Newtypes and the memory trait shared by every crate above.

use core::fmt;

/// log2 of the page size.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// Largest order of a folio or free block: 2 MiB, one huge page.
pub const MAX_ORDER: u8 = 9;
/// Number of orders, 0 ..= [`MAX_ORDER`].
pub const ORDERS: usize = MAX_ORDER as usize + 1;

/// Page frame number: the index of a slot in the arena.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pfn(pub u32);

impl Pfn {
    /// The slot as an array index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The slot `pages` further up.
    ///
    /// # Panics
    /// When the sum does not fit a `Pfn`.
    #[must_use]
    pub fn offset(self, pages: usize) -> Self {
        let sum = self.index() + pages;
        Self(u32::try_from(sum).expect("pfn out of range"))
    }

    /// The slot `pages` further down.
    ///
    /// # Panics
    /// When that is below slot 0.
    #[must_use]
    pub fn back(self, pages: usize) -> Self {
        let less = self.index().checked_sub(pages).expect("pfn below 0");
        Self(u32::try_from(less).expect("pfn out of range"))
    }

    /// Whether a block of `order` may start here.
    #[must_use]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.index() & (order.pages() - 1) == 0
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn {:#x}", self.0)
    }
}

/// log2 of a number of pages, 0 ..= [`MAX_ORDER`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Order(u8);

impl Order {
    /// One page.
    pub const PAGE: Self = Self(0);
    /// 64 KiB.
    pub const K64: Self = Self(4);
    /// 2 MiB: a transparent huge page.
    pub const HUGE: Self = Self(MAX_ORDER);

    /// `order` if it is no larger than [`MAX_ORDER`].
    #[must_use]
    pub const fn new(order: u8) -> Option<Self> {
        if order <= MAX_ORDER {
            Some(Self(order))
        } else {
            None
        }
    }

    /// The smallest order that holds `pages` pages; `None` above 512 or for 0.
    #[must_use]
    pub fn holding(pages: usize) -> Option<Self> {
        if pages == 0 {
            return None;
        }
        let log = pages.next_power_of_two().trailing_zeros();
        u8::try_from(log).ok().and_then(Self::new)
    }

    /// The largest order of at most `pages` pages; one page for 0.
    #[must_use]
    pub fn holding_at_most(pages: usize) -> Self {
        let log = pages.max(1).ilog2();
        u8::try_from(log)
            .ok()
            .and_then(Self::new)
            .unwrap_or(Self::HUGE)
    }

    /// Every order, smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..=MAX_ORDER).map(Self)
    }

    /// The exponent.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The exponent as an array index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Pages in a block of this order.
    #[must_use]
    pub const fn pages(self) -> usize {
        1 << self.0
    }

    /// Bytes in a block of this order.
    #[must_use]
    pub const fn bytes(self) -> usize {
        PAGE_SIZE << self.0
    }
}

/// The bytes behind backed slots.
///
/// Slots of one allocated block are contiguous: an offset may run past the
/// first page into the following ones. Whoever holds a block (by the buddy
/// allocator) has it to itself: that, not a lock, is what makes these calls
/// exclusive.
pub trait Memory {
    /// Runs `f` on `len` bytes that start `offset` bytes into slot `at`.
    fn with<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R;

    /// Runs `f` on `len` writable bytes that start `offset` bytes into slot `at`.
    fn with_mut<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R;
}
