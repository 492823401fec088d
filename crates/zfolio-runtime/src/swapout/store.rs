//! Storing what is in standby: the cold end, a folio at a time.

use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::address_space::standby::Run;
use crate::page::EXTENT_PAGES;
use crate::swapout::Swap;
use crate::transfer::worker::{BATCH_PAGES, Worker};
use zfolio_mm::Order;
use zfolio_zswap::{Slot, StoreError};

/// [`BATCH_PAGES`] for a process without engines. More at a time keep what else is short of
/// frames waiting: with 32 redis' p99 is half as much again.
const SOFTWARE_BATCH: usize = 4;

/// How a store went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stored {
    /// This many pages left standby; their frames are free (less what the
    /// pool took).
    Pages(usize),
    /// Standby is empty.
    Nothing,
    /// A fork or remap is under way, or the pool refused: try later.
    Later,
}

impl Swap {
    /// Pages to store together.
    pub(crate) fn batch_pages(&self) -> usize {
        if self.engines.is_some() || self.scope.stores_in_batches() {
            BATCH_PAGES
        } else {
            SOFTWARE_BATCH
        }
    }

    /// Compresses the coldest folio in standby, and with it further ones, until there
    /// are `enough` pages.
    pub(crate) fn store_coldest(&self, worker: &mut Worker, enough: usize) -> Stored {
        worker.folios.clear();
        worker.frames.clear();
        let resident = self.resident_pages();
        {
            let mut core = self.core.lock();
            if !self.may_start(&mut core) {
                return Stored::Later;
            }
            while let Some(folio) = claim(&mut core, self.options.folio, resident) {
                worker.folios.push(folio);
                let frames = (0..folio.pages).map(|index| folio.at.offset(index));
                worker.frames.extend(frames);
                if worker.frames.len() >= enough {
                    break;
                }
            }
            if worker.folios.is_empty() {
                return Stored::Nothing;
            }
            self.begin(&core);
        }
        worker.slots.clear();
        worker.slots.resize(worker.frames.len(), Slot::ZERO);
        // (A group at `zswap.max` writes back for it.)
        let stored = match self.during_io(|| self.store_claimed(worker)) {
            Ok(()) => {
                self.publish_stored(&worker.folios, &mut worker.slots);
                self.zswap.invalidate(&worker.slots);
                Stored::Pages(worker.slots.len())
            }
            Err(error) => {
                for folio in &worker.folios {
                    self.put_back(*folio);
                }
                match error {
                    // Not before others give something back: as if there were nothing.
                    StoreError::GroupFull | StoreError::SwapFull => Stored::Nothing,
                    _ => Stored::Later,
                }
            }
        };
        self.end();
        self.wakeups.frames_freed();
        stored
    }

    /// Puts what was claimed into the pool, all of it or nothing.
    fn store_claimed(&self, worker: &mut Worker) -> Result<(), StoreError> {
        let (context, frames) = (&mut worker.context, &worker.frames);
        if let [folio] = worker.folios[..] {
            let order = Order::holding_at_most(folio.pages);
            let result = self
                .zswap
                .store_folio(context, order, frames, &mut worker.slots);
            return result.map(drop);
        }
        let result = self.zswap.store_pages(context, frames, &mut worker.slots);
        let mut slots = &worker.slots[..];
        for folio in &worker.folios {
            let (own, rest) = slots.split_at(folio.pages);
            slots = rest;
            let order = Order::holding_at_most(folio.pages);
            let held = own.iter().any(|slot| *slot != Slot::ZERO);
            match result {
                Ok(_) if held => self.zswap.count_store(order, true),
                Ok(_) => {}
                Err(_) => self.zswap.count_store(order, false),
            }
        }
        result.map(drop)
    }

    /// Writes the slots into the words and frees the frames. A page that was
    /// wanted back or discarded meanwhile leaves its slot in `slots`; those
    /// published become zero there.
    fn publish_stored(&self, folios: &[Run], slots: &mut [Slot]) {
        let mut core = self.core.lock();
        let mut slots = slots.iter_mut();
        for folio in folios {
            for (index, slot) in slots.by_ref().take(folio.pages).enumerate() {
                if core.pages.extents.place(folio.vpn + index)
                    == Place::Storing(folio.at.offset(index))
                {
                    core.pages
                        .extents
                        .set(folio.vpn + index, Place::Stored(*slot));
                    *slot = Slot::ZERO;
                }
            }
        }
        drop(core);
        for folio in folios {
            self.give_stored_frames(folio.at, folio.pages);
        }
    }

    /// The store failed: back to standby, at the hot end.
    fn put_back(&self, folio: Run) {
        let mut core = self.core.lock();
        let mut kept = 0;
        for index in 0..folio.pages {
            let (vpn, at) = (folio.vpn + index, folio.at.offset(index));
            if core.pages.extents.place(vpn) == Place::Storing(at) {
                core.pages.extents.set(vpn, Place::Standby(at));
                core.pages.standby.pages += 1;
                kept += 1;
            } else {
                self.arena().give_frames(at, 1);
            }
        }
        if kept > 0 {
            core.pages.standby.push(folio);
        }
    }
}

/// Takes the coldest pages that form a folio (a power of two, naturally
/// aligned, still all in standby) and marks them as being stored. At most
/// `order`, where they are not of a huge page. `resident`: pages that are not stored.
fn claim(core: &mut Core, order: Order, resident: usize) -> Option<Run> {
    loop {
        let mut run = core.pages.standby.pop()?;
        let valid = |core: &Core, run: &Run, index: usize| {
            core.pages.extents.place(run.vpn + index) == Place::Standby(run.at.offset(index))
        };
        while run.pages > 0 && !valid(core, &run, 0) {
            run.split_front(1);
        }
        if run.pages == 0 {
            continue;
        }
        let contiguous = (1..run.pages)
            .find(|i| !valid(core, &run, *i))
            .unwrap_or(run.pages);
        let huge = core.pages.extents.get(run.vpn).is_some_and(|e| e.huge);
        let most = if huge { EXTENT_PAGES } else { order.pages() };
        let aligned = 1 << run.vpn.trailing_zeros().min(EXTENT_PAGES.trailing_zeros());
        let pages = Order::holding_at_most(contiguous.min(aligned).min(most)).pages();
        let folio = run.split_front(pages);
        core.pages.standby.unpop(run);
        for index in 0..pages {
            let vpn = folio.vpn + index;
            core.pages
                .extents
                .set(vpn, Place::Storing(folio.at.offset(index)));
            if let Some(extent) = core.pages.extents.get_mut(vpn) {
                extent.past(vpn).store(&core.history.clock);
                let loads = core::mem::take(&mut extent.group(vpn).loads);
                core.history.neighbours.leave(vpn, loads);
                if extent.take_unasked(vpn) {
                    core.history.rush.judge(false);
                }
            }
        }
        core.pages.standby.pages -= pages;
        core.history.clock.stored(pages, resident);
        return Some(folio);
    }
}
