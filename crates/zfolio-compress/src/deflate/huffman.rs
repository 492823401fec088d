//! Code lengths from frequencies, and canonical codes from lengths (RFC 1951,
//! section 3.2.2).
//!
//! Lengths are Huffman's, by the two-queue construction on sorted frequencies;
//! where one is longer than allowed, lengths are moved until Kraft's sum is 1
//! again, the way most deflate encoders do it.

use super::symbols::MAX_BITS;

/// Most symbols of an alphabet.
const MOST: usize = 288;

/// Writes the code length of each symbol, at most `limit` bits; 0 for those that
/// do not occur. One symbol alone gets 1 bit.
#[allow(clippy::cast_possible_truncation, reason = "indices of an alphabet")]
pub(super) fn lengths(frequencies: &[u32], limit: usize, lengths: &mut [u8]) {
    lengths.fill(0);
    let mut order = [0_u16; MOST];
    let mut used = 0;
    for (symbol, _) in frequencies.iter().enumerate().filter(|(_, f)| **f > 0) {
        order[used] = symbol as u16;
        used += 1;
    }
    let order = &mut order[..used];
    order.sort_unstable_by_key(|symbol| (frequencies[usize::from(*symbol)], *symbol));
    if used <= 1 {
        for symbol in order {
            lengths[usize::from(*symbol)] = 1;
        }
        return;
    }
    // Leaves in order of weight, then inner nodes as they are made: both queues
    // are sorted, so the two lightest are always at a front.
    let mut weight = [0_u32; 2 * MOST];
    let mut parent = [0_u16; 2 * MOST];
    for (leaf, symbol) in order.iter().enumerate() {
        weight[leaf] = frequencies[usize::from(*symbol)];
    }
    let nodes = 2 * used - 1;
    let (mut leaf, mut inner) = (0, used);
    for node in used..nodes {
        for _ in 0..2 {
            let light = if leaf < used && (inner >= node || weight[leaf] <= weight[inner]) {
                leaf += 1;
                leaf - 1
            } else {
                inner += 1;
                inner - 1
            };
            weight[node] += weight[light];
            parent[light] = node as u16;
        }
    }
    let mut depth = [0_u16; 2 * MOST];
    let mut count = [0_u32; MAX_BITS + 1];
    for node in (0..nodes - 1).rev() {
        depth[node] = depth[usize::from(parent[node])] + 1;
        if node < used {
            count[usize::from(depth[node]).min(limit)] += 1;
        }
    }
    // Codes cut to the limit take more than there is: each step makes room of one
    // code of the longest kind by lengthening a shorter one.
    let mut kraft: u32 = (1..=limit).map(|len| count[len] << (limit - len)).sum();
    while kraft > 1 << limit {
        count[limit] -= 1;
        for len in (1..limit).rev() {
            if count[len] > 0 {
                count[len] -= 1;
                count[len + 1] += 2;
                break;
            }
        }
        kraft -= 1;
    }
    // The rarest get the longest.
    let mut rarest = order.iter();
    for len in (1..=limit).rev() {
        for symbol in rarest.by_ref().take(count[len] as usize) {
            lengths[usize::from(*symbol)] = len as u8;
        }
    }
}

/// A code as it is written: bits in stream order, and how many.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Code {
    pub(super) bits: u16,
    pub(super) len: u8,
}

/// Writes the canonical codes of `lengths`.
pub(super) fn codes(lengths: &[u8], codes: &mut [Code]) {
    let mut count = [0_u16; MAX_BITS + 1];
    for len in lengths {
        count[usize::from(*len)] += 1;
    }
    count[0] = 0;
    let mut next = [0_u16; MAX_BITS + 2];
    for len in 1..=MAX_BITS {
        next[len + 1] = next[len].wrapping_add(count[len]).wrapping_shl(1);
    }
    for (code, len) in codes.iter_mut().zip(lengths) {
        *code = Code::default();
        if *len > 0 {
            let value = &mut next[usize::from(*len)];
            code.bits = value.reverse_bits() >> (16 - *len);
            code.len = *len;
            *value = value.wrapping_add(1);
        }
    }
}

/// The fixed code lengths of literals and lengths (RFC 1951, section 3.2.6),
/// with the two symbols that never occur.
pub(super) fn fixed_litlens() -> [u8; 288] {
    let mut lengths = [8; 288];
    lengths[144..256].fill(9);
    lengths[256..280].fill(7);
    lengths
}

/// The fixed code lengths of distances.
pub(super) const FIXED_DISTANCES: [u8; 30] = [5; 30];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn codes_are_complete_within_the_limit_and_no_worse_for_the_frequent(
            frequencies in prop::collection::vec(
                prop_oneof![Just(0_u32), 1_u32..4, 1_u32..100_000], 2..286),
            limit in 9_usize..=15,
        ) {
            let mut lens = vec![0; frequencies.len()];
            lengths(&frequencies, limit, &mut lens);
            let used: Vec<_> = (0..lens.len()).filter(|s| frequencies[*s] > 0).collect();
            for symbol in 0..lens.len() {
                prop_assert_eq!(lens[symbol] > 0, frequencies[symbol] > 0);
                prop_assert!(usize::from(lens[symbol]) <= limit);
            }
            let kraft: u32 = used.iter().map(|s| 1 << (15 - lens[*s])).sum();
            if used.len() > 1 {
                prop_assert_eq!(kraft, 1 << 15);
            }
            for a in &used {
                for b in &used {
                    prop_assert!(frequencies[*a] <= frequencies[*b] || lens[*a] <= lens[*b]);
                }
            }
        }
    }

    #[test]
    fn fibonacci_frequencies_meet_the_limit() {
        let mut frequencies = vec![1_u32, 1];
        while frequencies.len() < 40 {
            let [.., a, b] = frequencies[..] else {
                unreachable!()
            };
            frequencies.push(a + b);
        }
        let mut lens = vec![0; 40];
        lengths(&frequencies, 15, &mut lens);
        let kraft: u32 = lens.iter().map(|len| 1 << (15 - len)).sum();
        assert_eq!(kraft, 1 << 15);
        assert_eq!(lens.iter().max(), Some(&15));
    }
}
