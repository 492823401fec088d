//! First touches of a region while there is memory: frames from the system,
//! put in place at once.
//!
//! A process's first touches are the kernel's as long as its memory is not
//! registered. A region is registered from the start, so that every frame is
//! counted as it comes, and what the kernel would do is done here: a huge page
//! where 2 MiB are untouched and are being filled in order, else zeros
//! copied in.

use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::page::{EXTENT_PAGES, Vpn, address_of};
use crate::page_fault::Outcome;
use crate::policy::readahead;
use crate::scope::FirstTouches;
use crate::segment::{Counter, FaultKind};
use crate::transfer::Transfer;
use crate::transfer::move_in::Placed;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::{Memory, Order, PAGE_SIZE};
use zfolio_sys::procfs::PresentRun;

/// What pages are copied from.
static ZEROS: [u8; 16 * PAGE_SIZE] = [0; 16 * PAGE_SIZE];

impl Transfer {
    /// Fills `pages`, the first of which faulted, from the system, or 2 MiB at
    /// once; `None` if that is not for this fault, or memory is short.
    pub(crate) fn fill_fresh(
        &self,
        core: &mut Core,
        pages: &Range<Vpn>,
        window: usize,
    ) -> Option<Outcome> {
        let first = self.scope.first_touches()?;
        let vpn = pages.start;
        if self.wants_huge(core, vpn) && self.fill_huge(first, core, vpn) {
            core.history
                .streams
                .brought(&readahead::extent(vpn), EXTENT_PAGES);
            return Some(Outcome::Served(FaultKind::Hole));
        }
        let spare = self.arena().free_frames() > self.watermarks().free_low + pages.len();
        if spare || self.usage() + pages.len() >= self.watermarks().start + self.overdraft() {
            return None;
        }
        core.history.streams.brought(pages, window);
        self.copy_zeros(core, pages)
    }

    fn copy_zeros(&self, core: &mut Core, pages: &Range<Vpn>) -> Option<Outcome> {
        let program = self.fds.program();
        let mut next = pages.start;
        while next < pages.end {
            let part = (pages.end - next).min(ZEROS.len() / PAGE_SIZE);
            let source = ZEROS.as_ptr() as usize;
            let progress = program.copy_pages(address_of(next), source, part * PAGE_SIZE);
            let done = progress.done / PAGE_SIZE;
            self.charge(done);
            for page in next..next + done {
                core.pages.extents.set(page, Place::Present);
            }
            next += done;
            if done < part {
                break;
            }
        }
        self.count(Counter::HolePages, next - pages.start);
        // (The ordinary way knows what to make of a refusal.)
        (next > pages.start).then_some(Outcome::Served(FaultKind::Hole))
    }

    /// Whether the fault begins 2 MiB that nobody has touched.
    fn wants_huge(&self, core: &Core, vpn: Vpn) -> bool {
        let extent = readahead::extent(vpn);
        if vpn != extent.start {
            return false;
        }
        let addresses = address_of(extent.start)..address_of(extent.end);
        core.pages.registered.contains(&addresses)
            && core.pages.extents.tracked(extent).next().is_none()
            && matches!(
                self.fds.pagemap().occupied(
                    addresses.start,
                    addresses.end,
                    &mut [PresentRun::default()]
                ),
                Ok((0, _))
            )
    }

    /// Fills an untouched extent with one huge page: a fresh one while there
    /// is memory, else the one that a store has left.
    fn fill_huge(&self, first: &FirstTouches, core: &mut Core, vpn: Vpn) -> bool {
        let below = self.usage() + EXTENT_PAGES < self.watermarks().start;
        let filled = if below {
            self.fill_huge_from_system(first, vpn)
        } else {
            self.fill_huge_from_arena(core, vpn)
        };
        if filled {
            self.count(Counter::HolePages, EXTENT_PAGES);
        }
        filled
    }

    fn fill_huge_from_system(&self, first: &FirstTouches, vpn: Vpn) -> bool {
        let wait = first.no_huge.load(Ordering::Relaxed);
        if wait > 0 {
            first.no_huge.store(wait - 1, Ordering::Relaxed);
            return false;
        }
        let Some(nursery) = first.nursery.try_lock() else {
            return false;
        };
        let (from, bytes) = (*nursery, Order::HUGE.bytes());
        crate::kernel::make_own(from, bytes);
        let mut moved = 0;
        if self.is_huge(from) {
            let progress = self.fds.moves().out_of_held(address_of(vpn), from, bytes);
            moved = progress.done / PAGE_SIZE;
            self.charge(moved);
        }
        if moved < EXTENT_PAGES {
            // The kernel has none now: not asked again for a while.
            first.no_huge.store(NO_HUGE_TURNS, Ordering::Relaxed);
            let _ = crate::kernel::discard(from, bytes);
        }
        moved > 0
    }

    fn fill_huge_from_arena(&self, core: &mut Core, vpn: Vpn) -> bool {
        if !self.huge_frames.is_ready() {
            return false;
        }
        let Some(at) = self.huge_frames.take() else {
            return false;
        };
        self.arena()
            .with_mut(at, 0, Order::HUGE.bytes(), |bytes| bytes.fill(0));
        let mut first = false;
        self.move_in(vpn, at, EXTENT_PAGES, EXTENT_PAGES, |index, landed| {
            let frame = at.offset(index);
            let placed = matches!(landed, Placed::Moved | Placed::Copied);
            if landed == Placed::Moved {
                self.arena().give_holes(frame, 1);
            } else {
                self.arena().give_frames(frame, 1);
            }
            first |= placed && index == 0;
            if placed {
                core.pages.extents.set(vpn + index, Place::Present);
            }
        });
        first
    }
}

/// Fills without a huge page after the kernel had none.
const NO_HUGE_TURNS: u32 = 64;
