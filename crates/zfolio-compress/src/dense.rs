//! Several neighbouring pages as one unit: the form of a second, denser tier.
//!
//! A unit of [`PAGES`] pages compresses better than its pages one by one, since
//! they refer to each other; a page of it costs decoding the unit. Whoever keeps
//! units keeps, per page, which unit it is in and its place there; a unit whose
//! pages were mostly freed is unpacked and its pages stored alone again.

use crate::zstd::Zstd;
use crate::{CodecError, CompressUnit, Compressor, Context, DecompressUnit, PAGE_UNIT};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Pages of a unit: 16 KiB.
pub const PAGES: usize = 4;
/// zstd's level for units: what time allows that nobody waits for.
pub const LEVEL: i32 = 3;
const UNIT: usize = PAGES * PAGE_UNIT;

/// What one thread packs and unpacks units with. Makes no allocation once made.
pub struct Dense {
    context: Box<dyn Context + Send>,
    plain: Vec<u8>,
}

impl Dense {
    /// Working memory for one thread.
    ///
    /// # Errors
    /// [`CodecError::Workspace`] when the memory cannot be had.
    pub fn new() -> Result<Self, CodecError> {
        let mut plain = Vec::new();
        plain
            .try_reserve_exact(UNIT)
            .map_err(|_| CodecError::Workspace)?;
        plain.resize(UNIT, 0);
        Ok(Self {
            context: Zstd::new(LEVEL).with_unit(UNIT).context()?,
            plain,
        })
    }

    /// Makes a unit of pages; returns the bytes of `dst` used.
    ///
    /// # Errors
    /// [`CodecError::Length`] unless there are [`PAGES`] of 4 KiB; or what the
    /// codec says: with a `dst` no longer than what the pages take now, one that
    /// does not pay is [`CodecError::DoesNotFit`].
    pub fn pack(&mut self, pages: &[&[u8]], dst: &mut [u8]) -> Result<usize, CodecError> {
        if pages.len() != PAGES || pages.iter().any(|page| page.len() != PAGE_UNIT) {
            return Err(CodecError::Length);
        }
        for (room, page) in self.plain.chunks_exact_mut(PAGE_UNIT).zip(pages) {
            room.copy_from_slice(page);
        }
        let mut unit = [CompressUnit::new(&self.plain, dst)];
        let _ = self.context.compress_batch(&mut unit);
        unit[0].result
    }

    /// Calls `with` on the pages of a unit, in order.
    ///
    /// # Errors
    /// When `unit` is not exactly what [`Self::pack`] made.
    pub fn unpack<R>(
        &mut self,
        unit: &[u8],
        with: impl FnOnce(&[[u8; PAGE_UNIT]]) -> R,
    ) -> Result<R, CodecError> {
        let mut units = [DecompressUnit::new(unit, &mut self.plain)];
        let _ = self.context.decompress_batch(&mut units);
        match units[0].result? {
            UNIT => Ok(with(self.plain.as_chunks().0)),
            _ => Err(CodecError::Corrupt),
        }
    }

    /// Writes one page of a unit into `dst`.
    ///
    /// # Errors
    /// As [`Self::unpack`]; [`CodecError::Length`] when there is no such page or
    /// `dst` is not 4 KiB.
    pub fn unpack_page(
        &mut self,
        unit: &[u8],
        index: usize,
        dst: &mut [u8],
    ) -> Result<(), CodecError> {
        if index >= PAGES || dst.len() != PAGE_UNIT {
            return Err(CodecError::Length);
        }
        self.unpack(unit, |pages| dst.copy_from_slice(&pages[index]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Codec, sample};
    use proptest::prelude::*;
    use std::vec;

    fn pages(seed: u64, kinds: [u8; PAGES]) -> [vec::Vec<u8>; PAGES] {
        kinds.map(|kind| {
            let mut page = vec![0; PAGE_UNIT];
            match kind {
                0 => sample::records(&mut page, seed, 0),
                1 => sample::noise(&mut page, seed),
                kind => page.fill(kind),
            }
            page
        })
    }

    proptest! {
        #[test]
        fn each_page_comes_back_and_damage_is_no_page(
            seed in any::<u64>(),
            kinds in prop::array::uniform4(0_u8..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let pages = pages(seed, kinds);
            let lent: vec::Vec<&[u8]> = pages.iter().map(vec::Vec::as_slice).collect();
            let mut dense = Dense::new().unwrap();
            let mut unit = vec![0; 2 * UNIT];
            let len = dense.pack(&lent, &mut unit).unwrap();
            unit.truncate(len);
            let mut page = vec![0; PAGE_UNIT];
            for (index, plain) in pages.iter().enumerate() {
                dense.unpack_page(&unit, index, &mut page).unwrap();
                prop_assert!(page == *plain);
            }
            prop_assert!(dense.unpack_page(&unit[..cut.index(len)], 0, &mut page).is_err());
            prop_assert_eq!(dense.unpack_page(&unit, PAGES, &mut page), Err(CodecError::Length));
            // Nothing of one unit is left in the next.
            prop_assert_eq!(dense.pack(&lent[1..], &mut unit), Err(CodecError::Length));
        }
    }

    #[test]
    fn neighbours_that_resemble_each_other_take_less_together() {
        let pages = pages(7, [0; PAGES]);
        let lent: vec::Vec<&[u8]> = pages.iter().map(vec::Vec::as_slice).collect();
        let mut unit = vec![0; UNIT];
        let together = Dense::new().unwrap().pack(&lent, &mut unit).unwrap();
        let mut context = Codec::Zstd { level: LEVEL }.compressor().context().unwrap();
        let alone: usize = lent
            .iter()
            .map(|page| {
                let mut room = vec![0; UNIT];
                let mut unit = [CompressUnit::new(page, &mut room)];
                let _ = context.compress_batch(&mut unit);
                unit[0].result.unwrap()
            })
            .sum();
        assert!(together * 2 < alone, "{together} against {alone}");
    }
}
