//! What a fault brings besides its own page.

use crate::address_space::core::Core;
use crate::address_space::extent::Group;
use crate::address_space::place::Place;
use crate::page::{GROUP_PAGES, Vpn};
use crate::policy::readahead;
use crate::policy::strides::Stride;
use crate::segment::Counter;
use crate::transfer::Transfer;
use core::ops::Range;

/// Pages at most that are brought because they are all that a huge page lacks: they take less
/// time to load than it does to copy.
const REST: usize = 32;

/// What a fault brings: the stored pages of a range. Others are passed over,
/// so that a few present ones do not cut a reader's window to pieces.
pub(crate) struct Plan {
    pub(super) range: Range<Vpn>,
    /// Pages the stream would have liked; 0: it is none.
    pub(super) window: usize,
    /// Continues a sequential stream or a stride: read once, likely, so not hot.
    pub(super) sequential: bool,
    /// The group is being loaded from in a rush.
    pub(super) rush: bool,
    /// Of the range only every so many pages, the faulting one among them; 1: all.
    pub(super) step: usize,
}

impl Plan {
    pub(crate) fn is_sequential(&self) -> bool {
        self.sequential
    }

    /// Within the extent of `vpn`, which comes first or last.
    fn of_stride(vpn: Vpn, stride: Stride) -> Self {
        let step = stride.step.unsigned_abs();
        let reach = (stride.pages - 1) * step;
        let whole = readahead::extent(vpn);
        let range = if stride.step > 0 {
            vpn..(vpn + reach + 1).min(whole.end)
        } else {
            vpn.saturating_sub(reach).max(whole.start)..vpn + 1
        };
        Self {
            range,
            window: 0,
            sequential: true,
            rush: false,
            step,
        }
    }
}

impl Transfer {
    /// Counts pages that came ahead of their fault and are known now to have been touched:
    /// those of a reader that a fault at `vpn` continues.
    pub(crate) fn count_passed(&self, core: &mut Core, vpn: Vpn) {
        if let Some(passed) = core.history.streams.passed(vpn) {
            let hits = core.pages.extents.take_ahead(passed);
            self.count(Counter::SwapRaHit, hits);
        }
    }

    pub(crate) fn plan_load(&self, core: &mut Core, vpn: Vpn) -> Plan {
        self.count_passed(core, vpn);
        if let Some(order) = self.options.folios.page_cluster {
            let first = vpn - vpn % order.pages();
            return Plan {
                range: first..first + order.pages(),
                window: 0,
                sequential: false,
                rush: false,
                step: 1,
            };
        }
        let most = self.watermarks().window();
        let advice = core.history.streams.advise(vpn, most);
        let stored = |page: Vpn| matches!(core.pages.extents.place(page), Place::Stored(_));
        let extent = core.pages.extents.get(vpn);
        let group = extent.and_then(|extent| extent.known_group(vpn));
        let (loads, loaded_at) = group.map_or((0, [0; 3]), Group::recent_loads);
        if advice.sequential {
            let whole = readahead::extent(vpn);
            // A huge page read in order comes back whole, so that it is one again.
            if advice.pages == most
                && extent.is_some_and(|extent| extent.is_huge())
                && vpn == whole.start
                && whole.clone().all(stored)
                && self.huge_frames.is_ready()
            {
                return Plan {
                    range: whole,
                    window: advice.pages,
                    sequential: true,
                    rush: false,
                    step: 1,
                };
            }
            let end = (vpn + advice.pages).min(whole.end);
            // Stop at a folio border where one is near: folios stay whole.
            let end = if end - vpn > GROUP_PAGES {
                end - end % GROUP_PAGES
            } else {
                end
            };
            return Plan {
                range: vpn..end,
                window: advice.pages,
                sequential: true,
                rush: false,
                step: 1,
            };
        }
        if let Some(stride) = core.history.strides.note(vpn) {
            let back = |page: &Vpn| page.checked_add_signed(-stride.step);
            let before = core::iter::successors(back(&vpn), back).take(stride.pages);
            let hits = core.pages.extents.take_ahead(before);
            self.count(Counter::SwapRaHit, hits);
            return Plan::of_stride(vpn, stride);
        }
        let rush = core
            .history
            .rush
            .is_on(vpn, loaded_at, core.pages.extents.kept());
        let backed = matches!(core.pages.extents.place(vpn), Place::Stored(slot) if self.zswap.is_in_backing(slot));
        let alone = match backed {
            true => !core.history.locality.brings_group(vpn),
            false => loads == 0 || !core.history.neighbours.come_along(vpn),
        };
        let nearly_whole = self.options.folios.huge_page_assembly
            && extent.is_some_and(|extent| extent.is_huge() && extent.away() <= REST);
        let range = if alone && !rush {
            vpn..vpn + 1
        } else if nearly_whole && !alone && !backed {
            // The rest of a huge page, which becomes one again.
            readahead::extent(vpn)
        } else {
            readahead::group(vpn)
        };
        Plan {
            window: range.len(),
            range,
            sequential: false,
            rush,
            step: 1,
        }
    }
}
