//! What one thread stores and loads with.

use crate::backing::clusters::IO;
use crate::{LOAD_BATCH, MAX_BATCH, MIN_BATCH};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use zfolio_compress::dense::UNIT;
use zfolio_compress::{CodecError, Compressor, Context};
use zfolio_mm::PAGE_SIZE;

/// A thread's codec state and buffers, made once by
/// [`Zswap::context`](crate::Zswap::context): no store or load allocates
/// afterwards. Only good for the `Zswap` that made it.
pub struct WorkContext {
    pub(crate) codec: Box<dyn Context + Send>,
    /// One page per unit of a batch: what a page was compressed to.
    pub(crate) buffer: Box<[u8]>,
    /// What is written to or was read from the backing; empty without one.
    pub(crate) io: Box<[u8]>,
    /// A unit of several pages, decompressed; empty where there are none.
    pub(crate) unit: Box<[u8]>,
    /// Pages it has loaded from the backing.
    pub(crate) backed: u64,
}

/// A buffer of `len` bytes, zeroed.
pub(crate) fn buffer_of(len: usize) -> Result<Box<[u8]>, CodecError> {
    let mut buffer = Vec::new();
    buffer
        .try_reserve_exact(len)
        .map_err(|_| CodecError::Workspace)?;
    buffer.resize(len, 0);
    Ok(buffer.into_boxed_slice())
}

impl WorkContext {
    pub(crate) fn new(compressor: &dyn Compressor, backed: bool) -> Result<Self, CodecError> {
        let codec = compressor.context()?;
        let len = compressor.batch_size().clamp(MIN_BATCH, MAX_BATCH) * PAGE_SIZE;
        Ok(Self {
            codec,
            buffer: buffer_of(len)?,
            io: buffer_of(if backed { IO } else { 0 })?,
            unit: buffer_of(compressor.dense_units().map_or(0, |_| UNIT))?,
            backed: 0,
        })
    }

    /// Pages that loads with it have brought from the backing so far.
    pub fn loaded_from_backing(&self) -> u64 {
        self.backed
    }

    /// Pages decompressed in one batch.
    pub(crate) fn load_batch(&self) -> usize {
        self.batch().max(LOAD_BATCH)
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
