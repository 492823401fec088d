//! A folio in: all of it or nothing.
//!
//! Per batch of pages: find zeros and repeated words, compress the rest, take
//! entries and room for them in one round of the pool lock, then copy without
//! it. The gauges move entry by entry, so that giving up half-way takes back
//! exactly what was added; event counters move once, when the folio is in.

use super::error::{StoreError, StoreReport};
use super::plan::{Page, Plan, lend_pages};
use crate::MAX_BATCH;
use crate::arena::Arena;
use crate::entry::held::{Held, Object};
use crate::frame_reserve::Reserve;
use crate::pool::context::WorkContext;
use crate::pool::state::Pool;
use crate::pool::zswap::Zswap;
use crate::slot::Slot;
use crate::stats::{add, add_order};
use core::sync::atomic::Ordering::Relaxed;
use zfolio_mm::{Order, PAGE_SIZE, Pfn};
use zfolio_zsmalloc::Location;

/// An object that has room but not yet its bytes; pinned.
#[derive(Clone, Copy, Debug)]
struct Placed {
    slot: Slot,
    object: Object,
    at: Location,
}

/// What a batch's steps hand on. Pages without an object have `None`.
type Places = [Option<Placed>; MAX_BATCH];

#[allow(clippy::cast_possible_truncation, reason = "a page is 2^12 bytes")]
const PAGE_LEN: u16 = PAGE_SIZE as u16;

impl<A: Arena> Zswap<A> {
    /// Stores a folio of `order`, whose pages are at `pages` (which need not
    /// be contiguous); `slots` becomes what names them. The pages themselves
    /// are only read and stay the caller's, who must keep others from writing
    /// them.
    ///
    /// # Errors
    /// The whole folio is in the pool, or nothing of it is and `slots` is all
    /// [`Slot::ZERO`].
    ///
    /// # Panics
    /// When `pages` and `slots` are not `order.pages()` long.
    pub fn store_folio(
        &self,
        context: &mut WorkContext,
        order: Order,
        pages: &[Pfn],
        slots: &mut [Slot],
    ) -> Result<StoreReport, StoreError> {
        assert_eq!(pages.len(), order.pages(), "a folio has all its pages");
        let result = self.store_pages(context, pages, slots);
        match result {
            Ok(report) if report.zero_pages < pages.len() => {
                add_order(&self.stats.order_zswpout, order);
            }
            Err(_) if order != Order::PAGE => {
                add_order(&self.stats.order_swpout_fallback, order);
            }
            Ok(_) | Err(_) => {}
        }
        result
    }

    /// As [`Self::store_folio`] for any number of pages, which no counter by
    /// order sees.
    ///
    /// # Errors
    /// As [`Self::store_folio`].
    ///
    /// # Panics
    /// When `pages` and `slots` differ in length.
    pub fn store_pages(
        &self,
        context: &mut WorkContext,
        pages: &[Pfn],
        slots: &mut [Slot],
    ) -> Result<StoreReport, StoreError> {
        let at = |index| Page::At(pages[index]);
        self.store_all(context, pages.len(), &at, slots)
    }

    /// As [`Self::store_pages`] for pages that are anywhere in memory.
    ///
    /// # Errors
    /// As [`Self::store_folio`].
    ///
    /// # Panics
    /// When `pages` and `slots` differ in length, or a page is none.
    pub fn store_bytes(
        &self,
        context: &mut WorkContext,
        pages: &[&[u8]],
        slots: &mut [Slot],
    ) -> Result<StoreReport, StoreError> {
        assert!(pages.iter().all(|page| page.len() == PAGE_SIZE), "pages");
        let at = |index| Page::Bytes(pages[index]);
        self.store_all(context, pages.len(), &at, slots)
    }

    fn store_all<'a>(
        &self,
        context: &mut WorkContext,
        count: usize,
        page: &dyn Fn(usize) -> Page<'a>,
        slots: &mut [Slot],
    ) -> Result<StoreReport, StoreError> {
        assert_eq!(count, slots.len(), "a slot for each page");
        slots.fill(Slot::ZERO);
        let mut report = StoreReport::default();
        let stored = self
            .admit_group(context)
            .and_then(|()| self.store_batches(context, page, slots, &mut report));
        match stored {
            Ok(()) => {
                add(&self.stats.swpout_zero, report.zero_pages as u64);
                add(&self.stats.zswpout, (count - report.zero_pages) as u64);
                Ok(report)
            }
            Err(error) => {
                self.invalidate(slots);
                slots.fill(Slot::ZERO);
                add(
                    match error {
                        // The gate, or the account, has counted.
                        StoreError::PoolFull | StoreError::GroupFull | StoreError::SwapFull => {
                            return Err(error);
                        }
                        StoreError::NoMemory => &self.stats.reject_alloc_fail,
                        StoreError::CompressFailed(_) => &self.stats.reject_compress_fail,
                        StoreError::Poor => &self.stats.reject_compress_poor,
                    },
                    1,
                );
                Err(error)
            }
        }
    }

    fn store_batches<'a>(
        &self,
        context: &mut WorkContext,
        page: &dyn Fn(usize) -> Page<'a>,
        slots: &mut [Slot],
        report: &mut StoreReport,
    ) -> Result<(), StoreError> {
        let batch = context.batch();
        let mut admitted = false;
        for (turn, slots) in slots.chunks_mut(batch).enumerate() {
            let mut pages = [Page::Bytes(&[]); MAX_BATCH];
            for (index, at) in pages[..slots.len()].iter_mut().enumerate() {
                *at = page(turn * batch + index);
            }
            let pages = &pages[..slots.len()];
            let mut planned = Ok([Plan::Zero; MAX_BATCH]);
            lend_pages(&self.arena, pages, &mut |pages| {
                planned = self.plan(context, pages, &mut admitted);
            });
            let plans = &planned?[..pages.len()];
            let mut places = [None; MAX_BATCH];
            let outcome = self.place(plans, slots, &mut places);
            // Pins are taken back whatever the outcome.
            if outcome.is_ok() {
                self.copy_in(context, pages, &places);
            }
            // Only now can they be written back: their bytes are there.
            self.unpin(
                places
                    .iter()
                    .flatten()
                    .map(|placed| (placed.slot, placed.object)),
                outcome.is_ok(),
            );
            outcome?;
            report.add(plans);
        }
        Ok(())
    }

    /// `zswap.max`, once per folio. At it, something of what there is is written
    /// back first.
    fn admit_group(&self, context: &mut WorkContext) -> Result<(), StoreError> {
        if !self.limited.load(Relaxed) {
            return Ok(());
        }
        if self.pool.lock().charge.may_store() || self.shrink_for_store(context) > 0 {
            return Ok(());
        }
        add(&self.stats.reject_reclaim_fail, 1);
        Err(StoreError::GroupFull)
    }

    /// Takes entries and room for a batch; what was taken before a failure is
    /// in `slots` and `places`.
    fn place(
        &self,
        plans: &[Plan],
        slots: &mut [Slot],
        places: &mut Places,
    ) -> Result<(), StoreError> {
        if plans.iter().all(|plan| matches!(plan, Plan::Zero)) {
            return Ok(());
        }
        let mut frames = Reserve::new();
        let mut pool = self.pool.lock();
        let mut outcome = Ok(());
        for ((plan, slot), place) in plans.iter().zip(slots).zip(places) {
            let held = match *plan {
                Plan::Zero => continue,
                Plan::Same(word) => Some(Held::Same(word)),
                Plan::Packed { len, checksum } => {
                    self.place_object(&mut pool, &mut frames, len, checksum, false)
                }
                Plan::Raw { checksum } => {
                    self.place_object(&mut pool, &mut frames, PAGE_LEN, checksum, true)
                }
            };
            let made = held
                .ok_or(StoreError::NoMemory)
                .and_then(|held| self.insert_entry(&mut pool, &mut frames, held));
            match made {
                Ok(made) => *slot = made,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            if let Some(Held::Object(object)) = held {
                pool.zs.pin(object.handle);
                *place = Some(Placed {
                    slot: *slot,
                    object,
                    at: pool.zs.location(object.handle),
                });
            }
        }
        self.note_pool(&pool);
        drop(pool);
        self.give_back(frames);
        outcome
    }

    /// An entry for `held`, charged, and the gauges; gives an object back when
    /// there is none to be had.
    fn insert_entry(
        &self,
        pool: &mut Pool,
        frames: &mut Reserve,
        held: Held,
    ) -> Result<Slot, StoreError> {
        let page = PAGE_SIZE as u64;
        let charged = pool.charge.charge_out(page);
        let slot = charged.map_err(|_| StoreError::SwapFull).and_then(|()| {
            let slot = if pool.entries.reserve() {
                pool.entries.insert(held)
            } else {
                None
            };
            slot.ok_or_else(|| {
                pool.charge.uncharge_out(page);
                StoreError::NoMemory
            })
        });
        match (held, slot) {
            (Held::Object(object), Err(_)) => {
                // Just made, nobody else knows it: this cannot fail.
                let _ = pool.zs.free(object.handle, &self.arena, frames);
            }
            (_, Err(_)) | (Held::Member(_) | Held::Backed(_) | Held::Lost, _) => {}
            (Held::Same(_), Ok(_)) => {
                add(&self.stats.stored_pages, 1);
                add(&self.stats.same_filled_pages, 1);
                pool.charge.charge_entry(0, false, page);
            }
            (Held::Object(object), Ok(_)) => {
                let (len, raw) = (u64::from(object.len), object.raw);
                add(&self.stats.stored_pages, 1);
                add(&self.stats.compressed_bytes, len);
                add(&self.stats.stored_incompressible_pages, u64::from(raw));
                add(&self.stats.huge_pages_since, u64::from(raw));
                pool.charge.charge_entry(len, raw, page);
            }
        }
        slot
    }

    /// Copies a batch's bytes to where they belong.
    fn copy_in(&self, context: &WorkContext, pages: &[Page<'_>], places: &Places) {
        let packed = context.buffer.chunks_exact(PAGE_SIZE);
        for ((page, packed), placed) in pages.iter().zip(packed).zip(places) {
            let Some(Placed { object, at, .. }) = placed else {
                continue;
            };
            let len = usize::from(object.len);
            self.arena
                .with_mut(at.at, at.offset, len, |target| match *page {
                    _ if !object.raw => target.copy_from_slice(&packed[..len]),
                    Page::Bytes(bytes) => target.copy_from_slice(bytes),
                    Page::At(page) => self
                        .arena
                        .with(page, 0, len, |bytes| target.copy_from_slice(bytes)),
                });
        }
    }
}
