//! Engines: threads of the manager that compress what reclaim stores
//! (`zfolio run --engines N`; none unless asked for).
//!
//! The queues and the protocol are `zfolio-compress`'s; here are the threads.
//! They are handed pages to compress, and pages to decompress where a load has many of them and it
//! takes less time so. (A fault wants one page, and to wake a thread takes longer than to
//! decompress that.) Whoever stores or loads does its share of the batch itself, so that engines
//! that do not get to run cost nothing.
//!
//! # Forks
//! While a fork's image is taken no store is under way, so the queues are
//! empty; the child takes them over as they are, with fresh contexts and threads
//! of its own. Without threads everything is done inline.

use crate::segment::{Counter, ProcessSlot, engine_queue};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use zfolio_compress::dictionary::Dictionaries;
use zfolio_compress::engine::device::QueueKind;
use zfolio_compress::engine::{Attributes, Engines, Group, LEAST_LOADED, Parallel, QueueTotals};
use zfolio_compress::{
    BatchOutcome, CodecError, CompressUnit, Compressor, Context, DecompressUnit,
};
use zfolio_sys::lock::{Mutex, reset_in_fork_child};
use zfolio_sys::thread::{Clock, now_ns};

/// Units between two notes of a thread's CPU time.
const CPU_NOTE: u32 = 16;

/// The engines of a process.
pub(crate) struct EngineThreads {
    parallel: Parallel,
    engines: Vec<Engine>,
    /// When they came to rest, ns; 0: they work.
    resting_since_ns: AtomicU64,
}

/// One of them; its thread holds `context` for life.
struct Engine {
    context: Mutex<Option<Box<dyn Context + Send>>>,
    cpu_ns: AtomicU64,
}

impl EngineThreads {
    /// Queues with `attributes` for `count` engines that run `codec`; the threads come later.
    /// `processors`: over how many submitters are spread.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new(
        codec: Box<dyn Compressor>,
        count: usize,
        attributes: Attributes,
        processors: usize,
    ) -> Result<Self, CodecError> {
        let setup = Engines::default();
        // Checked when they were read, and nothing is enabled yet.
        let _ = setup.replace(attributes);
        let group = setup
            .enable(count, processors, &*codec)
            .map_err(|_| CodecError::Workspace)?;
        let parallel = Parallel::new(group, codec);
        let engine = |_| {
            Ok(Engine {
                context: Mutex::new(Some(parallel.engine_context()?)),
                cpu_ns: AtomicU64::new(0),
            })
        };
        let engines: Result<Vec<_>, CodecError> = (0..count).map(engine).collect();
        Ok(Self {
            engines: engines?,
            parallel,
            resting_since_ns: AtomicU64::new(0),
        })
    }

    /// What the pool compresses with.
    pub(crate) fn compressor(&self) -> Box<dyn Compressor> {
        Box::new(self.parallel.clone())
    }

    fn group(&self) -> &Arc<Group> {
        self.parallel.group()
    }

    /// Has nothing handed to them, or all again, as `rest` says, and counts it.
    pub(crate) fn rest(&self, rest: bool, stats: &ProcessSlot) {
        let since = self.resting_since_ns.load(Ordering::Relaxed);
        if !rest && since == 0 {
            return;
        }
        let now = now_ns(Clock::Monotonic);
        if rest && since == 0 {
            stats.add(Counter::EngineRests, 1);
        } else {
            stats.add(Counter::EngineRestNs, now.saturating_sub(since));
        }
        let next = if rest { now } else { 0 };
        self.resting_since_ns.store(next, Ordering::Relaxed);
        self.group().rest(rest);
    }

    /// Takes over attributes, as [`Attributes::numbers`] gives them, of those that may change;
    /// what is none is left.
    pub(crate) fn change(&self, numbers: &[u64; Attributes::NAMES.len()]) {
        if let Ok(attributes) = Attributes::from_numbers(numbers) {
            let _ = self.group().change(&attributes);
        }
    }

    /// Whether nothing is handed to them for now.
    pub(crate) fn are_resting(&self) -> bool {
        self.group().is_resting()
    }

    /// CPU time of the threads, ns, as they noted it last.
    pub(crate) fn cpu_ns(&self) -> u64 {
        let each = self.engines.iter();
        each.map(|engine| engine.cpu_ns.load(Ordering::Relaxed))
            .sum()
    }

    /// Copies what the queues counted.
    pub(crate) fn publish(&self, stats: &ProcessSlot) {
        let (queues, all) = self.group().totals();
        let verified = self.parallel.verified();
        for (counter, value) in [
            (Counter::EngineSubmitted, queues.submitted),
            (Counter::EngineCompleted, queues.completed),
            (Counter::EngineTakenBack, queues.taken_back),
            (Counter::EngineTimeouts, queues.timeouts),
            (Counter::EngineLate, queues.late),
            (Counter::EngineBusy, queues.busy),
            (Counter::EngineInline, all.inline.load(Ordering::Relaxed)),
            (Counter::EngineInput, queues.input_bytes),
            (Counter::EngineOutput, queues.output_bytes),
            (
                Counter::EngineRebalanced,
                all.rebalanced.load(Ordering::Relaxed),
            ),
            (
                Counter::EngineDecompBatches,
                all.decomp_batches.load(Ordering::Relaxed),
            ),
            (
                Counter::EngineSwDecompBatches,
                all.sw_decomp_batches.load(Ordering::Relaxed),
            ),
            (
                Counter::EngineDecompUnits,
                all.decomp_units.load(Ordering::Relaxed),
            ),
            (
                Counter::EngineVerified,
                verified.verified.load(Ordering::Relaxed),
            ),
            (
                Counter::EngineMismatched,
                verified.mismatched.load(Ordering::Relaxed),
            ),
        ] {
            stats.set(counter, value);
        }
        let each = self.group().attributes().queues_per_engine;
        for (at, row) in stats.engine_queues.iter().enumerate() {
            let (engine, queue) = (at / each, at % each);
            let Some(totals) = self.group().queue_totals(engine, queue) else {
                break;
            };
            let kind = self.group().kind(queue);
            let words = queue_words(engine, queue, kind, &totals);
            for (word, value) in row.iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
        }
    }

    /// In the child of a fork, before its threads are started.
    pub(crate) fn reset_in_fork_child(&self) {
        self.group().reset_in_fork_child();
        self.parallel.verified().restart();
        self.resting_since_ns.store(0, Ordering::Relaxed);
        self.group().rest(false);
        for engine in &self.engines {
            reset_in_fork_child(&engine.context);
            // An engine may have been at work for nobody when the image was
            // taken: its context may be half-way.
            *engine.context.lock() = self.parallel.engine_context().ok();
            engine.cpu_ns.store(0, Ordering::Relaxed);
        }
    }

    /// How many threads there are to be.
    pub(crate) fn count(&self) -> usize {
        self.engines.len()
    }

    /// The life of the thread of engine `index`, until it is stopped.
    pub(crate) fn serve(&self, index: usize) {
        let engine = &self.engines[index];
        if let Some(context) = engine.context.lock().as_mut() {
            let mut timed = Timed {
                inner: &mut **context,
                cpu_ns: &engine.cpu_ns,
                units: 0,
            };
            self.group().serve(index, &mut timed);
        }
    }
}

/// A queue as a slot has it, by [`engine_queue`].
fn queue_words(
    engine: usize,
    queue: usize,
    kind: Option<QueueKind>,
    totals: &QueueTotals,
) -> [u64; engine_queue::WORDS] {
    let kind = match kind {
        Some(QueueKind::Compress) => engine_queue::COMPRESS,
        Some(QueueKind::Decompress) => engine_queue::DECOMPRESS,
        Some(QueueKind::Generic) | None => engine_queue::GENERIC,
    };
    [
        engine_queue::identity(engine, queue, kind),
        totals.submitted,
        totals.completed,
        totals.taken_back,
        totals.timeouts,
        totals.late,
        totals.busy,
        totals.broken,
        totals.input_bytes,
        totals.output_bytes,
    ]
}

/// Decompresses a few pages inline, and all else on the engines, which see to it that it pays.
pub(crate) struct Submitting {
    pub(crate) engines: Box<dyn Compressor>,
    pub(crate) inline: Box<dyn Compressor>,
}

impl Compressor for Submitting {
    fn name(&self) -> &'static str {
        self.inline.name()
    }

    fn batch_size(&self) -> usize {
        self.engines.batch_size()
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(SubmittingContext {
            engines: self.engines.context()?,
            inline: self.inline.context()?,
        }))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        self.inline.max_compressed_len(unit)
    }

    fn dense(&self) -> Option<Box<dyn Compressor>> {
        self.inline.dense()
    }

    fn dense_units(&self) -> Option<Box<dyn Compressor>> {
        self.inline.dense_units()
    }

    fn dictionaries(&self) -> Option<Arc<Dictionaries>> {
        self.inline.dictionaries()
    }
}

struct SubmittingContext {
    engines: Box<dyn Context + Send>,
    inline: Box<dyn Context + Send>,
}

impl Context for SubmittingContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        self.engines.compress_batch(units)
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        if units.len() < LEAST_LOADED {
            return self.inline.decompress_batch(units);
        }
        let outcome = self.engines.decompress_batch(units);
        if outcome.all_ok() {
            return outcome;
        }
        // An engine's word that bytes are bad is not taken: whoever loads finds out itself.
        let bad = units.iter_mut().filter(|unit| unit.result.is_err());
        let failed = bad.map(|unit| {
            let mut again = [DecompressUnit::new(unit.src, &mut *unit.dst)];
            let outcome = self.inline.decompress_batch(&mut again);
            let result = again[0].result;
            unit.result = result;
            outcome.failed
        });
        BatchOutcome {
            failed: failed.sum(),
        }
    }
}

/// Notes the CPU time of the thread it works in.
struct Timed<'a> {
    inner: &'a mut dyn Context,
    cpu_ns: &'a AtomicU64,
    units: u32,
}

impl Timed<'_> {
    fn note(&mut self) {
        self.units = self.units.wrapping_add(1);
        if self.units.is_multiple_of(CPU_NOTE) {
            self.cpu_ns
                .store(now_ns(Clock::ThreadCpu), Ordering::Relaxed);
        }
    }
}

impl Context for Timed<'_> {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        self.note();
        self.inner.compress_batch(units)
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        self.note();
        self.inner.decompress_batch(units)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::transfer::worker::BATCH_PAGES;
    use std::vec;
    use zfolio_compress::{Codec, sample};

    #[test]
    fn what_engines_compress_is_read_without_them_also_after_a_fork() {
        let codec = || Codec::ZSTD.compressor();
        let threads = EngineThreads::new(codec(), 2, Attributes::for_engines(2), 2).unwrap();
        let submitting = Submitting {
            engines: threads.compressor(),
            inline: codec(),
        };
        let mut context = submitting.context().unwrap();
        let mut pages = vec![vec![0; 4096]; BATCH_PAGES];
        for (index, page) in pages.iter_mut().enumerate() {
            sample::records(page, 1, index as u64 * 4096);
        }
        let check = |context: &mut dyn Context| {
            let mut buffers = vec![vec![0; 8192]; pages.len()];
            let mut units: vec::Vec<_> = pages
                .iter()
                .zip(&mut buffers)
                .map(|(src, dst)| CompressUnit::new(src, dst))
                .collect();
            assert!(context.compress_batch(&mut units).all_ok());
            let lens: vec::Vec<_> = units.iter().map(|unit| unit.result.unwrap()).collect();
            for ((page, buffer), len) in pages.iter().zip(&buffers).zip(lens) {
                let mut plain = vec![0; 4096];
                let mut unit = [DecompressUnit::new(&buffer[..len], &mut plain)];
                assert!(context.decompress_batch(&mut unit).all_ok());
                assert!(plain == *page);
            }
        };
        // Descriptors for all that is claimed together.
        assert_eq!(threads.group().attributes().descriptors * 2, BATCH_PAGES);
        // No thread yet, a thread, and none again as in a child.
        check(&mut *context);
        std::thread::scope(|scope| {
            let (group, engine) = (threads.group(), &threads.engines[0]);
            scope.spawn(move || {
                let mut held = engine.context.lock();
                let mut timed = Timed {
                    inner: &mut **held.as_mut().unwrap(),
                    cpu_ns: &engine.cpu_ns,
                    units: 0,
                };
                assert!(group.serve(0, &mut timed));
            });
            while group.online() == 0 {
                std::thread::yield_now();
            }
            check(&mut *context);
            group.stop_all();
        });
        let counted = || {
            let (queues, all) = threads.group().totals();
            (queues.submitted, all.inline.load(Ordering::Relaxed))
        };
        let (submitted, inline) = counted();
        assert!(submitted > 0 && submitted + inline >= 2 * BATCH_PAGES as u64);
        threads.reset_in_fork_child();
        assert_eq!(counted(), (0, 0));
        check(&mut *context);
        assert_eq!(counted(), (0, BATCH_PAGES as u64));
        assert_eq!(threads.group().validate_quiet(), Ok(()));
    }
}
