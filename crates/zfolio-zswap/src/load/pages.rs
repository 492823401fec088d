//! Pages out, checked.
//!
//! A load never hands out bytes that failed a check: the object must still
//! name its owner, its bytes must have their checksum, and the codec must make
//! exactly a page of them. The pool keeps the page until it is invalidated, so
//! that a caller publishes first and frees after.

use super::backed::read_alone;
use super::error::{LoadError, LoadFault};
use super::found::{Found, Tally, What};
use super::unpack::{Expected, unpack};
use crate::MAX_BATCH;
use crate::arena::Arena;
use crate::entry::held::{Held, Member, Object};
use crate::entry::multi_page::Unit;
use crate::frame_reserve::Reserve;
use crate::pool::context::WorkContext;
use crate::pool::state::{Door, Pool};
use crate::pool::zswap::Zswap;
use crate::slot::Slot;
use crate::spans::{Span, with_all, with_all_mut};
use crate::stats::add;
use zfolio_compress::fill::fill;
use zfolio_mm::{PAGE_SIZE, Pfn};
use zfolio_sys::cache::prefetch;

impl<A: Arena> Zswap<A> {
    /// Loads one page into the frame at `dst`.
    ///
    /// # Errors
    /// As [`Self::load_batch`].
    pub fn load_page(
        &self,
        context: &mut WorkContext,
        slot: Slot,
        dst: Pfn,
    ) -> Result<(), LoadError> {
        self.load_batch(context, &[slot], &[dst])
    }

    /// Loads the pages of `slots` into the frames at `dst`, which the caller
    /// holds, all of them different. Frees nothing: that is
    /// [`Self::invalidate`], once the pages are published.
    ///
    /// # Errors
    /// The first page that failed. Frames of failed pages are zeroed, the
    /// others hold their pages; [`Self::load_page`] tells them apart.
    ///
    /// # Panics
    /// When `slots` and `dst` differ in length.
    pub fn load_batch(
        &self,
        context: &mut WorkContext,
        slots: &[Slot],
        dst: &[Pfn],
    ) -> Result<(), LoadError> {
        assert_eq!(slots.len(), dst.len(), "a frame for each slot");
        let mut tally = Tally::default();
        let most = context.load_batch();
        let chunks = slots.chunks(most).zip(dst.chunks(most));
        for (chunk, (slots, dst)) in chunks.enumerate() {
            let mut found = [Found::ZERO; MAX_BATCH];
            let found = &mut found[..slots.len()];
            let door = self.find(slots, found);
            self.load_found(context, found, dst);
            if let Some(door) = &door {
                self.load_backed(context, door, slots, found, dst);
            }
            let far_from = far_from(door.as_ref());
            self.release(slots, found);
            tally.add_far(found, far_from);
            tally.add(chunk * most, slots, found);
        }
        self.finish(context, &tally)
    }

    /// Loads pages, then frees them: [`Self::load_batch`] and, when all went
    /// well, [`Self::invalidate`].
    ///
    /// # Errors
    /// As [`Self::load_batch`]; the pool keeps every page then.
    ///
    /// # Panics
    /// As [`Self::load_batch`].
    pub fn load_exclusive(
        &self,
        context: &mut WorkContext,
        slots: &[Slot],
        dst: &[Pfn],
    ) -> Result<(), LoadError> {
        self.load_batch(context, slots, dst)?;
        self.invalidate(slots);
        Ok(())
    }

    /// Loads one page into a buffer of a page.
    ///
    /// # Errors
    /// As [`Self::load_batch`].
    ///
    /// # Panics
    /// When `dst` is not a page long.
    pub fn load_into(
        &self,
        context: &mut WorkContext,
        slot: Slot,
        dst: &mut [u8],
    ) -> Result<(), LoadError> {
        assert_eq!(dst.len(), PAGE_SIZE, "a page to load into");
        let mut found = [Found::ZERO];
        let door = self.find(&[slot], &mut found);
        let far_from = far_from(door.as_ref());
        match found[0].what {
            What::Nothing => dst.fill(0),
            What::Same(word) => fill(dst, word),
            What::Object(object, span) => {
                let mut fault = [None];
                self.arena.with(span.at, span.offset, span.len, |src| {
                    let expected = [Expected::of(&object)];
                    unpack(
                        &mut *context.codec,
                        &expected,
                        &[src],
                        &mut [dst],
                        &mut fault,
                    );
                });
                found[0].fault = fault[0];
            }
            What::Unit(object, span, member) => {
                let fault = self.unpack_unit(context, &object, span);
                match place_of(&context.unit, member) {
                    Some(page) if fault.is_none() => dst.copy_from_slice(page),
                    _ => dst.fill(0),
                }
                found[0].fault = fault;
            }
            What::Backed(record, nonce) => {
                found[0].fault = match door {
                    Some(door) => read_alone(context, &door, slot, &record, nonce, dst),
                    None => Some(LoadFault::Lost),
                };
                if found[0].fault.is_some() {
                    dst.fill(0);
                }
            }
        }
        self.release(&[slot], &found);
        let mut tally = Tally::default();
        tally.add_far(&found, far_from);
        tally.add(0, &[slot], &found);
        self.finish(context, &tally)
    }

    /// Looks slots up and pins their objects, in one round of the pool lock.
    /// Where any is in the backing: the way to it.
    fn find(&self, slots: &[Slot], found: &mut [Found]) -> Option<Door> {
        if slots.iter().all(|slot| *slot == Slot::ZERO) {
            // As `found` already says.
            return None;
        }
        let mut door = None;
        let mut guard = self.pool.lock();
        let pool = &mut *guard;
        for (slot, found) in slots.iter().zip(found) {
            if *slot == Slot::ZERO {
                continue;
            }
            *found = match pool.entries.get(*slot) {
                None => Found::bad(LoadFault::NoEntry),
                Some(Held::Same(word)) => Found {
                    what: What::Same(word),
                    fault: None,
                },
                Some(Held::Object(object)) => match self.hold(pool, &object) {
                    Some(span) => Found {
                        what: What::Object(object, span),
                        fault: None,
                    },
                    None => Found::bad(LoadFault::Owner),
                },
                Some(Held::Member(member)) => match pool.units.get(member.unit) {
                    Some(unit) => self.find_unit(pool, unit, member),
                    None => Found::bad(LoadFault::Owner),
                },
                Some(Held::Backed(record)) => match &mut pool.behind {
                    Some(behind) => {
                        behind.logs.pin(record.at);
                        self.hold_version(record.version);
                        door.get_or_insert_with(|| behind.door.clone());
                        pool.shrinker.note_swapin();
                        Found {
                            what: What::Backed(record, behind.logs.nonce(record.at)),
                            fault: None,
                        }
                    }
                    None => Found::bad(LoadFault::Lost),
                },
                Some(Held::Lost) => Found::bad(LoadFault::Lost),
            };
        }
        door
    }

    fn find_unit(&self, pool: &mut Pool, unit: Unit, member: Member) -> Found {
        match self.hold(pool, &unit.object) {
            Some(span) => Found {
                what: What::Unit(unit.object, span, member),
                fault: None,
            },
            None => Found::bad(LoadFault::Owner),
        }
    }

    /// Pins an object that names its owner, and says where it is. All of its bytes are
    /// on their way to the processor by then: they are cold, and checked next.
    fn hold(&self, pool: &mut Pool, object: &Object) -> Option<Span> {
        let at = pool.zs.try_location(object.handle)?;
        let span = Span {
            at: at.at,
            offset: at.offset,
            len: usize::from(object.len),
        };
        self.arena.with(span.at, span.offset, span.len, prefetch);
        if !pool.zs.check_owner(object.handle, &self.arena) {
            return None;
        }
        pool.zs.pin(object.handle);
        Some(span)
    }

    /// Makes all pages of a unit in the context, without the lock.
    pub(crate) fn unpack_unit(
        &self,
        context: &mut WorkContext,
        object: &Object,
        span: Span,
    ) -> Option<LoadFault> {
        let mut fault = [None];
        self.arena.with(span.at, span.offset, span.len, |src| {
            let WorkContext { codec, unit, .. } = context;
            let expected = [Expected::of(object)];
            unpack(
                &mut **codec,
                &expected,
                &[src],
                &mut [&mut **unit],
                &mut fault,
            );
        });
        fault[0]
    }

    /// Brings pages of units into frames; a unit of which several are wanted, one after
    /// the other, is decompressed once.
    fn load_units(&self, context: &mut WorkContext, found: &mut [Found], dst: &[Pfn]) {
        let mut last = None;
        for (found, at) in found.iter_mut().zip(dst) {
            let What::Unit(object, span, member) = found.what else {
                continue;
            };
            // (It is pinned by each of them: the same name is the same unit.)
            if last != Some((member.unit, None)) {
                last = Some((member.unit, self.unpack_unit(context, &object, span)));
            }
            found.fault = last.and_then(|(_, fault)| fault);
            let page = place_of(&context.unit, member);
            self.arena
                .with_mut(*at, 0, PAGE_SIZE, |target| match (page, found.fault) {
                    (Some(page), None) => target.copy_from_slice(page),
                    _ => target.fill(0),
                });
        }
    }

    /// Brings what was found into frames, without the lock.
    fn load_found(&self, context: &mut WorkContext, found: &mut [Found], dst: &[Pfn]) {
        self.load_units(context, found, dst);
        let mut expected = [Expected::default(); MAX_BATCH];
        let mut sources = [Span::page(Pfn(0)); MAX_BATCH];
        let mut frames = [Span::page(Pfn(0)); MAX_BATCH];
        // Which page each object is.
        let mut which = [0; MAX_BATCH];
        let mut count = 0;
        for (index, (found, at)) in found.iter().zip(dst).enumerate() {
            let word = match found.what {
                What::Nothing => 0,
                What::Same(word) => word,
                What::Object(object, span) => {
                    expected[count] = Expected::of(&object);
                    sources[count] = span;
                    frames[count].at = *at;
                    which[count] = index;
                    count += 1;
                    continue;
                }
                What::Unit(..) | What::Backed(..) => continue,
            };
            self.arena
                .with_mut(*at, 0, PAGE_SIZE, |page| fill(page, word));
        }
        if count == 0 {
            return;
        }
        let mut faults = [None; MAX_BATCH];
        with_all(&self.arena, &sources[..count], &mut |sources| {
            with_all_mut(&self.arena, &frames[..count], &mut |frames| {
                unpack(&mut *context.codec, &expected, sources, frames, &mut faults);
            });
        });
        for (index, fault) in which[..count].iter().zip(faults) {
            found[*index].fault = fault;
        }
    }

    /// Takes the pins of [`Self::find`] back.
    fn release(&self, slots: &[Slot], found: &[Found]) {
        let mut pinned = slots
            .iter()
            .zip(found)
            .filter_map(|(slot, found)| match found.what {
                What::Object(object, _) => Some((*slot, object)),
                What::Nothing | What::Same(_) | What::Unit(..) | What::Backed(..) => None,
            })
            .peekable();
        if pinned.peek().is_some() {
            self.unpin(pinned, false);
        }
        let mut units = found
            .iter()
            .filter_map(|found| match found.what {
                What::Unit(_, _, member) => Some(member.unit),
                _ => None,
            })
            .peekable();
        if units.peek().is_some() {
            let mut frames = Reserve::new();
            let mut pool = self.pool.lock();
            units.for_each(|unit| {
                self.unpin_unit(&mut pool, unit, &mut frames);
            });
            self.note_pool(&pool);
            drop(pool);
            self.give_back(frames);
        }
        let mut backed = found
            .iter()
            .filter_map(|found| match found.what {
                What::Backed(record, _) => Some(record),
                What::Nothing | What::Same(_) | What::Object(..) | What::Unit(..) => None,
            })
            .peekable();
        if backed.peek().is_some()
            && let Some(behind) = &mut self.pool.lock().behind
        {
            backed.for_each(|record| {
                behind.logs.unpin(record.at);
                self.let_go_version(record.version);
            });
            self.note_backing(behind);
        }
    }

    /// Counts a call and gives its result.
    fn finish(&self, context: &mut WorkContext, tally: &Tally) -> Result<(), LoadError> {
        context.backed += tally.backed;
        add(&self.stats.swpin_zero, tally.zero);
        add(&self.stats.zswpin, tally.loaded);
        add(&self.stats.pswpin, tally.backed);
        add(&self.stats.pswpin_store, tally.far);
        add(&self.stats.decompress_fail, tally.failed);
        add(&self.stats.backing_read_fail, tally.unread);
        tally.first.map_or(Ok(()), Err)
    }
}

/// Where in the backing what is far begins.
fn far_from(door: Option<&Door>) -> u64 {
    door.map_or(u64::MAX, |door| door.backing.far_from())
}

/// A page of a unit that was decompressed.
fn place_of(unit: &[u8], member: Member) -> Option<&[u8]> {
    unit.chunks_exact(PAGE_SIZE).nth(usize::from(member.place))
}
