//! Read-ahead: which pages come with one that is touched.
//!
//! Who reads on gets more and more at a time ([`Readers`](super::readers::Readers), those of all
//! threads together). Pages leave one by one, so what a reader will want lies in pieces, with pages between
//! them that are open: it all comes at one fault, piece by piece, up to the end of the *window*.
//! Who reads at equal distances, or from the end to the beginning, gets pages at those distances.
//! Where read-ahead is fixed (`--page-cluster`) there are no windows.

use super::Vpn;
use super::core::MemoryCore;
use super::layer::MemoryState;
use super::readers::WantedPages;
use super::words::Word;
use crate::raw::SHIFT;
use crate::threads::Record;
use core::ops::Range;
use core::sync::atomic::Ordering;

/// Most pages of a window, and which part of what the process may have it is at most.
const MOST_AHEAD: usize = 32;
const PART_AHEAD: usize = 64;
/// Pages of a group: what was stored together lies together behind the pool.
const GROUP: usize = 16;

/// Whether what is known of a page is that it is out.
pub(super) const fn is_out(word: Word) -> bool {
    matches!(word, Word::Zero | Word::Stored(_))
}

/// What of a window is still to come, once the touched page and what came with it have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RestOfWindow {
    next: Vpn,
    step: isize,
    /// Pages.
    left: usize,
}

impl RestOfWindow {
    /// Nothing, after a run.
    pub(super) const fn nothing(after: Vpn) -> Self {
        Self {
            next: after,
            step: 1,
            left: 0,
        }
    }

    /// Where it ends, of what lies side by side.
    pub(super) const fn end(&self) -> Vpn {
        self.next + if self.step == 1 { self.left } else { 0 }
    }

    /// Its pages.
    fn pages(&self) -> impl Iterator<Item = Vpn> {
        let (mut next, step) = (self.next, self.step);
        (0..self.left).map(move |_| {
            let page = next;
            next = next.wrapping_add_signed(step);
            page
        })
    }

    /// The next of its pages that is out, with those before it left behind; `None`: there is none.
    pub(super) fn next_out(&mut self, state: &MemoryState) -> Option<Vpn> {
        let found = match self.step {
            1 => state.words.next(self.next, self.next + self.left, is_out),
            _ => self.pages().find(|page| is_out(state.words.get(*page))),
        };
        let passed = found.map_or(self.left, |page| {
            page.wrapping_sub(self.next).cast_signed().unsigned_abs() / self.step.unsigned_abs()
        });
        self.pass(passed);
        found
    }

    /// Pages that may come with its next one.
    pub(super) const fn side_by_side(&self) -> usize {
        if self.step == 1 { self.left } else { 1 }
    }

    /// A run that begins with its next page has come.
    pub(super) fn came(&mut self, run: &Range<Vpn>) {
        let came = match self.step {
            1 => run.end.saturating_sub(self.next),
            _ => 1,
        };
        self.pass(came);
    }

    fn pass(&mut self, pages: usize) {
        let pages = pages.min(self.left);
        let distance = pages.cast_signed().wrapping_mul(self.step);
        self.next = self.next.wrapping_add_signed(distance);
        self.left -= pages;
    }
}

impl MemoryCore {
    /// What a touch of `page`, which is out, asks for.
    pub(super) fn ahead(
        &mut self,
        state: &MemoryState,
        record: Option<&Record>,
        page: Vpn,
    ) -> WantedPages {
        if record.is_none() {
            return WantedPages::in_order(1);
        }
        let is_open = |page| !state.words.get(page).is_closed();
        let most = (self.high / PART_AHEAD).clamp(1, MOST_AHEAD);
        self.closing.readers.ask(page, most, is_open)
    }

    /// What comes with a page that is behind the pool: its whole group, as far as it is stored, unless it is wanted
    /// by itself (`is_alone`), and so were others lately ([`Locality`]). `run` otherwise.
    ///
    /// [`Locality`]: zfolio_runtime::locality::Locality
    pub(super) fn with_group(
        &mut self,
        state: &MemoryState,
        run: Range<Vpn>,
        page: Vpn,
        is_alone: bool,
    ) -> Range<Vpn> {
        if !self.is_behind(state.words.get(page))
            || is_alone && !self.closing.readers.brings_group(page)
        {
            return run;
        }
        let Some((range, _)) = self.ranges.at(page << SHIFT) else {
            return run;
        };
        let first = page - page % GROUP;
        let group = first.max(range.start >> SHIFT)..(first + GROUP).min(range.end >> SHIFT);
        let is_out = |page: &Vpn| is_out(state.words.get(*page));
        let before = (group.start..page).rev().take_while(is_out).count();
        let after = (page..group.end).take_while(is_out).count();
        (page - before).min(run.start)..(page + after).max(run.end)
    }

    /// What of that is to come once `run`, with the touched page, has. What is read in order comes up to a page that is
    /// not out, and not plainly open either; what is not, page by page (where pages are stored in groups: group by group).
    pub(super) fn rest(
        &self,
        state: &MemoryState,
        page: Vpn,
        run: &Range<Vpn>,
        ahead: WantedPages,
    ) -> RestOfWindow {
        let fixed = state.options.folios.page_cluster.is_some();
        if ahead.pages == 1 || fixed {
            return RestOfWindow::nothing(run.end);
        }
        if ahead.step != 1 {
            let (step, left) = (ahead.step, ahead.pages - 1);
            return RestOfWindow {
                next: page.wrapping_add_signed(step),
                step,
                left: left.min(MOST_AHEAD / self.group(state)),
            };
        }
        let may = |page: &Vpn| {
            let word = state.words.get(*page);
            is_out(word) || matches!(word, Word::Open { .. } | Word::Clean(_))
        };
        let end = page + (page..page + ahead.pages).take_while(may).count();
        RestOfWindow {
            next: run.end,
            step: 1,
            left: end.saturating_sub(run.end),
        }
    }

    /// Notes that `run` comes, and what is out of `rest`, because of a touch of `page`.
    pub(super) fn note_window(
        &mut self,
        state: &MemoryState,
        record: Option<&Record>,
        page: Vpn,
        (run, rest): (&Range<Vpn>, &RestOfWindow),
    ) {
        let Some(record) = record else { return };
        let end = match rest.step {
            1 => run.end.max(rest.next + rest.left),
            _ => run.end,
        };
        record.faults.row[0].store(end, Ordering::Relaxed);
        if rest.step == 1 {
            let is_open = |page| !state.words.get(page).is_closed();
            self.closing.readers.came_in_order(&(page..end), is_open);
        } else {
            self.closing.readers.came_at_distances();
        }
    }

    /// Pages of `run` came back; one of them was asked for by itself, or none: they are read in order, or
    /// came because of another.
    pub(super) fn note_came(&mut self, run: &Range<Vpn>, asked: Option<Vpn>) {
        for page in run.clone() {
            self.closing.refaults.note_came(page, Some(page) == asked);
        }
    }

    /// The next page of `rest` that is out, if it can come at once.
    pub(super) fn next_piece(&self, state: &MemoryState, rest: &mut RestOfWindow) -> Option<Vpn> {
        let page = rest.next_out(state)?;
        self.comes_at_once(state.words.get(page)).then_some(page)
    }

    /// What of `run` around `page` can.
    pub(super) fn at_once(&self, state: &MemoryState, run: Range<Vpn>, page: Vpn) -> Range<Vpn> {
        let comes = |page: &Vpn| self.comes_at_once(state.words.get(*page));
        let before = (run.start..page).rev().take_while(comes).count();
        let after = (page..run.end).take_while(comes).count();
        page - before..page + after
    }

    /// Nothing behind the pool is waited for: it must have been read.
    fn comes_at_once(&self, word: Word) -> bool {
        let has_been_read = |slot| {
            let zswap = self.pool.as_ref().map(|pool| pool.zswap);
            let store = self.way.store.as_ref();
            zswap
                .zip(store)
                .is_some_and(|(zswap, store)| store.has_read(zswap, slot))
        };
        !self.is_behind(word) || word.slot().is_some_and(has_been_read)
    }
}

/// How many pages of the rest of a window are out.
pub(super) fn count_out(state: &MemoryState, rest: &RestOfWindow) -> usize {
    let is_one = |page: &Vpn| is_out(state.words.get(*page));
    rest.pages().filter(is_one).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Of what is left after each run of `runs`, all pages.
    fn left(mut rest: RestOfWindow, runs: &[Range<Vpn>]) -> Vec<Vec<Vpn>> {
        let after = |run| {
            rest.came(run);
            rest.pages().collect()
        };
        runs.iter().map(after).collect()
    }

    #[test]
    fn what_is_left_of_a_window() {
        let rest = |next, step, left| RestOfWindow { next, step, left };
        let none: Vec<Vpn> = Vec::new();
        // In order a run may reach beyond the window.
        let in_order = left(rest(10, 1, 4), &[10..12, 12..20]);
        assert_eq!(in_order, [vec![12, 13], none.clone()]);
        // At distances each run has one of its pages, whatever lies beside it.
        let forwards = left(rest(100, 7, 3), &[100..101, 104..112, 114..115]);
        assert_eq!(forwards, [vec![107, 114], vec![114], none]);
        let backwards = left(rest(100, -1, 3), &[100..101, 99..100]);
        assert_eq!(backwards, [vec![99, 98], vec![98]]);
        assert_eq!(RestOfWindow::nothing(5).pages().count(), 0);
    }
}
