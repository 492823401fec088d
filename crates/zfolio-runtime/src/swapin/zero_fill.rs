//! Pages never touched before, in ranges that are registered.
//!
//! First touches are the kernel's as long as a range is not registered. In a
//! registered range they come here, and that is what slows a program down at
//! `high`: a fill takes a free frame, and waits for reclaim when there is none.

use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::frames::arena::runs_of;
use crate::page::{GROUP_PAGES, Vpn, address_of};
use crate::page_fault::Outcome;
use crate::segment::{Counter, FaultKind};
use crate::transfer::Transfer;
use crate::transfer::move_in::Placed;
use crate::transfer::worker::Worker;
use core::ops::Range;
use zfolio_mm::{Memory, PAGE_SIZE, Pfn};
use zfolio_sys::lock::MutexGuard;
use zfolio_sys::procfs::PresentRun;

impl Transfer {
    /// Fills page `vpn` with zeros, and those after it in a sequential stream.
    pub(crate) fn fill(
        &self,
        mut core: MutexGuard<'_, Core>,
        worker: &mut Worker,
        vpn: Vpn,
    ) -> Outcome {
        self.count_passed(&mut core, vpn);
        let (pages, window) = self.plan_fill(&core, vpn);
        if let Some(outcome) = self.fill_fresh(&mut core, &pages, window) {
            self.wake_control_at(self.usage());
            return outcome;
        }
        let Worker { frames, urgent, .. } = worker;
        let got = self.take_for_fault(pages.len(), *urgent, frames);
        if got == 0 {
            return Outcome::NeedFrames;
        }
        let pages = vpn..vpn + got;
        core.history.streams.brought(&pages, window);
        self.begin(&core);
        drop(core);
        for run in runs_of(frames) {
            self.arena()
                .with_mut(run[0], 0, run.len() * PAGE_SIZE, |bytes| bytes.fill(0));
        }
        let outcome = self.publish_filled(&pages, frames);
        self.end();
        outcome
    }

    fn publish_filled(&self, pages: &Range<Vpn>, frames: &[Pfn]) -> Outcome {
        let mut core = self.core.lock();
        if self.is_gone(&core, pages.start) {
            self.arena().give_scattered(frames);
            return Outcome::Served(FaultKind::Stale);
        }
        let untouched = |core: &Core, page: Vpn| {
            matches!(core.pages.extents.place(page), Place::Present | Place::Gone)
        };
        let len = pages
            .clone()
            .take_while(|page| untouched(&core, *page))
            .count();
        if !core.is_open() || len == 0 {
            self.arena().give_scattered(frames);
            return Outcome::Defer;
        }
        self.arena().give_scattered(&frames[len..]);
        let mut refused = None;
        let mut filled = 0;
        let mut next = pages.start;
        for run in runs_of(&frames[..len]) {
            // (Of pages that nobody waits for it is not known whether a guard is there.)
            let copies = usize::from(next == pages.start);
            self.move_in(next, run[0], run.len(), copies, |index, landed| {
                let (page, frame) = (next + index, run[index]);
                match landed {
                    Placed::Moved => {
                        self.arena().give_holes(frame, 1);
                        filled += 1;
                    }
                    Placed::Copied => {
                        self.arena().give_frames(frame, 1);
                        filled += 1;
                    }
                    Placed::AlreadyThere => {
                        self.arena().give_frames(frame, 1);
                        return;
                    }
                    Placed::Refused(errno) => {
                        self.arena().give_frames(frame, 1);
                        if page == pages.start {
                            refused = Some(errno);
                        }
                        return;
                    }
                }
                core.pages.extents.set(page, Place::Present);
            });
            next += run.len();
        }
        drop(core);
        self.count(Counter::HolePages, filled);
        refused.map_or(Outcome::Served(FaultKind::Hole), |errno| {
            self.refused(pages.start, errno)
        })
    }

    /// The faulting page and, in a stream, absent ones after it, inside what
    /// is registered; and how many the stream would have liked.
    fn plan_fill(&self, core: &Core, vpn: Vpn) -> (Range<Vpn>, usize) {
        let advice = core.history.streams.advise(vpn, self.watermarks().window());
        if !advice.sequential {
            return (vpn..vpn + 1, 1);
        }
        let mut end = vpn + advice.pages;
        end = if advice.pages >= GROUP_PAGES {
            (end - end % GROUP_PAGES).max(vpn + 1)
        } else {
            end
        };
        while end > vpn + 1
            && !core
                .pages
                .registered
                .contains(&(address_of(vpn)..address_of(end)))
        {
            end = vpn + (end - vpn) / 2;
        }
        let untouched = |page: &Vpn| {
            matches!(
                core.pages.extents.place(*page),
                Place::Present | Place::Gone
            )
        };
        end = vpn + (vpn..end).take_while(untouched).count().max(1);
        // Pages the program has already end the run.
        let mut run = [PresentRun::default()];
        match self
            .fds
            .pagemap()
            .present(address_of(vpn + 1), address_of(end), &mut run)
        {
            Ok((1.., _)) => end = (run[0].start() / PAGE_SIZE).clamp(vpn + 1, end),
            Ok((0, _)) => {}
            Err(_) => end = vpn + 1,
        }
        (vpn..end, advice.pages)
    }
}

#[cfg(test)]
mod tests;
