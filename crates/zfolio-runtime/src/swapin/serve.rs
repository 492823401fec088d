//! A fault: where the page is, and how it comes back from there.

use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::page::{Vpn, address_of};
use crate::page_fault::{Fault, Outcome};
use crate::pager::Access;
use crate::policy::readahead;
use crate::segment::{Counter, FaultKind};
use crate::transfer::Transfer;
use crate::transfer::move_in::{COPIED, Placed};
use crate::transfer::worker::Worker;
use zfolio_mm::{PAGE_SIZE, Pfn};
use zfolio_sys::lock::MutexGuard;
use zfolio_sys::procfs::PresentRun;
use zfolio_zswap::Slot;

impl Transfer {
    /// Finds where the page is and brings it.
    pub(crate) fn serve(&self, worker: &mut Worker, fault: Fault) -> Outcome {
        worker.access = fault.access;
        let mut core = self.core.lock();
        if core.freeze.is_frozen() {
            return self.serve_frozen(&mut core, worker, fault);
        }
        if self.is_restless() || !self.may_start(&mut core) {
            return Outcome::Defer;
        }
        if self.is_gone(&core, fault.vpn) {
            return Outcome::Served(FaultKind::Stale);
        }
        match core.pages.extents.place(fault.vpn) {
            Place::Standby(at) => self.unstandby(&mut core, fault.vpn, at),
            Place::Storing(at) => self.uncompressed_copy(&mut core, fault.vpn, at),
            Place::Stored(_) => self.load(core, worker, fault.vpn),
            Place::Clean(slot) => self.touched_clean(core, worker, fault.vpn, slot),
            // Whoever loads it wakes all who wait for it.
            Place::Loading(_) => Outcome::Served(FaultKind::Stale),
            Place::Present | Place::Gone => self.fill(core, worker, fault.vpn),
        }
    }

    /// Moves a page, and what stands by next to it, straight back.
    pub(crate) fn unstandby(&self, core: &mut Core, vpn: Vpn, at: Pfn) -> Outcome {
        let huge = core
            .pages
            .extents
            .get(vpn)
            .is_some_and(|extent| extent.is_huge());
        let bounds = if huge {
            readahead::extent(vpn)
        } else {
            readahead::group(vpn)
        };
        let in_run = |core: &Core, page: Vpn, slot: Option<usize>| {
            slot.is_some_and(|slot| {
                matches!(core.pages.extents.place(page), Place::Standby(pfn) if pfn.index() == slot)
            })
        };
        let (mut first, mut end) = (vpn, vpn + 1);
        while first > bounds.start
            && in_run(core, first - 1, at.index().checked_sub(vpn - (first - 1)))
        {
            first -= 1;
        }
        while end < bounds.end && in_run(core, end, Some(at.index() + (end - vpn))) {
            end += 1;
        }
        let base = Pfn(at.0).back(vpn - first);
        let whole = huge && end - first == bounds.len();
        if whole {
            let counted = self.is_huge(self.address(base));
            if counted {
                self.count(Counter::ThpSwpin, 1);
            }
        }
        self.bring_standby(core, vpn, first, base, end - first)
    }

    pub(crate) fn bring_standby(
        &self,
        core: &mut Core,
        vpn: Vpn,
        first: Vpn,
        base: Pfn,
        pages: usize,
    ) -> Outcome {
        let mut refused = None;
        let mut came = 0;
        self.move_or_copy_in(first, base, pages, COPIED, |index, landed| {
            let slot = base.offset(index);
            match landed {
                Placed::Moved => self.arena().give_holes(slot, 1),
                Placed::Copied | Placed::AlreadyThere => self.arena().give_frames(slot, 1),
                Placed::Refused(errno) => {
                    if first + index == vpn {
                        refused = Some(errno);
                    }
                    return;
                }
            }
            came += 1;
            core.pages.extents.set(first + index, Place::Present);
        });
        core.pages.standby.note_left(came);
        self.count(Counter::StandbyRefault, came);
        self.count(Counter::PagesIn, came);
        if let Some(extent) = core.pages.extents.get_mut(vpn) {
            for page in first..first + pages {
                extent.past(page).brought_along();
            }
            extent.past(vpn).protect(core.history.clock());
            if extent.take_unasked(vpn) {
                core.history.rush.judge(true);
            }
        }
        self.count_touched(core, vpn);
        self.note_if_complete(core, vpn);
        refused.map_or(Outcome::Served(FaultKind::Standby), |errno| {
            self.refused(vpn, errno)
        })
    }

    /// The page is being compressed, so its frame must stay: copy it. The
    /// compressor finds its word changed and drops what it made.
    pub(crate) fn uncompressed_copy(&self, core: &mut Core, vpn: Vpn, at: Pfn) -> Outcome {
        match self.copy_in(vpn, self.address(at)) {
            Placed::Refused(errno) => self.refused(vpn, errno),
            _ => {
                core.pages.extents.set(vpn, Place::Present);
                if let Some(extent) = core.pages.extents.get_mut(vpn) {
                    extent.past(vpn).protect(core.history.clock());
                }
                self.count_touched(core, vpn);
                self.count(Counter::StandbyRefault, 1);
                self.count(Counter::PagesIn, 1);
                Outcome::Served(FaultKind::Standby)
            }
        }
    }

    /// Pages around `vpn` came: if all of what was a huge page is there now, it may become one.
    pub(crate) fn note_if_complete(&self, core: &mut Core, vpn: Vpn) {
        let extent = core.pages.extents.get(vpn);
        if self.options.folios.huge_page_assembly
            && extent.is_some_and(|extent| extent.is_huge() && extent.away() == 0)
        {
            core.history.note_complete(readahead::extent(vpn).start);
        }
    }

    /// Page `vpn` is being touched: if it came ahead of its fault, that was right.
    fn count_touched(&self, core: &mut Core, vpn: Vpn) {
        let hits = core.pages.extents.take_ahead(core::iter::once(vpn));
        self.count(Counter::SwapRaHit, hits);
    }

    /// A fault of a page that is clean: a write, or it was too late.
    pub(crate) fn touched_clean<'a>(
        &'a self,
        mut core: MutexGuard<'a, Core>,
        worker: &mut Worker,
        vpn: Vpn,
        slot: Slot,
    ) -> Outcome {
        let (start, mut run) = (address_of(vpn), [PresentRun::default()]);
        let pagemap = self.fds.pagemap();
        let found = pagemap.occupied(start, start + PAGE_SIZE, &mut run);
        if matches!(found, Ok((0, _))) {
            // Discarded behind our back, or by a call that said it had not.
            core.pages.extents.set(vpn, Place::Stored(slot));
            return self.load(core, worker, vpn);
        }
        if worker.access == Access::Write {
            self.count_touched(&mut core, vpn);
            self.make_dirty(&mut core, vpn, slot);
        } else {
            self.fds.program().wake(start, PAGE_SIZE);
        }
        Outcome::Served(FaultKind::Stale)
    }
}
