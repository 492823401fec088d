//! `verify_compress`: what was compressed is decompressed again and its CRC
//! compared, before anybody relies on it.
//!
//! A unit that does not come back fails with [`CodecError::Mismatch`], whose
//! caller keeps the unit as it is. CRC-32 (IEEE), as the accelerator computes
//! it.

use crate::checksum::crc32;
use crate::{
    BatchOutcome, CodecError, CompressUnit, Compressor, Context, DecompressUnit,
    unit::compress_each,
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What verifying found.
#[derive(Debug, Default)]
pub struct VerifyStats {
    /// Units that came back.
    pub verified: AtomicU64,
    /// Units that did not.
    pub mismatched: AtomicU64,
}

impl VerifyStats {
    /// From nothing: what was counted was somebody else's.
    pub fn restart(&self) {
        self.verified.store(0, Relaxed);
        self.mismatched.store(0, Relaxed);
    }
}

/// A compressor that believes nothing.
pub struct Verified {
    inner: Box<dyn Compressor>,
    stats: Arc<VerifyStats>,
}

impl Verified {
    /// Verifies what `inner` compresses, counting in `stats`.
    #[must_use]
    pub fn new(inner: Box<dyn Compressor>, stats: Arc<VerifyStats>) -> Self {
        Self { inner, stats }
    }
}

impl Compressor for Verified {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn batch_size(&self) -> usize {
        self.inner.batch_size()
    }

    fn unit_size(&self) -> usize {
        self.inner.unit_size()
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        let mut context = VerifiedContext {
            inner: self.inner.context()?,
            stats: self.stats.clone(),
            scratch: Vec::new(),
        };
        context.grow(self.inner.unit_size())?;
        Ok(Box::new(context))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        self.inner.max_compressed_len(unit)
    }
}

struct VerifiedContext {
    inner: Box<dyn Context + Send>,
    stats: Arc<VerifyStats>,
    scratch: Vec<u8>,
}

impl VerifiedContext {
    fn grow(&mut self, len: usize) -> Result<(), CodecError> {
        if let Some(more) = len.checked_sub(self.scratch.len()) {
            self.scratch
                .try_reserve_exact(more)
                .map_err(|_| CodecError::Workspace)?;
            self.scratch.resize(len, 0);
        }
        Ok(())
    }

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        let mut unit = [CompressUnit::new(src, dst)];
        let _ = self.inner.compress_batch(&mut unit);
        let [unit] = unit;
        let len = unit.result?;
        self.grow(src.len())?;
        let packed = unit.dst.get(..len).ok_or(CodecError::Mismatch)?;
        // What an earlier unit left here must not pass for this one's bytes.
        let plain = &mut self.scratch[..src.len()];
        plain.fill(0);
        let mut back = [DecompressUnit::new(packed, plain)];
        let _ = self.inner.decompress_batch(&mut back);
        let whole = back[0].result == Ok(src.len());
        if whole && crc32(&self.scratch[..src.len()]) == crc32(src) {
            self.stats.verified.fetch_add(1, Relaxed);
            Ok(len)
        } else {
            self.stats.mismatched.fetch_add(1, Relaxed);
            Err(CodecError::Mismatch)
        }
    }
}

impl Context for VerifiedContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        compress_each(units, |src, dst| self.compress(src, dst))
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        self.inner.decompress_batch(units)
    }
}
