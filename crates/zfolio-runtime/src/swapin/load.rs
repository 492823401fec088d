//! Swap-in from the pool: decompress into frames, move the frames in.

use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::page::{EXTENT_PAGES, GROUP_PAGES, Vpn, address_of};
use crate::page_fault::Outcome;
use crate::segment::{Counter, FaultKind};
use crate::swapin::plan::Plan;
use crate::transfer::Transfer;
use crate::transfer::move_in::{COPIED_RUN, Placed};
use crate::transfer::worker::Worker;
use alloc::vec::Vec;
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_sys::lock::MutexGuard;
use zfolio_zswap::{LoadError, Slot};

/// Pages of a reader's next load that are asked for, at most.
const FORESEEN: usize = 64;

/// Their slots; zero where there is none.
pub(crate) type Next = [Slot; FORESEEN];

impl Transfer {
    /// Brings the stored page `vpn` and what recent faults suggest.
    pub(crate) fn load(
        &self,
        mut core: MutexGuard<'_, Core>,
        worker: &mut Worker,
        vpn: Vpn,
    ) -> Outcome {
        self.make_room_from_clean(&mut core);
        let mut plan = self.plan_load(&mut core, vpn);
        core.pages.extents.stored(&plan.range, &mut worker.pages);
        if plan.step > 1 {
            let pages = &mut worker.pages;
            pages.retain(|page| page.abs_diff(vpn).is_multiple_of(plan.step));
        }
        let wanted = worker.pages.len();
        if self.may_copy_in(&worker.pages) {
            return self.load_by_copy(core, worker, vpn, &plan);
        }
        let together = pages_together(&worker.pages);
        let whole = (wanted == EXTENT_PAGES)
            .then(|| self.huge_frames.take())
            .flatten();
        let Worker {
            pages,
            frames,
            urgent,
            ..
        } = &mut *worker;
        let got = if let Some(at) = whole {
            frames.clear();
            frames.extend((0..EXTENT_PAGES).map(|slot| at.offset(slot)));
            EXTENT_PAGES
        } else {
            self.take_for_fault(wanted, *urgent, frames)
        };
        if got == 0 {
            return Outcome::NeedFrames;
        }
        if got < wanted {
            if together && wanted > 1 {
                self.zswap
                    .count_load_fallback(Order::holding_at_most(wanted));
            }
            keep_near(pages, vpn, got);
            plan.range = pages[0]..pages[got - 1] + 1;
        }
        let next = self.begin_load(core, worker, &plan);
        self.have_on_its_way(&worker.slots, &next);

        let before = worker.context.loaded_from_backing();
        let loaded = self
            .zswap
            .load_batch(&mut worker.context, &worker.slots, &worker.frames);
        if let Err(error) = loaded {
            self.load_failed(worker.pages[error.index], error);
        }
        let read = worker.context.loaded_from_backing() - before;
        let outcome = self.publish_loaded(worker, vpn, &plan, read);
        self.zswap.invalidate(&worker.slots);
        self.return_borrowed_after_fault();
        self.end();
        outcome
    }

    /// Marks the stored pages at hand as being loaded, and lets go of the lock. What is stored
    /// behind them that a reader in order will want next, where there is a backing.
    pub(crate) fn begin_load(
        &self,
        mut core: MutexGuard<'_, Core>,
        worker: &mut Worker,
        plan: &Plan,
    ) -> Next {
        let Worker { pages, slots, .. } = worker;
        slots.clear();
        for page in pages {
            if let Place::Stored(slot) = core.pages.extents.place(*page) {
                core.pages.extents.set(*page, Place::Loading(slot));
                slots.push(slot);
            }
        }
        if plan.window > 0 {
            let passed = core.history.streams.brought(&plan.range, plan.window);
            core.history.note_passed(passed);
        }
        let next = self.stored_behind(&core, plan);
        self.begin(&core);
        next
    }

    fn stored_behind(&self, core: &Core, plan: &Plan) -> Next {
        let mut next = [Slot::ZERO; FORESEEN];
        let is_in_order = plan.sequential && plan.step == 1 && plan.window >= GROUP_PAGES;
        if is_in_order && self.zswap.is_backed() {
            let pages = plan.range.end..plan.range.end + plan.range.len();
            for (page, next) in pages.zip(&mut next) {
                if let Place::Stored(slot) = core.pages.extents.place(page) {
                    *next = slot;
                }
            }
        }
        next
    }

    /// Asks the backing for pages that are loaded now, and for those that will be `next`.
    pub(crate) fn have_on_its_way(&self, slots: &[Slot], next: &Next) {
        if self.zswap.is_backed() {
            let now = &slots[..slots.len().min(FORESEEN)];
            self.zswap.will_load(now, next);
        }
    }

    pub(crate) fn load_failed(&self, vpn: Vpn, error: LoadError) -> ! {
        self.fail(format_args!(
            "the stored page at {:#x} failed its check ({error})",
            address_of(vpn)
        ))
    }

    /// Moves loaded pages in. Slots of pages that are in place (or were
    /// discarded meanwhile) stay in `worker.slots`, to be freed. `read`: pages that came from
    /// the backing.
    fn publish_loaded(&self, worker: &mut Worker, vpn: Vpn, plan: &Plan, read: u64) -> Outcome {
        let mut core = self.core.lock();
        let Worker {
            pages,
            slots,
            frames,
            ..
        } = worker;
        let count = pages.len();
        if !core.is_open() {
            // A child of a raw fork must still find these in the pool; and
            // behind a parked remap they may belong elsewhere by now.
            for (page, slot) in pages.iter().zip(&mut *slots) {
                self.unload(&mut core, *page, slot);
            }
            self.arena().give_scattered(frames);
            slots.retain(|slot| *slot != Slot::ZERO);
            return Outcome::Defer;
        }
        if count == EXTENT_PAGES && self.is_huge(self.address(frames[0])) {
            self.count(Counter::ThpSwpin, 1);
        }
        let mut refused = None;
        let mut came = 0;
        let mut next = 0;
        while next < count {
            // A run of pages nobody discarded meanwhile, in frames that lie together.
            let (first, at) = (pages[next], frames[next]);
            let len = (next..count)
                .take_while(|index| {
                    pages[*index] == first + (index - next)
                        && frames[*index] == at.offset(index - next)
                        && core.pages.extents.place(pages[*index]) == Place::Loading(slots[*index])
                })
                .count();
            if len == 0 {
                // Whoever waits for it waits for this load.
                self.fds.program().wake(address_of(first), PAGE_SIZE);
                self.arena().give_frames(at, 1);
                next += 1;
                continue;
            }
            self.move_or_copy_in(first, at, len, COPIED_RUN, |index, landed| {
                let (page, frame) = (first + index, at.offset(index));
                match landed {
                    Placed::Moved => self.arena().give_holes(frame, 1),
                    Placed::Copied | Placed::AlreadyThere => self.arena().give_frames(frame, 1),
                    Placed::Refused(errno) => {
                        self.arena().give_frames(frame, 1);
                        self.unload(&mut core, page, &mut slots[next + index]);
                        if page == vpn {
                            refused = Some(errno);
                        }
                        return;
                    }
                }
                came += 1;
                core.pages.extents.set(page, Place::Present);
            });
            next += len;
        }
        if came == count && pages_together(pages) {
            let backed = read == count as u64;
            self.zswap.count_load(Order::holding_at_most(count), backed);
        }
        self.account_loaded(&mut core, vpn, plan, pages, came);
        drop(core);
        slots.retain(|slot| *slot != Slot::ZERO);
        refused.map_or(Outcome::Served(kind_of(count)), |errno| {
            self.refused(vpn, errno)
        })
    }

    /// Leaves a page in the pool after all, and lets whoever waits fault anew.
    pub(crate) fn unload(&self, core: &mut Core, vpn: Vpn, slot: &mut Slot) {
        if core.pages.extents.place(vpn) == Place::Loading(*slot) {
            core.pages.extents.set(vpn, Place::Stored(*slot));
            *slot = Slot::ZERO;
        }
        self.fds.program().wake(address_of(vpn), PAGE_SIZE);
    }

    pub(crate) fn account_loaded(
        &self,
        core: &mut Core,
        vpn: Vpn,
        plan: &Plan,
        pages: &[Vpn],
        came: usize,
    ) {
        self.count(Counter::PagesIn, came);
        self.count(Counter::SwapRa, came.saturating_sub(1));
        if let Some(extent) = core.pages.extents.get_mut(vpn) {
            for page in pages.iter().filter(|page| **page != vpn || plan.sequential) {
                extent.past(*page).brought_along();
            }
            if !plan.sequential {
                let group = extent.group(vpn);
                group.note_load(&mut core.history.rush, plan.rush);
                if let Place::Clean(_) = extent.place(vpn % EXTENT_PAGES) {
                    extent.past(vpn).brought_along();
                } else if extent.past(vpn).refault(core.history.clock()) {
                    self.count(Counter::WorkingsetActivate, 1);
                }
                if plan.rush {
                    extent.mark_unasked(pages.iter().filter(|page| **page != vpn));
                }
            }
            extent.mark_ahead(pages.iter().filter(|page| **page != vpn));
        }
        self.note_if_complete(core, vpn);
    }
}

/// Cuts `pages`, which `vpn` is one of, down to `most`: to it and those after it, and
/// where they are too few, as where a reader goes backward, those before it.
fn keep_near(pages: &mut Vec<Vpn>, vpn: Vpn, most: usize) {
    let place = pages.partition_point(|page| *page < vpn);
    let first = place.min(pages.len().saturating_sub(most));
    pages.drain(..first);
    pages.truncate(most);
}

/// Whether pages, in address order, lie together.
pub(crate) fn pages_together(pages: &[Vpn]) -> bool {
    matches!(pages, [first, .., last] if last - first == pages.len() - 1) || pages.len() == 1
}

pub(crate) fn kind_of(pages: usize) -> FaultKind {
    match pages {
        1 => FaultKind::Page,
        EXTENT_PAGES => FaultKind::Thp,
        n if n < GROUP_PAGES => FaultKind::Batch,
        _ => FaultKind::Folio,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_frames_do_for_is_what_lies_next_in_the_direction_of_the_reader() {
        let kept = |vpn, most| {
            let mut pages: Vec<Vpn> = (10..20).collect();
            keep_near(&mut pages, vpn, most);
            [pages[0], pages[pages.len() - 1]]
        };
        assert_eq!(kept(10, 4), [10, 13], "forward");
        assert_eq!(kept(19, 4), [16, 19], "backward");
        assert_eq!(kept(14, 4), [14, 17], "a group");
        assert_eq!(kept(18, 4), [16, 19], "the end of a group");
        assert_eq!(kept(18, 1), [18, 18]);
    }
}
