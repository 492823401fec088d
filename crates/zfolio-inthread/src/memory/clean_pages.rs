//! Which pages are clean, and which left lately as clean ones: what [`clean`](super::clean)
//! remembers.

use super::Vpn;
use super::way::STAGE;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use zfolio_zswap::Slot;

/// Of the pages that may be resident one in so many is clean at most; and how many may be,
/// however few or many that is.
const PART: usize = 64;
const FEWEST: usize = 128;
const MOST: usize = 1 << 16;
/// A page comes back soon if fewer have left clean since than this part of those that may be
/// resident.
const SOON: usize = 2;
/// A page that is written to while it is clean cost a fault more, one that leaves saved the work of
/// storing it: about as much with one thread. With several the end of the protection interrupts other
/// processors as well, [`BESIDE`] times as much. Where this many more were written to, pages come as the
/// program's alone, but for one of [`PROBES`], by which a change is seen.
const WRITTEN: i32 = 64;
const BESIDE: i32 = 4;
const PROBES: u32 = 64;
/// Most pages that are noted as having left: 8 bytes each, twice.
const MOST_NOTED: usize = 1 << 18;

/// Those that are clean, and those that left so lately.
#[derive(Default)]
pub(crate) struct CleanPages {
    /// In the order in which they came. A hint: a page may have become something else since.
    pub(super) queue: VecDeque<(Vpn, Slot)>,
    /// Most of them.
    pub(super) most: usize,
    /// By a page's number: which page it was, and the count of those that had left.
    left: Box<[(u32, u32)]>,
    count: u32,
    soon: u32,
    /// What clean pages cost that were written to, less those that left: within twice [`WRITTEN`],
    /// either way.
    balance: i32,
    /// How often clean pages have not paid.
    refused: u32,
}

impl CleanPages {
    /// For a process that may have `high` pages: nothing is allocated later.
    pub(crate) fn of(high: usize) -> Self {
        let most = (high / PART).clamp(FEWEST, MOST);
        let soon = (high / SOON).clamp(FEWEST, MOST_NOTED);
        Self {
            queue: VecDeque::with_capacity(most + STAGE),
            most,
            left: vec![(0, 0); (2 * soon).next_power_of_two()].into_boxed_slice(),
            count: 0,
            soon: u32::try_from(soon).unwrap_or(u32::MAX),
            balance: 0,
            refused: 0,
        }
    }

    /// Whether pages are to come clean, by what became of the last ones.
    pub(super) fn pays(&mut self) -> bool {
        if self.balance < WRITTEN {
            return true;
        }
        self.refused = self.refused.wrapping_add(1);
        self.refused.is_multiple_of(PROBES)
    }

    /// A clean page is about to be written to, by one of several threads or the only one.
    pub(super) fn note_written(&mut self, several: bool) {
        let cost = if several { BESIDE } else { 1 };
        self.balance = (self.balance + cost).min(2 * WRITTEN);
    }

    /// The process may have `high` pages now: fewer, or again as many as it began with.
    pub(super) fn follow(&mut self, high: usize) {
        // (What was allocated has no room for more.)
        let capacity = self.queue.capacity().saturating_sub(STAGE);
        self.most = (high / PART).clamp(FEWEST, MOST).min(capacity);
        let noted = self.left.len() / 2;
        let soon = (high / SOON).clamp(FEWEST, MOST_NOTED).min(noted);
        self.soon = u32::try_from(soon).unwrap_or(u32::MAX);
    }

    /// Where a page is noted, and as which.
    fn place(&self, page: Vpn) -> (usize, u32) {
        let bits = self.left.len().trailing_zeros();
        let tag = u32::try_from(page >> bits).unwrap_or(u32::MAX);
        (page & (self.left.len() - 1), tag + 1)
    }

    /// A clean page has left.
    pub(super) fn note_left(&mut self, page: Vpn) {
        self.balance = (self.balance - 1).max(-2 * WRITTEN);
        let (place, tag) = self.place(page);
        self.left[place] = (tag, self.count);
        self.count = self.count.wrapping_add(1);
    }

    /// Whether it left lately; it is asked once.
    pub(super) fn comes_soon(&mut self, page: Vpn) -> bool {
        let (place, tag) = self.place(page);
        let (noted, at) = self.left[place];
        let soon = noted == tag && self.count.wrapping_sub(at) < self.soon;
        if soon {
            self.left[place] = (0, 0);
        }
        soon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_written_to_do_not_come_clean() {
        let mut clean = CleanPages::of(2000);
        for _ in 0..1000 {
            clean.note_written(false);
        }
        let probes = (0..640).filter(|_| clean.pays()).count();
        assert_eq!(probes, 10, "one of 64");
        // As soon as more leave as they came, they pay again.
        for page in 0..64 {
            assert!(clean.balance >= WRITTEN);
            clean.note_left(page);
        }
        clean.note_left(64);
        assert!((0..640).all(|_| clean.pays()));
        clean.note_written(true);
        assert!(clean.balance >= WRITTEN);
    }

    #[test]
    fn what_left_lately_comes_soon_once() {
        let mut clean = CleanPages::of(2000);
        assert_eq!((clean.most, clean.soon), (128, 1000));
        for page in 0..1500 {
            clean.note_left(page * 7);
        }
        assert!(!clean.comes_soon(3), "it never left");
        assert!(!clean.comes_soon(400 * 7), "1100 have left since");
        assert!(clean.comes_soon(1499 * 7));
        assert!(!clean.comes_soon(1499 * 7), "it is asked once");
        // Of the same place, another page.
        assert!(!clean.comes_soon(1498 * 7 + clean.left.len()));
        assert!(clean.comes_soon(1498 * 7));
    }
}
