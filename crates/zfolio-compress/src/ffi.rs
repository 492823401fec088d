//! The fence: every unsafe block of this crate, behind safe wrappers.
//!
//! The C libraries only ever see slices that outlive the call and workspaces
//! made by [`workspace`], from Rust's allocator: the threads this runs in may
//! not use the C heap.

pub(crate) mod lz4;
pub(crate) mod zstd;

use crate::CodecError;
use alloc::vec::Vec;

/// Zeroed working memory of at least `bytes` bytes, aligned to 8 bytes as both
/// libraries want it.
///
/// # Errors
/// [`CodecError::Workspace`] when the allocator has none.
fn workspace(bytes: usize) -> Result<Vec<u64>, CodecError> {
    let words = bytes.div_ceil(size_of::<u64>());
    let mut memory = Vec::new();
    memory
        .try_reserve_exact(words)
        .map_err(|_| CodecError::Workspace)?;
    memory.resize(words, 0);
    Ok(memory)
}
