//! Clean pages: open, and in the pool still. What comes back to be read is filled
//! write-protected, in a mode in which whoever writes there faults. Until then the page may leave as
//! it came: it is discarded, many wherever they lie by one call, and nothing is compressed.
//!
//! The pool has such pages besides, so there are few: they go first, the oldest first, and one
//! that comes back soon after it has left stays, as a page of the program's alone. (S3-FIFO,
//! Yang, Zhang, Qiu, Yue, Rashmi, SOSP 2023, has such a small queue before its main one.)
//!
//! A write costs another fault then, so pages come clean only where that has paid lately
//! ([`CleanPages::pays`](super::clean_pages::CleanPages::pays)). System calls cannot fault there: to
//! them a clean page is one that is closed, and what keeps the pages of a call, a lock or a stack
//! ends the protection first (`Word::is_ready`).
//!
//! # Invariants
//! Under the core lock:
//! 1. A page whose word is `Clean` is in the queue with its slot.
//! 2. A page is write-protected if and only if its word is `Clean`, or it was and is in transit out;
//!    but for ranges that are left or moved, whose pages become ready before.
//! 3. The word of a page in a frozen span does not become `Open` before the span is opened: a call
//!    of the kernel would find it read-only.
//! 4. So one that is `Clean` equals what the slot holds, and nobody writes to it before it is
//!    something else.

use super::Vpn;
use super::bring::{Access, set};
use super::core::MemoryCore;
use super::way::STAGE;
use super::words::Word;
use crate::memory::layer::MemoryState;
use crate::raw::SHIFT;
use core::ops::Range;
use zfolio_sys::arena::{Discarded, discard_all_by};
use zfolio_sys::syscall::Linux;
use zfolio_zswap::Slot;

/// Clean pages that become the program's alone together where they are written to in order.
const IN_ORDER: usize = 32;

impl MemoryCore {
    /// Whether what comes back for `access` is to be clean. `slots`: what the pool has of it.
    pub(super) fn comes_clean(&mut self, run: &Range<Vpn>, slots: &[Slot], access: Access) -> bool {
        access == Access::Read
            && self.way.protects()
            && self.closing.clean.most > 0
            && !slots.contains(&Slot::ZERO)
            && !(run.len() == 1 && self.closing.clean.comes_soon(run.start))
            && self.closing.clean.pays()
    }

    /// The pages of `run` were filled as clean ones. What the pool has of them is in `slots`.
    pub(super) fn note_clean(&mut self, state: &MemoryState, run: &Range<Vpn>, slots: &[Slot]) {
        for (page, slot) in run.clone().zip(slots) {
            set(state, self, page, Word::Clean(*slot));
            self.closing.clean.queue.push_back((page, *slot));
        }
        while self.closing.clean.queue.len() > self.closing.clean.most
            && let Some(oldest) = self.closing.clean.queue.pop_front()
        {
            if self.is_in_span(oldest.0) {
                self.closing.clean.queue.push_back(oldest);
                break;
            }
            self.disown(state, oldest);
        }
    }

    /// `page`, which is clean, is about to be written to, or used by the kernel: it is the program's
    /// alone, with those behind it where the page before it was.
    pub(super) fn write_to_clean(&mut self, state: &MemoryState, page: Vpn) {
        self.closing.clean.note_written(state.is_several());
        let before = state.words.get(page - 1);
        let most = if matches!(before, Word::Open { .. }) {
            IN_ORDER
        } else {
            1
        };
        let is_clean = |page: &Vpn| {
            matches!(state.words.get(*page), Word::Clean(_)) && !self.is_in_span(*page)
        };
        let count = (page..page + most).take_while(is_clean).count();
        self.own(state, &(page..page + count));
    }

    /// Lets the oldest clean pages go until usage is at `goal`, or no more are there than may
    /// well be. In a batch.
    pub(super) fn drop_clean(&mut self, state: &MemoryState, goal: usize) {
        while state.words.clean() > self.closing.clean.most / 2 && self.usage(state) > goal {
            let mut pages = [(0, Slot::ZERO); STAGE];
            let count = self.oldest_clean(state, &mut pages);
            if count == 0 {
                return;
            }
            pages[..count].sort_unstable_by_key(|(page, _)| *page);
            let gone = discard(&pages[..count]);
            for (page, slot) in &pages[..gone] {
                set(state, self, *page, Word::Stored(*slot));
                self.closing.clean.note_left(*page);
                self.closing.refaults.note_left(*page);
            }
            self.count_left(state, gone);
            for page in &pages[gone..count] {
                self.disown(state, *page);
            }
            self.figures.pages_out += gone as u64;
            self.figures.clean += gone as u64;
        }
    }

    /// Takes the oldest clean pages out of the queue that may go, as many as there is room
    /// for in `pages` and more than may well be. In a batch. What a call is about stays in the queue.
    pub(super) fn oldest_clean(&mut self, state: &MemoryState, pages: &mut [(Vpn, Slot)]) -> usize {
        let mut count = 0;
        for _ in 0..self.closing.clean.queue.len() {
            if count == pages.len() || state.words.clean() <= self.closing.clean.most / 2 + count {
                break;
            }
            let Some((page, slot)) = self.closing.clean.queue.pop_front() else {
                break;
            };
            if state.words.get(page) != Word::Clean(slot) {
                continue;
            }
            let addresses = page << SHIFT..(page + 1) << SHIFT;
            if self.is_held(&addresses) || self.seen.covers(&addresses) {
                self.closing.clean.queue.push_back((page, slot));
                continue;
            }
            pages[count] = (page, slot);
            count += 1;
        }
        count
    }

    /// Whether another thread has the mapping of a page protected, with the span that it is in: a
    /// page that was open by its word could not be written to there.
    fn is_in_span(&self, page: Vpn) -> bool {
        let span = self.transit.frozen.stage_of(&(page..page + 1));
        span.is_some()
    }

    /// Clean pages of `run`, all of them, are the program's alone from here on. None is in a span
    /// that is frozen.
    fn own(&self, state: &MemoryState, run: &Range<Vpn>) {
        let addresses = run.start << SHIFT..run.end << SHIFT;
        if addresses.is_empty() {
            return;
        }
        if let Err(errno) = self.way.let_write(&addresses) {
            self.fail(format_args!(
                "the memory at {:#x} could not be made writable again (errno {})",
                addresses.start, errno.0
            ));
        }
        for page in run.clone() {
            set(state, self, page, Word::Open { heat: 1 });
        }
    }

    /// A page of the queue is the program's alone from here on, if it is clean still.
    pub(super) fn disown(&self, state: &MemoryState, (page, slot): (Vpn, Slot)) {
        if state.words.get(page) == Word::Clean(slot) {
            self.own(state, &(page..page + 1));
        }
    }

    /// The clean pages of `range` are the program's alone.
    pub(super) fn disown_within(&self, state: &MemoryState, range: &Range<usize>) {
        let (mut page, end) = (range.start >> SHIFT, range.end >> SHIFT);
        let is_clean = |word| matches!(word, Word::Clean(_));
        while let Some(found) = state.words.next(page, end, is_clean) {
            self.own(state, &(found..found + 1));
            page = found + 1;
        }
    }

    /// In the child of a fork: protection is not inherited, so no page is clean. (The pool is the
    /// child's.)
    pub(crate) fn disown_in_child(&mut self, state: &MemoryState) {
        while let Some((page, slot)) = self.closing.clean.queue.pop_front() {
            if state.words.get(page) == Word::Clean(slot) {
                set(state, self, page, Word::OPEN);
            }
        }
    }
}

/// Discards pages, which are sorted; how many have gone, from the front.
fn discard(pages: &[(Vpn, Slot)]) -> usize {
    let mut ranges = [Discarded::default(); STAGE];
    let mut count = 0;
    for run in pages.chunk_by(|one, next| one.0 + 1 == next.0) {
        ranges[count] = Discarded {
            start: run[0].0 << SHIFT,
            len: run.len() << SHIFT,
        };
        count += 1;
    }
    let done = discard_all_by::<Linux>(&ranges[..count], true);
    ranges[..done].iter().map(|range| range.len >> SHIFT).sum()
}
