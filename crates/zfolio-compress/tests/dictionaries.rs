//! Dictionaries: trained, versioned, dropped, and never a wrong byte.

use proptest::prelude::*;
use std::sync::Arc;
use zfolio_compress::dictionary::coder::ZstdDictionary;
use zfolio_compress::dictionary::train::{MAX_DICTIONARY, SAMPLE_PAGES, Trainer};
use zfolio_compress::dictionary::{Dictionaries, PLAIN, Refused, VERSIONS, version_of};
use zfolio_compress::{CodecError, CompressUnit, Compressor, Context, DecompressUnit, sample};

/// Pages of objects whose strings recur from page to page, `kind` by `kind`.
fn page(kind: u64, seed: u64) -> Vec<u8> {
    let mut random = sample::Rng::new(seed);
    let mut page = Vec::new();
    while page.len() < 4096 {
        let pick = random.word() % 40;
        let mut text = [0; 48];
        sample::noise(&mut text, kind * 1000 + pick);
        page.extend_from_slice(&text);
        page.extend_from_slice(&(random.word() & 0xffff).to_le_bytes());
    }
    page.truncate(4096);
    page
}

fn trained(kind: u64) -> (Trainer, Vec<u8>) {
    let mut trainer = Trainer::new(1).unwrap();
    for seed in 0..2 * SAMPLE_PAGES as u64 {
        trainer.show(&page(kind, seed));
    }
    assert!(trainer.is_ready());
    let mut content = vec![0; MAX_DICTIONARY];
    let len = trainer.train(&mut content);
    content.truncate(len);
    (trainer, content)
}

fn install(dictionaries: &Dictionaries, kind: u64) -> Result<u8, Refused> {
    let (trainer, content) = trained(kind);
    install_judged(dictionaries, &content, trainer.held_out())
}

fn install_judged<'a>(
    dictionaries: &Dictionaries,
    content: &[u8],
    pages: impl Iterator<Item = &'a [u8]>,
) -> Result<u8, Refused> {
    let mut candidate = dictionaries.candidate(content)?;
    for page in pages {
        candidate.judge(page)?;
    }
    dictionaries.install(candidate)
}

/// Compresses a page and keeps the unit.
fn keep(dictionaries: &Dictionaries, context: &mut dyn Context, page: &[u8]) -> Vec<u8> {
    let unit = compress(context, page, 5000).unwrap();
    dictionaries.keep(version_of(&unit));
    unit
}

fn compress(
    context: &mut dyn Context,
    page: &[u8],
    capacity: usize,
) -> Result<Vec<u8>, CodecError> {
    let mut dst = vec![0; capacity];
    let mut units = [CompressUnit::new(page, &mut dst)];
    let _ = context.compress_batch(&mut units);
    let result = units[0].result;
    result.map(|len| dst[..len].to_vec())
}

fn decompress(context: &mut dyn Context, packed: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut dst = vec![0; 4096];
    let mut units = [DecompressUnit::new(packed, &mut dst)];
    let _ = context.decompress_batch(&mut units);
    let result = units[0].result;
    result.map(|len| dst[..len].to_vec())
}

#[test]
fn a_dictionary_of_a_programs_own_pages_pays_and_a_foreign_one_is_refused() {
    let dictionaries = Arc::new(Dictionaries::new(1));
    let compressor = ZstdDictionary::new(dictionaries.clone());
    let mut context = compressor.context().unwrap();
    let fresh = page(1, 99_999);
    let without = compress(&mut *context, &fresh, 5000).unwrap();
    assert_eq!((without[0], version_of(&without)), (PLAIN, 0));

    let (_, content) = trained(2);
    let strange: Vec<_> = (0..64).map(|seed| page(1, 5000 + seed)).collect();
    let strange = strange.iter().map(Vec::as_slice);
    let refused = install_judged(&dictionaries, &content, strange);
    assert!(
        matches!(refused, Err(Refused::DoesNotPay(0..3))),
        "{refused:?}"
    );

    assert_eq!(install(&dictionaries, 1), Ok(1));
    let with = compress(&mut *context, &fresh, 5000).unwrap();
    assert_eq!(version_of(&with), 1);
    assert!(
        with.len() * 10 < without.len() * 9,
        "{} against {}",
        with.len(),
        without.len()
    );
    for packed in [&with, &without] {
        assert!(decompress(&mut *context, packed).unwrap() == fresh);
    }
}

#[test]
fn one_that_stops_paying_is_retired_and_its_units_stay_readable() {
    let dictionaries = Arc::new(Dictionaries::new(1));
    assert_eq!(install(&dictionaries, 1), Ok(1));
    let mut context = ZstdDictionary::new(dictionaries.clone()).context().unwrap();
    let first = page(1, 7);
    let kept = keep(&dictionaries, &mut *context, &first);
    // Pages of another kind, until it is noticed.
    let mut turns = 0;
    while dictionaries.current() != 0 {
        let packed = compress(&mut *context, &page(3, turns), 5000).unwrap();
        dictionaries.let_go(version_of(&packed));
        turns += 1;
        assert!(turns < 100_000, "it never was");
    }
    assert_eq!(dictionaries.retired(), 1);
    assert_eq!(dictionaries.collect(), 0);
    assert_eq!(dictionaries.units(1), Some(1));
    assert!(decompress(&mut *context, &kept).unwrap() == first);
    // Somebody reads it while it is dropped.
    dictionaries.hold(1);
    dictionaries.release(1);
    assert_eq!(dictionaries.collect(), 0);
    assert!(decompress(&mut *context, &kept).unwrap() == first);
    dictionaries.let_go(1);
    assert_eq!((dictionaries.collect(), dictionaries.bytes()), (1, 0));
    // What nobody was to read any more is an error, not some other bytes.
    assert_eq!(decompress(&mut *context, &kept), Err(CodecError::Corrupt));
}

#[test]
fn a_unit_that_fails_does_not_count() {
    let dictionaries = Arc::new(Dictionaries::new(1));
    assert_eq!(install(&dictionaries, 1), Ok(1));
    let mut context = ZstdDictionary::new(dictionaries.clone()).context().unwrap();
    let mut noise = vec![0; 4096];
    sample::noise(&mut noise, 1);
    let failed = compress(&mut *context, &noise, 3000);
    assert_eq!(failed, Err(CodecError::DoesNotFit));
    dictionaries.retire_current();
    assert_eq!(dictionaries.collect(), 1, "nothing is under way");
    // And the context is none the worse for it.
    let good = page(1, 3);
    let packed = compress(&mut *context, &good, 5000).unwrap();
    assert!(decompress(&mut *context, &packed).unwrap() == good);
}

#[test]
fn places_run_out_and_come_back() {
    let dictionaries = Arc::new(Dictionaries::new(1));
    let mut context = ZstdDictionary::new(dictionaries.clone()).context().unwrap();
    let mut kept = Vec::new();
    for version in 1..=VERSIONS as u64 {
        assert!(dictionaries.has_place());
        assert_eq!(install(&dictionaries, version).map(u64::from), Ok(version));
        let page = page(version, 1);
        kept.push((keep(&dictionaries, &mut *context, &page), page));
    }
    assert!(!dictionaries.has_place());
    assert_eq!(install(&dictionaries, 9), Err(Refused::NoPlace));
    for (packed, page) in &kept {
        assert!(decompress(&mut *context, packed).unwrap() == *page);
    }
    dictionaries.release(version_of(&kept[1].0));
    assert_eq!(install(&dictionaries, 9), Ok(2));
}

/// A child of a fork has the dictionaries, and what it keeps itself.
#[test]
fn a_child_counts_what_it_has() {
    let dictionaries = Arc::new(Dictionaries::new(1));
    let mut context = ZstdDictionary::new(dictionaries.clone()).context().unwrap();
    for kind in 1..=2 {
        assert!(install(&dictionaries, kind).is_ok());
    }
    let unit = keep(&dictionaries, &mut *context, &page(2, 5));
    for _ in 0..3 {
        dictionaries.hold(1);
        dictionaries.hold(2);
    }
    dictionaries.reset_in_fork_child([0, 1, 0, 0]);
    assert_eq!(dictionaries.collect(), 1);
    assert!(decompress(&mut *context, &unit).unwrap() == page(2, 5));
    dictionaries.release(2);
    dictionaries.retire_current();
    assert_eq!(dictionaries.collect(), 1);
}

#[test]
fn training_in_steps_makes_the_same_and_looks_at_nothing_new() {
    let (_, whole) = trained(1);
    let mut trainer = Trainer::new(1).unwrap();
    for seed in 0..2 * SAMPLE_PAGES as u64 {
        trainer.show(&page(1, seed));
    }
    let mut content = vec![0; MAX_DICTIONARY];
    let mut steps = 1;
    let len = loop {
        if let Some(len) = trainer.train_step(&mut content) {
            break len;
        }
        trainer.show(&page(2, steps));
        steps += 1;
    };
    assert!(steps > 40, "{steps}");
    assert!(content[..len] == whole);
    // A sample of few pages makes a short one, or none.
    for pages in [0, 1, 2, 5, 16] {
        let mut trainer = Trainer::with_pages(1, pages).unwrap();
        (0..20).for_each(|seed| trainer.show(&page(1, seed)));
        assert!(trainer.is_ready());
        let len = trainer.train(&mut content);
        assert!(len <= pages * 4096 * 3 / 4, "{pages}: {len}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Damage anywhere, the version's byte included.
    #[test]
    fn damage_is_contained(
        seed in any::<u32>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let dictionaries = Arc::new(Dictionaries::new(1));
        prop_assert_eq!(install(&dictionaries, 1), Ok(1));
        let mut context = ZstdDictionary::new(dictionaries).context().unwrap();
        let page = page(1, seed.into());
        let good = compress(&mut *context, &page, 5000).unwrap();
        let mut bad = good.clone();
        for (at, byte) in edits {
            let at = at.index(bad.len());
            bad[at] = byte;
        }
        let _ = decompress(&mut *context, &bad);
        prop_assert!(decompress(&mut *context, &good).unwrap() == page);
    }
}

/// Contexts are reckoned beforehand: more frames than a static context takes
/// before it would shrink, at every level and at several sizes.
#[test]
fn contexts_last_at_every_level() {
    for level in [-7, -1, 1, 3, 5, 9, 12, 15, 19] {
        let dictionaries = Arc::new(Dictionaries::new(level));
        assert_eq!(install(&dictionaries, 1), Ok(1), "level {level}");
        let mut context = ZstdDictionary::new(dictionaries).context().unwrap();
        let unit: Vec<u8> = (0..16).flat_map(|seed| page(1, 77 + seed)).collect();
        for len in [4096, 100, 65_536, 16_384, 4096] {
            for _ in 0..if len > 4096 { 2 } else { 70 } {
                let packed = compress(&mut *context, &unit[..len], 70_000);
                let packed = packed.unwrap_or_else(|error| panic!("{level}, {len}: {error}"));
                assert_eq!(version_of(&packed), 1);
                let mut back = vec![0; len];
                let mut units = [DecompressUnit::new(&packed, &mut back)];
                assert!(context.decompress_batch(&mut units).all_ok());
                assert!(back == unit[..len]);
            }
        }
    }
}
