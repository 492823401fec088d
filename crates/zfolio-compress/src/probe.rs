//! Whether compressing a unit is worth the try: a look that costs a tenth of what
//! a dense codec takes to find out.
//!
//! What is encrypted, compressed or random shows in two ways: all byte values are
//! as frequent (nothing for Huffman), and no four bytes occur twice (nothing to
//! refer to). Both are needed. A page wrongly taken for random is kept as it is,
//! nothing worse; pages of which a codec makes something mostly fail one of the
//! two by far.

/// Bytes of the units that are looked at: a page.
pub const UNIT: usize = 4096;

/// Byte values sampled.
const SAMPLE: usize = 512;
/// Pairs of equal values among them: 511 are expected of random bytes, with a
/// deviation of 23.
const MOST_PAIRS: u32 = 620;
/// Flags of the words seen.
const FLAGS: usize = 1 << 14;
/// Aligned words of four bytes seen before (or taken for one): 32 of 1024 are
/// expected of random ones, with a deviation of 6.
const MOST_SEEN: u32 = 64;

/// Whether a page looks like random bytes. Never of units of another length.
#[must_use]
pub fn looks_random(unit: &[u8]) -> bool {
    unit.len() == UNIT && has_flat_bytes(unit) && has_new_words(unit)
}

fn has_flat_bytes(page: &[u8]) -> bool {
    let mut counts = [0_u16; 256];
    let mut pairs = 0;
    // An odd step: every place within a record has its turn.
    for at in (0..SAMPLE).map(|n| n * 1237 % UNIT) {
        let count = &mut counts[usize::from(page[at])];
        pairs += u32::from(*count);
        *count += 1;
    }
    pairs <= MOST_PAIRS
}

fn has_new_words(page: &[u8]) -> bool {
    let mut flags = [0_u64; FLAGS / 64];
    let mut seen = 0;
    for word in page.as_chunks::<4>().0 {
        let hash = u32::from_le_bytes(*word).wrapping_mul(0x9e37_79b1) >> (32 - 14);
        let (flag, bit) = (&mut flags[hash as usize / 64], 1 << (hash % 64));
        seen += u32::from(*flag & bit != 0);
        *flag |= bit;
    }
    seen <= MOST_SEEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Codec, CompressUnit, sample};
    use proptest::prelude::*;
    use std::vec;

    #[test]
    fn noise_is_recognised() {
        for seed in 0..500 {
            let mut page = vec![0; UNIT];
            sample::noise(&mut page, seed);
            assert!(looks_random(&page), "seed {seed}");
        }
    }

    proptest! {
        /// Of what it calls random, zstd saves next to nothing.
        #[test]
        fn nothing_that_compresses_is_called_random(
            seed in any::<u64>(),
            noisy in 0_usize..=UNIT,
            stride in 1_usize..300,
            mask in any::<u8>(),
        ) {
            let mut page = vec![0; UNIT];
            sample::noise(&mut page, seed);
            sample::records(&mut page[noisy..], seed, 0);
            let mut repeating = vec![0; UNIT];
            sample::noise(&mut repeating, seed);
            for at in stride..UNIT {
                repeating[at] = repeating[at - stride];
            }
            let mut masked = vec![0; UNIT];
            sample::noise(&mut masked, seed);
            masked.iter_mut().for_each(|byte| *byte &= mask);
            for page in [page, repeating, masked] {
                if looks_random(&page) {
                    let mut buffer = vec![0; 2 * UNIT];
                    let mut unit = [CompressUnit::new(&page, &mut buffer)];
                    let mut context = Codec::ZSTD.compressor().context().unwrap();
                    prop_assert!(context.compress_batch(&mut unit).all_ok());
                    let len = unit[0].result.unwrap();
                    prop_assert!(len > UNIT * 7 / 8, "{} of {}", len, UNIT);
                }
            }
        }
    }
}
