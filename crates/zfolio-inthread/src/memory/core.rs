//! What the core lock guards. There is no pool before memory first runs short ([`super::manage`]).

use super::bounds::Bounds;
use super::clean_pages::CleanPages;
use super::mapping_limit::MappingLimit;
use super::ranges::Ranges;
use super::readers::Readers;
use super::refaults::Refaults;
use super::said::Said;
use super::transit::waits::{Frozen, Transits};
use super::way::Way;
use crate::pins::Seen;
use crate::threads::TIMED;
use alloc::boxed::Box;
use core::ops::Range;
use zfolio_compress::adaptive::Density;
use zfolio_runtime::codec_choice::Turnover;
use zfolio_runtime::fatal;
use zfolio_runtime::options::Options;
use zfolio_runtime::protect::pool_arena::PoolArena;
use zfolio_runtime::segment::{FaultKind, ProcessSlot};
use zfolio_runtime::tier::Tier;
use zfolio_runtime::zspage_compaction::{Requests, Zspages};
use zfolio_sys::thread::{Clock, now_ns, pid};
use zfolio_zswap::{WorkContext, Zswap};

/// What the core lock guards, and the layer [`MemoryState`](super::layer::MemoryState) works with.
pub(crate) struct MemoryCore {
    pub(crate) ranges: Ranges,
    pub(crate) way: Way,
    pub(crate) pool: Option<Pool>,
    pub(super) closing: Closing,
    pub(super) transit: InTransit,
    /// The program has opened a device that may write to its memory unseen.
    pub(crate) has_devices: bool,
    /// Management ends: nothing is closed any more.
    pub(crate) leaving: bool,
    /// Nothing is closed as long as somebody looks into the process (`zfolio inspect`).
    pub(crate) inspected: bool,
    pub(crate) seen: Box<Seen>,
    /// The end of the heap, as the program set it.
    pub(crate) brk: usize,
    /// What this process may have, pages.
    pub(crate) high: usize,
    /// Counts that are not published yet.
    pub(crate) figures: Figures,
}

/// Which pages are closed next, and how many; what is known of them.
pub(super) struct Closing {
    /// Where reclaim goes on. An address.
    pub(super) hand: usize,
    /// Steps by which calls have followed `high`.
    pub(super) followed: u32,
    /// Batches since the last look.
    pub(super) batches: u32,
    pub(super) clean: CleanPages,
    pub(super) refaults: Refaults,
    /// Who reads on.
    pub(super) readers: Readers,
    pub(super) bounds: Bounds,
    pub(super) mappings: MappingLimit,
    /// Not to be closed now: all of it is being brought.
    pub(super) held: Range<usize>,
    /// Resident pages that are neither managed nor the pool's, at least.
    pub(super) apart: usize,
    /// Pages by which the limit is raised: as many could not be had by closing others.
    pub(super) overdraft: usize,
    /// What the process has said while nothing was out.
    pub(super) said: Said,
}

/// What goes on beside the lock.
pub(super) struct InTransit {
    pub(super) transits: Transits,
    /// Pages on their way out.
    pub(super) going: usize,
    /// Transits to begin until threads are thought to fault one at a time.
    pub(super) crowd: u32,
    /// The thread that began the last one: the address of its record.
    pub(super) last: usize,
    pub(super) frozen: Frozen,
}

impl InTransit {
    /// Nothing, and nobody waits for that.
    pub(super) const fn new() -> Self {
        Self {
            transits: Transits::new(),
            going: 0,
            crowd: 0,
            last: 0,
            frozen: Frozen::new(),
        }
    }
}

/// Where what is closed goes.
pub(crate) struct Pool {
    /// Used in transit, or under the lock.
    pub(crate) zswap: &'static Zswap<PoolArena>,
    pub(crate) context: WorkContext,
    pub(super) density: Density,
    /// How much of what is stored comes back.
    pub(super) turnover: Turnover,
    pub(super) tier: Tier,
    /// When its last turn ended, ns.
    pub(super) tier_ended_ns: u64,
    pub(super) zspages: Zspages,
    /// Compactions that were asked for.
    pub(super) requests: Requests,
    pub(crate) stats: &'static ProcessSlot,
}

/// Counted under the lock, and written to the segment now and then.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) faults: u64,
    /// Of these, with a page that was loaded.
    pub(crate) major: u64,
    pub(crate) pages_in: u64,
    pub(crate) pages_out: u64,
    /// Of `pages_out`: as they had come.
    pub(crate) clean: u64,
    pub(crate) ahead: u64,
    pub(crate) filled: u64,
    pub(crate) unmovable: u64,
    pub(crate) events: Events,
    pub(crate) waits: u64,
    /// Time spent in making room, ns.
    pub(crate) waited_ns: u64,
    pub(crate) beside: Beside,
}

/// What the thread of ours that reclaims has done.
#[derive(Default)]
pub(crate) struct Beside {
    /// Pages that it closed.
    pub(crate) pages: u64,
    /// Processor time that it took, ns.
    pub(crate) cpu_ns: u64,
}

/// What the program did with its memory.
#[derive(Default)]
pub(crate) struct Events {
    pub(crate) forks: u64,
    pub(crate) remaps: u64,
    pub(crate) removes: u64,
    pub(crate) unmaps: u64,
}

impl MemoryCore {
    pub(crate) fn new(way: Way, options: &Options, brk: usize) -> Self {
        Self {
            ranges: Ranges::default(),
            way,
            pool: None,
            closing: Closing {
                hand: 0,
                followed: 0,
                batches: 0,
                clean: CleanPages::default(),
                refaults: Refaults::default(),
                readers: Readers::default(),
                bounds: Bounds::new(),
                mappings: MappingLimit::new(),
                held: 0..0,
                apart: 0,
                overdraft: 0,
                said: Said::default(),
            },
            transit: InTransit::new(),
            has_devices: false,
            leaving: false,
            inspected: false,
            seen: Box::new(Seen::new()),
            brk,
            high: options.high,
            figures: Figures::default(),
        }
    }

    pub(crate) fn pool_pages(&self) -> usize {
        self.pool
            .as_ref()
            .map_or(0, |pool| pool.zswap.arena().backed_pages())
    }

    /// Whether nothing is closed now.
    pub(crate) const fn closes_nothing(&self) -> bool {
        self.leaving || self.inspected
    }

    /// Above this no page is opened before others are closed.
    pub(crate) fn limit(&self) -> usize {
        self.high - self.slack() + self.closing.overdraft
    }

    /// Pages between that limit and what there may be.
    pub(super) fn slack(&self) -> usize {
        (self.high / 64).clamp(64, 4096)
    }

    /// Whether any of `range` is being brought, and not to be closed.
    pub(super) fn is_held(&self, range: &Range<usize>) -> bool {
        self.closing.held.start < range.end && range.start < self.closing.held.end
    }

    /// Counts a fault that came at `came` (CLOCK_MONOTONIC, ns) and is served, for the
    /// [`TIMED`] of which it was timed.
    pub(crate) fn note_served(&self, kind: FaultKind, came: u64) {
        if let Some(pool) = &self.pool {
            let took = now_ns(Clock::Monotonic).saturating_sub(came);
            pool.stats.faults[kind as usize].record_for(took, TIMED);
        }
    }

    /// Ends the process rather than let it read a wrong byte.
    pub(crate) fn fail(&self, why: core::fmt::Arguments<'_>) -> ! {
        match &self.pool {
            Some(pool) => fatal::fail(pool.stats, pool.zswap.stats(), pid(), why),
            None => panic!("{why}"),
        }
    }
}
