//! The second tier: when an object is tried, what becomes of it, and what happens
//! to it meanwhile.

mod support;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use support::{Content, Hook, TestArena, content_of, store};
use zfolio_compress::{
    BatchOutcome, Codec, CodecError, CompressUnit, Compressor, Context, DecompressUnit,
};
use zfolio_sys::secret::KeyPage;
use zfolio_zswap::TIER_STEP as STEP;
use zfolio_zswap::{Limits, LoadFault, MemoryBacking, Recompressed, Slot, TierContext, Zswap};

/// Runs once, if there is one.
type Once = Arc<Mutex<Option<Hook>>>;

/// `auto`; a hook runs once when the dense form is about to compress.
struct Hooked {
    inner: Box<dyn Compressor>,
    hook: Once,
}

struct HookedContext {
    inner: Box<dyn Context + Send>,
    hook: Once,
}

impl Compressor for Hooked {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn batch_size(&self) -> usize {
        1
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        self.inner.context()
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        self.inner.max_compressed_len(unit)
    }

    fn dense(&self) -> Option<Box<dyn Compressor>> {
        Some(Box::new(Dense(Self {
            inner: self.inner.dense()?,
            hook: self.hook.clone(),
        })))
    }
}

struct Dense(Hooked);

impl Compressor for Dense {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn batch_size(&self) -> usize {
        1
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(HookedContext {
            inner: self.0.inner.context()?,
            hook: self.0.hook.clone(),
        }))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        self.0.max_compressed_len(unit)
    }
}

impl Context for HookedContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook();
        }
        self.inner.compress_batch(units)
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        self.inner.decompress_batch(units)
    }
}

fn tiered() -> (Arc<Zswap<TestArena>>, TierContext, Once) {
    let hook = Once::default();
    let compressor = Box::new(Hooked {
        inner: Codec::Auto.compressor(),
        hook: hook.clone(),
    });
    let zswap = Zswap::with_compressor(TestArena::new(), compressor, Limits::default());
    let context = zswap
        .tier_context()
        .unwrap()
        .expect("auto has a dense form");
    (Arc::new(zswap), context, hook)
}

/// Steps to the end of the round.
fn round(zswap: &Zswap<TestArena>, context: &mut TierContext) -> Recompressed {
    let mut all = Recompressed::default();
    while !all.ended {
        let done = zswap.recompress_step(context, STEP);
        all.scanned += done.scanned;
        all.recompressed += done.recompressed;
        all.poor += done.poor;
        all.bytes_saved += done.bytes_saved;
        all.ended = done.ended;
        zswap.validate().unwrap();
    }
    all
}

fn records(count: u64) -> Vec<Content> {
    (0..count).map(Content::Records).collect()
}

fn assert_contents(zswap: &Zswap<TestArena>, slots: &[Slot], contents: &[Content]) {
    for (slot, content) in slots.iter().zip(contents) {
        assert!(content_of(zswap, *slot).unwrap() == content.bytes());
    }
}

#[test]
fn what_is_there_for_a_round_becomes_denser_and_is_not_tried_again() {
    let (zswap, mut context, _) = tiered();
    let contents = records(100);
    let slots: Vec<Slot> = contents
        .chunks(4)
        .flat_map(|folio| store(&zswap, folio).unwrap())
        .collect();
    let before = zswap.snapshot();
    let first = round(&zswap, &mut context);
    assert_eq!((first.scanned, first.recompressed), (100, 0), "too young");
    let second = round(&zswap, &mut context);
    assert_eq!((second.recompressed, second.poor), (100, 0));
    let now = zswap.snapshot();
    let saved = before.compressed_bytes - now.compressed_bytes;
    assert_eq!(saved, second.bytes_saved as u64);
    assert_eq!(
        [now.recompressed_pages, now.recompress_saved_bytes],
        [100, saved]
    );
    assert!(saved * 10 > before.compressed_bytes, "{saved}");
    assert!(now.pool_pages < before.pool_pages);
    assert_contents(&zswap, &slots, &contents);
    assert_eq!(round(&zswap, &mut context).recompressed, 0);
    assert_eq!(zswap.invalidate(&slots), 100);
    zswap.validate().unwrap();
    assert_eq!(zswap.arena().used_pages(), 0);
}

#[test]
fn what_saves_too_little_is_tried_once() {
    let (zswap, mut context, _) = tiered();
    let mut contents = vec![Content::Zero, Content::Same(5)];
    contents.extend((0..6).map(|seed| Content::Tail(seed, 2000)));
    contents.extend((0..8).map(Content::Noise));
    let slots = store(&zswap, &contents).unwrap();
    let before = zswap.snapshot();
    round(&zswap, &mut context);
    let second = round(&zswap, &mut context);
    assert_eq!((second.recompressed, second.poor), (0, 14));
    let third = round(&zswap, &mut context);
    assert_eq!((third.recompressed, third.poor), (0, 0));
    let now = zswap.snapshot();
    assert_eq!(now.recompress_poor, 14);
    assert_eq!(
        [now.compressed_bytes, now.pool_pages],
        [before.compressed_bytes, before.pool_pages]
    );
    assert_contents(&zswap, &slots, &contents);
}

#[test]
fn a_page_kept_as_it_is_may_become_shorter_all_the_same() {
    let (zswap, mut context, _) = tiered();
    // No four bytes twice, but sixteen values: nothing for lz4, half for zstd.
    let contents = [Content::Noise(3)];
    let pages = zswap.arena().take(1);
    let bytes: Vec<u8> = contents[0].bytes().iter().map(|byte| byte & 15).collect();
    zfolio_mm::Memory::with_mut(zswap.arena(), pages[0], 0, 4096, |page| {
        page.copy_from_slice(&bytes);
    });
    let mut slots = [Slot::ZERO];
    let mut work = zswap.context().unwrap();
    zswap.store_pages(&mut work, &pages, &mut slots).unwrap();
    assert_eq!(zswap.snapshot().stored_incompressible_pages, 1);
    round(&zswap, &mut context);
    assert_eq!(round(&zswap, &mut context).recompressed, 1);
    assert_eq!(zswap.snapshot().stored_incompressible_pages, 0);
    assert!(content_of(&zswap, slots[0]).unwrap() == bytes);
}

#[test]
fn what_is_dropped_meanwhile_is_gone() {
    let (zswap, mut context, hook) = tiered();
    let contents = records(16);
    let slots = store(&zswap, &contents).unwrap();
    round(&zswap, &mut context);
    let (dropping, gone) = (zswap.clone(), slots[..3].to_vec());
    *hook.lock().unwrap() = Some(Box::new(move || assert_eq!(dropping.invalidate(&gone), 3)));
    let second = round(&zswap, &mut context);
    assert_eq!(second.recompressed, 13);
    assert_eq!(content_of(&zswap, slots[0]), Err(LoadFault::NoEntry));
    assert_contents(&zswap, &slots[3..], &contents[3..]);
    assert_eq!(zswap.invalidate(&slots), 13);
    zswap.validate().unwrap();
    assert_eq!(zswap.arena().used_pages(), 0);
}

#[test]
fn what_is_on_its_way_to_the_backing_meanwhile_stays_as_it_is_for_now() {
    let (zswap, _, hook) = tiered();
    let backing = Arc::new(MemoryBacking::new(64 << 20));
    zswap.attach(backing, KeyPage::random().expect("a key"));
    let mut context = zswap.tier_context().unwrap().unwrap();
    let contents = records(8);
    let slots = store(&zswap, &contents).unwrap();
    let mut work = zswap.context().unwrap();
    // The second chance goes.
    assert_eq!(zswap.shrink_step(&mut work).written, 0);
    round(&zswap, &mut context);
    let looked = Arc::new(AtomicBool::new(false));
    let (other, seen) = (zswap.clone(), looked.clone());
    *hook.lock().unwrap() = Some(Box::new(move || {
        let mut work = other.context().unwrap();
        let shrunk = other.shrink_step(&mut work);
        assert_eq!(
            (shrunk.scanned, shrunk.written),
            (8, 0),
            "they are looked at"
        );
        seen.store(true, Relaxed);
    }));
    assert_eq!(round(&zswap, &mut context).recompressed, 8);
    assert!(looked.load(Relaxed));
    assert_contents(&zswap, &slots, &contents);
    // As what they are now they go.
    assert_eq!(zswap.shrink_step(&mut work).written, 8);
    zswap.validate().unwrap();
    assert_contents(&zswap, &slots, &contents);
}

#[test]
fn without_frames_nothing_changes_and_it_is_tried_again() {
    let (zswap, mut context, _) = tiered();
    let contents = records(16);
    let slots = store(&zswap, &contents).unwrap();
    round(&zswap, &mut context);
    zswap.arena().budget.store(0, Relaxed);
    let without = round(&zswap, &mut context);
    assert_eq!((without.recompressed, without.poor), (0, 0));
    assert_contents(&zswap, &slots, &contents);
    zswap.arena().budget.store(usize::MAX, Relaxed);
    assert_eq!(round(&zswap, &mut context).recompressed, 16);
    assert_contents(&zswap, &slots, &contents);
}

#[test]
fn damage_is_left_for_who_loads_it() {
    let (zswap, mut context, _) = tiered();
    let contents = records(1);
    let slots = store(&zswap, &contents).unwrap();
    round(&zswap, &mut context);
    let runs = zswap.arena().runs.lock().unwrap().clone();
    for (at, _) in runs {
        // (Past the header, within the object.)
        zswap.arena().flip(at, 100, 1);
    }
    let second = round(&zswap, &mut context);
    assert_eq!((second.recompressed, second.poor), (0, 0));
    assert_eq!(content_of(&zswap, slots[0]), Err(LoadFault::Checksum));
    assert_eq!(zswap.snapshot().recompressed_pages, 0);
}

#[test]
fn only_what_has_a_denser_form_has_a_tier() {
    for (codec, has) in [
        (Codec::LZ4, false),
        (Codec::ZSTD, false),
        (Codec::Noop, false),
        (Codec::Auto, true),
    ] {
        let zswap = Zswap::new(TestArena::new(), codec, Limits::default());
        assert_eq!(zswap.tier_context().unwrap().is_some(), has);
    }
}
