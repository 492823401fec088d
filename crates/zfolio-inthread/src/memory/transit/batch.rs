//! Pages on their way out, and what becomes of each.

use crate::memory::Vpn;
use crate::memory::bring::set;
use crate::memory::core::MemoryCore;
use crate::memory::layer::MemoryState;
use crate::memory::ranges::Protection;
use crate::memory::way::STAGE;
use crate::memory::words::{LEAF, Word};
use core::ops::Range;
use zfolio_zswap::{Slot, StoreError};

/// Most pages that leave together by a span: protecting it stops who faults anywhere, for a moment.
pub(super) const MOST: usize = 256;
/// Longest span, pages.
pub(super) const LONGEST: usize = 4 * LEAF;
/// In [`Span::heats`]: the page is not marked, or goes.
pub(super) const OTHER: u8 = u8::MAX;
/// The page is clean, and stays protected.
pub(super) const CLEAN: u8 = u8::MAX - 1;

/// What becomes of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It has not been decided: it is frozen.
    Frozen,
    /// The pool has it, or it is zeros.
    Gone,
    /// It is open, and as it was.
    Stays { heat: u8 },
}

/// Pages on their way out: runs, one behind the other.
pub(crate) struct Batch {
    /// Pages of a run follow one another in memory; where each run begins, and its pages.
    runs: [(Vpn, usize); MOST],
    count: usize,
    /// Pages in all.
    pub(super) len: usize,
    /// They were clean: the pool has them as `slots`.
    pub(super) clean: bool,
    /// Of their mappings: some are copied, not moved.
    pub(super) protection: Protection,
    /// They are closed where they are, and all of this is protected meanwhile.
    pub(super) span: Option<Span>,
    pub(super) slots: [Slot; MOST],
    pub(super) fates: [Fate; MOST],
    /// What words of theirs say.
    mark: u32,
    /// Why the pool would not have a page of them.
    pub(super) refused: Option<StoreError>,
}

impl Batch {
    pub(super) const fn new(mark: u32) -> Self {
        Self {
            runs: [(0, 0); MOST],
            count: 0,
            len: 0,
            clean: false,
            protection: Protection::ReadWrite,
            span: None,
            slots: [Slot::ZERO; MOST],
            fates: [Fate::Frozen; MOST],
            mark,
            refused: None,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Pages that may be added, where they are moved.
    pub(crate) const fn headroom(&self) -> usize {
        STAGE - self.len
    }

    /// The same where they are closed in place.
    pub(super) const fn headroom_in_place(&self) -> usize {
        MOST - self.len
    }

    /// Marks a run and adds it; no more than there is room for. The core lock is held, in a batch of
    /// the protocol of pins.
    pub(crate) fn add(&mut self, state: &MemoryState, core: &MemoryCore, run: &Range<Vpn>) {
        assert!(
            run.len() <= self.headroom(),
            "a batch has its place for so many"
        );
        for page in run.clone() {
            set(state, core, page, Word::Transit(self.mark));
        }
        self.note(run.start, run.len());
    }

    /// Marks a page and adds it, behind those that were added.
    pub(super) fn add_page(&mut self, state: &MemoryState, core: &MemoryCore, page: Vpn) {
        set(state, core, page, Word::Transit(self.mark));
        match self.runs[..self.count].last_mut() {
            Some((start, len)) if *start + *len == page => {
                *len += 1;
                self.len += 1;
            }
            _ => self.note(page, 1),
        }
    }

    pub(super) const fn mark(&self) -> u32 {
        self.mark
    }

    pub(super) fn set_span(&mut self, span: Span) {
        self.span = Some(span);
    }

    fn note(&mut self, start: Vpn, len: usize) {
        self.runs[self.count] = (start, len);
        self.count += 1;
        self.len += len;
    }

    /// Adds clean pages, sorted.
    pub(super) fn add_clean(
        &mut self,
        state: &MemoryState,
        core: &MemoryCore,
        pages: &[(Vpn, Slot)],
    ) {
        self.clean = true;
        for (at, (page, slot)) in pages.iter().enumerate() {
            self.slots[at] = *slot;
            // (Not by `set`, which would drop what the pool has.)
            if !state.words.set(*page, Word::Transit(self.mark)) {
                core.fail(format_args!("there is no room for another page's word"));
            }
        }
        for run in pages.chunk_by(|one, next| one.0 + 1 == next.0) {
            self.note(run[0].0, run.len());
        }
    }

    /// Its first page.
    pub(super) const fn first(&self) -> Vpn {
        self.runs[0].0
    }

    /// The runs: which of the batch's pages, and where the first is in memory.
    pub(super) fn runs(&self) -> impl Iterator<Item = (Range<usize>, Vpn)> + use<> {
        let (runs, mut at) = (self.runs, 0);
        runs.into_iter().take(self.count).map(move |(start, len)| {
            at += len;
            (at - len..at, start)
        })
    }
}

/// A span, and what those of its pages that stay will be.
#[derive(Clone)]
pub(super) struct Span {
    pub(super) pages: Range<Vpn>,
    /// By the place in it: how warm the page is that is marked and stays; [`CLEAN`]; or [`OTHER`].
    pub(super) heats: [u8; LONGEST],
}

impl Span {
    /// The runs of its pages between those that were clean.
    pub(super) fn but_clean(&self) -> impl Iterator<Item = Range<Vpn>> {
        let (first, len) = (self.pages.start, self.pages.len());
        let mut at = 0;
        core::iter::from_fn(move || {
            while at < len && self.heats[at] == CLEAN {
                at += 1;
            }
            let from = at;
            while at < len && self.heats[at] != CLEAN {
                at += 1;
            }
            (from < at).then(|| first + from..first + at)
        })
    }

    /// Opens what stays. The core lock is held, and the span is not protected any more.
    pub(super) fn open_rest(&self, state: &MemoryState, core: &MemoryCore) {
        for (page, heat) in self.pages.clone().zip(self.heats) {
            if heat < CLEAN {
                set(state, core, page, Word::Open { heat });
            }
        }
    }
}
