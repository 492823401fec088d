//! What one thread stores and loads with.

use crate::{MAX_BATCH, MIN_BATCH};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use zfolio_compress::{CodecError, Compressor, Context};
use zfolio_mm::PAGE_SIZE;

/// A thread's codec state and buffers, made once by
/// [`Zswap::context`](crate::Zswap::context): no store or load allocates
/// afterwards. Only good for the `Zswap` that made it.
pub struct WorkContext {
    pub(crate) codec: Box<dyn Context + Send>,
    /// One page per unit of a batch: what a page was compressed to.
    pub(crate) buffer: Box<[u8]>,
}

impl WorkContext {
    pub(crate) fn new(compressor: &dyn Compressor) -> Result<Self, CodecError> {
        let codec = compressor.context()?;
        let len = compressor.batch_size().clamp(MIN_BATCH, MAX_BATCH) * PAGE_SIZE;
        let mut buffer = Vec::new();
        buffer
            .try_reserve_exact(len)
            .map_err(|_| CodecError::Workspace)?;
        buffer.resize(len, 0);
        Ok(Self {
            codec,
            buffer: buffer.into_boxed_slice(),
        })
    }

    /// Pages per batch.
    pub(crate) fn batch(&self) -> usize {
        self.buffer.len() / PAGE_SIZE
    }
}

impl fmt::Debug for WorkContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkContext")
            .field("batch", &self.batch())
            .finish_non_exhaustive()
    }
}
