//! What became of a folio.

use core::fmt;
use zfolio_compress::CodecError;

/// Why a folio was not stored. Nothing of it is in the pool then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreError {
    /// The pool is at its maximum, or was and has not shrunk enough yet.
    PoolFull,
    /// No frames for the pool, or no entries or handles left.
    NoMemory,
    /// The codec failed on a page, and [`Limits`](crate::Limits) ask to refuse it.
    CompressFailed(CodecError),
    /// There may be no more in the pool (`zswap.max`), and nothing of it could be
    /// written back.
    GroupFull,
    /// There may be no more pages out (`swap.max`).
    SwapFull,
    /// A page did not compress, and [`Limits`](crate::Limits) ask to refuse it.
    Poor,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PoolFull => f.write_str("the pool is full"),
            Self::GroupFull => f.write_str("the group has its share of the pool"),
            Self::SwapFull => f.write_str("the group may have no more out"),
            Self::NoMemory => f.write_str("no memory for the pool"),
            Self::CompressFailed(error) => write!(f, "compression failed: {error}"),
            Self::Poor => f.write_str("a page does not compress"),
        }
    }
}

impl core::error::Error for StoreError {}

/// What became of a folio's pages; the first four add up to all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreReport {
    /// Zero pages: nothing stored.
    pub zero_pages: usize,
    /// Pages of one repeated word: an entry, no object.
    pub same_filled_pages: usize,
    /// Pages compressed.
    pub compressed_pages: usize,
    /// Pages kept as they are.
    pub incompressible_pages: usize,
    /// Bytes of all objects made.
    pub compressed_bytes: usize,
}
