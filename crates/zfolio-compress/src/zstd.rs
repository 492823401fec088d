//! Zstandard (C library): the dense tier.
//!
//! Frames without magic, content size or checksum: the caller knows the unit
//! and keeps a checksum of its own. See `ffi::zstd` for how contexts are kept
//! off the C heap.

use crate::ffi::zstd as ffi;
use crate::probe::looks_random;
use crate::unit::{compress_each, decompress_each};
use crate::{
    BatchOutcome, CodecError, CompressUnit, Compressor, Context, DecompressUnit, MAX_UNIT,
    PAGE_UNIT,
};
use alloc::boxed::Box;

/// Levels offered. Negative ones trade ratio for speed; above 19 the
/// workspace of a 2 MiB unit stops being reasonable.
pub const LEVELS: core::ops::RangeInclusive<i32> = -7..=19;

/// The zstd compressor.
#[derive(Clone, Copy, Debug)]
pub struct Zstd {
    level: i32,
    unit: usize,
}

impl Zstd {
    /// At a level, clamped to [`LEVELS`].
    #[must_use]
    pub fn new(level: i32) -> Self {
        Self {
            level: level.clamp(*LEVELS.start(), *LEVELS.end()),
            unit: PAGE_UNIT,
        }
    }

    /// For units of `unit` bytes, at most [`MAX_UNIT`].
    #[must_use]
    pub fn with_unit(self, unit: usize) -> Self {
        Self {
            unit: unit.clamp(1, MAX_UNIT),
            ..self
        }
    }
}

impl Compressor for Zstd {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn batch_size(&self) -> usize {
        1
    }

    fn unit_size(&self) -> usize {
        self.unit
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(ZstdContext {
            encoder: ffi::Encoder::new(self.level, self.unit)?,
            decoder: ffi::Decoder::new()?,
        }))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        ffi::bound(unit)
    }
}

struct ZstdContext {
    encoder: ffi::Encoder,
    decoder: ffi::Decoder,
}

impl Context for ZstdContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        compress_each(units, |src, dst| {
            // Asked for less than there is, of what has nothing to leave out.
            if dst.len() < src.len() && looks_random(src) {
                return Err(CodecError::DoesNotFit);
            }
            self.encoder.compress(src, dst)
        })
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        decompress_each(units, |src, dst| self.decoder.decompress(src, dst))
    }
}
