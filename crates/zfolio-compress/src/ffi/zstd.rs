//! Zstandard's C library: static contexts in workspaces of our own.
//!
//! Frames are magicless, without content size, checksum or dictionary id: two
//! bytes of header. A static context never allocates; it fails when its
//! workspace is too small. So context and workspace are fitted to the unit
//! size, with the compression parameters zstd itself chooses for a source of
//! that size, so that what a unit becomes does not depend on the units before.

use super::workspace;
use crate::CodecError;
use alloc::vec::Vec;
use core::ptr::NonNull;
use zstd_sys::{
    ZSTD_CCtx, ZSTD_CCtx_setCParams, ZSTD_CCtx_setParameter, ZSTD_DCtx, ZSTD_DCtx_setParameter,
    ZSTD_ErrorCode, ZSTD_cParameter, ZSTD_compress2, ZSTD_compressBound, ZSTD_dParameter,
    ZSTD_decompressDCtx, ZSTD_estimateCCtxSize_usingCParams, ZSTD_estimateDCtxSize, ZSTD_format_e,
    ZSTD_getCParams, ZSTD_getErrorCode, ZSTD_initStaticCCtx, ZSTD_initStaticDCtx, ZSTD_isError,
};

/// `ZSTD_c_format`: experimental parameters have no name in the binding.
const C_FORMAT: ZSTD_cParameter = ZSTD_cParameter::ZSTD_c_experimentalParam2;
/// `ZSTD_d_format`.
const D_FORMAT: ZSTD_dParameter = ZSTD_dParameter::ZSTD_d_experimentalParam1;
const MAGICLESS: i32 = ZSTD_format_e::ZSTD_f_zstd1_magicless as i32;

/// A compression context for units of up to one size.
#[derive(Debug)]
pub(crate) struct Encoder {
    /// Lies at the start of `memory`.
    context: NonNull<ZSTD_CCtx>,
    /// Never touched while `context` is in use; kept for its allocation.
    memory: Vec<u64>,
    level: i32,
    /// Units of `tier / 2 + 1 ..= tier` bytes are what the context is fitted to.
    tier: usize,
}

// SAFETY: the context is only reached through `&mut self`, keeps nothing of
// the thread it was made in, and its memory moves with it.
unsafe impl Send for Encoder {}

impl Encoder {
    /// A context at `level` for units of `unit` bytes.
    pub(crate) fn new(level: i32, unit: usize) -> Result<Self, CodecError> {
        let mut memory = Vec::new();
        let tier = tier_of(unit);
        let context = fit(&mut memory, level, tier)?;
        Ok(Self {
            context,
            memory,
            level,
            tier,
        })
    }

    /// Compresses one frame; returns its length.
    pub(crate) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        let tier = tier_of(src.len());
        if tier != self.tier {
            // Until the fit succeeds there is no usable context; the tier
            // that no unit has makes the next call try again.
            self.tier = 0;
            self.context = fit(&mut self.memory, self.level, tier)?;
            self.tier = tier;
        }
        // SAFETY: the context is live and ours alone; both slices are valid
        // for the lengths given.
        let result = unsafe {
            ZSTD_compress2(
                self.context.as_ptr(),
                dst.as_mut_ptr().cast(),
                dst.len(),
                src.as_ptr().cast(),
                src.len(),
            )
        };
        match failure(result) {
            None => Ok(result),
            Some(ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) => Err(CodecError::DoesNotFit),
            Some(_) => Err(CodecError::Workspace),
        }
    }
}

/// Makes a context fitted to units of `tier` bytes in `memory`, which grows
/// when it is too small.
fn fit(memory: &mut Vec<u64>, level: i32, tier: usize) -> Result<NonNull<ZSTD_CCtx>, CodecError> {
    // SAFETY: arithmetic on plain values.
    let (params, bytes) = unsafe {
        let params = ZSTD_getCParams(level, tier as u64, 0);
        (params, ZSTD_estimateCCtxSize_usingCParams(params))
    };
    if failure(bytes).is_some() {
        return Err(CodecError::Workspace);
    }
    if memory.len() * size_of::<u64>() < bytes {
        *memory = Vec::new();
        *memory = workspace(bytes)?;
    }
    // SAFETY: the workspace is at least `bytes` long, aligned to 8 bytes, and
    // used by nothing else as long as the context is.
    let context = unsafe { ZSTD_initStaticCCtx(memory.as_mut_ptr().cast(), bytes) };
    let context = NonNull::new(context).ok_or(CodecError::Workspace)?;
    let set = |parameter, value| {
        // SAFETY: the context is live; values out of range are refused.
        succeeded(unsafe { ZSTD_CCtx_setParameter(context.as_ptr(), parameter, value) })
    };
    set(ZSTD_cParameter::ZSTD_c_compressionLevel, level)?;
    set(C_FORMAT, MAGICLESS)?;
    set(ZSTD_cParameter::ZSTD_c_contentSizeFlag, 0)?;
    set(ZSTD_cParameter::ZSTD_c_checksumFlag, 0)?;
    set(ZSTD_cParameter::ZSTD_c_dictIDFlag, 0)?;
    // SAFETY: the context is live.
    succeeded(unsafe { ZSTD_CCtx_setCParams(context.as_ptr(), params) })?;
    Ok(context)
}

/// The next power of two, and no less than a page: sizes that share
/// parameters.
fn tier_of(unit: usize) -> usize {
    unit.next_power_of_two().max(4096)
}

/// A decompression context, for units of any size.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Lies at the start of `memory`.
    context: NonNull<ZSTD_DCtx>,
    _memory: Vec<u64>,
}

// SAFETY: as for `Encoder`.
unsafe impl Send for Decoder {}

impl Decoder {
    /// A decompression context.
    pub(crate) fn new() -> Result<Self, CodecError> {
        // SAFETY: returns a constant.
        let bytes = unsafe { ZSTD_estimateDCtxSize() };
        let mut memory = workspace(bytes)?;
        let len = memory.len() * size_of::<u64>();
        // SAFETY: the workspace is `len` bytes, aligned to 8, and moves with
        // the context that lies in it.
        let context = unsafe { ZSTD_initStaticDCtx(memory.as_mut_ptr().cast(), len) };
        let context = NonNull::new(context).ok_or(CodecError::Workspace)?;
        // SAFETY: the context is live.
        succeeded(unsafe { ZSTD_DCtx_setParameter(context.as_ptr(), D_FORMAT, MAGICLESS) })?;
        Ok(Self {
            context,
            _memory: memory,
        })
    }

    /// Decompresses one frame into `dst`; returns the plain length.
    pub(crate) fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        // SAFETY: the context is live and ours alone; both slices are valid
        // for the lengths given, and the decoder checks itself against them.
        let result = unsafe {
            ZSTD_decompressDCtx(
                self.context.as_ptr(),
                dst.as_mut_ptr().cast(),
                dst.len(),
                src.as_ptr().cast(),
                src.len(),
            )
        };
        match failure(result) {
            None => Ok(result),
            Some(ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) => Err(CodecError::DoesNotFit),
            Some(_) => Err(CodecError::Corrupt),
        }
    }
}

/// Longest a frame of `unit` bytes can become.
pub(crate) fn bound(unit: usize) -> usize {
    // SAFETY: plain arithmetic.
    unsafe { ZSTD_compressBound(unit) }
}

fn failure(result: usize) -> Option<ZSTD_ErrorCode> {
    // SAFETY: plain arithmetic; only a value that is an error is turned into
    // a code, and the library's codes are the binding's.
    unsafe { (ZSTD_isError(result) != 0).then(|| ZSTD_getErrorCode(result)) }
}

fn succeeded(result: usize) -> Result<(), CodecError> {
    failure(result).map_or(Ok(()), |_| Err(CodecError::Workspace))
}
