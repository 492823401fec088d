//! A pass of the clock hand: what it looks at together, and what it leaves where it is.

use crate::extent::{EXTENT_PAGES, Extent, GROUP_PAGES, Vpn, group_of};
use crate::manager::Core;
use crate::moveout::Going;
use core::ops::Range;

/// Runs of pages looked at together at most.
const PIECES: usize = 64;

/// Pages that are looked at together, in order.
pub(crate) struct Pieces {
    pieces: [Range<Vpn>; PIECES],
    count: usize,
    /// Pieces before this one are done with.
    next: usize,
}

impl Default for Pieces {
    fn default() -> Self {
        Self {
            pieces: [const { 0..0 }; PIECES],
            count: 0,
            next: 0,
        }
    }
}

impl Pieces {
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
        self.count < PIECES && self.pages() + pages <= most
    }

    /// What is left of the first piece of which something is.
    pub(crate) fn front(&mut self) -> Option<&mut Range<Vpn>> {
        while self.next < self.count && self.pieces[self.next].is_empty() {
            self.next += 1;
        }
        self.pieces[..self.count].get_mut(self.next)
    }

    /// Cuts off the front of each piece what stays; the first page that may go.
    pub(crate) fn first_cold(
        &mut self,
        core: &mut Core,
        pass: &mut Pass,
        how: Going,
    ) -> Option<Vpn> {
        for piece in &mut self.pieces[self.next..self.count] {
            pass.cold_pages(core, piece, how);
        }
        self.front().map(|piece| piece.start)
    }
}

/// A pass of the hand over an extent, of which it may see several runs: a group that
/// refused to move is left alone for rounds, so each pass counts once.
#[derive(Default)]
pub(crate) struct Pass {
    last: Option<(Vpn, bool)>,
}

impl Pass {
    /// Cuts off what stays or is absent from the front of `piece`, which is of one
    /// extent; returns how many pages may go then.
    pub(crate) fn cold_pages(
        &mut self,
        core: &mut Core,
        piece: &mut Range<Vpn>,
        how: Going,
    ) -> usize {
        let Some(extent) = core.extents.get_mut(piece.start) else {
            return piece.len();
        };
        let whole = how.huge && piece.len() == EXTENT_PAGES;
        if whole && !how.cold {
            // It goes or stays whole.
            let groups = piece.clone().step_by(GROUP_PAGES);
            let left_alone = groups.fold(false, |any, vpn| self.leaves_alone(extent, vpn) | any);
            let mut pages = 0..EXTENT_PAGES;
            let spared = pages.any(|page| extent.present(page, &core.clock) == Some(true));
            core.spared |= spared;
            if left_alone || spared {
                piece.start = piece.end;
            }
        }
        let mut goes = |page: Vpn| match extent.present(page % EXTENT_PAGES, &core.clock) {
            None => false,
            Some(_) if whole || how.cold => true,
            Some(true) => {
                core.spared = true;
                false
            }
            Some(false) => !self.leaves_alone(extent, page),
        };
        while piece.start < piece.end && !goes(piece.start) {
            piece.start += 1;
        }
        let end = (piece.start..piece.end).find(|page| !goes(*page));
        end.unwrap_or(piece.end) - piece.start
    }

    /// Whether `vpn`'s group is left alone this round.
    fn leaves_alone(&mut self, extent: &mut Extent, vpn: Vpn) -> bool {
        let group = vpn / GROUP_PAGES;
        if let Some((last, left_alone)) = self.last
            && last == group
        {
            return left_alone;
        }
        let rounds = &mut extent.left_alone[group_of(vpn)];
        let left_alone = *rounds > 0;
        *rounds = rounds.saturating_sub(1);
        self.last = Some((group, left_alone));
        left_alone
    }
}
