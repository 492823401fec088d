//! The standby list: moved out, not compressed yet (the swap cache's role).
//!
//! A queue of runs in the order they were moved out; the cold end is stored,
//! and a page touched before its turn came is simply moved back: that is its
//! second chance. A run is a hint: pages of it may have gone back since, so
//! whoever takes one checks every page's word.

use crate::page::Vpn;
use alloc::collections::VecDeque;
use zfolio_mm::Pfn;

/// Pages moved out together: page `vpn + i` went to slot `at + i`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StandbyRun {
    pub(crate) vpn: Vpn,
    pub(crate) at: Pfn,
    pub(crate) pages: usize,
}

impl StandbyRun {
    /// Cuts off the first `pages` pages.
    pub(crate) fn split_front(&mut self, pages: usize) -> Self {
        let front = Self { pages, ..*self };
        self.vpn += pages;
        self.at = self.at.offset(pages);
        self.pages -= pages;
        front
    }
}

/// The queue and how many pages are in standby.
#[derive(Default)]
pub(crate) struct Standby {
    queue: VecDeque<StandbyRun>,
    /// Pages whose word says standby.
    pages: usize,
}

impl Standby {
    /// Pages whose word says standby.
    pub(crate) const fn pages(&self) -> usize {
        self.pages
    }

    /// The words of `pages` say standby from here on.
    pub(crate) fn note_standing_by(&mut self, pages: usize) {
        self.pages += pages;
    }

    /// The words of `pages` do so no more.
    pub(crate) fn note_left(&mut self, pages: usize) {
        self.pages -= pages;
    }

    /// Adds a run at the hot end.
    pub(crate) fn push(&mut self, run: StandbyRun) {
        self.queue.push_back(run);
    }

    /// Adds a run at the cold end: it is stored next.
    pub(crate) fn push_cold(&mut self, run: StandbyRun) {
        self.queue.push_front(run);
    }

    /// Adds a run if there is one.
    pub(crate) fn push_all(&mut self, run: Option<StandbyRun>) {
        self.queue.extend(run);
    }

    /// Puts back what was taken from the cold end.
    pub(crate) fn unpop(&mut self, run: StandbyRun) {
        if run.pages > 0 {
            self.queue.push_front(run);
        }
    }

    /// The runs, coldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &StandbyRun> {
        self.queue.iter()
    }

    /// Takes the coldest run.
    pub(crate) fn pop(&mut self) -> Option<StandbyRun> {
        self.queue.pop_front()
    }
}
