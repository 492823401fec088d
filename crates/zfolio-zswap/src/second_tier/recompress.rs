//! The second tier: what has been in the pool for a while is compressed again,
//! into less room at more time, when nobody waits.
//!
//! On the model of zram's recompression: a hand goes over the table of entries. An
//! object that it finds for the first time it marks idle, and takes it when it
//! comes round again; how far apart the rounds are is the caller's business, and
//! so how old an object is at least. (What is loaded leaves the pool: there is no
//! other sign of use.) Tried once, an object is passed over for good.
//!
//! ```text
//! hand -> pin -> check, decompress -> compress denser -> entry names the new object
//!                                       |  saves too little, or somebody looks at it
//!                                       +-> entry stays as it is
//! ```
//!
//! Nobody waits for any of it: loads pin the old object as ever, and writing back
//! and dropping go the way they go when an object is being loaded. Only who holds
//! the last pin replaces it, as when it is written back.
//!
//! Once there is a dictionary (`dictionaries`) everything is tried once more. Four neighbours
//! become one object where that is denser (`units`).

use super::context::TierContext;
use super::joiner::{Joiner, Joins};
use super::learner::{Learner, Learning};
use super::step::{LEAST_SAVED, List, Outcome, Recompressed, STEP, Settled, Trying};
use crate::arena::Arena;
use crate::entry::held::{Held, Object};
use crate::entry::table::Due;
use crate::frame_reserve::Reserve;
use crate::load::unpack::{Expected, unpack};
use crate::pool::context::buffer_of;
use crate::pool::state::Pool;
use crate::pool::zswap::Zswap;
use crate::slot::Slot;
use crate::spans::{Span, with_all};
use crate::stats::{add, sub};
use zfolio_compress::checksum::checksum;
use zfolio_compress::dense::PAGES;
use zfolio_compress::{CodecError, CompressUnit};
use zfolio_mm::{PAGE_SIZE, Pfn};
use zfolio_sys::lock::MutexGuard;

/// Entries that the hand passes in a step, at most, under the pool lock: some
/// microseconds.
const LOOKS: usize = 1024;
impl<A: Arena> Zswap<A> {
    /// Working memory for [`Self::recompress_step`]; `None` if the compressor has no
    /// denser form.
    ///
    /// # Errors
    /// [`CodecError::Workspace`] when the memory cannot be had.
    pub fn tier_context(&self) -> Result<Option<TierContext>, CodecError> {
        self.tier_context_that(Learning::default())
    }

    /// The same, that learns as is said.
    ///
    /// # Errors
    /// As [`Self::tier_context`].
    pub fn tier_context_that(&self, learns: Learning) -> Result<Option<TierContext>, CodecError> {
        let Some(dense) = self.compressor.dense() else {
            return Ok(None);
        };
        Ok(Some(TierContext {
            codec: dense.context()?,
            plain: buffer_of(STEP * PAGE_SIZE)?,
            packed: buffer_of(STEP * PAGE_SIZE)?,
            joiner: match self.compressor.dense_units() {
                Some(units) if learns.units => Some(Joiner::new(&*units)?),
                Some(_) | None => None,
            },
            learner: Learner::new(learns, self.dictionaries.as_deref()),
        }))
    }

    /// Moves the hand on, and compresses up to `budget` pages ([`STEP`] at most)
    /// again that it passed the round before.
    pub fn recompress_step(&self, context: &mut TierContext, budget: usize) -> Recompressed {
        let mut done = Recompressed::default();
        let mut list = [None; STEP];
        let draining = context.learner.draining();
        let joins = self.joins(context);
        let most = budget.min(STEP);
        self.choose_due((most, joins), draining, &mut list, &mut done);
        if list[0].is_some() {
            let joins = self.repack(context, &mut list);
            self.settle_joins(context, &list, &joins, &mut done);
        }
        let buffers = context.packed.chunks(PAGE_SIZE);
        for (trying, packed) in list.iter().flatten().zip(buffers) {
            let settled = match trying.member {
                _ if trying.outcome == Outcome::InUnit => continue,
                Some(member) => self.settle_split(trying, member, packed, &mut done),
                None => self.settle_repacked(trying, packed),
            };
            match settled {
                Settled::Split => done.split += 1,
                Settled::Replaced(old, new) => {
                    done.bytes_saved += usize::from(old.saturating_sub(new));
                    done.bytes_lost += usize::from(new.saturating_sub(old));
                    if trying.drained {
                        done.drained += 1;
                    } else {
                        done.recompressed += 1;
                    }
                }
                Settled::Poor => done.poor += 1,
                Settled::Kept => {}
            }
        }
        add(&self.stats.recompressed_pages, done.recompressed as u64);
        add(&self.stats.recompress_saved_bytes, done.bytes_saved as u64);
        add(&self.stats.recompress_poor, done.poor as u64);
        add(&self.stats.dictionary_drained_pages, done.drained as u64);
        add(&self.stats.dictionary_drained_bytes, done.bytes_lost as u64);
        add(&self.stats.unit_split_pages, done.split as u64);
        if let Some(joiner) = context.joiner.as_mut().filter(|_| done.ended) {
            joiner.round_ended();
        }
        self.note_learned(&mut context.learner, done.ended);
        done
    }

    /// Pins what is due.
    fn choose_due(
        &self,
        (most, joins): (usize, bool),
        draining: u16,
        list: &mut List,
        done: &mut Recompressed,
    ) {
        let mut guard = self.pool.lock();
        let pool = &mut *guard;
        let mut looks = LOOKS;
        let mut count = 0;
        while count < most {
            // What would be a unit is not cut in two by the end of a step.
            let head = (pool.entries.hand() as usize).is_multiple_of(PAGES);
            if joins && head && count > 0 && count + PAGES > most {
                break;
            }
            let (slot, object, member) = match pool.entries.next_due(&mut looks) {
                Due::Object(slot, object) => (slot, object, None),
                Due::Member(slot, member) => match pool.units.get(member.unit) {
                    Some(unit) if unit.is_thin() => (slot, unit.object, Some(member)),
                    _ => {
                        pool.entries.set_tried(slot);
                        continue;
                    }
                },
                end => {
                    done.ended = end == Due::Ended;
                    break;
                }
            };
            let at = match pool.zs.try_location(object.handle) {
                // Its bytes may not be there yet, or it is about to leave.
                _ if pool.zs.is_pinned(object.handle) => continue,
                Some(at) if pool.zs.check_owner(object.handle, &self.arena) => at,
                _ => {
                    // Overwritten: it stays, and whoever loads it finds out.
                    pool.entries.set_tried(slot);
                    continue;
                }
            };
            pool.zs.pin(object.handle);
            list[count] = Some(Trying {
                slot,
                object,
                member,
                span: Span {
                    at: at.at,
                    offset: at.offset,
                    len: usize::from(object.len),
                },
                drained: member.is_some() || draining & 1 << object.version != 0,
                outcome: Outcome::Bad,
            });
            count += 1;
        }
        done.scanned = LOOKS - looks;
    }

    /// Checks and decompresses what was chosen, and compresses it again, without
    /// the lock.
    fn repack(&self, context: &mut TierContext, list: &mut List) -> Joins {
        let mut faults = [None; STEP];
        for (index, trying) in list.iter().enumerate() {
            if let Some(trying) = trying
                && let Some(member) = trying.member
            {
                faults[index] = self.unpack_member(context, trying, member, index);
            }
        }
        let TierContext { codec, plain, .. } = &mut *context;
        let mut expected = [Expected::default(); STEP];
        let mut spans = [Span::page(Pfn(0)); STEP];
        let mut pages: [&mut [u8]; STEP] = Default::default();
        // Which of the step's each is.
        let mut which = [0; STEP];
        let mut count = 0;
        let buffers = plain.chunks_exact_mut(PAGE_SIZE);
        for (index, (trying, buffer)) in list.iter().flatten().zip(buffers).enumerate() {
            if trying.member.is_none() {
                expected[count] = Expected::of(&trying.object);
                spans[count] = trying.span;
                pages[count] = buffer;
                which[count] = index;
                count += 1;
            }
        }
        let mut found = [None; STEP];
        with_all(&self.arena, &spans[..count], &mut |sources| {
            let (expected, pages) = (&expected[..count], &mut pages[..count]);
            unpack(&mut **codec, expected, sources, pages, &mut found);
        });
        for (fault, index) in found.into_iter().zip(&which[..count]) {
            faults[*index] = fault;
        }
        let joins = self.join(context, list, &faults);
        let TierContext {
            codec,
            plain,
            packed,
            learner,
            ..
        } = context;
        let count = list.iter().flatten().count();
        let mut units: [CompressUnit<'_>; STEP] = core::array::from_fn(|_| CompressUnit::default());
        let pages = plain
            .chunks_exact(PAGE_SIZE)
            .zip(packed.chunks_exact_mut(PAGE_SIZE));
        for ((unit, (page, buffer)), trying) in
            units.iter_mut().zip(pages).zip(list.iter().flatten())
        {
            if trying.outcome == Outcome::InUnit {
                learner.show(page);
                continue;
            }
            let len = usize::from(trying.object.len);
            let worth = match trying.drained {
                true => self.useful,
                false => self.useful.min(len - len.div_ceil(LEAST_SAVED)),
            };
            *unit = CompressUnit::new(page, &mut buffer[..worth]);
        }
        let _ = codec.compress_batch(&mut units[..count]);
        for ((trying, fault), unit) in list.iter_mut().flatten().zip(faults).zip(&units) {
            if trying.outcome == Outcome::InUnit {
                continue;
            }
            let made = unit.result.ok().and_then(|len| unit.dst.get(..len));
            let version = made.map_or(0, |made| self.version_of(made));
            trying.outcome = match (fault, made, unit.result.map(u16::try_from)) {
                (None, Some(made), Ok(Ok(len))) if len > 0 => Outcome::Packed {
                    len,
                    checksum: checksum(made),
                    version,
                },
                (fault, ..) => {
                    self.let_go_version(version);
                    fault.map_or(Outcome::Poor, |_| Outcome::Bad)
                }
            };
            if fault.is_none() {
                learner.show(unit.src);
            }
        }
        joins
    }

    /// Takes the pin back, and has the entry name the new object if that saves room
    /// and nobody looks at the old one.
    fn settle_repacked(&self, trying: &Trying, packed: &[u8]) -> Settled {
        let mut frames = Reserve::new();
        let mut pool = self.pool.lock();
        let new = self.place_denser(&mut pool, &mut frames, trying);
        // Since it was pinned the slot has not been anybody else's, nor has the entry
        // named anything but this object.
        let Trying { slot, object, .. } = *trying;
        pool.zs.unpin(object.handle);
        let settled = if pool.entries.is_doomed(slot) {
            self.free_object(&mut pool, slot, &object, &mut frames);
            Err(Settled::Kept)
        } else {
            new.and_then(|new| {
                let freed = pool.zs.free(object.handle, &self.arena, &mut frames);
                freed.map_err(|_| Settled::Kept).map(|()| new)
            })
        };
        let settled = match (settled, new) {
            (Ok(new), _) => {
                let at = pool.zs.location(new.handle);
                let len = usize::from(new.len);
                self.arena.with_mut(at.at, at.offset, len, |target| {
                    target.copy_from_slice(&packed[..len]);
                });
                self.name_instead(&mut pool, slot, &object, new);
                Settled::Replaced(object.len, new.len)
            }
            (Err(why), new) => {
                if let Outcome::Packed { version, .. } = trying.outcome {
                    self.let_go_version(version);
                }
                if let Ok(new) = new {
                    // Just made, nobody else knows it: this cannot fail.
                    let _ = pool.zs.free(new.handle, &self.arena, &mut frames);
                }
                why
            }
        };
        self.note_pool(&pool);
        drop(pool);
        self.give_back(frames);
        settled
    }
}

impl<A: Arena> Zswap<A> {
    /// Room for what was made of an object, if that is shorter by enough and of a
    /// smaller class. May drop the lock while frames are fetched.
    fn place_denser(
        &self,
        pool: &mut MutexGuard<'_, Pool>,
        frames: &mut Reserve,
        trying: &Trying,
    ) -> Result<Object, Settled> {
        let classes = pool.zs.classes();
        let old = classes.lookup(usize::from(trying.object.len));
        match trying.outcome {
            Outcome::Packed {
                len,
                checksum,
                version,
            } if trying.drained || classes.lookup(usize::from(len)) < old => {
                match self.place_object(pool, frames, len, checksum, false) {
                    Some(Held::Object(new)) => Ok(Object { version, ..new }),
                    _ => Err(Settled::Kept),
                }
            }
            Outcome::Packed { .. } | Outcome::Poor => {
                pool.entries.set_tried(trying.slot);
                Err(Settled::Poor)
            }
            Outcome::Bad | Outcome::InUnit => {
                pool.entries.set_tried(trying.slot);
                Err(Settled::Kept)
            }
        }
    }

    /// Has an entry name another object, and the gauges say so.
    fn name_instead(&self, pool: &mut Pool, slot: Slot, old: &Object, new: Object) {
        let referenced = pool.entries.take_referenced(slot);
        pool.entries.replace(slot, Held::Object(new));
        pool.entries.set_tried(slot);
        if referenced {
            pool.entries.set_referenced(slot);
        }
        self.keep_version(new.version);
        add(&self.stats.dictionary_pages, u64::from(new.version != 0));
        self.release_version(old.version);
        let saved = u64::from(old.len.saturating_sub(new.len));
        let lost = u64::from(new.len.saturating_sub(old.len));
        let incompressible = if old.raw { PAGE_SIZE as u64 } else { 0 };
        pool.charge.shorten_entry(saved, incompressible);
        pool.charge.lengthen_entry(lost);
        sub(&self.stats.compressed_bytes, saved);
        add(&self.stats.compressed_bytes, lost);
        sub(&self.stats.stored_incompressible_pages, u64::from(old.raw));
    }
}
