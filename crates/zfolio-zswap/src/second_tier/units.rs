//! Four pages into a unit, and out of it again.
//!
//! Neighbours are pages whose entries lie beside each other in the table, from one whose
//! index is a multiple of four: pages of a folio get theirs one after the other as long as
//! the table grows. All four must be due in the same step, compressed,
//! and looked at by nobody. A unit is made if it takes less room than they do, in bytes by a sixteenth
//! and in slots of the pool at all; and as long as one in [`TRIAL`] shows that it takes less
//! than its pages compressed alone would.
//!
//! A unit with two pages left, or one, is taken apart: the hand comes by its members as by
//! objects, and each gets an object of its own.
//!
//! There are none where there is a backing: what is written back is a page.

use super::context::TierContext;
use super::joiner::{Join, Joiner, Joins, MOST, TRIAL};
use super::step::{LEAST_SAVED, List, Outcome, Recompressed, Settled, Trying};
use crate::arena::Arena;
use crate::entry::held::{Held, Member, Object};
use crate::entry::multi_page::Unit;
use crate::frame_reserve::Reserve;
use crate::load::error::LoadFault;
use crate::load::unpack::{Expected, unpack};
use crate::pool::state::Pool;
use crate::pool::zswap::Zswap;
use crate::spans::Span;
use crate::stats::{add, sub};
use zfolio_compress::checksum::checksum;
use zfolio_compress::dense::{PAGES, UNIT};
use zfolio_compress::{CodecError, CompressUnit};
use zfolio_mm::PAGE_SIZE;

/// Whether entries beginning with the `first` of a step can become a unit.
fn neighbours(list: &List, faults: &[Option<LoadFault>], first: usize) -> bool {
    let Some(Some(head)) = list.get(first) else {
        return false;
    };
    let aligned = |of: &Trying| {
        of.slot
            .index()
            .is_some_and(|at| (at as usize).is_multiple_of(PAGES))
    };
    let next = |(place, (of, fault)): (u32, (&Option<Trying>, &Option<LoadFault>))| {
        of.is_some_and(|of| {
            let beside = of.slot.index() == head.slot.index().map(|at| at + place);
            let alone = of.member.is_none() && !of.drained && !of.object.raw;
            beside && alone && fault.is_none()
        })
    };
    let four = list.iter().zip(faults).skip(first).take(PAGES);
    aligned(head) && four.len() == PAGES && (0..).zip(four).all(next)
}

impl<A: Arena> Zswap<A> {
    /// Makes the page of a member, the one at `at` of `plain`.
    pub(super) fn unpack_member(
        &self,
        context: &mut TierContext,
        trying: &Trying,
        member: Member,
        at: usize,
    ) -> Option<LoadFault> {
        let TierContext {
            codec,
            plain,
            joiner,
            ..
        } = context;
        let Some(joiner) = joiner else {
            return Some(LoadFault::Codec(CodecError::Workspace));
        };
        let mut fault = [None];
        let Span {
            at: from,
            offset,
            len,
        } = trying.span;
        self.arena.with(from, offset, len, |src| {
            let expected = [Expected::of(&trying.object)];
            let mut pages = [&mut *joiner.plain];
            unpack(&mut **codec, &expected, &[src], &mut pages, &mut fault);
        });
        let mut pages = joiner.plain.chunks_exact(PAGE_SIZE);
        let page = pages.nth(member.place.into());
        if let Some(page) = page.filter(|_| fault[0].is_none()) {
            plain[at * PAGE_SIZE..][..PAGE_SIZE].copy_from_slice(page);
        }
        fault[0]
    }

    /// Compresses what can be a unit of what was decompressed; those are `InUnit` then.
    pub(super) fn join(
        &self,
        context: &mut TierContext,
        list: &mut List,
        faults: &[Option<LoadFault>],
    ) -> Joins {
        let mut joins = [None; MOST];
        if !self.joins(context) {
            return joins;
        }
        let (mut first, mut made) = (0, 0);
        while first + PAGES <= list.len() && made < MOST {
            if !neighbours(list, faults, first) {
                first += 1;
                continue;
            }
            let four = &mut list[first..first + PAGES];
            if let Some(join) = self.compress_unit(context, four, first, made) {
                joins[made] = Some(join);
                made += 1;
                four.iter_mut()
                    .flatten()
                    .for_each(|of| of.outcome = Outcome::InUnit);
            }
            first += PAGES;
        }
        joins
    }

    /// Whether units are made at all.
    pub(super) fn joins(&self, context: &TierContext) -> bool {
        context.joiner.as_ref().is_some_and(Joiner::pays)
            && context.learner.makes_units()
            && !self.is_backed()
    }

    /// Compresses four pages into the `nth` part of the buffer; `None` if that is of no use.
    fn compress_unit(
        &self,
        context: &mut TierContext,
        four: &[Option<Trying>],
        first: usize,
        nth: usize,
    ) -> Option<Join> {
        let TierContext {
            codec,
            plain,
            packed,
            joiner,
            ..
        } = context;
        let joiner = joiner.as_mut()?;
        let lens = four.iter().flatten().map(|of| usize::from(of.object.len));
        let before: usize = lens.clone().sum();
        let worth = before - before.div_ceil(LEAST_SAVED);
        let pages = &plain[first * PAGE_SIZE..][..UNIT];
        let buffer = &mut joiner.packed[nth * UNIT..][..worth.min(UNIT)];
        let mut unit = [CompressUnit::new(pages, buffer)];
        let _ = joiner.codec.compress_batch(&mut unit);
        let len = unit[0].result.ok()?;
        let made = unit[0].dst.get(..len)?;
        let version = self.version_of(made);
        let checksum = checksum(made);
        joiner.count = joiner.count.wrapping_add(1);
        let mut useful = u16::try_from(len).is_ok() && self.takes_less(lens, len);
        if joiner.count.is_multiple_of(TRIAL) {
            let mut alone = before;
            let buffers = packed.chunks_exact_mut(PAGE_SIZE).skip(first);
            for ((page, buffer), of) in pages.chunks_exact(PAGE_SIZE).zip(buffers).zip(four) {
                let most = of.map_or(0, |of| usize::from(of.object.len));
                let mut unit = [CompressUnit::new(page, &mut buffer[..most])];
                let _ = codec.compress_batch(&mut unit);
                if let Ok(len) = unit[0].result {
                    self.let_go_version(self.version_of(unit[0].dst));
                    alone -= most.saturating_sub(len);
                }
            }
            joiner.judge(len, alone);
            useful &= len < alone;
        }
        if !useful {
            self.let_go_version(version);
            return None;
        }
        Some(Join {
            first,
            len: u16::try_from(len).ok()?,
            checksum,
            version,
        })
    }

    /// Whether an object takes less of the pool than those of other lengths.
    fn takes_less(&self, than: impl Iterator<Item = usize>, len: usize) -> bool {
        let pool = self.pool.lock();
        let classes = pool.zs.classes();
        let taken = |len| {
            let class = classes.lookup(len).and_then(|at| classes.classes().get(at));
            class.map_or(usize::MAX / 8, |class| class.pages * PAGE_SIZE / class.objs)
        };
        taken(len) < than.map(taken).sum()
    }

    /// Takes the pins of all joins back and has their entries name units.
    pub(super) fn settle_joins(
        &self,
        context: &TierContext,
        list: &List,
        joins: &Joins,
        done: &mut Recompressed,
    ) {
        let Some(joiner) = &context.joiner else {
            return;
        };
        for (join, packed) in joins.iter().flatten().zip(joiner.packed.chunks(UNIT)) {
            let four = &list[join.first..join.first + PAGES];
            if let Some(saved) = self.settle_join(four, join, &packed[..usize::from(join.len)]) {
                done.recompressed += PAGES;
                done.bytes_saved += saved;
                add(&self.stats.units_made, 1);
                let with = if join.version == 0 { 0 } else { PAGES as u64 };
                add(&self.stats.dictionary_pages, with);
            }
        }
    }

    /// Has four entries name a unit, if nobody looks at any of them; the bytes saved.
    fn settle_join(&self, four: &[Option<Trying>], join: &Join, packed: &[u8]) -> Option<usize> {
        let mut frames = Reserve::new();
        let mut pool = self.pool.lock();
        let new = self.place_object(&mut pool, &mut frames, join.len, join.checksum, false);
        let four = || four.iter().flatten();
        four().for_each(|of| pool.zs.unpin(of.object.handle));
        // (Since they were pinned their slots have not been anybody else's.)
        let ours = four()
            .all(|of| !pool.entries.is_doomed(of.slot) && !pool.zs.is_pinned(of.object.handle));
        let new = match new {
            Some(Held::Object(new)) => Some(Object {
                version: join.version,
                ..new
            }),
            _ => None,
        };
        let made = new.filter(|_| ours).and_then(|object| {
            let head = four().next()?;
            let unit = Unit {
                object,
                base: head.slot.index()?,
                live: (1 << PAGES) - 1,
            };
            Some((pool.units.insert(unit)?, object))
        });
        let saved = match made {
            Some((id, object)) => {
                let at = pool.zs.location(object.handle);
                self.arena
                    .with_mut(at.at, at.offset, packed.len(), |target| {
                        target.copy_from_slice(packed);
                    });
                self.keep_version(object.version);
                for (place, of) in (0..).zip(four()) {
                    // (It is there and has no pin.)
                    let _ = pool.zs.free(of.object.handle, &self.arena, &mut frames);
                    self.release_version(of.object.version);
                    let member = Held::Member(Member { unit: id, place });
                    pool.entries.replace(of.slot, member);
                    pool.entries.set_tried(of.slot);
                }
                Some(self.note_joined(&mut pool, four(), &object))
            }
            None => {
                for of in four() {
                    if pool.entries.is_doomed(of.slot) {
                        self.free_object(&mut pool, of.slot, &of.object, &mut frames);
                    }
                }
                if let Some(new) = new {
                    // Just made, nobody else knows it: this cannot fail.
                    let _ = pool.zs.free(new.handle, &self.arena, &mut frames);
                }
                self.let_go_version(join.version);
                None
            }
        };
        self.note_pool(&pool);
        drop(pool);
        self.give_back(frames);
        saved
    }

    /// The gauges, when four objects have become one; the bytes saved.
    fn note_joined<'a>(
        &self,
        pool: &mut Pool,
        four: impl Iterator<Item = &'a Trying>,
        unit: &Object,
    ) -> usize {
        let before: u64 = four.map(|of| u64::from(of.object.len)).sum();
        let saved = before.saturating_sub(unit.len.into());
        pool.charge.shorten_entry(saved, 0);
        sub(&self.stats.compressed_bytes, saved);
        add(&self.stats.units, 1);
        add(&self.stats.unit_pages, PAGES as u64);
        usize::try_from(saved).unwrap_or(usize::MAX)
    }

    /// Takes the pin of a unit back and gives one of its pages an object of its own.
    pub(super) fn settle_split(
        &self,
        trying: &Trying,
        member: Member,
        packed: &[u8],
        done: &mut Recompressed,
    ) -> Settled {
        let mut frames = Reserve::new();
        let mut pool = self.pool.lock();
        let (new, version) = match trying.outcome {
            Outcome::Packed {
                len,
                checksum,
                version,
            } => {
                let new = self.place_object(&mut pool, &mut frames, len, checksum, false);
                (new, version)
            }
            _ => (None, 0),
        };
        // As long as the unit is pinned its name is not another's: whoever names it, and
        // this place of it, is the page that was looked at.
        let there = pool.entries.get(trying.slot) == Some(Held::Member(member));
        let mut freed = 0;
        let settled = match new {
            Some(Held::Object(new)) if there => {
                let new = Object { version, ..new };
                let (at, len) = (pool.zs.location(new.handle), usize::from(new.len));
                self.arena.with_mut(at.at, at.offset, len, |target| {
                    target.copy_from_slice(&packed[..len]);
                });
                pool.entries.replace(trying.slot, Held::Object(new));
                pool.entries.set_tried(trying.slot);
                self.keep_version(version);
                pool.charge.lengthen_entry(new.len.into());
                add(&self.stats.compressed_bytes, new.len.into());
                sub(&self.stats.unit_pages, 1);
                done.split_lost += len;
                freed += self.leave_unit(&mut pool, member, &mut frames);
                Settled::Split
            }
            new => {
                if let Some(Held::Object(new)) = new {
                    // Just made, nobody else knows it: this cannot fail.
                    let _ = pool.zs.free(new.handle, &self.arena, &mut frames);
                }
                self.let_go_version(version);
                if there && !matches!(trying.outcome, Outcome::Packed { .. }) {
                    pool.entries.set_tried(trying.slot);
                }
                Settled::Kept
            }
        };
        freed += self.unpin_unit(&mut pool, member.unit, &mut frames);
        done.split_saved += freed;
        self.note_pool(&pool);
        drop(pool);
        self.give_back(frames);
        settled
    }
}
