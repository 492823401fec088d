//! Zstandard (C library): the dense tier.
//!
//! Frames without magic, content size or checksum: the caller knows the unit
//! and keeps a checksum of its own. See `ffi::zstd` for how contexts are kept
//! off the C heap.

use crate::ffi::zstd as ffi;
use crate::unit::{compress_each, decompress_each};
use crate::{BatchOutcome, CodecError, CompressUnit, Compressor, Context, DecompressUnit};
use alloc::boxed::Box;

/// Levels offered. Negative ones trade ratio for speed; above 19 the
/// workspace of a 2 MiB unit stops being reasonable.
pub const LEVELS: core::ops::RangeInclusive<i32> = -7..=19;

/// Unit size a fresh context is fitted to, in bytes.
const FIRST_UNIT: usize = 4096;

/// The zstd compressor.
#[derive(Clone, Copy, Debug)]
pub struct Zstd {
    level: i32,
}

impl Zstd {
    /// At a level, clamped to [`LEVELS`].
    #[must_use]
    pub fn new(level: i32) -> Self {
        Self {
            level: level.clamp(*LEVELS.start(), *LEVELS.end()),
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

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(ZstdContext {
            encoder: ffi::Encoder::new(self.level, FIRST_UNIT)?,
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
        compress_each(units, |src, dst| self.encoder.compress(src, dst))
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        decompress_each(units, |src, dst| self.decoder.decompress(src, dst))
    }
}
