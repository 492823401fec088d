//! lz4 while there is room, zstd when there is not, and at a higher level when there is
//! hardly any: a switch outside decides, and a byte in front of each unit says which of
//! the two wrote it, and with which dictionary: those that the denser form makes are read
//! by all.
//!
//! lz4 takes half of zstd's time, zstd a fifth to a third less room (see
//! `docs/compression.md`). Which is worth more depends on how much of the
//! memory the pool has taken, which only the caller knows.

use crate::dense::UNIT;
use crate::dictionary::coder::{Coder, compress_plain};
use crate::dictionary::{Dictionaries, PLAIN};
use crate::ffi::zstd::Encoder;
use crate::lz4::Lz4;
use crate::unit::{compress_each, decompress_each};
use crate::zstd::Zstd;
use crate::{
    BatchOutcome, CodecError, CompressUnit, Compressor, Context, DecompressUnit, PAGE_UNIT,
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The level at which zstd is still fast: two thirds of level 1's time for
/// nearly its ratio on what programs hold.
const DENSE_LEVEL: i32 = -1;

/// The level for what nobody waits for: a seventh less room than -1, and read back
/// at two thirds of its speed. Level 3 would take a fifth more time for 2 % less.
const TIER_LEVEL: i32 = 1;

/// First byte of what lz4 wrote; the others are [`PLAIN`] and above.
const LZ4: u8 = 1;
const _: () = assert!(LZ4 < PLAIN);

/// The level for where a program crawls for want of room: text takes a quarter less than
/// at -1, and is read back at two thirds of its speed.
const DENSEST_LEVEL: i32 = 1;

/// How new units are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Form {
    /// lz4.
    Fast,
    /// zstd at a fast level.
    Dense,
    /// zstd at its usual level.
    Densest,
}

impl Form {
    /// The one of the two that needs less room.
    #[must_use]
    pub fn or_denser(self, other: Self) -> Self {
        if self as u8 > other as u8 {
            self
        } else {
            other
        }
    }
}

/// Says which form new units get.
#[derive(Clone, Debug, Default)]
pub struct Density(Arc<AtomicU8>);

impl Density {
    /// New units are compressed so from now on.
    pub fn set(&self, form: Form) {
        self.0.store(form as u8, Relaxed);
    }

    /// What was set last; [`Form::Fast`] at first.
    #[must_use]
    pub fn get(&self) -> Form {
        match self.0.load(Relaxed) {
            0 => Form::Fast,
            1 => Form::Dense,
            _ => Form::Densest,
        }
    }
}

/// The adaptive compressor.
#[derive(Clone)]
pub struct Adaptive {
    fast: Lz4,
    density: Density,
    dictionaries: Arc<Dictionaries>,
    /// It compresses units of so many bytes with dictionaries, at [`TIER_LEVEL`].
    tier: Option<usize>,
}

impl Adaptive {
    /// What the codec is called.
    pub const NAME: &str = "auto";

    /// Follows `density`; lz4 at its default, zstd at a fast level. With a table of
    /// dictionaries of its own.
    #[must_use]
    pub fn new(density: Density) -> Self {
        Self::with_dictionaries(density, Self::dictionaries())
    }

    /// The same with a table that others have as well: they read what this one's
    /// denser form makes, and the reverse.
    #[must_use]
    pub fn with_dictionaries(density: Density, dictionaries: Arc<Dictionaries>) -> Self {
        Self {
            fast: Lz4::new(1),
            density,
            dictionaries,
            tier: None,
        }
    }

    fn denser(&self, unit: usize) -> Self {
        let density = Density::default();
        density.set(Form::Dense);
        Self {
            tier: Some(unit),
            density,
            ..self.clone()
        }
    }

    /// An empty table, as the denser form wants it.
    #[must_use]
    pub fn dictionaries() -> Arc<Dictionaries> {
        Arc::new(Dictionaries::new(TIER_LEVEL))
    }
}

impl Compressor for Adaptive {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn batch_size(&self) -> usize {
        1
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(AdaptiveContext {
            fast: self.fast.context()?,
            dense: match self.tier {
                Some(UNIT) => Coder::of_units(&self.dictionaries)?,
                Some(_) => Coder::new(&self.dictionaries)?,
                None => Coder::without(DENSE_LEVEL, PAGE_UNIT, &self.dictionaries)?,
            },
            densest: match self.tier {
                Some(_) => None,
                None => Some(Encoder::new(DENSEST_LEVEL, PAGE_UNIT)?),
            },
            density: self.density.clone(),
        }))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        1 + self
            .fast
            .max_compressed_len(unit)
            .max(Zstd::new(DENSE_LEVEL).max_compressed_len(unit))
    }

    fn unit_size(&self) -> usize {
        self.tier.unwrap_or(PAGE_UNIT)
    }

    fn dense(&self) -> Option<Box<dyn Compressor>> {
        Some(Box::new(self.denser(PAGE_UNIT)))
    }

    fn dense_units(&self) -> Option<Box<dyn Compressor>> {
        Some(Box::new(self.denser(UNIT)))
    }

    fn dictionaries(&self) -> Option<Arc<Dictionaries>> {
        Some(self.dictionaries.clone())
    }
}

struct AdaptiveContext {
    fast: Box<dyn Context + Send>,
    dense: Coder,
    densest: Option<Encoder>,
    density: Density,
}

impl Context for AdaptiveContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        match (self.density.get(), &mut self.densest) {
            (Form::Fast, _) => {}
            (Form::Densest, Some(encoder)) => {
                return compress_each(units, |src, dst| compress_plain(encoder, src, dst));
            }
            _ => return self.dense.compress_batch(units),
        }
        compress_each(units, |src, dst| {
            let (first, rest) = dst.split_first_mut().ok_or(CodecError::DoesNotFit)?;
            *first = LZ4;
            let mut unit = [CompressUnit::new(src, rest)];
            let _ = self.fast.compress_batch(&mut unit);
            unit[0].result.map(|len| len + 1)
        })
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        decompress_each(units, |src, dst| match src.split_first() {
            Some((&LZ4, rest)) => {
                let mut unit = [DecompressUnit::new(rest, dst)];
                let _ = self.fast.decompress_batch(&mut unit);
                unit[0].result
            }
            // (Of what is no tag of its own it says that it is corrupt.)
            _ => self.dense.decompress(src, dst),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn page(seed: u32) -> vec::Vec<u8> {
        (0..4096_u32)
            .map(|i| (i.wrapping_mul(seed) >> 9).to_le_bytes()[0])
            .collect()
    }

    #[test]
    fn units_of_both_codecs_come_back_whatever_the_switch_says() {
        let density = Density::default();
        let mut context = Adaptive::new(density.clone()).context().unwrap();
        let mut kept = vec![];
        for seed in 1..20 {
            let forms = [Form::Fast, Form::Dense, Form::Densest];
            density.set(forms[seed as usize % 3]);
            let (plain, mut dst) = (page(seed), vec![0; 8192]);
            let mut unit = [CompressUnit::new(&plain, &mut dst)];
            assert!(context.compress_batch(&mut unit).all_ok());
            let len = unit[0].result.unwrap();
            dst.truncate(len);
            assert_eq!(dst[0], if seed % 3 == 0 { LZ4 } else { PLAIN });
            kept.push((plain, dst));
        }
        for (plain, packed) in kept {
            let mut out = vec![0; 4096];
            let mut unit = [DecompressUnit::new(&packed, &mut out)];
            assert!(context.decompress_batch(&mut unit).all_ok());
            assert_eq!(out, plain);
        }
    }

    #[test]
    fn each_form_takes_less_room_than_the_one_before() {
        let density = Density::default();
        let mut context = Adaptive::new(density.clone()).context().unwrap();
        // (Text: of numbers a higher level makes no less.)
        let mut text = std::string::String::new();
        for n in 0_u32..200 {
            let number = n.wrapping_mul(0x9e37_79b9);
            text += &std::format!("line {n} has the number {number}\n");
        }
        let plain = &text.as_bytes()[..4096];
        let lens = [Form::Fast, Form::Dense, Form::Densest].map(|form| {
            density.set(form);
            let mut dst = vec![0; 8192];
            let mut unit = [CompressUnit::new(plain, &mut dst)];
            assert!(context.compress_batch(&mut unit).all_ok());
            unit[0].result.unwrap()
        });
        assert!(lens.is_sorted_by(|one, next| one > next), "{lens:?}");
    }

    #[test]
    fn each_reads_what_the_denser_one_wrote_and_the_reverse() {
        let adaptive = Adaptive::new(Density::default());
        let dense = adaptive.dense().unwrap();
        let mut contexts = [adaptive.context().unwrap(), dense.context().unwrap()];
        let mut plain = vec![0; 4096];
        crate::sample::records(&mut plain, 1, 0);
        let mut lens = vec![];
        for from in 0..2 {
            let mut dst = vec![0; 8192];
            let mut unit = [CompressUnit::new(&plain, &mut dst)];
            assert!(contexts[from].compress_batch(&mut unit).all_ok());
            let len = unit[0].result.unwrap();
            lens.push(len);
            let mut out = vec![0; 4096];
            let mut unit = [DecompressUnit::new(&dst[..len], &mut out)];
            assert!(contexts[1 - from].decompress_batch(&mut unit).all_ok());
            assert_eq!(out, plain);
        }
        assert!(lens[1] < lens[0], "{lens:?}");
    }

    #[test]
    fn units_of_several_pages_are_read_by_all() {
        let adaptive = Adaptive::new(Density::default());
        let units = adaptive.dense_units().unwrap();
        assert_eq!(units.unit_size(), UNIT);
        let mut plain = vec![0; UNIT];
        crate::sample::records(&mut plain, 1, 0);
        let mut dst = vec![0; 2 * UNIT];
        let mut unit = [CompressUnit::new(&plain, &mut dst)];
        let mut contexts = [adaptive.context(), units.context()].map(Result::unwrap);
        assert!(contexts[1].compress_batch(&mut unit).all_ok());
        let len = unit[0].result.unwrap();
        assert!(len < UNIT / 2, "{len}");
        for context in &mut contexts {
            let mut out = vec![0; UNIT];
            let mut unit = [DecompressUnit::new(&dst[..len], &mut out)];
            assert!(context.decompress_batch(&mut unit).all_ok());
            assert_eq!(out, plain);
        }
    }

    #[test]
    fn a_wrong_tag_is_corrupt() {
        let mut context = Adaptive::new(Density::default()).context().unwrap();
        let mut out = vec![0; 4096];
        for packed in [&[][..], &[0, 1, 2], &[3, 1, 2]] {
            let mut unit = [DecompressUnit::new(packed, &mut out)];
            assert_eq!(context.decompress_batch(&mut unit).failed, 1);
        }
    }
}
