//! Storing what is in standby: the cold end, a folio at a time.

use crate::extent::{EXTENT_PAGES, group_of};
use crate::manager::{Core, Manager, Worker};
use crate::standby::Run;
use crate::word::Place;
use zfolio_mm::Order;
use zfolio_zswap::{Event, Slot};

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

impl Manager {
    /// Compresses the coldest folio in standby.
    pub(crate) fn store_coldest(&self, worker: &mut Worker) -> Stored {
        let folio = {
            let mut core = self.core.lock();
            if !self.opens(&mut core) {
                return Stored::Later;
            }
            let Some(folio) = claim(&mut core) else {
                return Stored::Nothing;
            };
            self.begin(&core);
            folio
        };
        let order = Order::holding_at_most(folio.pages);
        worker.frames.clear();
        worker
            .frames
            .extend((0..folio.pages).map(|index| folio.at.offset(index)));
        worker.slots.clear();
        worker.slots.resize(folio.pages, Slot::ZERO);
        let result = self.zswap.store_folio(
            &mut worker.context,
            order,
            &worker.frames,
            &mut worker.slots,
        );
        let stored = match result {
            Ok(_) => {
                let pages = self.publish_stored(folio, &mut worker.slots);
                self.zswap.invalidate(&worker.slots);
                Stored::Pages(pages)
            }
            Err(_) => {
                self.put_back(folio);
                Stored::Later
            }
        };
        self.end();
        self.frames_freed();
        stored
    }

    /// Writes the slots into the words and frees the frames. A page that was
    /// wanted back or discarded meanwhile leaves its slot in `slots`; those
    /// published are taken out of it. Returns pages that left standby.
    fn publish_stored(&self, folio: Run, slots: &mut alloc::vec::Vec<Slot>) -> usize {
        let mut core = self.core.lock();
        for (index, slot) in slots.iter_mut().enumerate() {
            if core.extents.place(folio.vpn + index) == Place::Storing(folio.at.offset(index)) {
                core.extents.set(folio.vpn + index, Place::Stored(*slot));
                *slot = Slot::ZERO;
            }
        }
        drop(core);
        // Zero pages have no object: dropping their slot twice is harmless.
        slots.retain(|slot| *slot != Slot::ZERO);
        self.give_stored_frames(folio.at, folio.pages);
        folio.pages
    }

    /// The store failed: back to standby, at the hot end.
    fn put_back(&self, folio: Run) {
        let mut core = self.core.lock();
        let mut kept = 0;
        for index in 0..folio.pages {
            let (vpn, at) = (folio.vpn + index, folio.at.offset(index));
            if core.extents.place(vpn) == Place::Storing(at) {
                core.extents.set(vpn, Place::Standby(at));
                core.standby.pages += 1;
                kept += 1;
            } else {
                self.arena().give_frames(at, 1);
            }
        }
        if kept > 0 {
            core.standby.push(folio);
        }
        drop(core);
        self.zswap.stats().count(Event::ReclaimFailed, 1);
    }
}

/// Takes the coldest pages that form a folio (a power of two, naturally
/// aligned, still all in standby) and marks them as being stored.
fn claim(core: &mut Core) -> Option<Run> {
    loop {
        let mut run = core.standby.pop()?;
        let valid = |core: &Core, run: &Run, index: usize| {
            core.extents.place(run.vpn + index) == Place::Standby(run.at.offset(index))
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
        let aligned = 1 << run.vpn.trailing_zeros().min(EXTENT_PAGES.trailing_zeros());
        let pages = Order::holding_at_most(contiguous.min(aligned)).pages();
        let folio = run.split_front(pages);
        core.standby.unpop(run);
        for index in 0..pages {
            let vpn = folio.vpn + index;
            core.extents
                .set(vpn, Place::Storing(folio.at.offset(index)));
            if let Some(extent) = core.extents.get_mut(vpn) {
                let loads = core::mem::take(&mut extent.loads[group_of(vpn)]);
                core.neighbours.leave(vpn, loads);
            }
        }
        core.standby.pages -= pages;
        return Some(folio);
    }
}
