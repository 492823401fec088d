//! Clean pages: with the program, and in the pool too.
//!
//! A page that a random read brings into a region comes write-protected, and its slot
//! stays. Until somebody writes to it, it can leave as it came: nothing is compressed,
//! nothing moved, and many leave with one system call and one interrupt of the other
//! processors, however scattered they are. A page that the kernel pins to write to it (O_DIRECT) is
//! not clean any more, as taking the pin counts as a write.
//!
//! The pool holds such a page besides, so there are few. One that comes back soon after it left is
//! not kept clean but stays. Of the others the oldest leave first, since user space cannot see
//! which were touched. A wrong guess costs a load and makes the page stay
//! ([`refault`](crate::policy::refault)). (S3-FIFO, Yang, Zhang,
//! Qiu, Yue, Rashmi, SOSP 2023, has such a small queue before its main one.)
//!
//! # Invariants
//! Under the core lock: a page whose word is `Clean` is in `address_space/clean_queue.rs` with its slot, is
//! not pinned, and, if it is present, is write-protected and equal to what the slot holds.

use crate::address_space::clean_queue::{CLEAN_PART, MOST_CLEAN, OWNED_AT_ONCE};
use crate::address_space::core::Core;
use crate::address_space::extent::Extent;
use crate::address_space::place::Place;
use crate::kernel::discard_all;
use crate::page::{Vpn, address_of, addresses_of, pages_within};
use crate::pager::Access;
use crate::segment::Counter;
use crate::transfer::Transfer;
use crate::transfer::worker::Worker;
use alloc::vec::Vec;
use core::ops::Range;
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::arena::Discarded;
use zfolio_zswap::Slot;

/// Pages that leave with one call.
const TOGETHER: usize = 64;

impl Transfer {
    /// Copies a page that was loaded by itself in as a clean one, if it is to be one;
    /// whether it is. Its slot is not to be freed then.
    pub(crate) fn copy_in_clean(&self, core: &mut Core, worker: &mut Worker) -> bool {
        let (&[vpn], &[slot]) = (&worker.pages[..], &worker.slots[..]) else {
            return false;
        };
        let page = address_of(vpn)..address_of(vpn + 1);
        if core.pages.extents.place(vpn) != Place::Loading(slot) {
            return false;
        }
        if worker.access != Access::Read || !self.keeps_clean() || core.pages.pins.overlaps(&page) {
            return false;
        }
        let stays = |extent: &mut Extent| extent.past(vpn).was_stored_now(core.history.clock());
        if core.pages.extents.get_mut(vpn).is_some_and(stays) {
            return false;
        }
        let from = worker.page.as_ptr() as usize;
        let program = self.fds.program();
        let progress = program.copy_pages_protected(page.start, from, PAGE_SIZE);
        if progress.stopped.is_some() {
            return false;
        }
        self.charge(1);
        worker.slots[0] = Slot::ZERO;
        core.pages.extents.set(vpn, Place::Clean(slot));
        core.pages.clean.push((vpn, slot));
        for _ in 0..OWNED_AT_ONCE {
            if core.pages.clean.len() > self.most_clean() {
                self.make_oldest_dirty(core);
            }
        }
        true
    }

    fn keeps_clean(&self) -> bool {
        self.scope.protects()
    }

    fn most_clean(&self) -> usize {
        (self.resident_pages() / CLEAN_PART).min(MOST_CLEAN)
    }

    /// The oldest is clean no longer.
    fn make_oldest_dirty(&self, core: &mut Core) {
        if let Some((vpn, slot)) = core.pages.clean.take_oldest()
            && core.pages.extents.place(vpn) == Place::Clean(slot)
        {
            self.make_dirty(core, vpn, slot);
        }
    }

    /// A clean page that was written to, or is to be.
    pub(crate) fn make_dirty(&self, core: &mut Core, vpn: Vpn, slot: Slot) {
        core.pages.extents.set(vpn, Place::Present);
        self.zswap.invalidate(&[slot]);
        let _ = self.fds.program().unprotect(address_of(vpn), PAGE_SIZE);
    }

    /// Makes what is clean of `pages` the program's own, which may be written to without
    /// a fault then.
    pub(crate) fn make_dirty_within(&self, core: &mut Core, pages: &Range<Vpn>) {
        let tracked = core.pages.extents.tracked(pages.clone());
        let clean: Vec<_> = tracked.filter_map(clean_slot).collect();
        for (vpn, slot) in clean {
            self.make_dirty(core, vpn, slot);
        }
    }

    /// Before a load: lets clean pages go where reclaim would begin. Whoever serves a fault
    /// does it itself, so that threads which fault at once need no other. Where no more may
    /// be clean they go sooner: else each new one makes an old one stay.
    pub(crate) fn make_room_from_clean(&self, core: &mut Core) {
        let clean = core.pages.clean.len();
        if clean > 0 {
            let marks = self.watermarks();
            let full = clean >= self.most_clean();
            self.drop_clean_at(core, if full { marks.stop } else { marks.start });
        }
    }

    /// For the thread that reclaims: lets clean pages go instead of others; whether it did.
    pub(crate) fn reclaim_clean(&self, mark: usize) -> bool {
        let dropped = self.keeps_clean() && self.drop_clean_at(&mut self.core.lock(), mark);
        if dropped {
            self.wakeups.frames_freed();
        }
        dropped
    }

    /// For a fault that found no frame: lets any clean pages go; whether it did.
    pub(crate) fn make_frames_of_clean(&self) -> bool {
        let dropped = self.keeps_clean() && self.drop_clean(&mut self.core.lock()) > 0;
        if dropped {
            self.wakeups.frames_freed();
        }
        dropped
    }

    /// Lets clean pages go where usage is at `mark` and there are enough that are not
    /// the latest; whether it did.
    fn drop_clean_at(&self, core: &mut Core, mark: usize) -> bool {
        core.pages.clean.len() > self.most_clean() / 2
            && self.usage() >= mark
            && self.drop_clean(core) > 0
    }

    /// Lets the oldest clean pages go; how many.
    fn drop_clean(&self, core: &mut Core) -> usize {
        let mut pages = [(0, Slot::ZERO); TOGETHER];
        let mut count = 0;
        while count < TOGETHER
            && let Some((vpn, slot)) = core.pages.clean.take_oldest()
        {
            if core.pages.extents.place(vpn) == Place::Clean(slot) {
                pages[count] = (vpn, slot);
                count += 1;
            }
        }
        let gone = self.discard_clean(core, &pages[..count]);
        core.pages.clean.put_back(&pages[gone..count]);
        gone
    }

    /// Lets the clean pages of `pages` go.
    pub(crate) fn drop_clean_of(&self, pages: &Range<Vpn>) {
        let mut from = pages.start;
        loop {
            let mut core = self.core.lock();
            let tracked = core.pages.extents.tracked(from..pages.end);
            let some: Vec<_> = tracked.filter_map(clean_slot).take(TOGETHER).collect();
            let Some((last, _)) = some.last() else {
                return;
            };
            from = last + 1;
            self.discard_clean(&mut core, &some);
        }
    }

    /// Discards pages that are clean, [`TOGETHER`] at most, under the lock, so that
    /// whoever touches one waits until its word says where it is. How many, from the front.
    fn discard_clean(&self, core: &mut Core, pages: &[(Vpn, Slot)]) -> usize {
        let mut ranges = [Discarded::default(); TOGETHER];
        for (range, (vpn, _)) in ranges.iter_mut().zip(pages) {
            *range = Discarded {
                start: address_of(*vpn),
                len: PAGE_SIZE,
            };
        }
        let gone = discard_all(&ranges[..pages.len()], true);
        for (vpn, slot) in &pages[..gone] {
            core.pages.extents.set(*vpn, Place::Stored(*slot));
            if let Some(extent) = core.pages.extents.get_mut(*vpn) {
                extent.past(*vpn).store(core.history.clock());
                let loads = extent.group(*vpn).take_loads();
                core.history.neighbours.leave(*vpn, loads);
            }
        }
        core.history.note_stored(gone, self.resident_pages());
        self.uncharge(gone);
        self.count(Counter::PagesOut, gone);
        self.count(Counter::SwpoutClean, gone);
        gone
    }

    /// Checks the invariant of words and queue.
    pub(crate) fn validate_clean(&self, core: &Core) -> Result<(), alloc::string::String> {
        for range in core.pages.registered.iter() {
            let pages = pages_within(range.start, range.end);
            for (vpn, slot) in core.pages.extents.tracked(pages).filter_map(clean_slot) {
                if !core.pages.clean.contains((vpn, slot)) {
                    return Err(alloc::format!("clean page {vpn:#x} is in no queue"));
                }
                if core.pages.pins.overlaps(&addresses_of(&(vpn..vpn + 1))) {
                    return Err(alloc::format!("clean page {vpn:#x} is pinned"));
                }
            }
        }
        Ok(())
    }
}

fn clean_slot((vpn, place): (Vpn, Place)) -> Option<(Vpn, Slot)> {
    match place {
        Place::Clean(slot) => Some((vpn, slot)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
