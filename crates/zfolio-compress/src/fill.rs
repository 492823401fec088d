//! Pages that hold one repeated 8-byte word: no compressor is needed for them.
//!
//! Zero pages are the most common case; allocators and page clearing with a
//! pattern give the others.

/// Words compared at once before the result is looked at: enough for the
/// compiler to use vector compares, little enough to leave early.
const STRIDE: usize = 16;

/// The word every 8 bytes of `page` hold, or `None` when they differ.
///
/// `page` must be a multiple of 128 bytes long; any other length (and an empty
/// page) gives `None`. The word is read in the machine's byte order, as
/// [`fill`] writes it. A page that is not filled is usually told after one
/// cache line: its last word is compared first, since pages that begin with
/// zeros mostly end with something else.
#[must_use]
pub fn same_filled(page: &[u8]) -> Option<u64> {
    let (words, rest) = page.as_chunks::<8>();
    let (strides, tail) = words.as_chunks::<STRIDE>();
    let (first, last) = (words.first()?, words.last()?);
    if first != last || !rest.is_empty() || !tail.is_empty() {
        return None;
    }
    let word = u64::from_ne_bytes(*first);
    for stride in strides {
        let mut difference = 0;
        for chunk in stride {
            difference |= u64::from_ne_bytes(*chunk) ^ word;
        }
        if difference != 0 {
            return None;
        }
    }
    Some(word)
}

/// Writes `word` over the whole of `page`, the inverse of [`same_filled`].
/// A tail of less than 8 bytes is left alone.
pub fn fill(page: &mut [u8], word: u64) {
    if word == 0 {
        page.fill(0);
        return;
    }
    for chunk in page.as_chunks_mut::<8>().0 {
        *chunk = word.to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    #[test]
    fn odd_lengths_are_never_filled() {
        assert_eq!(same_filled(&[]), None);
        assert_eq!(same_filled(&[0; 8]), None);
        assert_eq!(same_filled(&[0; 4095]), None);
        assert_eq!(same_filled(&[0; 128]), Some(0));
    }

    proptest! {
        #[test]
        fn finds_what_fill_wrote_and_every_single_change(
            word in prop_oneof![Just(0), any::<u64>()],
            at in 0_usize..4096,
            flip in 1_u8..=255,
        ) {
            let mut page = vec![0x5a; 4096];
            fill(&mut page, word);
            prop_assert_eq!(same_filled(&page), Some(word));
            page[at] ^= flip;
            prop_assert_eq!(same_filled(&page), None);
        }
    }
}
