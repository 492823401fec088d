//! Managed memory that holds nothing: found, and closed as whole runs.
//!
//! Much may be mapped of which little is touched. What nobody has touched has no words of its own, and is
//! looked at [`WIDE`] pages at a time where the kernel has nothing there.

use super::core::MemoryCore;
use super::way::Kind;
use super::words::{LEAF, Word};
use crate::memory::Vpn;
use crate::memory::layer::MemoryState;
use crate::raw::{self, PAGE, SHIFT, nr};
use core::ops::Range;

/// Runs that hold nothing are closed from this length on, pages.
pub(super) const FEWEST_UNTOUCHED: usize = 16;
/// Pages looked at by one call where nothing may be: as many as the kernel tells at a time.
const WIDE: usize = 8 * LEAF;

/// From `start` to the end of its leaf, or to `end`.
pub(super) fn leaf_of(start: usize, end: usize) -> Range<usize> {
    part_of(start, end, LEAF)
}

fn part_of(start: usize, end: usize, pages: usize) -> Range<usize> {
    start..end.min((start / (pages * PAGE) + 1) * (pages * PAGE))
}

/// The first page of `from .. end` that nobody has touched.
pub(super) fn next_untouched(state: &MemoryState, from: Vpn, end: Vpn) -> Option<Vpn> {
    let is_one = |word| word == Word::Untouched;
    state.words.next(from, end, is_one)
}

/// The pages from `page` on that nobody has touched.
pub(super) fn untouched_from(state: &MemoryState, page: Vpn, end: Vpn) -> Range<Vpn> {
    let mut next = page;
    while next < end && state.words.get(next) == Word::Untouched {
        next = state.words.past_untouched(next, end).max(next + 1);
    }
    page..next.min(end)
}

/// Whether the kernel has nothing in a window of [`WIDE`] pages at most, all of it mapped.
fn is_nothing_in(window: &Range<usize>) -> bool {
    let mut present = [0_u8; WIDE];
    let into = present.as_mut_ptr() as usize;
    let result = raw::own(nr::MINCORE, [window.start, window.len(), into]);
    let any = present.iter().fold(0, |any, page| any | page);
    result == 0 && any & 1 == 0
}

impl MemoryCore {
    /// Closes what of a range is in long runs that hold nothing. In a batch; only where a run
    /// that nobody touched keeps its bytes when it is closed.
    pub(super) fn close_empty(&mut self, state: &MemoryState, range: &Range<usize>) {
        let end = range.end >> SHIFT;
        let mut at = range.start;
        // What holds nothing up to `at`, and is closed with what follows.
        let mut run = at;
        while at < range.end {
            let closed = untouched_from(state, at >> SHIFT, end);
            if !closed.is_empty() {
                self.close_run(state, run..at);
                at = closed.end << SHIFT;
                run = at;
                continue;
            }
            let window = part_of(at, range.end, WIDE);
            let pages = window.start >> SHIFT..window.end >> SHIFT;
            let is_open = state.words.next_closed(pages.start, pages.end).is_none()
                && state.words.past_uniform(pages.start, pages.end) == pages.end;
            if !is_open || self.seen.covers(&window) || !is_nothing_in(&window) {
                self.close_run(state, run..at);
                run = window.end;
                while at < window.end {
                    let part = leaf_of(at, window.end);
                    self.close_empty_of_leaf(state, &part);
                    at = part.end;
                }
            }
            at = window.end;
        }
        self.close_run(state, run..at);
    }

    fn close_run(&mut self, state: &MemoryState, run: Range<usize>) {
        if !run.is_empty() {
            self.close_untouched(state, &(run.start >> SHIFT..run.end >> SHIFT));
        }
    }

    /// Marks what is absent of a range that is registered.
    pub(super) fn close_absent(&self, state: &MemoryState, range: &Range<usize>) {
        let end = range.end >> SHIFT;
        let mut page = range.start >> SHIFT;
        loop {
            page = state.words.past_untouched(page, end);
            if page >= end {
                return;
            }
            let window = part_of(page << SHIFT, range.end, WIDE);
            let pages = page..window.end >> SHIFT;
            page = pages.end;
            let is_uniform = state.words.past_uniform(pages.start, pages.end) == pages.end;
            if is_uniform && is_nothing_in(&window) {
                self.set_run(state, pages, true);
                continue;
            }
            let mut at = window.start;
            while at < window.end {
                let part = leaf_of(at, window.end);
                self.close_absent_of_leaf(state, &part);
                at = part.end;
            }
        }
    }

    /// Sets the words of a run, where there is a leaf for them or the process ends.
    pub(super) fn set_run(&self, state: &MemoryState, pages: Range<Vpn>, untouched: bool) {
        if !state.words.set_run(pages, untouched) {
            self.fail(format_args!("there is no room for another page's word"));
        }
    }

    /// Opens a run that nobody has touched; false where the kernel does not.
    pub(super) fn open_untouched(&self, state: &MemoryState, run: Range<Vpn>) -> bool {
        let addresses = run.start << SHIFT..run.end << SHIFT;
        let is_open = self.way.open_untouched(&addresses).is_ok();
        if is_open {
            self.set_run(state, run, false);
        }
        is_open
    }

    /// Opens all runs of `range` that nobody has touched, but for what the kernel does not.
    pub(super) fn open_all_untouched(&self, state: &MemoryState, range: &Range<usize>) {
        let end = range.end >> SHIFT;
        let mut page = range.start >> SHIFT;
        while let Some(found) = next_untouched(state, page, end) {
            let run = untouched_from(state, found, end);
            page = run.end;
            self.open_untouched(state, run);
        }
    }

    /// The same of a leaf's part.
    fn close_empty_of_leaf(&mut self, state: &MemoryState, window: &Range<usize>) {
        let Some(present) = present(window) else {
            return;
        };
        let first = window.start >> SHIFT;
        let count = window.len() >> SHIFT;
        let is_empty = |core: &Self, at: usize| {
            let addresses = (first + at) << SHIFT..(first + at + 1) << SHIFT;
            present[at] & 1 == 0
                && matches!(state.words.get(first + at), Word::Open { .. })
                && !core.seen.covers(&addresses)
        };
        let mut at = 0;
        while at < count {
            let mut end = at;
            while end < count && is_empty(self, end) {
                end += 1;
            }
            if end - at >= FEWEST_UNTOUCHED {
                self.close_untouched(state, &(first + at..first + end));
            }
            at = end + 1;
        }
    }

    /// The same of a leaf's part.
    fn close_absent_of_leaf(&self, state: &MemoryState, window: &Range<usize>) {
        let Some(present) = present(window) else {
            self.fail(format_args!(
                "the memory at {:#x} is not what it was",
                window.start
            ));
        };
        let first = window.start >> SHIFT;
        let count = window.len() >> SHIFT;
        for page in (0..count).filter(|page| present[*page] & 1 == 0) {
            if state.words.get(first + page) == Word::Kept {
                self.fill_kept(first + page);
            }
        }
        let is_absent = |page: usize| {
            present[page] & 1 == 0 && matches!(state.words.get(first + page), Word::Open { .. })
        };
        let mut page = 0;
        while page < count {
            let mut end = page;
            while end < count && is_absent(end) {
                end += 1;
            }
            if end > page {
                self.set_run(state, first + page..first + end, true);
            }
            page = end + 1;
        }
    }

    /// Makes a page present that the kernel has the address of.
    pub(super) fn fill_kept(&self, page: usize) {
        let at = page << SHIFT;
        if let Err(errno) = self.way.open_untouched(&(at..at + PAGE)) {
            self.fail(format_args!(
                "a page of zeros could not be put at {at:#x} (errno {})",
                errno.0
            ));
        }
    }

    /// Whether a run that holds nothing may be closed as one. (Where that is by the protection of its mapping,
    /// not what the program has made read-only: opened it could be written to.)
    pub(super) fn may_close_as_mapping(&self, run: &Range<usize>) -> bool {
        self.way.kind == Kind::InThread || !self.ranges.is_read_only(run.start << SHIFT)
    }

    /// Closes pages that hold nothing, where they may be.
    pub(super) fn close_untouched(&mut self, state: &MemoryState, run: &Range<usize>) {
        let addresses = run.start << SHIFT..run.end << SHIFT;
        if self.may_close_as_mapping(run) && self.way.close_untouched(&addresses).is_ok() {
            self.set_run(state, run.clone(), true);
        }
    }
}

/// Which pages of a window are in memory, a byte each; `None` where it is not all mapped.
pub(super) fn present(window: &Range<usize>) -> Option<[u8; LEAF]> {
    let mut present = [0_u8; LEAF];
    let into = present.as_mut_ptr() as usize;
    let result = raw::own(nr::MINCORE, [window.start, window.len(), into]);
    (result == 0).then_some(present)
}
