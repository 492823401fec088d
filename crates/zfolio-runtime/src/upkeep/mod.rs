//! What is done between rounds of reclaim.
//!
//! - [`zspage_compaction`]: objects of the emptiest zspages move into the fullest.
//! - [`folio_compaction`]: frames move so that runs of them come to be.
//! - [`assembly`]: huge pages that came back in pieces are made one again.
//! - [`huge_reserve`]: a huge page is made for a reader that wishes for one.
//! - [`writeback`]: the coldest of the pool goes to the backing.
//! - [`recompress`], [`tier`]: what stays in the pool is compressed again, denser, and when.
//! - [`statistics`], [`class_table`], [`cannot_leave`]: gauges for whoever looks.
//!
//! State: where each of them stopped.
//!
//! Lock: each takes what it needs; the control thread alone does this, but for what faults ask of
//! folio compaction.
//!
//! Below: `swapout`, `transfer`.

pub(crate) mod assembly;
pub(crate) mod cannot_leave;
pub mod class_table;
pub(crate) mod folio_compaction;
pub(crate) mod huge_reserve;
pub(crate) mod recompress;
pub mod statistics;
pub mod tier;
pub(crate) mod writeback;
pub mod zspage_compaction;

use crate::segment::Looks;
use crate::swapout::Swap;
use crate::upkeep::tier::Tier;
use crate::upkeep::zspage_compaction::{Compacting, PRESSED_NS, REQUESTED_NS, TURN_NS};
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};
use zfolio_sys::limits::with_descriptors;
use zfolio_sys::lock::{Mutex, reset_in_fork_child};

/// What is done between rounds of reclaim.
pub struct Upkeep {
    /// What is below.
    swap: Swap,
    /// The control thread's; a child's takes its parent's over.
    pub(crate) compacting: Mutex<Compacting>,
    /// As `compacting`.
    pub(crate) tier: Mutex<Tier>,
    /// When a backing that refused is tried again, ns; 0: it does not refuse.
    backing_retry_ns: AtomicU64,
    /// When the arena's huge pages are counted next, ns.
    huge_count_ns: AtomicU64,
    /// When a huge page may be assembled next, ns.
    assembly_ns: AtomicU64,
    looks_at_what_stays: Looks,
}

impl Deref for Upkeep {
    type Target = Swap;

    fn deref(&self) -> &Swap {
        &self.swap
    }
}

impl Upkeep {
    pub(crate) fn new(swap: Swap, tier: Tier, slots: usize) -> Self {
        let requests = swap
            .segment()
            .config()
            .folios
            .compactions
            .load(Ordering::Relaxed);
        Self {
            swap,
            compacting: Mutex::new(Compacting::new(slots, requests)),
            tier: Mutex::new(tier),
            backing_retry_ns: AtomicU64::new(0),
            huge_count_ns: AtomicU64::new(0),
            assembly_ns: AtomicU64::new(0),
            looks_at_what_stays: Looks::default(),
        }
    }

    /// See [`Swap::reset_in_fork_child`].
    pub(crate) fn reset_in_fork_child(&self) {
        self.swap.reset_in_fork_child();
        self.looks_at_what_stays.forget();
        reset_in_fork_child(&self.compacting);
        reset_in_fork_child(&self.tier);
    }

    /// In the child of a fork, which has taken its memory over: counts anew, and opens a
    /// backing of its own.
    pub(crate) fn restart(&self) {
        self.zswap.stats().restart();
        self.tier.lock().restart();
        self.forget_membership();
        self.backing_retry_ns.store(0, Ordering::Relaxed);
        with_descriptors(|| self.open_backing());
    }

    /// Lets the engines rest while no processor is idle, where that was asked for, and takes
    /// over what of their attributes was changed.
    pub(crate) fn tend_engines(&self) {
        let config = self.segment().config();
        let Some(engines) = self.engine_threads() else {
            return;
        };
        if config.engines.auto.load(Ordering::Relaxed) != 0 {
            let rest = config.engines.rest.load(Ordering::Relaxed) != 0;
            engines.rest(rest, self.stats());
        }
        // (Regions' are not in the segment.)
        if config.engines.count.load(Ordering::Relaxed) > 0 {
            let numbers = config.engines.attributes.each_ref();
            engines.change(&numbers.map(|word| word.load(Ordering::Relaxed)));
        }
    }

    /// Compacts for a while, if that is due or under way. `pressed`: memory is
    /// short, and what reclaim could do at once is done.
    pub(crate) fn compact(&self, state: &mut Compacting, pressed: bool) {
        let requests = &self.segment().config().folios.compactions;
        let done = state.follow_requests(
            requests.load(Ordering::Relaxed),
            self.options.folio_compaction,
        );
        self.stats().compacted.store(done, Ordering::Release);
        let time = match (state.is_requested(), pressed) {
            (true, _) => REQUESTED_NS,
            (false, true) => PRESSED_NS,
            (false, false) => TURN_NS,
        };
        if state.zspages.is_due(&self.zswap, pressed) {
            let stop = || self.should_yield();
            self.while_open(|| state.zspages.compact(&self.zswap, time, stop));
        }
        if self.options.folio_compaction {
            self.while_open(|| state.evacuating.evacuate(self, time));
        }
    }
}
