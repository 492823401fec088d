//! Which pages are spared by the hand: those that came back soon after they had left
//! ([`zfolio_runtime::refault`]).
//!
//! Sparing pays where some pages are used more than others: these stay, and what comes back is the others, late.
//! Where all are alike most come back soon whatever is spared, and the hand looks at more pages for each that
//! leaves. Then nothing is spared for some time ([`Worth`]).
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
/// Where less than this part of what is resident has left in a round of the hand, the clock goes on until so
/// much more may go: where all pages are alike, sparing most of them would only have the hand look at more.
const PART: usize = 8;
/// A span is so many pages at least.
const FEWEST_ASKED: usize = 256;
/// Most ticks for which a page is spared, and one.
const TICKS: usize = 32;

/// Whether sparing pays: of so many pages that were asked for, half of what is resident, how many came back
/// soon although others were spared. For the first of these *spans* what is spared has not told yet.
#[derive(Default)]
struct Worth {
    asked: usize,
    soon: usize,
    /// Spans for which nothing is spared from here on.
    idle: u32,
    /// What was spared in this span tells.
    settled: bool,
}

/// Spans for which nothing is spared once more than half came back soon.
const IDLE: u32 = 16;

impl Worth {
    fn note(&mut self, soon: bool, resident: usize) {
        self.asked += 1;
        self.soon += usize::from(soon);
        if self.asked < (resident / 2).max(FEWEST_ASKED) {
            return;
        }
        let (asked, soon) = (self.asked, self.soon);
        (self.asked, self.soon) = (0, 0);
        if self.idle > 0 {
            self.idle -= 1;
        } else if !self.settled {
            self.settled = true;
        } else if soon * 2 > asked {
            (self.idle, self.settled) = (IDLE, false);
        }
    }

    const fn spares(&self) -> bool {
        self.idle == 0
    }
}

/// What is noted of pages, under the core lock.
#[derive(Default)]
pub(super) struct Refaults {
    /// By a page's number, modulo their count, a power of two; none: nothing is spared.
    records: &'static mut [RefaultRecord],
    clock: StoreClock,
    /// How often something has been spared in this round, by the ticks after which it may go.
    spared: [usize; TICKS],
    /// Pages that have left in this round.
    left: usize,
    /// What is resident, as of the last that left. Pages.
    resident: usize,
    worth: Worth,
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
        self.resident = resident;
        self.clock.stored(pages, resident);
    }

    /// A page came back: it was asked for by itself, or because another was.
    pub(super) fn note_came(&mut self, page: Vpn, asked: bool) {
        let resident = self.resident;
        let Some((record, clock)) = self.of_page(page) else {
            return;
        };
        if asked {
            let soon = record.refault(clock);
            self.worth.note(soon, resident);
        } else {
            record.brought_along();
        }
    }

    /// Whether a page that might leave is spared.
    pub(super) fn spares(&mut self, page: Vpn) -> bool {
        if !self.worth.spares() {
            return false;
        }
        let Some((record, clock)) = self.of_page(page) else {
            return false;
        };
        let ticks = record.spared(clock);
        if ticks > 0 {
            self.spared[usize::from(ticks).min(TICKS - 1)] += 1;
        }
        ticks > 0
    }

    /// The hand begins a round, where `resident` pages are not out.
    pub(super) fn begin_round(&mut self, resident: usize) {
        let mut lacking = (resident / PART).saturating_sub(self.left);
        let spared = core::mem::take(&mut self.spared);
        if lacking > 0 {
            let mut ticks = 0;
            for (after, count) in (0_u8..).zip(spared).filter(|(_, count)| *count > 0) {
                ticks = after;
                lacking = lacking.saturating_sub(count);
                if lacking == 0 {
                    break;
                }
            }
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

    /// Of a thousand pages that are asked for again and again, each so many later than it left.
    fn after(later: usize) -> Refaults {
        let mut refaults = Refaults::of(4096);
        for page in 0..4000 {
            refaults.note_left(page % 1000);
            refaults.count_left(later, 1000);
            refaults.note_came(page % 1000, true);
        }
        refaults
    }

    #[test]
    fn where_all_come_back_soon_nothing_is_spared_but_now_and_then() {
        let mut late = after(2000);
        late.note_left(5000);
        late.note_came(5000, true);
        assert!(late.spares(5000));
        let mut soon = after(1);
        assert!((0..1000).all(|page| !soon.spares(page)));
        // (It is tried again.)
        let turns = (0..20_000).filter(|page| {
            soon.note_left(page % 1000);
            soon.count_left(1, 1000);
            soon.note_came(page % 1000, true);
            soon.worth.spares()
        });
        let tried = turns.count();
        assert!((1000..4000).contains(&tried), "{tried} of 20000");
    }

    #[test]
    fn without_records_nothing_is_spared() {
        let mut refaults = Refaults::default();
        refaults.note_left(7);
        refaults.note_came(7, true);
        assert!(!refaults.spares(7));
    }
}
