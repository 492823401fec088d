//! The pool with its codec, limits and counters.
//!
//! The lock protocol is at the head of the crate.

use crate::arena::Arena;
use crate::backing::kinds::Backing;
use crate::backing::logs::Logs;
use crate::backing::writeback_order::Lru;
use crate::by_distance::ByDistance;
use crate::entry::multi_page::Units;
use crate::entry::table::Entries;
use crate::frame_reserve::Reserve;
use crate::limits::{Gate, Limits};
use crate::pool::charge::{Charge, Charged, GroupLimits};
use crate::pool::context::WorkContext;
use crate::pool::shrinker::Shrinker;
use crate::pool::state::{Behind, Door, Pool};
use crate::stats::{Snapshot, Stats, add, add_order};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use zfolio_compress::dictionary::Dictionaries;
use zfolio_compress::{Codec, CodecError, Compressor};
use zfolio_mm::Order;
use zfolio_sys::lock::Mutex;
use zfolio_sys::secret::KeyPage;
use zfolio_zsmalloc::policy::Cause;
use zfolio_zsmalloc::{PoolStats, ZsPool};

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
            shrinker: Shrinker::default(),
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
        let logs = Logs::of(&*backing);
        let mut pool = self.pool.lock();
        pool.behind = Some(Behind {
            door: Door {
                backing,
                key: Arc::new(key),
            },
            logs,
            begun: Vec::new(),
        });
        self.backed.store(true, Relaxed);
    }

    /// How much of the backing may be used from now on, bytes: of what it can hold
    /// at most. What is there already stays.
    pub fn limit_backing(&self, bytes: ByDistance<u64>) {
        if let Some(behind) = &mut self.pool.lock().behind {
            behind.logs.limit(bytes);
        }
    }

    /// What is needed to read and write the backing, where there is one.
    pub(crate) fn door(&self) -> Option<Door> {
        if !self.is_backed() {
            return None;
        }
        let pool = self.pool.lock();
        pool.behind.as_ref().map(|behind| behind.door.clone())
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

    /// Says that every page of a folio was loaded, whatever the calls it took; `backed`: every
    /// one from the backing ([`WorkContext::loaded_from_backing`]).
    pub fn count_load(&self, order: Order, backed: bool) {
        let counters = match backed {
            false => &self.stats.order_zswpin,
            true => &self.stats.order_swpin,
        };
        add_order(counters, order);
    }

    /// Says that a folio was to be loaded whole, and that there were frames for a part of it
    /// only.
    pub fn count_load_fallback(&self, order: Order) {
        add_order(&self.stats.order_swpin_fallback, order);
    }

    /// Says for what cause a compaction moved objects that [`Self::compaction_step`] counted.
    pub fn count_moved(&self, cause: Cause, objs_moved: usize) {
        let counter = match cause {
            Cause::Period => &self.stats.objs_moved_period,
            Cause::Pressure => &self.stats.objs_moved_pressure,
            Cause::Request => &self.stats.objs_moved_request,
        };
        add(counter, objs_moved as u64);
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

    /// Says that a folio that could not be stored was split: whether a page of it is stored
    /// now.
    pub fn count_split(&self, order: Order, stored: bool) {
        let counters = match stored {
            true => &self.stats.order_split,
            false => &self.stats.order_split_failed,
        };
        add_order(counters, order);
    }

    /// For the child of a fork, whose image was taken while no store and no
    /// invalidation was under way: forgets a lock, a compaction, and pins of
    /// loads (a page may be read during a fork) of threads that do not exist
    /// here; and the parent's backing with its key, which is none of this
    /// process's. What is there can be dropped, not loaded. Only while the
    /// process has one thread.
    pub fn reset_in_fork_child(&self) {
        zfolio_sys::lock::reset_in_fork_child(&self.pool);
        crate::backing::waits::forget_waits();
        let mut pool = self.pool.lock();
        pool.zs.abandon_compaction();
        // (Not dropped: that would be the parent's to do.)
        core::mem::forget(pool.behind.take());
        pool.entries.lose_backed();
        self.restart_versions(&pool);
        self.backed.store(false, Relaxed);
        for gauge in [
            &self.stats.backing_pages,
            &self.stats.backing_store_pages,
            &self.stats.backing_bytes,
            &self.stats.backing_store_bytes,
        ] {
            gauge.store(0, Relaxed);
        }
        pool.zs.forget_pins();
    }

    /// Keeps the gauge of the backing in step.
    pub(crate) fn note_backing(&self, behind: &Behind) {
        let used = behind.logs.used_bytes();
        self.stats.backing_bytes.store(used.sum(), Relaxed);
        self.stats.backing_store_bytes.store(used.far, Relaxed);
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
