//! Dictionaries: trained, versioned, dropped, and never a wrong byte.

use proptest::prelude::*;
use std::sync::Arc;
use zfolio_compress::dictionary::train::{MAX_DICTIONARY, SAMPLE_PAGES, Trainer};
use zfolio_compress::dictionary::{Dictionaries, Refused, VERSIONS, ZstdDictionary};
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
    let judges: Vec<_> = trainer.held_out().collect();
    dictionaries.install(&content, &judges)
}

fn compress(context: &mut dyn Context, page: &[u8], room: usize) -> Result<Vec<u8>, CodecError> {
    let mut dst = vec![0; room];
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
    assert_eq!(without[0], 0);

    let (_, content) = trained(2);
    let strange: Vec<_> = (0..64).map(|seed| page(1, 5000 + seed)).collect();
    let strange: Vec<&[u8]> = strange.iter().map(Vec::as_slice).collect();
    let refused = dictionaries.install(&content, &strange);
    assert!(
        matches!(refused, Err(Refused::DoesNotPay(0..3))),
        "{refused:?}"
    );

    assert_eq!(install(&dictionaries, 1), Ok(1));
    let with = compress(&mut *context, &fresh, 5000).unwrap();
    assert_eq!(with[0], 1);
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
    let kept = compress(&mut *context, &first, 5000).unwrap();
    // Pages of another kind, until it is noticed.
    let mut turns = 0;
    while dictionaries.current() != 0 {
        let packed = compress(&mut *context, &page(3, turns), 5000).unwrap();
        dictionaries.release(&packed);
        turns += 1;
        assert!(turns < 100_000, "it never was");
    }
    assert_eq!(dictionaries.retired(), 1);
    assert_eq!(dictionaries.collect(), 0);
    assert_eq!(dictionaries.units(1), Some(1));
    assert!(decompress(&mut *context, &kept).unwrap() == first);
    dictionaries.release(&kept);
    assert_eq!(dictionaries.collect(), 1);
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
    assert_eq!(dictionaries.units(1), Some(0));
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
        assert_eq!(install(&dictionaries, version).map(u64::from), Ok(version));
        let page = page(version, 1);
        kept.push((compress(&mut *context, &page, 5000).unwrap(), page));
    }
    assert_eq!(install(&dictionaries, 9), Err(Refused::NoPlace));
    for (packed, page) in &kept {
        assert!(decompress(&mut *context, packed).unwrap() == *page);
    }
    dictionaries.release(&kept[1].0);
    assert_eq!(install(&dictionaries, 9), Ok(2));
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
                assert_eq!(packed[0], 1);
                let mut back = vec![0; len];
                let mut units = [DecompressUnit::new(&packed, &mut back)];
                assert!(context.decompress_batch(&mut units).all_ok());
                assert!(back == unit[..len]);
            }
        }
    }
}
