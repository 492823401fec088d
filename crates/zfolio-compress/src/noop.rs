//! A codec that copies: what storing costs when compressing costs nothing.

use crate::unit::{compress_each, decompress_each};
use crate::{BatchOutcome, CodecError, CompressUnit, Compressor, Context, DecompressUnit};
use alloc::boxed::Box;

/// The copying compressor. A "compressed" unit is the unit itself, so it only
/// fits a `dst` as long as the unit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noop;

impl Compressor for Noop {
    fn name(&self) -> &'static str {
        "none"
    }

    fn batch_size(&self) -> usize {
        1
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(NoopContext))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        unit
    }
}

struct NoopContext;

impl Context for NoopContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        compress_each(units, copy)
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        decompress_each(units, copy)
    }
}

fn copy(src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
    let buffer = dst.get_mut(..src.len()).ok_or(CodecError::DoesNotFit)?;
    buffer.copy_from_slice(src);
    Ok(src.len())
}
