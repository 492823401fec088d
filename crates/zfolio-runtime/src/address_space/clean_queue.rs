//! Clean pages, in the order in which they came.

use crate::page::Vpn;
use alloc::collections::VecDeque;
use zfolio_zswap::Slot;

/// Of what is resident one page in so many is clean at most: each takes room in the pool,
/// and that of two pages from all others where these halve ...
pub(crate) const CLEAN_PART: usize = 64;

/// ... and no more than these.
pub(crate) const MOST_CLEAN: usize = 1 << 16;

/// Pages made the program's own for one that becomes clean, at most.
pub(crate) const OWNED_AT_ONCE: usize = 2;

/// Clean pages in the order in which they came. A hint: a page may have been written to
/// since, or have left and come again.
pub(crate) struct CleanPages {
    queue: VecDeque<(Vpn, Slot)>,
}

impl CleanPages {
    /// For memory of so many pages: nothing is allocated later, unless that becomes
    /// more.
    pub(crate) fn of(high: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity((high / CLEAN_PART).min(MOST_CLEAN) + OWNED_AT_ONCE),
        }
    }

    /// How many are remembered.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// A page has become clean.
    pub(crate) fn push(&mut self, page: (Vpn, Slot)) {
        self.queue.push_back(page);
    }

    /// Takes the one that came first.
    pub(crate) fn take_oldest(&mut self) -> Option<(Vpn, Slot)> {
        self.queue.pop_front()
    }

    /// Puts back what was taken, in the order in which it was.
    pub(crate) fn put_back(&mut self, pages: &[(Vpn, Slot)]) {
        for page in pages.iter().rev() {
            self.queue.push_front(*page);
        }
    }

    /// Whether a page is remembered.
    pub(crate) fn contains(&self, page: (Vpn, Slot)) -> bool {
        self.queue.contains(&page)
    }
}
