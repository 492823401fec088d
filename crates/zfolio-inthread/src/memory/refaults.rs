//! Which pages are spared by the hand: those that came back soon after they had left
//! ([`zfolio_runtime::refault`]).
//!
//! # Invariant
//! It is a hint. What is noted of a page may be of another that has the same place, so it says which page
//! leaves first, and nothing else. Where all pages are spared the clock goes on, round by round of the hand, until
//! some are not.

use super::Vpn;
use zfolio_runtime::refault::{RefaultRecord, StoreClock};
use zfolio_sys::arena::reserve_private;

/// Records for each page that may be resident; and how many there are, however few or many that is.
const EACH: usize = 8;
const FEWEST: usize = 1 << 15;
const MOST: usize = 1 << 27;
/// Where less than this part of what is resident has left in a round of the hand, the clock goes on.
const PART: usize = 8;

/// What is noted of pages, under the core lock.
#[derive(Default)]
pub(super) struct Refaults {
    /// By a page's number, modulo their count, a power of two; none: nothing is spared.
    records: &'static mut [RefaultRecord],
    clock: StoreClock,
    /// The least ticks after which something may go that has been spared in this round.
    least: Option<u8>,
    /// Pages that have left in this round.
    left: usize,
}

impl Refaults {
    /// For a process that may have `high` pages. (Of the records what is never written takes no memory.)
    pub(super) fn of(high: usize) -> Self {
        let count = (high * EACH).clamp(FEWEST, MOST).next_power_of_two();
        let records: &'static mut [RefaultRecord] = match reserve_private(count, c"zfolio refaults")
        {
            // SAFETY: fresh memory of `count` bytes that is never unmapped, and nobody else's; a record is
            // a byte, for which zero is valid.
            Ok(range) => unsafe {
                core::slice::from_raw_parts_mut(range.start as *mut RefaultRecord, count)
            },
            Err(_) => &mut [],
        };
        Self {
            records,
            ..Self::default()
        }
    }

    fn of_page(&mut self, page: Vpn) -> Option<(&mut RefaultRecord, &StoreClock)> {
        let mask = self.records.len().wrapping_sub(1);
        let record = self.records.get_mut(page & mask)?;
        Some((record, &self.clock))
    }

    /// A page has left.
    pub(super) fn note_left(&mut self, page: Vpn) {
        if let Some((record, clock)) = self.of_page(page) {
            record.store(clock);
        }
    }

    /// So many have left, where `resident` are not out.
    pub(super) fn count_left(&mut self, pages: usize, resident: usize) {
        self.left += pages;
        self.clock.stored(pages, resident);
    }

    /// A page came back: it was asked for by itself, or because another was.
    pub(super) fn note_came(&mut self, page: Vpn, asked: bool) {
        if let Some((record, clock)) = self.of_page(page) {
            if asked {
                record.refault(clock);
            } else {
                record.brought_along();
            }
        }
    }

    /// Whether a page that might leave is spared.
    pub(super) fn spares(&mut self, page: Vpn) -> bool {
        let Some((record, clock)) = self.of_page(page) else {
            return false;
        };
        let ticks = record.spared(clock);
        if ticks > 0 {
            self.least = Some(self.least.map_or(ticks, |least| least.min(ticks)));
        }
        ticks > 0
    }

    /// The hand begins a round, where `resident` pages are not out.
    pub(super) fn begin_round(&mut self, resident: usize) {
        if let Some(ticks) = self.least.take()
            && self.left < resident / PART
        {
            self.clock.advance(ticks);
        }
        self.left = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_back_soon_is_spared_and_not_for_ever() {
        let mut refaults = Refaults::of(4096);
        for page in 0..100 {
            refaults.note_left(page);
        }
        refaults.count_left(100, 1000);
        for page in 0..100 {
            refaults.note_came(page, page % 2 == 0);
        }
        assert!((0..100).all(|page| refaults.spares(page) == (page % 2 == 0)));
        // Rounds in which nothing leaves: all of them may go soon.
        refaults.begin_round(1000);
        let rounds = (0..100).take_while(|_| {
            let spared = refaults.spares(0);
            refaults.begin_round(1000);
            spared
        });
        assert!(rounds.count() <= 2);
    }

    #[test]
    fn without_records_nothing_is_spared() {
        let mut refaults = Refaults::default();
        refaults.note_left(7);
        refaults.note_came(7, true);
        assert!(!refaults.spares(7));
    }
}
