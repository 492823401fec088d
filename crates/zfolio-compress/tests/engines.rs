//! Engines with real threads: results are those of the codec alone, whatever
//! the engines do.

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn, yield_now};
use zfolio_compress::engine::{
    Attributes, Distribute, EnableError, Engines, Group, Parallel, SyncMode,
};
use zfolio_compress::verify::{Verified, VerifyStats};
use zfolio_compress::{
    BatchOutcome, Codec, CodecError, CompressUnit, Compressor, Context, DecompressUnit, sample,
};

/// Threads that serve until dropped.
struct Threads {
    group: Arc<Group>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    fn start(parallel: &Parallel, count: usize) -> Self {
        let group = parallel.group().clone();
        let threads = (0..count)
            .map(|index| {
                let group = group.clone();
                let mut context = parallel.engine_context().unwrap();
                spawn(move || assert!(group.serve(index, &mut *context)))
            })
            .collect();
        while group.online() < count {
            yield_now();
        }
        Self { group, threads }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.group.stop_all();
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn pages(count: usize, seed: u64) -> Vec<Vec<u8>> {
    (0..count)
        .map(|index| {
            let mut page = vec![0; 4096];
            let seed = seed + index as u64;
            match index % 5 {
                4 => sample::noise(&mut page, seed),
                _ => sample::records(&mut page, seed, index as u64 * 4096),
            }
            page
        })
        .collect()
}

/// Compresses and decompresses `pages` in batches of `batch`, comparing each
/// result with what the plain codec makes of it.
fn round_trip(context: &mut dyn Context, plain: &dyn Compressor, pages: &[Vec<u8>], batch: usize) {
    let capacity = 4000;
    let mut reference = plain.context().unwrap();
    for pages in pages.chunks(batch) {
        let mut packed = vec![vec![0; capacity]; pages.len()];
        let mut units: Vec<_> = pages
            .iter()
            .zip(&mut packed)
            .map(|(src, dst)| CompressUnit::new(src, dst))
            .collect();
        let outcome = context.compress_batch(&mut units);
        let results: Vec<_> = units.iter().map(|unit| unit.result).collect();
        assert_eq!(
            outcome.failed,
            results.iter().filter(|result| result.is_err()).count()
        );
        assert_eq!(outcome.into_result().is_ok(), outcome.failed == 0);
        for ((page, packed), result) in pages.iter().zip(&packed).zip(&results) {
            let mut expected = vec![0; capacity];
            let mut unit = [CompressUnit::new(page, &mut expected)];
            let _ = reference.compress_batch(&mut unit);
            assert_eq!(unit[0].result, *result);
            if let Ok(len) = *result {
                // lz4's output depends on what its table held before.
                let mut back = vec![1; 4096];
                let mut unit = [DecompressUnit::new(&packed[..len], &mut back)];
                let _ = reference.decompress_batch(&mut unit);
                assert_eq!(unit[0].result, Ok(4096));
                assert!(back == *page);
            }
        }
        let mut plains = vec![vec![1; 4096]; pages.len()];
        let mut units: Vec<_> = packed
            .iter()
            .zip(&mut plains)
            .zip(&results)
            .filter_map(|((src, dst), result)| {
                result.ok().map(|len| DecompressUnit::new(&src[..len], dst))
            })
            .collect();
        assert!(context.decompress_batch(&mut units).all_ok());
        for ((page, plain), result) in pages.iter().zip(&plains).zip(&results) {
            assert!(result.is_err() || page == plain);
        }
    }
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let modes = prop_oneof![
        Just(SyncMode::Sync),
        Just(SyncMode::Async),
        Just(SyncMode::AsyncIrq),
        Just(SyncMode::Assist),
    ];
    (
        (1_usize..5, 0_usize..5, any::<bool>(), any::<bool>(), modes),
        (any::<bool>(), any::<bool>(), 1_usize..20, 0_u32..3),
    )
        .prop_map(
            |((queues, compress, comps, decomps, mode), (verify, share, descriptors, retries))| {
                Attributes {
                    queues_per_engine: queues,
                    compress_queues: compress,
                    distribute: Distribute {
                        compress: comps,
                        decompress: decomps,
                    },
                    sync_mode: mode,
                    verify,
                    share,
                    descriptors,
                    retries,
                    ..Attributes::default()
                }
            },
        )
}

fn parallel(attributes: Attributes, engines: usize, codec: Codec) -> (Engines, Parallel) {
    let setup = Engines::default();
    setup.replace(attributes).unwrap();
    let codec = codec.compressor();
    let group = setup.enable(engines, 2, &*codec).unwrap();
    (setup, Parallel::new(group, codec))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn results_are_those_of_the_codec_alone(
        attributes in attributes(),
        engines in 1_usize..4,
        submitters in 1_usize..3,
        batch in 1_usize..100,
        seed in any::<u32>(),
    ) {
        // zstd: what a unit becomes does not depend on the units before.
        let (setup, parallel) = parallel(attributes, engines, Codec::ZSTD);
        let threads = Threads::start(&parallel, engines);
        std::thread::scope(|scope| {
            for submitter in 0..submitters {
                let parallel = &parallel;
                scope.spawn(move || {
                    let mut context = parallel.context().unwrap();
                    let pages = pages(100, u64::from(seed) + submitter as u64 * 1000);
                    round_trip(&mut *context, &*Codec::ZSTD.compressor(), &pages, batch);
                });
            }
        });
        let (totals, _) = parallel.group().totals();
        prop_assert_eq!(totals.broken, 0);
        drop(threads);
        prop_assert_eq!(parallel.group().validate_quiet(), Ok(()));
        let (totals, _) = parallel.group().totals();
        prop_assert_eq!(totals.submitted, totals.completed + totals.taken_back + totals.timeouts);
        prop_assert_eq!(totals.late, totals.timeouts);
        prop_assert_eq!(setup.disable(), Ok(()));
    }
}

#[test]
fn without_engines_everything_is_done_inline() {
    let (_setup, parallel) = parallel(Attributes::default(), 2, Codec::ZSTD);
    let mut context = parallel.context().unwrap();
    round_trip(&mut *context, &*Codec::ZSTD.compressor(), &pages(20, 1), 8);
    let (totals, shared) = parallel.group().totals();
    assert_eq!(totals.submitted, 0);
    // Compressed twenty, decompressed those sixteen that compress.
    assert_eq!(shared.inline.load(Ordering::Relaxed), 36);
}

/// What has to be done for threads to end, also where a test fails before it comes to it.
struct Leaving<F: FnMut()>(F);

impl<F: FnMut()> Drop for Leaving<F> {
    fn drop(&mut self) {
        self.0();
    }
}

#[test]
fn engines_come_and_go_while_batches_run() {
    let attributes = Attributes {
        sync_mode: SyncMode::AsyncIrq,
        timeout_ns: 5_000_000,
        ..Attributes::default()
    };
    let (setup, parallel) = parallel(attributes, 3, Codec::LZ4);
    let group = parallel.group().clone();
    let stop = AtomicBool::new(false);
    let left = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for index in 0..3 {
            let (group, parallel, stop, left) = (&group, &parallel, &stop, &left);
            scope.spawn(move || {
                let mut context = parallel.engine_context().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    group.serve(index, &mut *context);
                }
                left.fetch_add(1, Ordering::Relaxed);
            });
        }
        let leaving = Leaving(|| {
            stop.store(true, Ordering::Relaxed);
            // One may come back after its last stop: it is asked again.
            while left.load(Ordering::Relaxed) < 3 {
                group.stop_all();
                yield_now();
            }
        });
        let mut context = parallel.context().unwrap();
        let data = pages(400, 3);
        let mut buffers = vec![vec![0; 4200]; 8];
        for (turn, pages) in data.chunks(8).enumerate() {
            group.stop(turn % 3);
            let mut units: Vec<_> = pages
                .iter()
                .zip(&mut buffers)
                .map(|(src, dst)| CompressUnit::new(src, dst))
                .collect();
            assert!(context.compress_batch(&mut units).all_ok());
            let lens: Vec<_> = units.iter().map(|unit| unit.result.unwrap()).collect();
            let mut plain = vec![vec![0; 4096]; 8];
            let mut units: Vec<_> = buffers
                .iter()
                .zip(&lens)
                .zip(&mut plain)
                .map(|((src, len), dst)| DecompressUnit::new(&src[..*len], dst))
                .collect();
            assert!(context.decompress_batch(&mut units).all_ok());
            assert!(plain == pages);
        }
        drop((context, leaving));
    });
    assert_eq!(setup.disable(), Ok(()));
}

/// A codec of which one engine hangs until it is let go. The others do nothing
/// before it hangs: a scheduler that let them run first would leave it no unit.
#[derive(Clone)]
struct Stuck {
    hold: Arc<AtomicBool>,
    hangs: Arc<AtomicBool>,
    made: Arc<AtomicU64>,
}

impl Stuck {
    fn new() -> Self {
        Self {
            hold: Arc::new(AtomicBool::new(true)),
            hangs: Arc::default(),
            made: Arc::default(),
        }
    }
}

struct StuckContext {
    inner: Box<dyn Context + Send>,
    stuck: Stuck,
    /// 0 is the submitter's own, 1 the engine that hangs.
    number: u64,
}

impl Compressor for Stuck {
    fn name(&self) -> &'static str {
        "stuck"
    }
    fn batch_size(&self) -> usize {
        1
    }
    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(StuckContext {
            inner: Codec::ZSTD.compressor().context()?,
            stuck: self.clone(),
            number: self.made.fetch_add(1, Ordering::Relaxed),
        }))
    }
    fn max_compressed_len(&self, unit: usize) -> usize {
        Codec::ZSTD.compressor().max_compressed_len(unit)
    }
}

impl StuckContext {
    fn wait(&self) {
        let Stuck { hold, hangs, .. } = &self.stuck;
        hangs.fetch_or(self.number == 1, Ordering::Relaxed);
        while match self.number {
            0 => false,
            1 => hold.load(Ordering::Relaxed),
            _ => !hangs.load(Ordering::Relaxed),
        } {
            yield_now();
        }
    }
}

impl Context for StuckContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        self.wait();
        self.inner.compress_batch(units)
    }
    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        self.wait();
        self.inner.decompress_batch(units)
    }
}

/// The hard case: the engine is in the middle of a unit and does not come back
/// before the time is over. The batch ends all the same, with right results,
/// and what the engine writes later reaches nobody.
#[test]
fn a_stuck_engine_costs_its_timeout_and_no_result() {
    let stuck = Stuck::new();
    let setup = Engines::default();
    let attributes = Attributes {
        sync_mode: SyncMode::AsyncIrq,
        timeout_ns: 2_000_000,
        ..Attributes::default()
    };
    setup.replace(attributes).unwrap();
    let group = setup.enable(1, 1, &stuck).unwrap();
    let parallel = Parallel::new(group, Box::new(stuck.clone()));
    let mut context = parallel.context().unwrap();
    let threads = Threads::start(&parallel, 1);
    let let_go = Leaving(|| stuck.hold.store(false, Ordering::Relaxed));
    // Until the engine has got hold of a unit before it was taken back.
    while parallel.group().totals().0.timeouts == 0 {
        round_trip(&mut *context, &*Codec::ZSTD.compressor(), &pages(40, 9), 8);
    }
    let (totals, _) = parallel.group().totals();
    assert_eq!(totals.late, 0);
    assert_eq!(
        setup.disable(),
        Err(EnableError::InUse),
        "a context submits"
    );
    drop(let_go);
    drop(context);
    drop(threads);
    let (totals, _) = parallel.group().totals();
    assert_eq!(totals.late, totals.timeouts);
    assert_eq!(parallel.group().validate_quiet(), Ok(()));
    assert_eq!(setup.disable(), Ok(()));
}

#[test]
fn what_waits_for_an_engine_that_is_held_up_is_done_by_another() {
    const UNITS: usize = 40;
    let stuck = Stuck::new();
    let setup = Engines::default();
    let attributes = Attributes {
        sync_mode: SyncMode::AsyncIrq,
        descriptors: 64,
        timeout_ns: 600_000_000_000,
        ..Attributes::default()
    };
    setup.replace(attributes).unwrap();
    let group = setup.enable(2, 2, &stuck).unwrap();
    let parallel = Parallel::new(group, Box::new(stuck.clone()));
    let mut context = parallel.context().unwrap();
    let threads = Threads::start(&parallel, 2);
    std::thread::scope(|scope| {
        let batch = scope.spawn(|| {
            let pages = pages(UNITS, 3);
            round_trip(&mut *context, &*Codec::ZSTD.compressor(), &pages, UNITS);
        });
        let let_go = Leaving(|| stuck.hold.store(false, Ordering::Relaxed));
        // All but the one it is at.
        let begin = std::time::Instant::now();
        let completed = || parallel.group().totals().0.completed;
        while completed() < UNITS as u64 - 1 && begin.elapsed().as_secs() < 60 {
            yield_now();
        }
        let done = completed();
        drop(let_go);
        batch.join().unwrap();
        assert_eq!(done, UNITS as u64 - 1);
    });
    drop(threads);
}

/// A codec that now and then writes a byte other than it should.
struct Lying(Arc<AtomicU64>);

struct LyingContext(Box<dyn Context + Send>, Arc<AtomicU64>);

impl Compressor for Lying {
    fn name(&self) -> &'static str {
        "lying"
    }
    fn batch_size(&self) -> usize {
        1
    }
    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        let inner = Codec::Noop.compressor().context()?;
        Ok(Box::new(LyingContext(inner, self.0.clone())))
    }
    fn max_compressed_len(&self, unit: usize) -> usize {
        unit
    }
}

impl Context for LyingContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        let outcome = self.0.compress_batch(units);
        for unit in units {
            if self.1.fetch_add(1, Ordering::Relaxed) % 3 == 1 {
                unit.dst[unit.src.len() / 2] ^= 1;
            }
        }
        outcome
    }
    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        self.0.decompress_batch(units)
    }
}

#[test]
fn verification_finds_what_does_not_come_back() {
    let stats = Arc::new(VerifyStats::default());
    let lying = Box::new(Lying(Arc::default()));
    let verified = Verified::new(lying, stats.clone());
    let mut context = verified.context().unwrap();
    let data = pages(9, 5);
    let mut buffers = vec![vec![0; 4096]; 9];
    let mut units: Vec<_> = data
        .iter()
        .zip(&mut buffers)
        .map(|(src, dst)| CompressUnit::new(src, dst))
        .collect();
    assert_eq!(context.compress_batch(&mut units).failed, 3);
    for (index, unit) in units.iter().enumerate() {
        let expected = if index % 3 == 1 {
            Err(CodecError::Mismatch)
        } else {
            Ok(4096)
        };
        assert_eq!(unit.result, expected);
    }
    assert_eq!(stats.verified.load(Ordering::Relaxed), 6);
    assert_eq!(stats.mismatched.load(Ordering::Relaxed), 3);
}

#[test]
fn verification_happens_on_the_engines_too() {
    let attributes = Attributes {
        verify: true,
        sync_mode: SyncMode::AsyncIrq,
        // Nothing is to be done inline because the machine is slow.
        timeout_ns: 60_000_000_000,
        ..Attributes::default()
    };
    let setup = Engines::default();
    setup.replace(attributes).unwrap();
    let lying = Box::new(Lying(Arc::default()));
    let group = setup.enable(1, 1, &*lying).unwrap();
    let parallel = Parallel::new(group, lying);
    let threads = Threads::start(&parallel, 1);
    let mut context = parallel.context().unwrap();
    let data = pages(9, 5);
    let mut buffers = vec![vec![0; 4096]; 9];
    let mut units: Vec<_> = data
        .iter()
        .zip(&mut buffers)
        .map(|(src, dst)| CompressUnit::new(src, dst))
        .collect();
    let outcome = context.compress_batch(&mut units);
    assert_eq!(outcome.failed, 3);
    let mismatched = units
        .iter()
        .filter(|unit| unit.result == Err(CodecError::Mismatch));
    assert_eq!(mismatched.count(), 3);
    drop(context);
    drop(threads);
}
