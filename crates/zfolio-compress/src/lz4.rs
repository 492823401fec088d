//! LZ4 blocks (C library): the fast tier.
//!
//! The hash table is reused from block to block: clearing its 16 KiB would
//! cost more than finding a 4 KiB page's matches in it.

use crate::ffi::lz4 as ffi;
use crate::unit::{compress_each, decompress_each};
use crate::{BatchOutcome, CodecError, CompressUnit, Compressor, Context, DecompressUnit};
use alloc::boxed::Box;

/// Acceleration: 1 finds most, larger skips more. The library's own bounds.
pub const ACCELERATION: core::ops::RangeInclusive<i32> = 1..=65_537;

/// The lz4 compressor.
#[derive(Clone, Copy, Debug)]
pub struct Lz4 {
    acceleration: i32,
}

impl Lz4 {
    /// With an acceleration, clamped to [`ACCELERATION`].
    #[must_use]
    pub fn new(acceleration: i32) -> Self {
        Self {
            acceleration: acceleration.clamp(*ACCELERATION.start(), *ACCELERATION.end()),
        }
    }
}

impl Compressor for Lz4 {
    fn name(&self) -> &'static str {
        "lz4"
    }

    fn batch_size(&self) -> usize {
        1
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(Lz4Context {
            state: ffi::State::new()?,
            acceleration: self.acceleration,
        }))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        ffi::bound(unit)
    }
}

/// 16 KiB of state.
struct Lz4Context {
    state: ffi::State,
    acceleration: i32,
}

impl Context for Lz4Context {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        compress_each(units, |src, dst| {
            self.state.compress(src, dst, self.acceleration)
        })
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        decompress_each(units, ffi::decompress)
    }
}
