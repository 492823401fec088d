//! A pass of the clock hand: what it looks at together, and what it finds hot.

use crate::extent::{EXTENT_PAGES, GROUP_PAGES, Vpn, group_of};
use crate::manager::Core;
use crate::moveout::{Going, RUNS};
use crate::reclaim::HOTTEST;
use crate::word::Place;
use core::ops::Range;

/// Pages that are looked at under one hold of the lock, in order.
#[derive(Default)]
pub(crate) struct Pieces {
    pieces: [Range<Vpn>; RUNS],
    count: usize,
    /// Pieces before this one are done with.
    next: usize,
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
        self.count < RUNS && self.pages() + pages <= most
    }

    /// What is left of the first piece of which something is.
    pub(crate) fn front(&mut self) -> Option<&mut Range<Vpn>> {
        while self.next < self.count && self.pieces[self.next].is_empty() {
            self.next += 1;
        }
        self.pieces[..self.count].get_mut(self.next)
    }

    pub(crate) fn first(&mut self) -> Option<Vpn> {
        self.front().map(|piece| piece.start)
    }
}

/// What a pass of the hand over an extent has found hot. Heat is of a group, of
/// which a pass may see several runs: it cools once.
#[derive(Default)]
pub(crate) struct Pass {
    last: Option<(Vpn, bool)>,
}

impl Pass {
    /// Cuts off what is hot or absent from the front of `piece`; returns how many
    /// pages may go then.
    pub(crate) fn cold_pages(
        &mut self,
        core: &mut Core,
        piece: &mut Range<Vpn>,
        how: Going,
    ) -> usize {
        if how.huge && piece.len() == EXTENT_PAGES && !how.cold {
            // It goes or stays whole.
            let groups = piece.clone().step_by(GROUP_PAGES);
            if groups.fold(false, |hot, vpn| self.spares(core, vpn) | hot) {
                piece.start = piece.end;
            }
        }
        let present = |core: &Core, page: Vpn| core.extents.place(page) == Place::Present;
        let whole = how.cold || how.huge && piece.len() == EXTENT_PAGES;
        while piece.start < piece.end {
            if !present(core, piece.start) {
                piece.start += 1;
            } else if !whole && self.spares(core, piece.start) {
                piece.start = end_of_group(piece.start).min(piece.end);
            } else {
                break;
            }
        }
        let mut end = piece.start;
        while end < piece.end && present(core, end) && (whole || !self.spares(core, end)) {
            end += 1;
        }
        end - piece.start
    }

    /// Whether `vpn`'s group is spared this round, which costs it a degree.
    fn spares(&mut self, core: &mut Core, vpn: Vpn) -> bool {
        let group = vpn / GROUP_PAGES;
        if let Some((last, spared)) = self.last
            && last == group
        {
            return spared;
        }
        let heat = core
            .extents
            .get_mut(vpn)
            .map(|extent| &mut extent.heat[group_of(vpn)]);
        let was = heat.map_or(0, |heat| core::mem::replace(heat, heat.saturating_sub(1)));
        core.spared |= (1..=HOTTEST).contains(&was);
        self.last = Some((group, was > 0));
        was > 0
    }
}

/// First page after `vpn`'s group.
const fn end_of_group(vpn: Vpn) -> Vpn {
    vpn + GROUP_PAGES - vpn % GROUP_PAGES
}
