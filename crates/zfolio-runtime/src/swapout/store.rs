//! Storing what is in standby: the cold end, a folio at a time.

use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::address_space::standby::StandbyRun;
use crate::page::EXTENT_PAGES;
use crate::segment::GroupEvent;
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
        let engines = self.engines.as_ref();
        if engines.is_some_and(|engines| !engines.are_resting()) || self.scope.stores_in_batches() {
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
        let stored = match self.store_claimed(worker) {
            Ok(()) => {
                self.publish_stored(&worker.folios, &mut worker.slots);
                self.zswap.invalidate(&worker.slots);
                Stored::Pages(worker.slots.len())
            }
            Err(error) => self.store_apart(worker, error),
        };
        self.end();
        self.wakeups.frames_freed();
        stored
    }

    /// Puts what was claimed into the pool, all of it or nothing of it.
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
        // (Where they could not be stored together, each is tried alone, and counted then.)
        for folio in worker.folios.iter().filter(|_| result.is_ok()) {
            let (own, rest) = slots.split_at(folio.pages);
            slots = rest;
            if own.iter().any(|slot| *slot != Slot::ZERO) {
                let order = Order::holding_at_most(folio.pages);
                self.zswap.count_store(order, true);
            }
        }
        result.map(drop)
    }

    /// What could not be stored together, for `error`: folio by folio, and a folio that does
    /// not go whole is split and goes page by page. Each part is published at once, so that
    /// its frames are there for the next. Where a page finds no room the rest is put back.
    fn store_apart(&self, worker: &mut Worker, error: StoreError) -> Stored {
        let (mut failed, mut stored, mut first) = (error, 0, 0);
        let mut fits = true;
        let together = worker.folios.len() > 1;
        for index in 0..worker.folios.len() {
            let folio = worker.folios[index];
            let (begin, mut done) = (first, 0);
            first += folio.pages;
            if fits && together {
                match self.store_part(worker, begin, folio) {
                    Ok(()) => done = folio.pages,
                    Err(error) => failed = error,
                }
            }
            if fits && done == 0 && folio.pages > 1 {
                let mut rest = folio;
                while rest.pages > 0 {
                    let page = StandbyRun { pages: 1, ..rest };
                    if let Err(error) = self.store_part(worker, begin + done, page) {
                        failed = error;
                        break;
                    }
                    done += 1;
                    rest.split_front(1);
                }
                let order = Order::holding_at_most(folio.pages);
                self.zswap.count_split(order, done > 0);
            }
            let mut rest = folio;
            rest.split_front(done);
            if rest.pages > 0 {
                fits = false;
                self.put_back(rest);
            }
            stored += done;
        }
        match failed {
            StoreError::SwapFull => {
                self.count_group_event(GroupEvent::SwapMax);
                self.count_group_event(GroupEvent::SwapFail);
            }
            StoreError::PoolFull => self.count_group_event(GroupEvent::SwapFail),
            _ => {}
        }
        match failed {
            _ if stored > 0 => Stored::Pages(stored),
            // Not before others give something back: as if there were nothing.
            StoreError::GroupFull | StoreError::SwapFull => Stored::Nothing,
            StoreError::PoolFull if !self.zswap.is_backed() => Stored::Nothing,
            _ => Stored::Later,
        }
    }

    /// Stores and publishes `part`, whose pages are those from `first` on of what was claimed.
    fn store_part(
        &self,
        worker: &mut Worker,
        first: usize,
        part: StandbyRun,
    ) -> Result<(), StoreError> {
        let these = first..first + part.pages;
        let (context, order) = (&mut worker.context, Order::holding_at_most(part.pages));
        let (frames, slots) = (&worker.frames[these.clone()], &mut worker.slots[these]);
        self.zswap.store_folio(context, order, frames, slots)?;
        self.publish_stored(&[part], slots);
        self.zswap.invalidate(slots);
        Ok(())
    }

    /// Writes the slots into the words and frees the frames. A page that was
    /// wanted back or discarded meanwhile leaves its slot in `slots`; those
    /// published become zero there.
    fn publish_stored(&self, folios: &[StandbyRun], slots: &mut [Slot]) {
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
    fn put_back(&self, folio: StandbyRun) {
        let mut core = self.core.lock();
        let mut kept = 0;
        for index in 0..folio.pages {
            let (vpn, at) = (folio.vpn + index, folio.at.offset(index));
            if core.pages.extents.place(vpn) == Place::Storing(at) {
                core.pages.extents.set(vpn, Place::Standby(at));
                core.pages.standby.note_standing_by(1);
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
fn claim(core: &mut Core, order: Order, resident: usize) -> Option<StandbyRun> {
    loop {
        let mut run = core.pages.standby.pop()?;
        let valid = |core: &Core, run: &StandbyRun, index: usize| {
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
        let huge = core
            .pages
            .extents
            .get(run.vpn)
            .is_some_and(|extent| extent.is_huge());
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
                extent.past(vpn).store(core.history.clock());
                let loads = extent.group(vpn).take_loads();
                core.history.neighbours.leave(vpn, loads);
                if extent.take_unasked(vpn) {
                    core.history.rush.judge(false);
                }
            }
        }
        core.pages.standby.note_left(pages);
        core.history.note_stored(pages, resident);
        return Some(folio);
    }
}

#[cfg(test)]
mod tests;
