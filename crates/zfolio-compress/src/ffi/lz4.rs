//! LZ4's C library: block format, state given by the caller.
//!
//! lz4-sys builds and links the library but declares none of the calls that
//! take the caller's state, so they are declared here, as `lz4.h` 1.10 has
//! them.

use super::workspace;
use crate::CodecError;
use alloc::vec::Vec;
use core::ffi::{c_char, c_int, c_void};
// Only for its build script: without a use the library would not be linked.
use lz4_sys as _;

unsafe extern "C" {
    fn LZ4_sizeofState() -> c_int;
    fn LZ4_compressBound(src_size: c_int) -> c_int;
    fn LZ4_compress_fast_extState(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_size: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_compress_fast_extState_fastReset(
        state: *mut c_void,
        src: *const c_char,
        dst: *mut c_char,
        src_size: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe(
        src: *const c_char,
        dst: *mut c_char,
        compressed_size: c_int,
        dst_capacity: c_int,
    ) -> c_int;
}

/// A hash table that successive blocks reuse.
#[derive(Debug)]
pub(crate) struct State {
    memory: Vec<u64>,
    /// Whether the table is as the last successful block left it. Only then
    /// may the next block skip clearing its 16 KiB.
    reusable: bool,
}

impl State {
    /// A cleared state.
    pub(crate) fn new() -> Result<Self, CodecError> {
        // SAFETY: a call without arguments that returns a constant.
        let bytes = unsafe { LZ4_sizeofState() };
        let bytes = usize::try_from(bytes).map_err(|_| CodecError::Workspace)?;
        Ok(Self {
            memory: workspace(bytes)?,
            reusable: false,
        })
    }

    /// Compresses one block; returns its length.
    pub(crate) fn compress(
        &mut self,
        src: &[u8],
        dst: &mut [u8],
        acceleration: i32,
    ) -> Result<usize, CodecError> {
        let (src_len, dst_len) = (length(src.len())?, capacity(dst.len()));
        let call = if self.reusable {
            LZ4_compress_fast_extState_fastReset
        } else {
            LZ4_compress_fast_extState
        };
        // SAFETY: the state is as long and as aligned as the library asks,
        // and initialised whenever the variant that relies on it is taken;
        // both slices are valid for the lengths given.
        let written = unsafe {
            call(
                self.memory.as_mut_ptr().cast(),
                src.as_ptr().cast(),
                dst.as_mut_ptr().cast(),
                src_len,
                dst_len,
                acceleration,
            )
        };
        self.reusable = written > 0;
        match usize::try_from(written) {
            Ok(0) | Err(_) => Err(CodecError::DoesNotFit),
            Ok(len) => Ok(len),
        }
    }
}

/// Decompresses one block into `dst`; returns the plain length.
pub(crate) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
    let src_len = length(src.len()).map_err(|_| CodecError::Corrupt)?;
    // SAFETY: both slices are valid for the lengths given, and this decoder
    // checks every offset against them.
    let written = unsafe {
        LZ4_decompress_safe(
            src.as_ptr().cast(),
            dst.as_mut_ptr().cast(),
            src_len,
            capacity(dst.len()),
        )
    };
    // The decoder does not tell a block that is too long from a broken one.
    usize::try_from(written).map_err(|_| CodecError::Corrupt)
}

/// Longest a block of `unit` bytes can become; 0 when it is too large.
pub(crate) fn bound(unit: usize) -> usize {
    let Ok(unit) = c_int::try_from(unit) else {
        return 0;
    };
    // SAFETY: plain arithmetic.
    usize::try_from(unsafe { LZ4_compressBound(unit) }).unwrap_or(0)
}

fn length(bytes: usize) -> Result<c_int, CodecError> {
    c_int::try_from(bytes).map_err(|_| CodecError::Length)
}

/// A longer buffer than the type can say is used up to what it can say.
fn capacity(bytes: usize) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}
