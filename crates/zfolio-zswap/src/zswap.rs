//! The pool with its codec, limits and counters.
//!
//! The lock protocol is at the head of the crate.

use crate::arena::Arena;
use crate::context::WorkContext;
use crate::entries::{Entries, Held, Object};
use crate::limits::{Gate, Limits};
use crate::reserve::{ROUND, Reserve};
use crate::slot::Slot;
use crate::stats::{Snapshot, Stats, add_order, sub};
use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use zfolio_compress::{Codec, CodecError, Compressor};
use zfolio_mm::Order;
use zfolio_sys::lock::Mutex;
use zfolio_zsmalloc::{PoolStats, ZsError, ZsPool};

/// What the pool lock guards.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) zs: ZsPool,
    pub(crate) entries: Entries,
}

/// Compressed pages in an arena. All calls work on `&self`, from any thread;
/// see the crate's head.
pub struct Zswap<A: Arena> {
    pub(crate) arena: A,
    pub(crate) pool: Mutex<Pool>,
    pub(crate) compressor: Box<dyn Compressor>,
    pub(crate) gate: Gate,
    pub(crate) stats: Stats,
    /// Longest compressed page, in bytes, that takes less room than a page
    /// kept as it is: what the largest class with several objects holds.
    pub(crate) useful: usize,
}

impl<A: Arena> Zswap<A> {
    /// An empty pool.
    pub fn new(arena: A, codec: Codec, limits: Limits) -> Self {
        Self::with_compressor(arena, codec.compressor(), limits)
    }

    /// An empty pool that compresses with something [`Codec`] has no name for.
    pub fn with_compressor(arena: A, compressor: Box<dyn Compressor>, limits: Limits) -> Self {
        let pool = Pool::default();
        let classes = pool.zs.classes().classes().iter();
        let useful = classes
            .filter(|class| !class.is_huge())
            .map(|class| class.capacity())
            .max();
        Self {
            arena,
            pool: Mutex::new(pool),
            compressor,
            gate: Gate::new(limits),
            stats: Stats::new(),
            useful: useful.unwrap_or(0),
        }
    }

    /// Working memory for one thread.
    ///
    /// # Errors
    /// [`CodecError::Workspace`] when the memory cannot be had.
    pub fn context(&self) -> Result<WorkContext, CodecError> {
        WorkContext::new(&*self.compressor)
    }

    /// The arena.
    pub fn arena(&self) -> &A {
        &self.arena
    }

    /// Name of the compressor.
    pub fn compressor_name(&self) -> &'static str {
        self.compressor.name()
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.gate.get()
    }

    /// Changes the limits, for folios stored from now on. Nothing is taken out
    /// of a pool that is too large for them.
    pub fn set_limits(&self, limits: Limits) {
        self.gate.set(limits);
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// All counters now, under the pool lock: the gauges are of one instant.
    pub fn snapshot(&self) -> Snapshot {
        let _pool = self.pool.lock();
        self.stats.snapshot()
    }

    /// Pages of all zspages; takes no lock.
    pub fn pool_pages(&self) -> usize {
        usize::try_from(self.stats.pool_pages.load(Relaxed)).unwrap_or(usize::MAX)
    }

    /// The table of classes, under the pool lock.
    pub fn class_stats(&self) -> PoolStats {
        self.pool.lock().zs.stats()
    }

    /// Says that every page of a folio was loaded, whatever the calls it took.
    pub fn count_load(&self, order: Order) {
        add_order(&self.stats.order_zswpin, order);
    }

    /// For the child of a fork, whose image was taken while no store and no
    /// invalidation was under way: forgets a lock and a compaction of a thread
    /// that does not exist here. Only while the process has one thread.
    pub fn reset_in_fork_child(&self) {
        zfolio_sys::lock::reset_in_fork_child(&self.pool);
        self.pool.lock().zs.abandon_compaction();
    }

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
                Some(Held::Same(_)) => self.remove_entry(&mut pool, slot),
                Some(Held::Object(object)) => {
                    self.free_object(&mut pool, slot, &object, &mut frames);
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
    /// At most [`ROUND`] objects.
    pub(crate) fn unpin(&self, pinned: impl Iterator<Item = (Slot, Object)>) {
        let mut frames = Reserve::new();
        let mut pool = self.pool.lock();
        for (slot, object) in pinned {
            pool.zs.unpin(object.handle);
            if pool.entries.is_doomed(slot) {
                self.free_object(&mut pool, slot, &object, &mut frames);
            }
        }
        self.note_pool(&pool);
        drop(pool);
        self.give_back(frames);
    }

    /// Frees an entry with its object, or dooms it while somebody looks at the
    /// object.
    fn free_object(&self, pool: &mut Pool, slot: Slot, object: &Object, frames: &mut Reserve) {
        match pool.zs.free(object.handle, &self.arena, frames) {
            Err(ZsError::Pinned) => pool.entries.doom(slot),
            // Any other error says that there is no object: nothing to free.
            Ok(()) | Err(_) => self.remove_entry(pool, slot),
        }
    }

    /// Frees an entry and takes it out of the gauges.
    fn remove_entry(&self, pool: &mut Pool, slot: Slot) {
        match pool.entries.remove(slot) {
            None => return,
            Some(Held::Same(_)) => sub(&self.stats.same_filled_pages, 1),
            Some(Held::Object(object)) => {
                sub(&self.stats.compressed_bytes, u64::from(object.len));
                sub(
                    &self.stats.stored_incompressible_pages,
                    u64::from(object.raw),
                );
            }
        }
        sub(&self.stats.stored_pages, 1);
    }

    /// Keeps the gauge that limits are checked against in step; called before
    /// the pool lock is dropped.
    pub(crate) fn note_pool(&self, pool: &Pool) {
        self.stats
            .pool_pages
            .store(pool.zs.pages_used() as u64, Relaxed);
    }

    /// Gives frames back to the arena; called without the pool lock.
    pub(crate) fn give_back(&self, frames: Reserve) {
        for (at, pages) in frames.leftovers() {
            self.arena.free_frames(at, pages);
        }
    }
}

impl<A: Arena> fmt::Debug for Zswap<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zswap")
            .field("compressor", &self.compressor.name())
            .field("limits", &self.limits())
            .field("stats", &self.stats.snapshot())
            .finish_non_exhaustive()
    }
}
