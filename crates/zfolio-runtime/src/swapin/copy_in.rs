//! Swap-in by copies: of a page or two, decompressed beside the arena, and of short runs.
//!
//! A MOVE takes the frame out of the arena's page table, for which every
//! processor that runs a thread of this process is interrupted; for one page that
//! costs more than to copy it. The copy lies in a new frame of the kernel's, so one of ours has to
//! go back to the system for it: it is counted as *borrowed*, and many are returned at once.

use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::page::{Vpn, address_of};
use crate::page_fault::Outcome;
use crate::swapin::load::{kind_of, pages_together};
use crate::swapin::plan::Plan;
use crate::transfer::Transfer;
use crate::transfer::move_in::{COPIED, Placed};
use crate::transfer::worker::{COPIED_APART, Worker};
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_sys::lock::MutexGuard;
use zfolio_zswap::Slot;

impl Transfer {
    /// Whether so many pages are to come by copies: frames of ours can be given
    /// up for them.
    pub(crate) fn may_copy_in(&self, pages: &[Vpn]) -> bool {
        let count = pages.len();
        let together = count > 0 && pages[count - 1] - pages[0] == count - 1;
        let most = if together { COPIED } else { COPIED_APART };
        if count > most {
            return false;
        }
        if self.scope.counts_frames() && self.may_take_of_the_system(count) {
            return true;
        }
        let marks = self.watermarks();
        let left = self.arena().free_frames().saturating_sub(self.borrowed());
        if left < marks.free_low && self.wakeups.control_sleeps() {
            self.wakeups.wake_control();
        }
        left >= marks.free_reserve + count
    }

    /// Brings the pages in `worker.pages`, which are stored.
    pub(crate) fn load_by_copy(
        &self,
        core: MutexGuard<'_, Core>,
        worker: &mut Worker,
        vpn: Vpn,
        plan: &Plan,
    ) -> Outcome {
        let next = self.begin_load(core, worker, plan);
        if worker.slots.len() > 1 {
            self.have_on_its_way(&worker.slots, &next);
        }
        let before = worker.context.loaded_from_backing();
        let Worker {
            context,
            pages,
            slots,
            page: buffer,
            ..
        } = &mut *worker;
        let buffers = Worker::buffer(buffer, pages.len()).chunks_mut(PAGE_SIZE);
        for ((page, slot), bytes) in pages.iter().zip(&*slots).zip(buffers) {
            if let Err(error) = self.zswap.load_into(context, *slot, bytes) {
                self.load_failed(*page, error);
            }
        }
        let read = worker.context.loaded_from_backing() - before;
        let outcome = self.publish_copies(worker, vpn, plan, read);
        self.zswap.invalidate(&worker.slots);
        self.return_borrowed_after_fault();
        self.end();
        outcome
    }

    /// Copies loaded pages in. Slots of those in place (or discarded meanwhile)
    /// stay in `worker.slots`, to be freed. `read`: pages that came from the backing.
    fn publish_copies(&self, worker: &mut Worker, vpn: Vpn, plan: &Plan, read: u64) -> Outcome {
        let mut core = self.core.lock();
        let open = core.is_open();
        let clean = open && !plan.is_sequential() && self.copy_in_clean(&mut core, worker);
        let (mut refused, mut copied) = (None, usize::from(clean));
        let from = worker.page.as_ptr() as usize;
        let (pages, slots) = (&worker.pages, &mut worker.slots);
        let mut next = copied;
        while next < pages.len() {
            let (index, page) = (next, pages[next]);
            next += 1;
            if !open {
                // As where pages are moved: the words must stay true.
                self.unload(&mut core, page, &mut slots[index]);
                continue;
            }
            let loading = |index: usize| {
                core.pages.extents.place(pages[index]) == Place::Loading(slots[index])
            };
            if !loading(index) {
                self.fds.program().wake(address_of(page), PAGE_SIZE);
                continue;
            }
            let follows = |other: &usize| pages[*other] - page == other - index && loading(*other);
            let run = (index..pages.len()).take_while(follows).count();
            let run = self.copy_run_in(page, from + index * PAGE_SIZE, run);
            if run > 0 {
                (page..page + run).for_each(|page| core.pages.extents.set(page, Place::Present));
                copied += run;
                next = index + run;
                continue;
            }
            match self.copy_in(page, from + index * PAGE_SIZE) {
                Placed::Refused(errno) => {
                    self.unload(&mut core, page, &mut slots[index]);
                    if page == vpn {
                        refused = Some(errno);
                    }
                    continue;
                }
                Placed::Copied => copied += 1,
                Placed::Moved | Placed::AlreadyThere => {}
            }
            core.pages.extents.set(page, Place::Present);
        }
        if copied == pages.len() && pages_together(pages) {
            let backed = read == copied as u64;
            self.zswap
                .count_load(Order::holding_at_most(copied), backed);
        }
        if open {
            self.account_loaded(&mut core, vpn, plan, pages, copied);
        }
        drop(core);
        self.borrow_frames(copied);
        worker.slots.retain(|slot| *slot != Slot::ZERO);
        match refused {
            Some(errno) => self.refused(vpn, errno),
            None if !open => Outcome::Defer,
            None => Outcome::Served(kind_of(worker.pages.len())),
        }
    }
}

#[cfg(test)]
mod tests;
