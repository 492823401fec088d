//! The pool with its codec, limits and counters.
//!
//! The lock protocol is at the head of the crate.

use crate::arena::Arena;
use crate::backing::Backing;
use crate::charge::{Charge, Charged, GroupLimits};
use crate::clusters::Clusters;
use crate::context::WorkContext;
use crate::entries::Entries;
use crate::entry::{Held, Object};
use crate::limits::{Gate, Limits};
use crate::lru::Lru;
use crate::reserve::{ROUND, Reserve};
use crate::slot::Slot;
use crate::stats::{Snapshot, Stats, add_order, sub};
use crate::units::{Member, Units};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use zfolio_compress::dictionary::Dictionaries;
use zfolio_compress::{Codec, CodecError, Compressor};
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_sys::lock::Mutex;
use zfolio_sys::secret::KeyPage;
use zfolio_zsmalloc::{PoolStats, ZsError, ZsPool};

/// What the pool lock guards.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) zs: ZsPool,
    pub(crate) entries: Entries,
    pub(crate) units: Units,
    pub(crate) charge: Charge,
    /// Empty without a backing.
    pub(crate) lru: Lru,
    pub(crate) behind: Option<Behind>,
}

/// What is behind the pool.
#[derive(Debug)]
pub(crate) struct Behind {
    pub(crate) door: Door,
    pub(crate) clusters: Clusters,
}

/// What is needed to read and write without the lock.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) key: Arc<KeyPage>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backing.name())
    }
}

/// Compressed pages in an arena. All calls work on `&self`, from any thread;
/// see the crate's head.
pub struct Zswap<A: Arena> {
    pub(crate) arena: A,
    pub(crate) pool: Mutex<Pool>,
    pub(crate) compressor: Box<dyn Compressor>,
    /// With which its denser form compresses.
    pub(crate) dictionaries: Option<Arc<Dictionaries>>,
    pub(crate) gate: Gate,
    pub(crate) stats: Stats,
    /// Longest compressed page, in bytes, that takes less room than a page
    /// kept as it is: what the largest class with several objects holds.
    pub(crate) useful: usize,
    /// There is a backing.
    pub(crate) backed: AtomicBool,
    /// There is a `zswap.max`.
    pub(crate) limited: AtomicBool,
}

impl<A: Arena> Zswap<A> {
    /// An empty pool.
    pub fn new(arena: A, codec: Codec, limits: Limits) -> Self {
        Self::with_compressor(arena, codec.compressor(), limits)
    }

    /// An empty pool that compresses with something [`Codec`] has no name for.
    pub fn with_compressor(arena: A, compressor: Box<dyn Compressor>, limits: Limits) -> Self {
        let pool = Pool {
            zs: ZsPool::default(),
            entries: Entries::default(),
            units: Units::default(),
            charge: Charge::default(),
            lru: Lru::default(),
            behind: None,
        };
        let useful = pool.zs.classes().huge_class_size() - 1;
        Self {
            arena,
            pool: Mutex::new(pool),
            dictionaries: compressor.dictionaries(),
            compressor,
            gate: Gate::new(limits),
            stats: Stats::new(),
            useful,
            backed: AtomicBool::new(false),
            limited: AtomicBool::new(false),
        }
    }

    /// Puts a backing behind the pool, under a key that this process alone
    /// has. Once, before there is anything to be written back or a
    /// [`Self::context`] is made; in the child of a fork once more.
    pub fn attach(&self, backing: Arc<dyn Backing>, key: KeyPage) {
        let clusters = Clusters::new(backing.capacity());
        let mut pool = self.pool.lock();
        pool.behind = Some(Behind {
            door: Door {
                backing,
                key: Arc::new(key),
            },
            clusters,
        });
        self.backed.store(true, Relaxed);
    }

    /// How much of the backing may be used from now on, bytes: of what it can hold
    /// at most. What is there already stays.
    pub fn limit_backing(&self, bytes: u64) {
        if let Some(behind) = &mut self.pool.lock().behind {
            let capacity = behind.door.backing.capacity();
            behind.clusters.limit(bytes.min(capacity));
        }
    }

    /// Whether there is a backing.
    pub fn is_backed(&self) -> bool {
        self.backed.load(Relaxed)
    }

    /// Changes what there may be, for what is stored from now on.
    pub fn set_group_limits(&self, limits: GroupLimits) {
        if limits.zswap_max.is_some() {
            self.limited.store(true, Relaxed);
        }
        self.pool.lock().charge.limits = limits;
    }

    /// What there may be.
    pub fn group_limits(&self) -> GroupLimits {
        self.pool.lock().charge.limits
    }

    /// What is charged now.
    pub fn charged(&self) -> Charged {
        self.pool.lock().charge.now()
    }

    /// Working memory for one thread.
    ///
    /// # Errors
    /// [`CodecError::Workspace`] when the memory cannot be had.
    pub fn context(&self) -> Result<WorkContext, CodecError> {
        WorkContext::new(&*self.compressor, self.is_backed())
    }

    /// The arena.
    pub fn arena(&self) -> &A {
        &self.arena
    }

    /// Name of the compressor.
    pub fn compressor_name(&self) -> &'static str {
        self.compressor.name()
    }

    /// The dictionaries of the second tier, if it has any.
    pub fn dictionaries(&self) -> Option<&Dictionaries> {
        self.dictionaries.as_deref()
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

    /// Says that a folio was stored, or not, as part of a
    /// [`Self::store_pages`].
    pub fn count_store(&self, order: Order, stored: bool) {
        if stored {
            add_order(&self.stats.order_zswpout, order);
        } else if order != Order::PAGE {
            add_order(&self.stats.order_swpout_fallback, order);
        }
    }

    /// For the child of a fork, whose image was taken while no store and no
    /// invalidation was under way: forgets a lock, a compaction, and pins of
    /// loads (a page may be read during a fork) of threads that do not exist
    /// here; and the parent's backing with its key, which is none of this
    /// process's. What is there can be dropped, not loaded. Only while the
    /// process has one thread.
    pub fn reset_in_fork_child(&self) {
        zfolio_sys::lock::reset_in_fork_child(&self.pool);
        let mut pool = self.pool.lock();
        pool.zs.abandon_compaction();
        // (Not dropped: that would be the parent's to do.)
        core::mem::forget(pool.behind.take());
        pool.entries.lose_backed();
        self.restart_versions(&pool);
        self.backed.store(false, Relaxed);
        self.stats.backing_pages.store(0, Relaxed);
        self.stats.backing_bytes.store(0, Relaxed);
        pool.zs.forget_pins();
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
                    behind.clusters.drop(record.at);
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

    /// Keeps the gauge of the backing in step.
    pub(crate) fn note_backing(&self, behind: &Behind) {
        let used = behind.clusters.used_bytes();
        self.stats.backing_bytes.store(used, Relaxed);
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
