//! Entries go, and with them objects, units and records.

use crate::arena::Arena;
use crate::entry::held::{Held, Member, Object};
use crate::frame_reserve::{ROUND, Reserve};
use crate::pool::state::Pool;
use crate::pool::zswap::Zswap;
use crate::slot::Slot;
use crate::stats::sub;
use zfolio_mm::PAGE_SIZE;
use zfolio_zsmalloc::ZsError;

impl<A: Arena> Zswap<A> {
    /// Drops the pages of `slots`; returns how many entries that freed.
    ///
    /// Zero pages and slots that name nothing are passed over. A page that
    /// another thread is loading is dropped for everybody else at once, its
    /// memory follows when that load is done.
    pub fn invalidate(&self, slots: &[Slot]) -> usize {
        slots
            .chunks(ROUND)
            .map(|round| self.invalidate_round(round))
            .sum()
    }

    fn invalidate_round(&self, slots: &[Slot]) -> usize {
        if slots.iter().all(|slot| *slot == Slot::ZERO) {
            return 0;
        }
        let mut frames = Reserve::new();
        let mut pool = self.pool.lock();
        let mut dropped = 0;
        for &slot in slots {
            match pool.entries.get(slot) {
                None => continue,
                Some(Held::Same(_) | Held::Backed(_) | Held::Lost) => {
                    self.remove_entry(&mut pool, slot);
                }
                Some(Held::Object(object)) => {
                    self.free_object(&mut pool, slot, &object, &mut frames);
                }
                Some(Held::Member(member)) => {
                    self.remove_entry(&mut pool, slot);
                    self.leave_unit(&mut pool, member, &mut frames);
                }
            }
            dropped += 1;
        }
        self.note_pool(&pool);
        drop(pool);
        self.give_back(frames);
        dropped
    }

    /// Takes the pins of a load back, and frees what was invalidated meanwhile.
    /// At most [`ROUND`] objects. `new`: they were just stored.
    pub(crate) fn unpin(&self, pinned: impl Iterator<Item = (Slot, Object)>, new: bool) {
        let mut frames = Reserve::new();
        let mut pool = self.pool.lock();
        for (slot, object) in pinned {
            pool.zs.unpin(object.handle);
            if pool.entries.is_doomed(slot) {
                self.free_object(&mut pool, slot, &object, &mut frames);
            } else if new && pool.behind.is_some() {
                pool.entries.set_referenced(slot);
                pool.lru.push_newest(slot);
            }
        }
        self.note_pool(&pool);
        drop(pool);
        self.give_back(frames);
    }

    /// Frees an entry with its object, or dooms it while somebody looks at the
    /// object.
    pub(crate) fn free_object(
        &self,
        pool: &mut Pool,
        slot: Slot,
        object: &Object,
        frames: &mut Reserve,
    ) {
        match pool.zs.free(object.handle, &self.arena, frames) {
            Err(ZsError::Pinned) => pool.entries.doom(slot),
            // Any other error says that there is no object: nothing to free.
            Ok(()) | Err(_) => self.remove_entry(pool, slot),
        }
    }

    /// Frees an entry and takes it out of the gauges and the account.
    fn remove_entry(&self, pool: &mut Pool, slot: Slot) {
        let page = PAGE_SIZE as u64;
        match pool.entries.remove(slot) {
            None => return,
            Some(Held::Lost) => {}
            Some(Held::Same(_)) => {
                sub(&self.stats.same_filled_pages, 1);
                sub(&self.stats.stored_pages, 1);
                pool.charge.uncharge_entry(0, false, page);
            }
            Some(Held::Member(_)) => {
                sub(&self.stats.unit_pages, 1);
                sub(&self.stats.stored_pages, 1);
                pool.charge.uncharge_entry(0, false, page);
            }
            Some(Held::Object(object)) => {
                pool.lru.remove(slot);
                self.leave_pool(pool, &object);
                self.release_version(object.version);
            }
            Some(Held::Backed(record)) => {
                if let Some(behind) = &mut pool.behind {
                    behind.logs.drop(record.at);
                    let is_far = behind.logs.is_far(record.at);
                    sub(&self.stats.backing_store_pages, u64::from(is_far));
                    self.note_backing(behind);
                }
                sub(&self.stats.backing_pages, 1);
                self.release_version(record.version);
            }
        }
        pool.charge.uncharge_out(page);
    }

    /// Takes a page out of its unit, which goes with the last.
    /// Returns the bytes that frees.
    pub(crate) fn leave_unit(
        &self,
        pool: &mut Pool,
        member: Member,
        frames: &mut Reserve,
    ) -> usize {
        match pool.units.leave(member) {
            Some(left) if left.live == 0 => self.bury_unit(pool, member.unit, frames),
            Some(left) if left.is_thin() => {
                left.slots().for_each(|slot| pool.entries.take_tried(slot));
                0
            }
            Some(_) | None => 0,
        }
    }

    /// Takes a pin of a unit back; returns the bytes that frees.
    pub(crate) fn unpin_unit(&self, pool: &mut Pool, id: u32, frames: &mut Reserve) -> usize {
        pool.units.get(id).map_or(0, |unit| {
            pool.zs.unpin(unit.object.handle);
            self.bury_unit(pool, id, frames)
        })
    }

    /// Frees a unit that has no page, unless somebody looks at it.
    fn bury_unit(&self, pool: &mut Pool, id: u32, frames: &mut Reserve) -> usize {
        let Some(unit) = pool.units.get(id).filter(|unit| unit.live == 0) else {
            return 0;
        };
        let freed = pool.zs.free(unit.object.handle, &self.arena, frames);
        if matches!(freed, Err(ZsError::Pinned)) {
            return 0;
        }
        pool.units.remove(id);
        let len = u64::from(unit.object.len);
        pool.charge.shorten_entry(len, 0);
        sub(&self.stats.compressed_bytes, len);
        sub(&self.stats.units, 1);
        self.release_version(unit.object.version);
        unit.object.len.into()
    }

    /// Takes an object that is in the pool no more out of the gauges and the
    /// account; the page is still out.
    pub(crate) fn leave_pool(&self, pool: &mut Pool, object: &Object) {
        let (len, raw) = (u64::from(object.len), object.raw);
        sub(&self.stats.compressed_bytes, len);
        sub(&self.stats.stored_incompressible_pages, u64::from(raw));
        sub(&self.stats.stored_pages, 1);
        let page = PAGE_SIZE as u64;
        pool.charge.uncharge_entry(len, raw, page);
    }
}
