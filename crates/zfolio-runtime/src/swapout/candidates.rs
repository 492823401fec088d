//! Runs that several steps of the clock hand found, until there are enough to leave together; and
//! those that are passed over.

use crate::address_space::core::Core;
use crate::address_space::extent::Group;
use crate::page::{EXTENT_PAGES, Vpn};
use crate::transfer::move_out::EvictMode;
use core::ops::Range;

/// Runs of pages looked at together at most.
const RUNS: usize = 64;

/// Pages that are looked at together, in order.
pub(crate) struct CandidateRuns {
    pieces: [Range<Vpn>; RUNS],
    count: usize,
    /// Pieces before this one are done with.
    next: usize,
}

impl Default for CandidateRuns {
    fn default() -> Self {
        Self {
            pieces: [const { 0..0 }; RUNS],
            count: 0,
            next: 0,
        }
    }
}

impl CandidateRuns {
    pub(crate) fn add(&mut self, piece: Range<Vpn>) {
        self.pieces[self.count] = piece;
        self.count += 1;
    }

    pub(crate) fn pages(&self) -> usize {
        self.pieces[self.next..self.count]
            .iter()
            .map(Range::len)
            .sum()
    }

    pub(crate) fn has_room(&self, pages: usize, most: usize) -> bool {
        self.count < RUNS && self.pages() + pages <= most
    }

    /// What is left of the first piece of which something is.
    pub(crate) fn front(&mut self) -> Option<&mut Range<Vpn>> {
        while self.next < self.count && self.pieces[self.next].is_empty() {
            self.next += 1;
        }
        self.pieces[..self.count].get_mut(self.next)
    }

    /// Cuts off the front of each piece what stays; the first page that may go.
    pub(crate) fn first_cold(&mut self, core: &mut Core, how: EvictMode) -> Option<Vpn> {
        for piece in &mut self.pieces[self.next..self.count] {
            cold_pages(core, piece, how);
        }
        self.front().map(|piece| piece.start)
    }
}

/// Cuts off what stays or is absent from the front of `piece`, which is of one extent;
/// returns how many pages may go then.
pub(crate) fn cold_pages(core: &mut Core, piece: &mut Range<Vpn>, how: EvictMode) -> usize {
    let Some(extent) = core.pages.extents.get(piece.start) else {
        return piece.len();
    };
    let clock = core.history.clock();
    let mut least: Option<u8> = None;
    let mut note = |ticks: u8| least = Some(least.map_or(ticks, |least| least.min(ticks)));
    let left_alone = |page: Vpn| {
        let group = extent.known_group(page);
        group.is_some_and(Group::is_left_alone)
    };
    let ticks = |page: Vpn| extent.present(page % EXTENT_PAGES, clock);
    let whole = how.huge && piece.len() == EXTENT_PAGES;
    if whole && !how.cold {
        // A huge page goes whole, once all of it may, or stays.
        let longest = piece.clone().filter_map(ticks).max().unwrap_or(0);
        if longest > 0 {
            note(longest);
        }
        if longest > 0 || piece.clone().any(left_alone) {
            piece.start = piece.end;
        }
    }
    let all = whole || how.cold;
    let mut goes = |page: &Vpn| match ticks(*page) {
        None => false,
        Some(_) if all => true,
        Some(0) => !left_alone(*page),
        Some(ticks) => {
            note(ticks);
            false
        }
    };
    piece.start = piece.clone().find(&mut goes).unwrap_or(piece.end);
    let end = piece.clone().find(|page| !goes(page));
    let pages = end.unwrap_or(piece.end) - piece.start;
    if let Some(ticks) = least {
        core.history.note_spared(ticks);
    }
    pages
}
