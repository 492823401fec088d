//! Writing back: what has been in the pool for longest goes to the backing,
//! as it is (compressed) and sealed.
//!
//! A *go* takes up to 32 entries from the old end of the list. One that is
//! referenced loses that and goes to the new end: its second chance. The others
//! are pinned; their bytes are checked, sealed into one run, and written, all
//! without the lock; then the entries name records instead of objects. Whatever
//! happens on the way, an entry keeps its object until its record is written.
//!
//! A backing that writes ahead has its writes begun, and their end is looked for later
//! (`begun`): entries keep their objects until then, and nobody waits.
//!
//! ```text
//! list -> pin -> check, seal -> write -> entry names the record, object freed
//!   ^                             |
//!   +------- it failed -----------+
//! ```
//!
//! Two things ask for it, as in the kernel: a pool at its limit or at `zswap.max`,
//! until it is at the acceptance threshold; and the *shrinker*, when memory is
//! short, for a part of what there is: in the proportion in which the pool has
//! compressed it, and less what was lately read back.

use crate::arena::Arena;
use crate::backing::clusters::{GO, GRANULE, Position, granules};
use crate::backing::encryption::{TAG, seal};
use crate::backing::kinds::CLUSTER;
use crate::entry::held::{Held, Record};
use crate::frame_reserve::Reserve;
use crate::pool::context::WorkContext;
use crate::pool::state::{Door, Going, List, Pool};
use crate::pool::zswap::Zswap;
use crate::slot::Slot;
use crate::spans::Span;
use crate::stats::add;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use zfolio_compress::checksum::checksum;
use zfolio_sys::syscall::Errno;

mod begun;

/// What a go, or several, came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shrunk {
    /// Entries looked at.
    pub scanned: usize,
    /// Of those, written back.
    pub written: usize,
    /// The backing refused a write.
    pub errno: Option<Errno>,
    /// The backing has no room left.
    pub full: bool,
    /// No more writes can be begun until some of those under way have ended.
    pub busy: bool,
}

impl Shrunk {
    /// Whether going on is of no use.
    #[must_use]
    pub const fn is_stuck(&self) -> bool {
        self.scanned == 0 && !self.busy || self.full || self.errno.is_some()
    }

    fn add(&mut self, other: Self) {
        self.scanned += other.scanned;
        self.written += other.written;
        self.errno = self.errno.or(other.errno);
        self.full |= other.full;
        self.busy = other.busy;
    }
}

impl<A: Arena> Zswap<A> {
    /// Whether the pool reached its maximum and has not come down to the
    /// acceptance threshold since.
    pub fn wants_shrinking(&self) -> bool {
        self.gate.wants_shrinking(self.pool_pages())
    }

    /// A go. `scanned` is 0 if there is nothing that may be written back.
    pub fn shrink_step(&self, context: &mut WorkContext) -> Shrunk {
        if self.pool.lock().charge.may_write_back() {
            self.go(context, GO)
        } else {
            Shrunk::default()
        }
    }

    /// Goes on until the pool is at the acceptance threshold,
    /// or nothing more can be written back, or `stop` says so.
    pub fn shrink(&self, context: &mut WorkContext, mut stop: impl FnMut() -> bool) -> Shrunk {
        let mut all = Shrunk::default();
        while self.wants_shrinking() && !stop() {
            let step = self.shrink_step(context);
            all.add(step);
            if step.is_stuck() {
                add(&self.stats.reject_reclaim_fail, 1);
            }
            if step.is_stuck() || step.busy {
                break;
            }
        }
        all
    }

    /// At `zswap.max`: writes back until something was; returns how much.
    pub(crate) fn shrink_for_store(&self, context: &mut WorkContext) -> usize {
        let entries = {
            let pool = self.pool.lock();
            let may = pool.charge.may_write_back();
            if may { pool.lru.len() } else { 0 }
        };
        // Twice round: the first time may only take second chances.
        for _ in 0..(2 * entries).div_ceil(GO) {
            let shrunk = self.go(context, GO);
            if shrunk.written > 0 {
                return shrunk.written;
            }
            if shrunk.is_stuck() || shrunk.busy {
                break;
            }
        }
        0
    }

    /// The shrinker's count: entries that may go now. Each page that was read from the
    /// backing holds one back, once; of the rest, the part that the pool has compressed its
    /// pages to.
    pub fn shrinker_count(&self) -> usize {
        let mut pool = self.pool.lock();
        if pool.behind.is_none() || !pool.charge.may_write_back() {
            return 0;
        }
        let entries = pool.lru.len();
        let free = pool.shrinker.unprotected(entries);
        let stored = usize::try_from(self.stats.stored_pages.load(Relaxed)).unwrap_or(usize::MAX);
        let pool_pages = pool.zs.pages_used();
        // (Twice as many entries as bits is far away.)
        free.saturating_mul(pool_pages) / stored.max(1)
    }

    /// A call of the shrinker: looks at up to `most` of what it counts, and of what earlier
    /// calls did not come to. If all had a second chance, at as many again.
    pub fn shrinker_call(&self, context: &mut WorkContext, most: usize) -> Shrunk {
        let count = self.shrinker_count();
        let asked = self.pool.lock().shrinker.ask(count).min(most);
        let mut all = self.shrinker_scan(context, asked);
        if all.written == 0 && all.scanned > 0 {
            all.add(self.shrinker_scan(context, asked));
        }
        self.pool.lock().shrinker.note_scanned(all.scanned);
        all
    }

    /// The shrinker's scan: looks at up to `entries`.
    pub fn shrinker_scan(&self, context: &mut WorkContext, entries: usize) -> Shrunk {
        let mut all = Shrunk::default();
        while all.scanned < entries {
            if !self.pool.lock().charge.may_write_back() {
                break;
            }
            let step = self.go(context, GO.min(entries - all.scanned));
            all.add(step);
            if step.is_stuck() || step.busy {
                break;
            }
        }
        all
    }

    /// Gives clusters that have died back to the backing; returns how many.
    /// Makes system calls: not for who has a lock that others wait for.
    pub fn tend_backing(&self) -> usize {
        let mut given = 0;
        while let Some((dead, door)) = self.take_dead() {
            door.backing.discard(dead.offset(), CLUSTER as u64);
            if let Some(behind) = &mut self.pool.lock().behind {
                behind.logs.free(dead);
                self.note_backing(behind);
            }
            given += 1;
        }
        given
    }

    fn take_dead(&self) -> Option<(Position, Door)> {
        if !self.is_backed() {
            return None;
        }
        let mut pool = self.pool.lock();
        let behind = pool.behind.as_mut()?;
        let dead = behind.logs.take_dead()?;
        Some((dead, behind.door.clone()))
    }

    /// Whether a page is in the backing.
    pub fn is_in_backing(&self, slot: Slot) -> bool {
        self.backing_pages() > 0
            && matches!(
                self.pool.lock().entries.get(slot),
                Some(Held::Backed(_) | Held::Lost)
            )
    }

    /// Pages in the backing; takes no lock.
    pub fn backing_pages(&self) -> usize {
        usize::try_from(self.stats.backing_pages.load(Relaxed)).unwrap_or(usize::MAX)
    }

    /// Looks at up to `most` entries that may be written back.
    fn go(&self, context: &mut WorkContext, most: usize) -> Shrunk {
        self.tend_backing();
        // (Of writes that were begun.)
        let mut shrunk = self.settle_begun(None);
        if context.io.is_empty() {
            return shrunk; // made before there was a backing
        }
        shrunk.busy = !self.is_ready();
        if shrunk.errno.is_some() || shrunk.busy {
            return shrunk;
        }
        let mut list = [None; GO];
        let Some(door) = self.choose(most, &mut list, &mut shrunk) else {
            return shrunk;
        };
        if door.backing.writes_ahead() {
            self.begin(context, &door, list, &mut shrunk);
        } else {
            let failed = self.write(context, &door, &mut list, &mut shrunk);
            let written = self.settle_written(&list, failed);
            shrunk.written += written;
        }
        add(&self.stats.backing_full, u64::from(shrunk.full));
        shrunk
    }

    /// Takes entries off the list, pins them, and finds room for their records.
    fn choose(&self, most: usize, list: &mut List, shrunk: &mut Shrunk) -> Option<Door> {
        let mut guard = self.pool.lock();
        let pool = &mut *guard;
        let behind = pool.behind.as_mut()?;
        let entries = pool.lru.len();
        // (All of a go lies in one part of the backing.)
        let mut before = None;
        for going in list.iter_mut().take(most.min(entries)) {
            let slot = pool.lru.oldest()?;
            shrunk.scanned += 1;
            pool.lru.remove(slot);
            if pool.entries.take_referenced(slot) {
                pool.lru.push_newest(slot);
                continue;
            }
            let Some(Held::Object(object)) = pool.entries.get(slot) else {
                continue;
            };
            let at = match pool.zs.try_location(object.handle) {
                Some(at) if pool.zs.check_owner(object.handle, &self.arena) => at,
                // Overwritten: it stays, and whoever loads it finds out.
                _ => continue,
            };
            let to = behind.logs.place(granules(object.len), before);
            let Some(to) = to else {
                pool.lru.push_oldest(slot);
                shrunk.full = behind.logs.is_full_behind(before);
                break;
            };
            before = Some(to);
            pool.zs.pin(object.handle);
            *going = Some(Going {
                slot,
                object,
                span: Span {
                    at: at.at,
                    offset: at.offset,
                    len: usize::from(object.len),
                },
                to: Some((to, behind.logs.nonce(to))),
                written: false,
            });
        }
        self.note_backing(behind);
        Some(behind.door.clone())
    }

    /// Checks, seals and writes what was chosen, run by run; the cluster of a
    /// write that failed.
    fn write(
        &self,
        context: &mut WorkContext,
        door: &Door,
        list: &mut List,
        shrunk: &mut Shrunk,
    ) -> Option<Position> {
        let mut failed = None;
        self.seal_runs(context, door, list, |start, bytes, _| {
            let result = door.backing.write(start.offset(), bytes);
            if let Err(errno) = result {
                self.note_failed(shrunk, errno, start);
                failed = Some(start);
            }
            result.is_ok()
        });
        failed
    }

    /// A write at `at` has failed.
    fn note_failed(&self, shrunk: &mut Shrunk, errno: Errno, at: Position) {
        let mut pool = self.pool.lock();
        let behind = pool.behind.as_mut();
        let goes_elsewhere = behind.is_some_and(|behind| behind.logs.leave_alone(at));
        drop(pool);
        let first = goes_elsewhere || shrunk.errno.replace(errno).is_none();
        add(&self.stats.backing_write_fail, u64::from(first));
    }

    /// Checks and seals what was chosen; each run of it is for `each`: where it goes, its
    /// bytes, and which of the list it is. What it says is whether the run is, or may be
    /// taken to be, written.
    fn seal_runs(
        &self,
        context: &mut WorkContext,
        door: &Door,
        list: &mut List,
        mut each: impl FnMut(Position, &[u8], Range<usize>) -> bool,
    ) {
        let mut filled = 0;
        // Each run: its position, and where it begins in the buffer.
        let mut run: Option<(Position, usize)> = None;
        let mut first = 0;
        for index in 0..=GO {
            let next = list.get(index).copied().flatten();
            let at = next.and_then(|going| going.to).map(|(at, _)| at);
            let goes_on = match (run, at) {
                (Some((start, from)), Some(at)) => {
                    let end = start.offset() + (filled - from) as u64;
                    at.offset() == end && at.cluster() == start.cluster()
                }
                _ => false,
            };
            // (After the last, and where a run is broken by a gap.)
            if let Some((start, from)) = run
                && !goes_on
                && (at.is_some() || index == GO)
            {
                let written = each(start, &context.io[from..filled], first..index);
                for going in list[first..index].iter_mut().flatten() {
                    going.written &= written;
                }
                run = None;
            }
            let (Some(going), Some(at)) = (next, at) else {
                continue;
            };
            if run.is_none() {
                run = Some((at, filled));
                first = index;
            }
            let len = granules(going.object.len) as usize * GRANULE;
            let record = &mut context.io[filled..filled + len];
            filled += len;
            let written = self.seal_into(door, &going, record);
            list[index] = Some(Going { written, ..going });
        }
    }

    /// Seals an object's bytes into a record; false if they are not what was
    /// stored: then nothing of them goes out.
    fn seal_into(&self, door: &Door, going: &Going, record: &mut [u8]) -> bool {
        record.fill(0);
        let Span { at, offset, len } = going.span;
        let Some((_, nonce)) = going.to else {
            return false;
        };
        let right = self.arena.with(at, offset, len, |bytes| {
            let right = checksum(bytes) == going.object.checksum;
            if right {
                record[..len].copy_from_slice(bytes);
            }
            right
        });
        let sealed = right && seal(&door.key, nonce, going.slot, &mut record[..len + TAG]);
        if !sealed {
            record.fill(0);
        }
        sealed
    }

    /// Publishes what was written, puts back what was not; returns how many
    /// entries are in the backing now.
    fn settle_written(&self, list: &List, failed: Option<Position>) -> usize {
        let mut frames = Reserve::new();
        let mut guard = self.pool.lock();
        let pool = &mut *guard;
        let (mut written, mut far) = (0, 0);
        for going in list.iter().flatten() {
            let Going { slot, object, .. } = *going;
            pool.zs.unpin(object.handle);
            if pool.entries.is_doomed(slot) {
                self.free_object(pool, slot, &object, &mut frames);
            } else if going.written && self.swap_for_record(pool, going, &mut frames) {
                written += 1;
                far += usize::from(pool.is_far(going));
            } else {
                // At the new end, so that the others have their turn.
                pool.lru.push_newest(slot);
            }
            if let (Some((at, _)), Some(behind)) = (going.to, &mut pool.behind) {
                behind.logs.unpin(at);
            }
        }
        if let Some(behind) = &mut pool.behind {
            if let Some(at) = failed {
                behind.logs.give_up(at);
            }
            self.note_backing(behind);
        }
        self.note_pool(pool);
        drop(guard);
        self.give_back(frames);
        add(&self.stats.zswpwb, written as u64);
        add(&self.stats.written_back_pages, written as u64);
        add(&self.stats.pswpout, written as u64);
        add(&self.stats.pswpout_store, far as u64);
        written
    }

    /// Has an entry name its record; false if somebody looks at its object.
    fn swap_for_record(&self, pool: &mut Pool, going: &Going, frames: &mut Reserve) -> bool {
        let Going { slot, object, .. } = *going;
        let Some((at, _)) = going.to else {
            return false;
        };
        if pool.zs.free(object.handle, &self.arena, frames).is_err() {
            return false;
        }
        pool.entries.replace(
            slot,
            Held::Backed(Record {
                at,
                len: object.len,
                checksum: object.checksum,
                raw: object.raw,
                version: object.version,
            }),
        );
        if let Some(behind) = &mut pool.behind {
            behind.logs.keep(at);
            let is_far = behind.logs.is_far(at);
            add(&self.stats.backing_store_pages, u64::from(is_far));
        }
        self.leave_pool(pool, &object);
        add(&self.stats.backing_pages, 1);
        true
    }
}
