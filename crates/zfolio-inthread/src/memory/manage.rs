//! Managing: it begins when memory first runs short, goes by what the process has resident and
//! may have, and says in the segment how it is.

use super::bounds::Bounds;
use super::clean_pages::CleanPages;
use super::core::{Figures, MemoryCore, Pool};
use super::refaults::Refaults;
use super::zspages::requests;
use crate::memory::layer::MemoryState;
use crate::raw::PAGE;
use alloc::boxed::Box;
use core::sync::atomic::Ordering;
use zfolio_compress::adaptive::{Adaptive, Density, Form};
use zfolio_compress::{Codec, Compressor};
use zfolio_runtime::class_table;
use zfolio_runtime::codec_choice::Turnover;
use zfolio_runtime::fair_share::{Having, grown, high_now};
use zfolio_runtime::protect::pool_arena::PoolArena;
use zfolio_runtime::reserve_arena;
use zfolio_runtime::segment::{Counter, ProcessSlot, describe, state};
use zfolio_runtime::statistics::publish_pool;
use zfolio_runtime::tier::Tier;
use zfolio_runtime::zspage_compaction::{Requests, Zspages};
use zfolio_sys::thread::{Clock, now_ns, pid};
use zfolio_sys::{heap, identity};
use zfolio_zswap::{Limits, Zswap};

/// Least that a process may have, pages.
const LEAST: usize = 2048;
/// Batches between two looks at what the process has resident and may have.
const LOOKS: u32 = 16;

impl MemoryCore {
    /// Pages that count: managed and open, the pool's, and what else is resident.
    pub(crate) fn usage(&self, state: &MemoryState) -> usize {
        self.open_pages(state) + self.pool_pages() + self.closing.apart
    }

    pub(crate) fn open_pages(&self, state: &MemoryState) -> usize {
        self.ranges.managed_pages().saturating_sub(away(state))
    }

    /// So many pages have left, each of them noted.
    pub(super) fn count_left(&mut self, state: &MemoryState, pages: usize) {
        let resident = self.open_pages(state);
        self.closing.refaults.count_left(pages, resident);
    }

    /// Looks at what is resident and may be, every few batches.
    pub(crate) fn look(&mut self, state: &MemoryState, now: bool) {
        self.closing.batches += 1;
        if self.closing.batches < LOOKS && !now {
            return;
        }
        self.closing.batches = 0;
        let ours = self.open_pages(state) + self.pool_pages();
        if let Some(resident) = self.way.resident() {
            self.closing.apart = resident.saturating_sub(ours).max(self.closing.apart / 2);
        }
        let usage = self.usage(state);
        let charged = self.pool.as_ref().map(|pool| pool.zswap.charged());
        let charged = charged.unwrap_or_default();
        let has = Having {
            owner: identity::of_process(),
            resident: usage,
            needs: grown(usage + away(state)),
            zswap_bytes: charged.zswap,
            swap_bytes: charged.swap,
            backing_bytes: self.backing_bytes(),
        };
        let allowed = state
            .membership
            .update(state.segment, has, state.options.high);
        state.membership.stay(state.segment);
        // The others may sleep, and do not shrink while they do: what they have is taken.
        let shared = state.segment.config().limits.shared.load(Ordering::Relaxed) != 0;
        let taken = if shared {
            state.membership.resident_of_others(state.segment)
        } else {
            0
        };
        let high = high_now(state.segment, state.options.high);
        let left = high.saturating_sub(taken).max(LEAST);
        self.high = allowed.high.min(left.max(allowed.assured / 4));
        self.closing.clean.follow(self.high);
        self.take_allowed(state, &allowed);
        self.publish(state);
        self.choose_density(state);
    }

    /// How dense new units are: by how much of what the process may have the pool takes, and by what
    /// comes back.
    fn choose_density(&mut self, state: &MemoryState) {
        let Some(pool) = &mut self.pool else { return };
        let count = |counter| pool.stats.counter(counter).load(Ordering::Relaxed);
        let (came, went) = (count(Counter::PagesIn), count(Counter::PagesOut));
        pool.turnover.judge(came, went);
        let options = &state.options;
        let taken = pool.zswap.pool_pages();
        let by_size = if taken * 2 > self.high {
            Form::Dense
        } else if taken * 3 < self.high || pool.density.get() == Form::Fast {
            Form::Fast
        } else {
            Form::Dense
        };
        let least = pool.turnover.least_form(options.follows, options.tier);
        pool.density.set(by_size.or_denser(least));
    }

    /// Makes the pool, where there is none yet.
    ///
    /// # Errors
    /// What kept it from being made.
    pub(crate) fn begin_managing(&mut self, state: &MemoryState) -> Result<(), &'static str> {
        if self.pool.is_some() {
            return Ok(());
        }
        if !state.is_own_process() {
            // It cannot say where its parent's handlers run.
            return Err("the child of a posix_spawn has its parent's memory");
        }
        let options = &state.options;
        let map = reserve_arena(options.high, usize::MAX)
            .map_err(|_| "there are no addresses for the pool")?;
        let density = Density::default();
        let compressor: Box<dyn Compressor> = match options.codec {
            Codec::Auto => Box::new(Adaptive::new(density.clone())),
            fixed => fixed.compressor(),
        };
        let zswap =
            Zswap::with_compressor(PoolArena::of_process(map), compressor, Limits::default());
        let zswap: &'static Zswap<PoolArena> = Box::leak(Box::new(zswap));
        // (Before there is a context, which has room for it.)
        let backed = self.open_backing(state, zswap);
        let context = zswap
            .context()
            .map_err(|_| "a compressor could not be made")?;
        // (Without memory for it there is none.)
        let tier = options.tier.then(|| zswap.tier_context().ok().flatten());
        let tier = Tier::new(tier.flatten());
        state.following.has_tier(tier.is_there());
        // (Nothing is there to be compacted.)
        let requests = Requests::new(requests(state));
        let stats = claim(state, self.way.kind.number(), requests.done());
        self.closing.clean = CleanPages::of(options.high);
        self.closing.refaults = Refaults::of(options.high);
        self.pool = Some(Pool {
            zswap,
            context,
            density,
            turnover: Turnover::default(),
            tier,
            tier_ended_ns: 0,
            zspages: Zspages::default(),
            requests,
            stats,
        });
        if let Err(errno) = backed {
            self.note_no_backing(errno);
        }
        (state.entries.handle_by_entry)(true);
        self.look(state, true);
        Ok(())
    }

    /// Writes what is counted to the segment.
    pub(crate) fn publish(&mut self, state: &MemoryState) {
        let usage = self.usage(state);
        let closed = away(state);
        let open = self.open_pages(state);
        let figures = core::mem::take(&mut self.figures);
        let Some(pool) = &self.pool else {
            self.figures = figures;
            return;
        };
        let mended = core::mem::take(&mut self.closing.mappings.mended);
        let stats = pool.stats;
        let snapshot = pool.zswap.snapshot();
        let now = now_ns(Clock::Monotonic);
        let classes = class_table::due(stats, pool.zswap, now);
        stats.update(|| {
            let bytes = |pages: usize| (pages * PAGE) as u64;
            let set_peak = |now: Counter, peak: Counter, value: u64| {
                stats.set(now, value);
                stats.counter(peak).fetch_max(value, Ordering::Relaxed);
            };
            set_peak(
                Counter::ProgramBytes,
                Counter::ProgramPeak,
                bytes(open + closed + self.closing.apart),
            );
            set_peak(Counter::ResidentBytes, Counter::ResidentPeak, bytes(usage));
            set_peak(
                Counter::PoolBytes,
                Counter::PoolPeak,
                snapshot.pool_total_size(),
            );
            stats.set(Counter::CutMappings, state.words.borders() as u64);
            let (used, peak) = heap::usage::bytes();
            stats.set(Counter::ManagerHeap, used as u64);
            stats.set(Counter::ManagerHeapPeak, peak as u64);
            for (counter, value) in [
                (Counter::FaultsServed, figures.faults),
                (Counter::Pgmajfault, figures.major),
                (Counter::PagesIn, figures.pages_in),
                (Counter::PagesOut, figures.pages_out),
                (Counter::SwpoutClean, figures.clean),
                (Counter::SwapRa, figures.ahead),
                (Counter::HolePages, figures.filled),
                (Counter::Unmovable, figures.unmovable),
                (Counter::CutsMended, mended),
                (Counter::Forks, figures.events.forks),
                (Counter::Remaps, figures.events.remaps),
                (Counter::Removes, figures.events.removes),
                (Counter::Unmaps, figures.events.unmaps),
                (Counter::HighEvents, figures.waits),
                (Counter::StallNs, figures.waited_ns),
                (
                    Counter::ManagerCpuNs,
                    figures.waited_ns + figures.beside.cpu_ns,
                ),
                (Counter::PgstealKswapd, figures.beside.pages),
            ] {
                stats.add(counter, value);
            }
            publish_pool(stats, &snapshot);
            if let Some(classes) = &classes {
                class_table::publish(stats, classes, now);
            }
            stats.updated_ns.store(now, Ordering::Relaxed);
        });
    }

    /// The process ends, or becomes another program.
    pub(crate) fn end(&mut self, state: &MemoryState) {
        self.publish(state);
        state.membership.leave(state.segment);
    }

    /// In the child of a fork: the statistics are the parent's, and its place.
    pub(crate) fn renew_in_child(&mut self, state: &MemoryState) {
        state.membership.forget();
        self.share_with_child(true);
        state.following.renew_in_child();
        self.figures = Figures::default();
        self.closing.mappings.mended = 0;
        self.closing.bounds = Bounds::new();
        let number = self.way.kind.number();
        if let Some(pool) = &mut self.pool {
            pool.zswap.reset_in_fork_child();
            pool.zswap.stats().restart();
            pool.tier.restart();
            pool.zspages = Zspages::default();
            // (What the parent was at is to be done here as well.)
            let done = pool.requests.done();
            pool.requests = Requests::new(done);
            pool.turnover = Turnover::default();
            pool.stats = claim(state, number, done);
        }
        self.open_backing_in_child(state);
        state.segment.processes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Closed pages that take no memory. (Those in transit do, or will in a moment.)
fn away(state: &MemoryState) -> usize {
    let words = &state.words;
    let here = words.standby() + words.transit();
    words.closed().saturating_sub(here)
}

/// A place for statistics. `compacted`: number of the last compaction on request that is done.
fn claim(state: &MemoryState, way: u32, compacted: u32) -> &'static ProcessSlot {
    let slot = &state.segment.slots[state.segment.claim(pid())];
    describe(slot);
    slot.process.told_by.store(way, Ordering::Relaxed);
    slot.process
        .arena
        .store(core::ptr::from_ref(state) as u64, Ordering::Relaxed);
    slot.process
        .hold_entry
        .store(state.entries.hold as u64, Ordering::Relaxed);
    slot.compacted.store(compacted, Ordering::Relaxed);
    slot.state.store(state::MANAGING, Ordering::Release);
    state.following.count_in(slot);
    slot
}
