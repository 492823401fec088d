//! Read-ahead: which pages come with one that is touched.
//!
//! Who reads on gets more and more at a time ([`Streams`](zfolio_runtime::readahead::Streams), those of all
//! threads together). Pages leave one by one, so what a reader will want lies in pieces, with pages between
//! them that are open: it all comes at one fault, piece by piece, up to the end of the *window*.
//! Where read-ahead is fixed (`--page-cluster`) there are no windows.

use super::Vpn;
use super::core::MemoryCore;
use super::layer::MemoryState;
use super::words::Word;
use crate::threads::Record;
use core::ops::Range;
use core::sync::atomic::Ordering;

/// Most pages of a window, and which part of what the process may have it is at most.
const MOST_AHEAD: usize = 32;
const PART_AHEAD: usize = 64;

/// Whether what is known of a page is that it is out.
pub(super) const fn is_out(word: Word) -> bool {
    matches!(word, Word::Zero | Word::Stored(_))
}

impl MemoryCore {
    /// How many pages a touch of `page`, which is out, asks for, from that page on.
    pub(super) fn ahead(&self, state: &MemoryState, record: Option<&Record>, page: Vpn) -> usize {
        if record.is_none() {
            return 1;
        }
        let is_open = |page| !state.words.get(page).is_closed();
        let advice = self.closing.streams.advise_past(page, MOST_AHEAD, is_open);
        advice.pages.min((self.high / PART_AHEAD).max(1))
    }

    /// Of so many pages from `page` on, those that can come with it: up to one that is not out, and not
    /// plainly open either.
    pub(super) fn window(&self, state: &MemoryState, page: Vpn, ahead: usize) -> Range<Vpn> {
        let fixed = state.options.folios.page_cluster.is_some();
        if ahead == 1 || fixed {
            return page..page + 1;
        }
        let may = |page: &Vpn| {
            let word = state.words.get(*page);
            is_out(word) || matches!(word, Word::Open { .. } | Word::Clean(_))
        };
        page..page + (page..page + ahead).take_while(may).count()
    }

    /// Notes that what is out of `window` comes, because of a touch of its first page.
    pub(super) fn note_window(
        &mut self,
        state: &MemoryState,
        record: Option<&Record>,
        window: &Range<Vpn>,
    ) {
        let Some(record) = record else { return };
        record.faults.row[0].store(window.end, Ordering::Relaxed);
        let is_open = |page| !state.words.get(page).is_closed();
        self.closing
            .streams
            .brought_past(window, window.len(), is_open);
    }

    /// Pages of `run` came back; one of them was asked for by itself, or none: they are read in order, or
    /// came because of another.
    pub(super) fn note_came(&mut self, run: &Range<Vpn>, asked: Option<Vpn>) {
        for page in run.clone() {
            self.closing.refaults.note_came(page, Some(page) == asked);
        }
    }

    /// The first page of `rest` that is out, and can come at once: nothing behind the pool is waited for.
    pub(super) fn next_piece(&self, state: &MemoryState, rest: &Range<Vpn>) -> Option<Vpn> {
        let page = state.words.next(rest.start, rest.end, is_out)?;
        (!self.is_behind(state.words.get(page))).then_some(page)
    }
}

/// How many pages of a window are out.
pub(super) fn count_out(state: &MemoryState, window: &Range<Vpn>) -> usize {
    let pages = window.clone();
    pages.filter(|page| is_out(state.words.get(*page))).count()
}
