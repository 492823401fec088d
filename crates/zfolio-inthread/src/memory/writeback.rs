//! What is behind the pool, at work: a file without a name, or a store, that the oldest entries
//! go to.
//!
//! Whoever makes room writes back, under the core lock: where the pool is at its part of `high`,
//! and where memory is short and nothing more can be closed. Whoever faults reads back. A
//! backing that refuses is left alone for a second, in which the pool may be larger. Writes to
//! a store are begun there and settled by whoever comes next: nobody waits for one under the lock.
//!
//! Key and file are the process's alone. What is in the backing is read back into the pool
//! before a fork, which the child then has as all else; it opens a file of its own.

use super::Vpn;
use super::bring::set;
use super::core::MemoryCore;
use super::own_file::OwnFile;
use super::own_store::OwnStore;
use super::way::{STAGE, Way};
use super::words::Word;
use crate::memory::layer::MemoryState;
use crate::raw::{PAGE, SHIFT};
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::{Memory, Pfn};
use zfolio_runtime::options::PoolOptions;
use zfolio_runtime::protect::pool_arena::PoolArena;
use zfolio_runtime::segment::Counter;
use zfolio_sys::secret::KeyPage;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns};
use zfolio_zswap::{
    Arena, ByDistance, InOrder, Limits, LoadError, Slot, StoreError, StoreReport, WorkContext,
    Zswap,
};

/// Between two tries of a backing that refused, ns.
const RETRY_NS: u64 = 1_000_000_000;
/// Entries that are looked at where memory is short, at most.
const TURN: usize = 256;
/// Pages of the pool that are written back at a time, about: whoever makes room waits for it.
const MOST_AT_ONCE: usize = 1024;
/// Pages that the pool may have beyond its part while writes to a store are under way.
const BESIDE: core::ops::RangeInclusive<usize> = 64..=1024;
/// Where a pool that is full takes pages again then, percent.
const BESIDE_ACCEPTS: u32 = 99;

/// The pool's part of `high`, pages, before it is written back, or takes nothing more where
/// no backing was asked for. `is_backed`: there is one.
fn pool_limits(state: &MemoryState, is_backed: bool, high: usize) -> Limits {
    let limits = PoolOptions::of(state.segment.config()).limits(high);
    let goal = &state.remote.goal;
    goal.store(usize::MAX, Ordering::Relaxed);
    match (limits.max_pool_pages, state.options.backing.is_some()) {
        (_, true) if !is_backed => Limits::default(),
        (Some(most), true) if state.remote.is_used() => {
            goal.store(most, Ordering::Relaxed);
            let beside = (most / 4).clamp(*BESIDE.start(), *BESIDE.end());
            Limits {
                max_pool_pages: Some(most + beside),
                accept_threshold_percent: BESIDE_ACCEPTS,
                ..limits
            }
        }
        (Some(most), true) => Limits {
            accept_threshold_percent: accepts_at(most, limits.accept_threshold_percent),
            ..limits
        },
        _ => limits,
    }
}

/// The percentage at which a pool of at most `most` pages takes pages again after it was full:
/// `asked`, or more where that would be much to write at once.
fn accepts_at(most: usize, asked: u32) -> u32 {
    let part = u32::try_from(MOST_AT_ONCE * 100 / most.max(1)).unwrap_or(u32::MAX);
    100 - part.min(100_u32.saturating_sub(asked))
}

impl MemoryState {
    /// Stores pages, all of them or none. A pool that is full is written back first.
    pub(super) fn store(
        &self,
        zswap: &Zswap<PoolArena>,
        context: &mut WorkContext,
        pages: &[&[u8]],
        slots: &mut [Slot],
    ) -> Result<StoreReport, StoreError> {
        let stored = zswap.store_bytes(context, pages, slots);
        let is_full = stored == Err(StoreError::PoolFull);
        if !zswap.is_backed() || !is_full && !self.remote.is_used() {
            return stored;
        }
        if !self.remote.is_used() {
            self.write_back(zswap, context);
            return zswap.store_bytes(context, pages, slots);
        }
        self.write_ahead(zswap, context);
        if !is_full {
            return stored;
        }
        let stored = zswap.store_bytes(context, pages, slots);
        let is_stalled = stored == Err(StoreError::PoolFull) && zswap.writes_under_way() > 0;
        self.remote.stalled.store(is_stalled, Ordering::Relaxed);
        stored
    }

    /// Settles writes to a store that have been answered, and begins more as long as the pool has
    /// more than its part; how many pages have gone. Waits for nothing.
    pub(super) fn write_ahead(&self, zswap: &Zswap<PoolArena>, context: &mut WorkContext) -> usize {
        let goal = self.remote.goal.load(Ordering::Relaxed);
        let settled = zswap.settle_writes();
        let mut written = settled.written;
        if settled.errno.is_some() {
            self.leave_alone_for_a_while(zswap);
            return written;
        }
        let may = || !self.remote.recalls() && self.remote.retry_ns.load(Ordering::Relaxed) == 0;
        while zswap.pool_pages() > goal && may() {
            self.share_backing(zswap);
            let step = zswap.shrink_step(context);
            written += step.written;
            let refused = step.errno.is_some() || step.full;
            // (All there is may be under way.)
            if refused || step.is_stuck() && zswap.writes_under_way() == 0 {
                self.leave_alone_for_a_while(zswap);
            }
            if refused || step.busy || step.is_stuck() {
                break;
            }
        }
        written
    }

    /// The backing refuses: the pool takes what comes until it is tried again.
    pub(super) fn leave_alone_for_a_while(&self, zswap: &Zswap<PoolArena>) {
        let until = now_ns(Clock::Monotonic) + RETRY_NS;
        self.remote.retry_ns.store(until, Ordering::Relaxed);
        zswap.set_limits(Limits::default());
    }

    /// Writes back until the pool has come down to its threshold. A backing that refuses is
    /// left alone for a while, and the pool takes what comes.
    fn write_back(&self, zswap: &Zswap<PoolArena>, context: &mut WorkContext) {
        let shrunk = zswap.shrink(context, || {
            self.share_backing(zswap);
            false
        });
        if shrunk.is_stuck() && zswap.wants_shrinking() {
            self.leave_alone_for_a_while(zswap);
        }
    }

    /// Memory is short and nothing more can be closed: a part of the pool goes. Whether any
    /// did.
    fn shrink(&self, zswap: &Zswap<PoolArena>, context: &mut WorkContext) -> bool {
        let refused = self.remote.retry_ns.load(Ordering::Relaxed) != 0;
        let recalls = self.remote.is_used() && self.remote.recalls();
        let may = PoolOptions::of(self.segment.config()).shrinker;
        if refused || recalls || !may || !zswap.is_backed() {
            return false;
        }
        self.share_backing(zswap);
        zswap.shrinker_call(context, TURN).written > 0
    }

    /// Takes this process's part of what backings may hold, as it is now.
    pub(super) fn share_backing(&self, zswap: &Zswap<PoolArena>) {
        let out = zswap.stats().snapshot().backing_used();
        if let Some(part) = self.membership.backing(self.segment, out) {
            zswap.limit_backing(part);
        }
        self.membership.stay(self.segment);
    }
}

impl MemoryCore {
    /// Opens this process's own file, takes its ring of the exchange with the pager of a
    /// store, or both, as is asked for, and puts it behind the pool. Without it the process is managed
    /// all the same; the error is for the statistics.
    pub(super) fn open_backing(
        &mut self,
        state: &MemoryState,
        zswap: &Zswap<PoolArena>,
    ) -> Result<(), Errno> {
        let Some(backing) = &state.options.backing else {
            return Ok(());
        };
        let (size, config) = (backing.size, state.segment.config());
        let file = (size.near > 0).then(|| OwnFile::create(config, size.near));
        let file = file.transpose()?.map(Arc::new);
        // (A ring of the exchange is not given back: it is taken last.)
        let opened = KeyPage::random().and_then(|key| {
            let join = || OwnStore::join(config, size.far, backing.deadline_ns);
            Ok((key, backing.has_store().then(join).transpose()?))
        });
        let (key, store) = opened.inspect_err(|_| {
            if let Some(file) = &file {
                file.close();
            }
        })?;
        self.way.backing.clone_from(&file);
        self.way.store.clone_from(&store);
        match (file, store) {
            (Some(file), Some(store)) => zswap.attach(Arc::new(InOrder::new(file, store)), key),
            (Some(file), None) => zswap.attach(file, key),
            (None, Some(store)) => zswap.attach(store, key),
            (None, None) => {}
        }
        state.note_descriptors(&self.way);
        Ok(())
    }

    /// Counts that no file could be made.
    pub(super) fn note_no_backing(&self, errno: Errno) {
        if let Some(pool) = &self.pool {
            let errno = u64::from(errno.0.unsigned_abs());
            pool.stats.set(Counter::BackingRefused, errno);
        }
    }

    /// Bytes that the backing takes.
    pub(super) fn backing_bytes(&self) -> ByDistance<u64> {
        let pool = self.pool.as_ref().filter(|pool| pool.zswap.is_backed());
        let used = pool.map(|pool| pool.zswap.stats().snapshot().backing_used());
        used.unwrap_or_default()
    }

    /// Gives room in the backing back, and tries it again if it refused; sets the pool's limits.
    /// `part`: how much of the backing this process may have, bytes.
    pub(super) fn tend_backing(&mut self, state: &MemoryState, part: ByDistance<u64>) {
        let high = self.high;
        let Some(pool) = self.pool.as_ref() else {
            return;
        };
        let is_backed = pool.zswap.is_backed();
        if is_backed {
            pool.zswap.limit_backing(part);
            pool.zswap.tend_backing();
        }
        let retry = state.remote.retry_ns.load(Ordering::Relaxed);
        if state.remote.is_used() && state.remote.recalls() {
            return;
        }
        if retry == 0 || now_ns(Clock::Monotonic) >= retry {
            state.remote.retry_ns.store(0, Ordering::Relaxed);
            let limits = pool_limits(state, is_backed, high);
            if pool.zswap.limits() != limits {
                pool.zswap.set_limits(limits);
            }
        }
    }

    /// Nothing more can be closed: a part of the pool is written back. Whether any was.
    pub(super) fn shrink_pool(&mut self, state: &MemoryState) -> bool {
        let pool = self.pool.as_mut();
        pool.is_some_and(|pool| state.shrink(pool.zswap, &mut pool.context))
    }

    /// In the child of a fork: a file of its own.
    pub(super) fn open_backing_in_child(&mut self, state: &MemoryState) {
        state.remote.retry_ns.store(0, Ordering::Relaxed);
        self.way.store = None;
        let Some(pool) = self.pool.take() else { return };
        let opened = self.open_backing(state, pool.zswap);
        self.pool = Some(pool);
        if let Err(errno) = opened {
            self.note_no_backing(errno);
        }
    }

    /// Whether a page is behind the pool.
    pub(super) fn is_behind(&self, word: Word) -> bool {
        let pool = self.pool.as_ref();
        let zswap = pool
            .map(|pool| &pool.zswap)
            .filter(|zswap| zswap.is_backed());
        word.slot()
            .zip(zswap)
            .is_some_and(|(slot, zswap)| zswap.is_in_backing(slot))
    }

    /// Makes the bytes of closed pages in the place that pages are filled from, where any of
    /// them is behind the pool; whether one is. `first`: the page of the first slot.
    pub(super) fn fill_from_behind(&mut self, first: Vpn, slots: &[Slot]) -> bool {
        let Self { pool, way, .. } = self;
        let Some(pool) = pool else { return false };
        match fill_from_behind(pool.zswap, &mut pool.context, way, slots) {
            Ok(filled) => filled,
            Err(error) => self.fail_to_load(first, error),
        }
    }

    /// Ends the process: a page is not what was stored, or cannot be read.
    pub(super) fn fail_to_load(&self, page: Vpn, error: LoadError) -> ! {
        self.fail(format_args!(
            "the stored page at {:#x} failed its check ({error})",
            page << SHIFT
        ))
    }

    /// Before a fork: reads what is in the backing back into the pool, for the child has
    /// neither the file nor the key. False if there is no room for it: then nothing is lost.
    pub(crate) fn recall(&mut self, state: &MemoryState) -> bool {
        let Some(pool) = self.pool.as_ref().filter(|pool| pool.zswap.is_backed()) else {
            return true;
        };
        // (The child has none of the writes that are under way.)
        pool.zswap.give_up_writes();
        if pool.zswap.backing_pages() == 0 {
            return true;
        }
        self.without_limits(|core| {
            let mut at = 0;
            let mut all = true;
            while all && let Some(range) = core.ranges.managed_from(at) {
                at = range.end;
                all = core.recall_range(state, &(range.start >> SHIFT..range.end >> SHIFT));
            }
            all
        })
    }

    fn recall_range(&mut self, state: &MemoryState, pages: &Range<Vpn>) -> bool {
        let mut from = pages.start;
        loop {
            let mut batch = [(0, Slot::ZERO); STAGE];
            let mut count = 0;
            while count < STAGE
                && let Some(page) = state
                    .words
                    .next(from, pages.end, |word| word.slot().is_some())
            {
                from = page + 1;
                match state.words.get(page) {
                    word if !self.is_behind(word) => {}
                    // (The program has it: the pool's may go.)
                    Word::Clean(slot) => self.disown(state, (page, slot)),
                    word => {
                        batch[count] = (page, word.slot().unwrap_or(Slot::ZERO));
                        count += 1;
                    }
                }
            }
            if count == 0 {
                return true;
            }
            if !self.recall_batch(state, &batch[..count]) {
                return false;
            }
        }
    }

    /// Reads stored pages back into the pool; false if there is no room for them.
    pub(super) fn recall_batch(&mut self, state: &MemoryState, batch: &[(Vpn, Slot)]) -> bool {
        let Some(pool) = &mut self.pool else {
            return true;
        };
        let Some(frames) = Frames::of(pool.zswap, batch.len()) else {
            // (Not so many in a row.)
            let (one, other) = batch.split_at(batch.len() / 2);
            return !one.is_empty()
                && self.recall_batch(state, one)
                && self.recall_batch(state, other);
        };
        let mut olds = [Slot::ZERO; STAGE];
        for (old, (_, slot)) in olds.iter_mut().zip(batch) {
            *old = *slot;
        }
        let olds = &olds[..batch.len()];
        let mut news = [Slot::ZERO; STAGE];
        let news = &mut news[..batch.len()];
        let loaded = pool.zswap.load_batch(&mut pool.context, olds, frames.all());
        let stored = loaded.is_ok()
            && pool
                .zswap
                .store_pages(&mut pool.context, frames.all(), news)
                .is_ok();
        frames.give_back(pool.zswap);
        if let Err(error) = loaded {
            self.fail_to_load(batch[0].0, error);
        }
        if !stored {
            return false;
        }
        for ((page, _), slot) in batch.iter().zip(&*news) {
            let word = match *slot {
                Slot::ZERO => Word::Zero,
                slot => Word::Stored(slot),
            };
            set(state, self, *page, word);
        }
        if let Some(pool) = &self.pool {
            pool.zswap.invalidate(olds);
        }
        true
    }
}

/// Makes the bytes of pages in the place that `way` fills pages from, where any of them is
/// behind the pool, and there are several; whether it has. What lies together is read together.
pub(super) fn fill_from_behind(
    zswap: &Zswap<PoolArena>,
    context: &mut WorkContext,
    way: &mut Way,
    slots: &[Slot],
) -> Result<bool, LoadError> {
    let is_behind = |slot: &Slot| *slot != Slot::ZERO && zswap.is_in_backing(*slot);
    if !zswap.is_backed() || slots.len() < 2 || !slots.iter().any(is_behind) {
        return Ok(false);
    }
    let Some(frames) = Frames::of(zswap, slots.len()) else {
        return Ok(false);
    };
    let loaded = zswap.load_batch(context, slots, frames.all());
    if loaded.is_ok() {
        for (index, frame) in frames.all().iter().enumerate() {
            let into = way.incoming_page(index);
            let copy = |page: &[u8]| into.copy_from_slice(page);
            zswap.arena().with(*frame, 0, PAGE, copy);
        }
    }
    frames.give_back(zswap);
    loaded.map(|()| true)
}

/// Frames of the pool's arena, for a moment.
struct Frames {
    at: [Pfn; STAGE],
    count: usize,
}

impl Frames {
    fn of(zswap: &Zswap<PoolArena>, count: usize) -> Option<Self> {
        let first = zswap.arena().alloc_frames(count)?;
        Some(Self {
            at: core::array::from_fn(|index| first.offset(index)),
            count,
        })
    }

    fn all(&self) -> &[Pfn] {
        &self.at[..self.count]
    }

    fn give_back(&self, zswap: &Zswap<PoolArena>) {
        zswap.arena().free_frames(self.at[0], self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_pool_is_written_back_in_small_parts() {
        let accepts = [0, 1000, 10_240, 20_480, 1 << 20].map(|most| accepts_at(most, 90));
        assert_eq!(accepts, [90, 90, 90, 95, 100]);
        let asked = [1000, 5120, 20_480].map(|most| accepts_at(most, 50));
        assert_eq!(asked, [50, 80, 95]);
        assert_eq!(accepts_at(1000, 100), 100);
    }
}
