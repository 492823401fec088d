//! Everything in place for who looks into the process (`zfolio inspect`): what is closed is opened,
//! and absent pages are the kernel's to fill, so that they can be read while all threads are
//! stopped. Nothing is closed meanwhile ([`MemoryCore::inspected`]).
//!
//! The caller brings some, lets go of the lock, and brings more. Then registrations end, under one
//! hold of the lock; after that the hand watches what it finds, as at the beginning.

use super::Vpn;
use super::bring::{Access, bring, set};
use super::core::MemoryCore;
use super::empty::untouched_from;
use super::way::Kind;
use super::words::Word;
use crate::memory::layer::MemoryState;
use crate::raw::SHIFT;
use core::ops::Range;

/// Pages, or runs of pages that hold nothing, opened under one hold of the lock.
const SOME: usize = 64;

impl MemoryCore {
    /// Opens some of what is closed from the address `at` on, which is then where to go on;
    /// whether there is more. The core lock is held, and nothing is in transit.
    pub(crate) fn bring_some(&mut self, state: &MemoryState, at: &mut usize) -> bool {
        let mut left = SOME;
        while let Some(range) = self.ranges.managed_from(*at) {
            let first = range.start.max(*at) >> SHIFT;
            let Some(page) = self.next_to_bring(state, first..range.end >> SHIFT) else {
                *at = range.end;
                continue;
            };
            *at = page << SHIFT;
            if left == 0 {
                return true;
            }
            left -= 1;
            let run = untouched_from(state, page, range.end >> SHIFT);
            if !run.is_empty() && self.open_untouched(state, run) {
                continue;
            }
            bring(state, self, None, page << SHIFT, Access::Write);
        }
        false
    }

    /// The first closed page. Where absence is what faults, one that holds nothing is left as it
    /// is until [`Self::stop_watching`].
    fn next_to_bring(&self, state: &MemoryState, pages: Range<Vpn>) -> Option<Vpn> {
        let skips = self.way.kind == Kind::InThread;
        state.words.next(pages.start, pages.end, |word| {
            word.is_closed() && !(skips && word == Word::Untouched)
        })
    }

    /// Ends all registrations; whether that is all there was. The core lock is held, nothing is
    /// in transit, and [`Self::bring_some`] has found no more under it.
    pub(crate) fn stop_watching(&mut self, state: &MemoryState) -> bool {
        let (mut at, mut all) = (0, true);
        while let Some(range) = self.ranges.managed_from(at) {
            at = range.end;
            let is_registered = |core: &Self| {
                let found = core.ranges.at(range.start);
                found.is_some_and(|(_, kind)| kind.registered)
            };
            let pages = range.start >> SHIFT..range.end >> SHIFT;
            if !is_registered(self) {
                continue;
            }
            if self.way.unwatch(&range).is_err() {
                all = false;
                continue;
            }
            // (Who writes to them is not told of any more.)
            while let Some(page) = next_clean(state, &pages) {
                set(state, self, page, Word::OPEN);
            }
            // (After that: whoever pins a page trusts its word.)
            let mut page = pages.start;
            while let Some(closed) = state.words.next_closed(page, pages.end) {
                let run = untouched_from(state, closed, pages.end);
                page = run.end.max(closed + 1);
                self.set_run(state, run, false);
            }
            self.ranges.edit(&range, |kind| kind.registered = false);
        }
        all
    }
}

fn next_clean(state: &MemoryState, pages: &Range<Vpn>) -> Option<Vpn> {
    let is_clean = |word| matches!(word, Word::Clean(_));
    state.words.next(pages.start, pages.end, is_clean)
}
