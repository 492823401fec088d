//! Every codec, from outside: round trips, damage, batches, tight buffers.

use miniz_oxide::deflate::compress_to_vec;
use proptest::prelude::*;
use zfolio_compress::deflate::{Tables, WINDOW};
use zfolio_compress::{Codec, CodecError, CompressUnit, Context, DecompressUnit, MAX_UNIT, sample};

const CODECS: [Codec; 11] = [
    Codec::Noop,
    Codec::LZ4,
    Codec::Lz4 { acceleration: 8 },
    Codec::Zstd { level: -7 },
    Codec::ZSTD,
    Codec::Zstd { level: 3 },
    Codec::Zstd { level: 9 },
    Codec::Zstd { level: 19 },
    Codec::Deflate {
        tables: Tables::Dynamic,
    },
    Codec::Deflate {
        tables: Tables::Fixed,
    },
    Codec::Deflate {
        tables: Tables::Canned,
    },
];

fn compress(context: &mut dyn Context, src: &[u8], capacity: usize) -> Result<Vec<u8>, CodecError> {
    let mut dst = vec![0; capacity];
    let mut units = [CompressUnit::new(src, &mut dst)];
    let outcome = context.compress_batch(&mut units);
    let result = units[0].result;
    assert_eq!(outcome.all_ok(), result.is_ok());
    result.map(|len| dst[..len].to_vec())
}

/// Decompresses into the middle of a larger buffer, whose edges must survive.
fn decompress(context: &mut dyn Context, src: &[u8], len: usize) -> Result<Vec<u8>, CodecError> {
    const EDGE: usize = 256;
    let mut dst = vec![0xee; len + 2 * EDGE];
    let mut units = [DecompressUnit::new(src, &mut dst[EDGE..EDGE + len])];
    let outcome = context.decompress_batch(&mut units);
    let result = units[0].result;
    assert_eq!(outcome.all_ok(), result.is_ok());
    assert!(
        dst[..EDGE]
            .iter()
            .chain(&dst[EDGE + len..])
            .all(|&byte| byte == 0xee)
    );
    result.map(|filled| {
        assert!(filled <= len);
        dst[EDGE..EDGE + filled].to_vec()
    })
}

/// Bytes of four kinds in one unit, mixed by `plan`.
fn mixture(len: usize, plan: &[(u8, u64)]) -> Vec<u8> {
    let mut unit = vec![0; len];
    for (part, &(kind, seed)) in unit.chunks_mut(len.div_ceil(plan.len())).zip(plan) {
        match kind % 4 {
            0 => part.fill(0),
            1 => sample::records(part, seed, seed & 0xffff_f000),
            2 => sample::noise(part, seed),
            _ => part.fill(seed.to_le_bytes()[0]),
        }
    }
    unit
}

fn plan() -> impl Strategy<Value = Vec<(u8, u64)>> {
    prop::collection::vec((0_u8..4, any::<u64>()), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn round_trip(plan in plan(), len in prop_oneof![Just(4096_usize), 1_usize..70_000]) {
        let unit = mixture(len, &plan);
        for codec in CODECS {
            let compressor = codec.compressor();
            let mut context = compressor.context().unwrap();
            let capacity = compressor.max_compressed_len(len);
            for _ in 0..3 {
                let packed = compress(&mut *context, &unit, capacity).unwrap();
                let plain = decompress(&mut *context, &packed, len).unwrap();
                prop_assert!(plain == unit, "{codec} changed a unit of {len} bytes");
            }
        }
    }

    #[test]
    fn damage_is_contained(
        plan in plan(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..=255), 1..6),
        cut in any::<prop::sample::Index>(),
        grow in 0_usize..64,
    ) {
        let unit = mixture(4096, &plan);
        for codec in CODECS {
            let compressor = codec.compressor();
            let mut context = compressor.context().unwrap();
            let good = compress(&mut *context, &unit, compressor.max_compressed_len(4096)).unwrap();
            let mut bad = good.clone();
            for (at, flip) in &edits {
                let at = at.index(bad.len());
                bad[at] ^= flip;
            }
            // Anything may come of it but a write past the edges or a panic.
            let _ = decompress(&mut *context, &bad, 4096);
            let _ = decompress(&mut *context, &bad[..cut.index(bad.len())], 4096);
            bad.extend(core::iter::repeat_n(0xa5, grow));
            let _ = decompress(&mut *context, &bad, 4096);
            // A room too short for the plain bytes is an error.
            prop_assert!(decompress(&mut *context, &good, 4095).is_err());
            // And the context is none the worse for it.
            prop_assert!(decompress(&mut *context, &good, 4096).unwrap() == unit);
        }
    }
}

#[test]
fn one_failing_unit_does_not_spoil_the_batch() {
    for codec in CODECS {
        let compressor = codec.compressor();
        let mut context = compressor.context().unwrap();
        let mut pages = vec![vec![0; 4096]; 8];
        for (i, page) in pages.iter_mut().enumerate() {
            sample::records(page, 7, i as u64 * 4096);
        }
        sample::noise(&mut pages[5], 1);
        let mut packed = vec![vec![0; compressor.max_compressed_len(4096)]; 8];
        // Unit 5 is noise with no room to grow, for every codec.
        packed[5].truncate(4000);
        let mut units: Vec<_> = pages
            .iter()
            .zip(&mut packed)
            .map(|(src, dst)| CompressUnit::new(src, dst))
            .collect();
        let outcome = context.compress_batch(&mut units);
        assert_eq!(outcome.failed, 1, "{codec}");
        assert_eq!(units[5].result, Err(CodecError::DoesNotFit), "{codec}");
        let lens: Vec<_> = units.iter().map(|unit| unit.result.unwrap_or(0)).collect();

        let mut plain = vec![vec![1; 4096]; 8];
        let mut units: Vec<_> = packed
            .iter()
            .zip(&lens)
            .zip(&mut plain)
            .map(|((src, &len), dst)| DecompressUnit::new(&src[..len], dst))
            .collect();
        // No codec writes an empty unit.
        let outcome = context.decompress_batch(&mut units);
        let results: Vec<_> = units.iter().map(|unit| unit.result).collect();
        for (i, result) in results.iter().enumerate().filter(|(i, _)| *i != 5) {
            assert_eq!(*result, Ok(4096), "{codec}");
            assert_eq!(plain[i], pages[i], "{codec}");
        }
        assert!(results[5] != Ok(4096), "{codec}");
        assert_eq!(
            outcome.failed,
            results.iter().filter(|result| result.is_err()).count()
        );
    }
}

#[test]
fn units_up_to_a_huge_folio_in_any_order_of_size() {
    let mut unit = vec![0; MAX_UNIT];
    sample::records(&mut unit, 3, 0);
    for codec in CODECS
        .into_iter()
        .filter(|codec| *codec != Codec::Zstd { level: 19 })
    {
        let compressor = codec.compressor();
        let mut context = compressor.context().unwrap();
        for len in [4096, MAX_UNIT, 4096, 65_536, 8192, MAX_UNIT] {
            let packed = compress(
                &mut *context,
                &unit[..len],
                compressor.max_compressed_len(len),
            )
            .unwrap();
            assert!(
                codec == Codec::Noop || packed.len() < len * 3 / 4,
                "{codec} at {len}"
            );
            assert!(decompress(&mut *context, &packed, len).unwrap() == unit[..len]);
        }
    }
}

#[test]
fn lengths_out_of_range_are_refused() {
    let long = vec![0; MAX_UNIT + 1];
    for codec in CODECS {
        let mut context = codec.compressor().context().unwrap();
        assert_eq!(compress(&mut *context, &[], 64), Err(CodecError::Length));
        assert_eq!(
            compress(&mut *context, &long, 1 << 22),
            Err(CodecError::Length)
        );
        assert_eq!(
            decompress(&mut *context, &[1, 2, 3], 0),
            Err(CodecError::Length)
        );
    }
}

/// A zstd context's workspace is reckoned beforehand, and a library that
/// allocates would drop one that stays too large for 128 frames: at every level
/// and size, more frames than that must go through, and come out the same
/// whatever the context has done before.
#[test]
fn contexts_last() {
    let mut unit = vec![0; MAX_UNIT];
    sample::records(&mut unit, 5, 0);
    for level in -7..=19 {
        let compressor = Codec::Zstd { level }.compressor();
        let mut context = compressor.context().unwrap();
        let run = |context: &mut dyn Context, len: usize, times: usize| {
            let capacity = compressor.max_compressed_len(len);
            let packed = compress(context, &unit[..len], capacity).unwrap();
            for _ in 1..times {
                assert!(compress(context, &unit[..len], capacity).unwrap() == packed);
            }
            packed
        };
        for len in [1, 4096, 10_000] {
            run(&mut *context, len, 140);
        }
        // From a large unit down: the workspace is far larger than needed.
        let large = if level <= 3 { MAX_UNIT } else { 65_536 };
        run(&mut *context, large, 1);
        let after = run(&mut *context, 4096, 140);
        let fresh = run(&mut *compressor.context().unwrap(), 4096, 1);
        assert!(after == fresh, "level {level}");
    }
}

/// A batch that fails for want of room must not leave anything behind in the
/// state the next block is compressed with.
#[test]
fn failure_leaves_the_state_usable() {
    let mut noise = vec![0; 4096];
    sample::noise(&mut noise, 9);
    let mut page = vec![0; 4096];
    sample::records(&mut page, 9, 0);
    for codec in CODECS {
        let compressor = codec.compressor();
        let mut context = compressor.context().unwrap();
        for capacity in [1, 16, 100, 2000] {
            assert_eq!(
                compress(&mut *context, &noise, capacity),
                Err(CodecError::DoesNotFit)
            );
            let capacity = compressor.max_compressed_len(4096);
            let packed = compress(&mut *context, &page, capacity).unwrap();
            assert!(
                decompress(&mut *context, &packed, 4096).unwrap() == page,
                "{codec}"
            );
        }
    }
}

fn deflates(bytes: &[u8], tables: Tables) -> Vec<u8> {
    let compressor = Codec::Deflate { tables }.compressor();
    let mut context = compressor.context().unwrap();
    let capacity = compressor.max_compressed_len(bytes.len());
    compress(&mut *context, bytes, capacity).unwrap()
}

/// Inflates with another implementation.
fn inflate(packed: &[u8], len: usize) -> Vec<u8> {
    use miniz_oxide::inflate::TINFLStatus;
    use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
    let mut plain = vec![0; len];
    let (status, read, written) = decompress(
        &mut DecompressorOxide::new(),
        packed,
        &mut plain,
        0,
        TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
    );
    assert_eq!(status, TINFLStatus::Done);
    assert_eq!((read, written), (packed.len(), len));
    plain
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What we write any inflater reads, and we read what others write within
    /// the window.
    #[test]
    fn deflate_is_deflate(plan in plan(), len in prop_oneof![Just(4096_usize), 1_usize..70_000]) {
        let unit = mixture(len, &plan);
        for tables in [Tables::Dynamic, Tables::Fixed] {
            prop_assert!(inflate(&deflates(&unit, tables), len) == unit);
        }
        let unit = &unit[..len.min(WINDOW)];
        let codec = Codec::Deflate { tables: Tables::Dynamic };
        let mut context = codec.compressor().context().unwrap();
        for level in [0, 1, 6, 9] {
            let packed = compress_to_vec(unit, level);
            let plain = decompress(&mut *context, &packed, unit.len());
            prop_assert!(plain.as_deref() == Ok(unit), "level {}: {:?}", level, plain.err());
        }
    }

    /// Bytes that nobody wrote: an error or some bytes, never a panic, and
    /// nothing past the edges (which `decompress` looks at).
    #[test]
    fn any_bytes_may_be_given_to_the_decoder(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        first in 0_u8..8,
    ) {
        for tables in [Tables::Dynamic, Tables::Fixed, Tables::Canned] {
            let mut context = Codec::Deflate { tables }.compressor().context().unwrap();
            let _ = decompress(&mut *context, &bytes, 4096);
            // Most often: a dynamic block.
            let mut block = bytes.clone();
            if let Some(byte) = block.first_mut() {
                *byte = *byte & !7 | first;
            }
            let _ = decompress(&mut *context, &block, 4096);
        }
    }
}

/// A repeat from farther than the window is not used: 5000 random bytes twice
/// do not get shorter, 3000 do.
#[test]
fn the_window_is_4_kib() {
    for (len, repeats) in [(3000, true), (5000, false)] {
        let mut unit = vec![0; 2 * len];
        sample::noise(&mut unit[..len], 3);
        unit.copy_within(..len, len);
        for tables in [Tables::Dynamic, Tables::Canned] {
            let packed = deflates(&unit, tables).len();
            assert_eq!(packed < len * 3 / 2, repeats, "{len} {tables:?}: {packed}");
        }
    }
    // And one from there is not read.
    let mut unit = vec![0; 10_000];
    sample::noise(&mut unit[..5000], 3);
    unit.copy_within(..5000, 5000);
    let packed = compress_to_vec(&unit, 9);
    let codec = Codec::Deflate {
        tables: Tables::Dynamic,
    };
    let mut context = codec.compressor().context().unwrap();
    let read = decompress(&mut *context, &packed, unit.len());
    assert_eq!(read, Err(CodecError::Corrupt));
}
