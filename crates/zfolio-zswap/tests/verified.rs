//! `verify_compress` in front of the pool: what a faulty codec makes of a page is
//! found out before anybody relies on it, and the page is kept as it is.

mod support;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use support::{Content, TestArena, content_of, gauges, store};
use zfolio_compress::engine::{Attributes, Engines, Parallel};
use zfolio_compress::verify::{Verified, VerifyStats};
use zfolio_compress::{
    BatchOutcome, Codec, CodecError, CompressUnit, Compressor, Context, DecompressUnit,
};
use zfolio_zswap::{Limits, Slot, StoreError, Zswap};

/// lz4, that changes the first byte of every third unit and says nothing.
#[derive(Clone, Default)]
struct Faulty(Arc<AtomicUsize>);

struct FaultyContext {
    inner: Box<dyn Context + Send>,
    made: Arc<AtomicUsize>,
}

impl Compressor for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn batch_size(&self) -> usize {
        1
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(FaultyContext {
            inner: Codec::LZ4.compressor().context()?,
            made: self.0.clone(),
        }))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        Codec::LZ4.compressor().max_compressed_len(unit)
    }
}

impl Context for FaultyContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        let outcome = self.inner.compress_batch(units);
        for unit in units {
            if self.made.fetch_add(1, Relaxed) % 3 == 1 {
                // Behind the first token: a literal of the page.
                unit.dst[1] ^= 1;
            }
        }
        outcome
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        self.inner.decompress_batch(units)
    }
}

fn pool(compressor: Box<dyn Compressor>, reject_poor: bool) -> Zswap<TestArena> {
    let limits = Limits {
        reject_poor,
        ..Limits::default()
    };
    Zswap::with_compressor(TestArena::new(), compressor, limits)
}

/// Sixteen pages, of which a faulty codec spoils every third from the second on.
fn contents() -> Vec<Content> {
    (0..16).map(Content::Records).collect()
}
const SPOILT: u64 = 5;

/// Pages that do not come back as they were stored.
fn wrong(zswap: &Zswap<TestArena>, slots: &[Slot]) -> u64 {
    let pages = slots.iter().zip(contents());
    let wrong =
        pages.filter(|(slot, content)| content_of(zswap, **slot).unwrap() != content.bytes());
    wrong.count() as u64
}

#[test]
fn without_it_the_fault_would_reach_the_program() {
    let zswap = pool(Box::new(Faulty::default()), false);
    let slots = store(&zswap, &contents()).unwrap();
    assert_eq!(zswap.stats().snapshot().stored_incompressible_pages, 0);
    assert_eq!(wrong(&zswap, &slots), SPOILT);
}

/// What is stored of a faulty codec's work, verified: all right, and raw where it
/// has to be.
#[track_caller]
fn kept(compressor: Box<dyn Compressor>) {
    let zswap = pool(compressor, false);
    let slots = store(&zswap, &contents()).unwrap();
    let now = zswap.stats().snapshot();
    assert_eq!(
        (now.stored_pages, now.stored_incompressible_pages),
        (16, SPOILT)
    );
    assert_eq!((now.zswpout, now.reject_compress_fail), (16, 0));
    assert!(now.compressed_bytes > SPOILT * 4096);
    assert_eq!(wrong(&zswap, &slots), 0);
    zswap.validate().unwrap();
    zswap.invalidate(&slots);
    assert_eq!(gauges(&zswap.stats().snapshot()), [0; 5]);
}

#[test]
fn a_mismatch_is_kept_raw_and_counted() {
    let stats = Arc::new(VerifyStats::default());
    kept(Box::new(Verified::new(
        Box::new(Faulty::default()),
        stats.clone(),
    )));
    let found = (stats.verified.load(Relaxed), stats.mismatched.load(Relaxed));
    assert_eq!(found, (16 - SPOILT, SPOILT));
}

#[test]
fn so_it_is_where_engines_verify() {
    let attributes = Attributes {
        verify: true,
        // No unit is to be done twice because the machine is slow.
        timeout_ns: 60_000_000_000,
        ..Attributes::default()
    };
    let setup = Engines::default();
    setup.replace(attributes).unwrap();
    let faulty = Faulty::default();
    let group = setup.enable(1, 1, &faulty).unwrap();
    let parallel = Parallel::new(group, Box::new(faulty));
    let (ends, mut context) = (parallel.group().clone(), parallel.engine_context().unwrap());
    std::thread::scope(|scope| {
        let serving = ends.clone();
        scope.spawn(move || serving.serve(0, &mut *context));
        // (One that begins after it was asked to leave would serve for ever.)
        while ends.online() == 0 {
            std::thread::yield_now();
        }
        kept(Box::new(parallel));
        ends.stop_all();
    });
}

#[test]
fn where_poor_pages_are_refused_so_is_the_folio() {
    let stats = Arc::new(VerifyStats::default());
    let verified = Verified::new(Box::new(Faulty::default()), stats);
    let zswap = pool(Box::new(verified), true);
    let refused = store(&zswap, &contents());
    assert_eq!(
        refused.unwrap_err(),
        StoreError::CompressFailed(CodecError::Mismatch)
    );
    let now = zswap.stats().snapshot();
    assert_eq!((now.reject_compress_fail, now.reject_compress_poor), (1, 0));
    assert_eq!(gauges(&now), [0; 5]);
    zswap.validate().unwrap();
}
