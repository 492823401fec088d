//! Mappings that were cut: a process may have so many and no more (`vm.max_map_count`).
//!
//! By protect a mapping ends wherever closed pages meet open ones, by guard wherever pages that nobody
//! has touched meet others ([`Words::borders`](super::words::Words::borders)). In-thread none is cut.
//! The fewer are left, the more pages are closed and opened together by protect. The last are the
//! program's, whose own calls would be refused: where only those are left, cuts are mended before
//! another is made. By protect what is open between closed pages is closed; by guard what nobody has
//! touched between other pages is opened as a mapping, and closed page by page, by markers.

use super::core::MemoryCore;
use super::empty::{FEWEST_UNTOUCHED, next_untouched, untouched_from};
use super::mapping_limit::{MENDED, SCARCE};
use super::reclaim::Closing;
use super::way::{Kind, STAGE};
use super::words::LEAF;
use crate::memory::Vpn;
use crate::memory::layer::MemoryState;
use crate::raw::SHIFT;
use core::ops::Range;

impl MemoryCore {
    /// Mappings of the memory that may be managed: its own, and what they were cut into.
    fn mappings(&self, state: &MemoryState) -> usize {
        state.words.borders() + self.ranges.count()
    }

    /// Pages closed and opened together.
    pub(super) fn group(&self, state: &MemoryState) -> usize {
        if self.way.kind != Kind::Protect {
            return 1;
        }
        self.closing.mappings.group(self.mappings(state))
    }

    /// Whether only those mappings are left that are the program's.
    pub(super) fn lacks_mappings(&self, state: &MemoryState) -> bool {
        self.way.kind != Kind::InThread && self.mappings(state) > self.closing.mappings.part(SCARCE)
    }

    /// Runs that hold nothing are closed as mappings from this length on, pages.
    pub(super) fn least_untouched(&self, state: &MemoryState) -> usize {
        if self.lacks_mappings(state) {
            usize::MAX
        } else {
            FEWEST_UNTOUCHED
        }
    }

    /// Whether a run may be closed by protect: where mappings are short, not if that would make more.
    pub(super) fn may_cut(&self, state: &MemoryState, run: &Range<Vpn>) -> bool {
        let beside = [run.start.saturating_sub(1), run.end];
        self.way.kind != Kind::Protect
            || !self.lacks_mappings(state)
            || beside.iter().any(|page| state.words.get(*page).is_closed())
    }

    /// Mends cuts where mappings are short. The core lock is held, and no batch is under way.
    pub(super) fn mend_cuts(&mut self, state: &MemoryState) {
        let made = self.mappings(state);
        if !self.lacks_mappings(state) || made < self.closing.mappings.in_vain {
            return;
        }
        if self.pool.is_none() || self.closes_nothing() {
            return;
        }
        let goal = self.closing.mappings.part(MENDED);
        match self.way.kind {
            Kind::InThread => {}
            Kind::Guard => self.mark_untouched(state, goal),
            Kind::Protect => self.close_cut_off(state, goal),
        }
        let left = self.mappings(state);
        self.closing.mappings.mended += made.saturating_sub(left) as u64;
        self.closing.mappings.in_vain = if left > goal { left + left / 64 } else { 0 };
    }

    /// The kernel has refused to cut a mapping although there should have been some left: the program
    /// has many that are not counted. Mends cuts until there are some.
    pub(super) fn mend_after_refusal(&mut self, state: &MemoryState) {
        let made = self.mappings(state);
        self.closing.mappings.note_refused(made);
        self.mend_cuts(state);
    }

    /// Closes what is open between closed pages, until there are `goal` mappings, or all has been looked at.
    fn close_cut_off(&mut self, state: &MemoryState, goal: usize) {
        self.closing.bounds.begin();
        state
            .batches
            .begin(|| state.threads.pinned(), &mut self.seen);
        // (Thrice: pages that came back are passed over twice.)
        let most = 3 * self.ranges.managed_pages() + LEAF;
        let mut looked = 0;
        while looked < most && self.mappings(state) > goal && self.closing.bounds.goes_on() {
            let Some(window) = self.next_window(state, &mut looked) else {
                break;
            };
            self.close_window(state, &window, 0, &mut Closing::CutOff);
        }
        state.batches.end();
    }

    /// Has short runs that nobody has touched closed page by page, and be one mapping with what lies
    /// around them, until there are `goal` mappings, or all has been looked at.
    fn mark_untouched(&mut self, state: &MemoryState, goal: usize) {
        self.closing.bounds.begin();
        state
            .batches
            .begin(|| state.threads.pinned(), &mut self.seen);
        let mut left = self.ranges.managed_pages();
        while left > 0 && self.mappings(state) > goal {
            let hand = self.closing.mappings.hand;
            let Some(range) = self.ranges.managed_from(hand) else {
                if hand == 0 {
                    break;
                }
                self.closing.mappings.hand = 0;
                continue;
            };
            let (start, end) = (range.start.max(hand) >> SHIFT, range.end >> SHIFT);
            let Some(found) = next_untouched(state, start, end) else {
                self.closing.mappings.hand = range.end;
                left = left.saturating_sub(end - start);
                continue;
            };
            let run = untouched_from(state, found, end);
            self.closing.mappings.hand = run.end << SHIFT;
            left = left.saturating_sub(run.end - start);
            // (A long one would take more page tables than it is worth.)
            let is_held = self.is_held(&(run.start << SHIFT..run.end << SHIFT));
            if run.len() <= LEAF && !is_held && self.open_untouched(state, run.clone()) {
                self.mark_run(state, run);
            }
        }
        state.batches.end();
    }

    /// Closes pages of which the most hold nothing. (As zeros: what somebody has put there all the same, as
    /// they were closed, is stored.) In a batch.
    fn mark_run(&mut self, state: &MemoryState, run: Range<Vpn>) {
        let mut page = run.start;
        while page < run.end {
            let part = page..run.end.min(page + STAGE);
            page = part.end;
            if !self.seen.covers(&(part.start << SHIFT..part.end << SHIFT)) {
                self.store(state, &part);
            }
        }
    }
}
