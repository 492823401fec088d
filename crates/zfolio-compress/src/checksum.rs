//! A cheap 32-bit check of compressed bytes, verified before decompressing.
//!
//! It is there to notice damage (a stray write into the pool, a wrong object),
//! not to resist an attacker, and it never leaves the process: the value may
//! change between versions.
//!
//! The construction is the folded multiply known from wyhash and rapidhash:
//! 16 bytes are mixed into a 64x64 -> 128 bit product whose halves are xored.
//! Four independent chains of it keep the multiplier busy.
//!
//! Chosen by measurement. 2 KiB of input in the L2 cache, one thread of a Xeon
//! VM with AVX-512, ns, two runs (`cargo run --release --example codecs`):
//!
//! | candidate | ns |
//! |---|---|
//! | folded multiply, four chains (this) | 71, 77 |
//! | xxh3, low 32 bits (xxhash-rust, built for plain x86-64) | 78, 86 |
//! | crc32c, one lane | 129, 131 |
//! | crc32c, four lanes | 67, 69 |
//!
//! Four lanes of crc32c gain 5 % and would want unsafe code, processor
//! detection and a second way for processors without the instruction.

use crc::{CRC_32_ISO_HDLC, Crc, Table};

/// Odd constants without structure (digits of pi), one per chain.
const KEYS: [u64; 4] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7345,
    0xa409_3822_299f_31d1,
    0x082e_fa98_ec4e_6c89,
];

/// The checksum of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    let mut chains = KEYS;
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        let (pairs, _) = block.as_chunks::<16>();
        for (chain, pair) in chains.iter_mut().zip(pairs) {
            *chain = mix(pair, *chain);
        }
    }
    let (pairs, tail) = rest.as_chunks::<16>();
    for (chain, pair) in chains.iter_mut().zip(pairs) {
        *chain = mix(pair, *chain);
    }
    let mut last = [0; 16];
    last[..tail.len()].copy_from_slice(tail);
    // The length makes inputs differ that differ only by zeros at the end.
    let [a, b, c, d] = chains;
    let length = bytes.len() as u64;
    let sum = mix(
        &last,
        a ^ b.rotate_left(17) ^ c.rotate_left(31) ^ d.rotate_left(47) ^ length,
    );
    let folded = fold(sum ^ KEYS[1], length ^ KEYS[2]);
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the low half is the checksum"
    )]
    let low = folded as u32;
    low
}

/// Hides the low word of a pair. Not one of [`KEYS`]: a chain that starts with
/// the key of the other half would not notice its first two words swapped.
const LOW_KEY: u64 = 0x4528_21e6_38d0_1377;

/// Takes 16 bytes into a chain.
#[inline]
fn mix(pair: &[u8; 16], chain: u64) -> u64 {
    let whole = u128::from_le_bytes(*pair);
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the two halves of the pair"
    )]
    let (low, high) = (whole as u64, (whole >> 64) as u64);
    fold(low ^ LOW_KEY, high ^ chain)
}

/// The 128-bit product with its halves xored.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the two halves of the product"
    )]
    let folded = product as u64 ^ (product >> 64) as u64;
    folded
}

/// Tables for sixteen bytes at a time.
static CRC_32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);

/// CRC-32 as gzip has it, which `verify_compress` compares.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    CRC_32.checksum(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::vec;

    proptest! {
        #[test]
        fn notices_a_flipped_bit(bytes in prop::collection::vec(any::<u8>(), 1..4097), bit in any::<prop::sample::Index>()) {
            let mut changed = bytes.clone();
            let bit = bit.index(bytes.len() * 8);
            changed[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(checksum(&bytes), checksum(&changed));
        }
    }

    #[test]
    fn tells_lengths_of_zeros_apart() {
        let zeros = vec![0; 4096];
        let sums: HashSet<u32> = (0..=4096).map(|len| checksum(&zeros[..len])).collect();
        // 4097 random 32-bit values collide with a chance of 0.2 %; these are
        // not random but always the same.
        assert_eq!(sums.len(), 4097);
    }

    #[test]
    fn notices_every_swap_of_two_words() {
        let mut page = vec![0; 2048];
        sample::records(&mut page, 1, 0);
        let plain = checksum(&page);
        let words = page.len() / 8;
        for (i, j) in (0..words).flat_map(|i| (0..i).map(move |j| (i, j))) {
            let mut swapped = page.clone();
            for k in 0..8 {
                swapped.swap(i * 8 + k, j * 8 + k);
            }
            assert_eq!(
                checksum(&swapped) == plain,
                swapped == page,
                "words {i} and {j}"
            );
        }
    }

    #[test]
    fn low_and_high_bits_are_both_used() {
        let mut seen = [0_u32; 2];
        for value in 0_u32..4096 {
            let sum = checksum(&value.to_le_bytes());
            seen = [seen[0] | sum, seen[1] | !sum];
        }
        assert_eq!(seen, [u32::MAX; 2]);
    }
}
