//! Statistics, written where `zfolio run` reads them.

use crate::segment::{Counter, ProcessSlot, describe};
use crate::swapout::compress_threads::EngineThreads;
use crate::upkeep::{Upkeep, class_table};
use core::sync::atomic::{AtomicU64, Ordering};
use zfolio_mm::{Kind, Order, PAGE_SIZE};
use zfolio_sys::procfs::PresentRun;
use zfolio_sys::thread::{Clock, now_ns};
use zfolio_zswap::stats::Snapshot;

/// The first second after the start is not part of the steady peak.
const SETTLING_NS: u64 = 1_000_000_000;

/// Between two counts of the arena's huge pages, ns: and this many times what the
/// last one took, so that they cost a thousandth of a processor at most.
const HUGE_COUNT_NS: u64 = 1_000_000_000;
const HUGE_COUNT_SHARE: u64 = 1000;
/// Addresses looked at in one call: whoever maps memory waits for no more.
const HUGE_COUNT_BYTES: usize = 256 << 20;

impl Upkeep {
    /// Counts what of the arena is mapped by huge pages, if that is due. The
    /// control thread's.
    pub(crate) fn count_huge_pages(&self) {
        let begin = now_ns(Clock::Monotonic);
        if begin < self.huge_count_ns.load(Ordering::Relaxed) {
            return;
        }
        let bytes = self.huge_bytes();
        let end = now_ns(Clock::Monotonic);
        let wait = HUGE_COUNT_NS.max((end - begin).saturating_mul(HUGE_COUNT_SHARE));
        self.huge_count_ns.store(end + wait, Ordering::Relaxed);
        if let Some(bytes) = bytes {
            self.stats().set(Counter::ArenaAnonThp, bytes as u64);
        }
    }

    /// `None` if the page map cannot be read.
    fn huge_bytes(&self) -> Option<usize> {
        let arena = self.arena().map().range();
        let pagemap = self.fds.pagemap();
        let mut runs = [PresentRun::default(); 64];
        let (mut at, mut bytes) = (arena.start, 0);
        while at < arena.end {
            let end = (at + HUGE_COUNT_BYTES).min(arena.end);
            let (count, reached) = pagemap.huge(at, end, &mut runs).ok()?;
            let found = runs[..count].iter();
            bytes += found.map(|run| run.end() - run.start()).sum::<usize>();
            // A walk that does not get on would not end.
            at = (reached > at).then_some(reached)?;
        }
        Some(bytes)
    }

    /// Writes gauges and the pool's counters into the control segment.
    pub(crate) fn publish(&self, usage: usize) {
        let stats = self.stats();
        let now = now_ns(Clock::Monotonic);
        let pool = self.zswap.snapshot();
        let (standby, kept) = {
            let core = self.core.lock();
            (core.pages.standby.pages(), core.pages.extents.kept())
        };
        let free = self.arena().free_frames() + self.arena().kept_frames();
        let blocks = self.arena().frames().free_blocks(Kind::Hole, Order::HUGE);
        let ours = free + standby + usize::try_from(pool.pool_pages).unwrap_or(0);
        if self.scope.is_whole() {
            self.update_share(usage, usage.saturating_sub(ours) + kept);
        }
        let [cpu, reclaim] = self.cpu_ns();
        let classes = class_table::due(stats, &self.zswap, now);
        stats.update(|| {
            let bytes = |pages: usize| (pages * PAGE_SIZE) as u64;
            let resident = bytes(usage);
            let ours = bytes(free + standby) + pool.pool_total_size();
            let program = resident.saturating_sub(ours) + bytes(kept);
            let set_peak = |now: Counter, peak: Counter, value: u64| {
                stats.set(now, value);
                stats.counter(peak).fetch_max(value, Ordering::Relaxed);
            };
            set_peak(Counter::ProgramBytes, Counter::ProgramPeak, program);
            set_peak(Counter::ResidentBytes, Counter::ResidentPeak, resident);
            if now.saturating_sub(stats.process.started_ns.load(Ordering::Relaxed)) > SETTLING_NS {
                set_peak(
                    Counter::ResidentBytes,
                    Counter::ResidentPeakSteady,
                    resident,
                );
            }
            set_peak(
                Counter::PoolBytes,
                Counter::PoolPeak,
                pool.pool_total_size(),
            );
            let (heap, heap_peak) = zfolio_sys::heap::usage::bytes();
            stats.set(Counter::ManagerHeap, heap as u64);
            stats.set(Counter::ManagerHeapPeak, heap_peak as u64);
            stats.set(Counter::StandbyPages, standby as u64);
            stats.set(Counter::FreeFrames, free as u64);
            stats.set(Counter::FreeHugeBlocks, blocks as u64);
            stats.set(Counter::Released, self.arena().released());
            stats.set(Counter::Populated, self.arena().populated());
            stats.set(Counter::ManagerCpuNs, cpu);
            stats.set(Counter::ReclaimNs, reclaim);
            publish_pool(stats, &pool);
            if let Some(classes) = &classes {
                class_table::publish(stats, classes, now);
            }
            if let Some(engines) = self.engine_threads() {
                engines.publish(stats);
            }
            stats.updated_ns.store(now, Ordering::Relaxed);
        });
    }

    /// CPU time of the manager's threads, ns, each worker notes its own; and of those among them that move
    /// pages out.
    fn cpu_ns(&self) -> [u64; 2] {
        self.note_cpu(0);
        let engines = self.engine_threads().map_or(0, EngineThreads::cpu_ns);
        [self.workers_cpu_ns(), self.control_cpu_ns()].map(|ns| ns + engines)
    }

    /// Puts the process's name into its statistics.
    pub(crate) fn describe_process(&self) {
        describe(self.stats());
        let arena = self.arena().map().range().start as u64;
        self.stats().process.arena.store(arena, Ordering::Relaxed);
    }
}

/// Writes the counters of a pool.
pub fn publish_pool(stats: &ProcessSlot, pool: &Snapshot) {
    for (counter, value) in [
        (Counter::StoredPages, pool.stored_pages),
        (
            Counter::StoredIncompressible,
            pool.stored_incompressible_pages,
        ),
        (Counter::SameFilled, pool.same_filled_pages),
        (Counter::HugePagesSince, pool.huge_pages_since),
        (Counter::CompressedBytes, pool.compressed_bytes),
        (Counter::Zswpout, pool.zswpout),
        (Counter::Zswpin, pool.zswpin),
        (Counter::Zswpwb, pool.zswpwb),
        (Counter::Pswpout, pool.pswpout),
        (Counter::Pswpin, pool.pswpin),
        (Counter::PswpoutStore, pool.pswpout_store),
        (Counter::PswpinStore, pool.pswpin_store),
        (Counter::SwpoutZero, pool.swpout_zero),
        (Counter::SwpinZero, pool.swpin_zero),
        (Counter::PoolLimitHit, pool.pool_limit_hit),
        (Counter::RejectReclaimFail, pool.reject_reclaim_fail),
        (Counter::RejectAllocFail, pool.reject_alloc_fail),
        (Counter::RejectCompressFail, pool.reject_compress_fail),
        (Counter::RejectCompressPoor, pool.reject_compress_poor),
        (Counter::DecompressFail, pool.decompress_fail),
        (Counter::WrittenBack, pool.written_back_pages),
        (Counter::BackingPages, pool.backing_pages),
        (Counter::BackingStorePages, pool.backing_store_pages),
        (Counter::BackingBytes, pool.backing_bytes),
        (Counter::BackingStoreBytes, pool.backing_store_bytes),
        (Counter::BackingWriteFail, pool.backing_write_fail),
        (Counter::BackingFull, pool.backing_full),
        (Counter::BackingReadFail, pool.backing_read_fail),
        (Counter::ObjsMoved, pool.objs_moved),
        (Counter::ObjsMovedPeriod, pool.objs_moved_period),
        (Counter::ObjsMovedPressure, pool.objs_moved_pressure),
        (Counter::ObjsMovedRequest, pool.objs_moved_request),
        (Counter::PagesCompacted, pool.pages_compacted),
        (Counter::RecompressedPages, pool.recompressed_pages),
        (Counter::RecompressSaved, pool.recompress_saved_bytes),
        (Counter::RecompressPoor, pool.recompress_poor),
        (Counter::UnitsMade, pool.units_made),
        (Counter::UnitSplitPages, pool.unit_split_pages),
        (Counter::Units, pool.units),
        (Counter::UnitPages, pool.unit_pages),
        (Counter::DictionaryTrainings, pool.dictionary_trainings),
        (Counter::DictionaryInstalled, pool.dictionary_installed),
        (Counter::DictionaryRetired, pool.dictionary_retired),
        (Counter::DictionaryPages, pool.dictionary_pages),
        (Counter::DictionarySaved, pool.dictionary_saved_bytes),
        (Counter::DictionaryDrained, pool.dictionary_drained_pages),
        (
            Counter::DictionaryDrainedBytes,
            pool.dictionary_drained_bytes,
        ),
        (Counter::DictionaryUnits, pool.dictionary_units),
        (Counter::DictionaryBytes, pool.dictionary_bytes),
    ] {
        stats.set(counter, value);
    }
    copy(&stats.by_order.zswpout, &pool.order_zswpout);
    copy(&stats.by_order.zswpin, &pool.order_zswpin);
    copy(&stats.by_order.swpin, &pool.order_swpin);
    copy(&stats.by_order.swpin_fallback, &pool.order_swpin_fallback);
    copy(&stats.by_order.fallback, &pool.order_swpout_fallback);
    copy(&stats.by_order.split, &pool.order_split);
    copy(&stats.by_order.split_failed, &pool.order_split_failed);
}

fn copy(into: &[AtomicU64], from: &[u64]) {
    for (word, value) in into.iter().zip(from) {
        word.store(*value, Ordering::Relaxed);
    }
}
