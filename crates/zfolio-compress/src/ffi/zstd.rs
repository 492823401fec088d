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
    ZSTD_CCtx, ZSTD_CCtx_refCDict, ZSTD_CCtx_reset, ZSTD_CCtx_setCParams, ZSTD_CCtx_setParameter,
    ZSTD_CDict, ZSTD_DCtx, ZSTD_DCtx_setParameter, ZSTD_DDict, ZSTD_ErrorCode, ZSTD_ResetDirective,
    ZSTD_cParameter, ZSTD_compress2, ZSTD_compressBound, ZSTD_dParameter,
    ZSTD_decompress_usingDDict, ZSTD_decompressDCtx, ZSTD_dictContentType_e, ZSTD_dictLoadMethod_e,
    ZSTD_estimateCCtxSize_usingCParams, ZSTD_estimateCDictSize_advanced, ZSTD_estimateDCtxSize,
    ZSTD_estimateDDictSize, ZSTD_format_e, ZSTD_getCParams, ZSTD_getErrorCode, ZSTD_initStaticCCtx,
    ZSTD_initStaticCDict, ZSTD_initStaticDCtx, ZSTD_initStaticDDict, ZSTD_isError,
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
        let context = fit(&mut memory, level, tier, 0)?;
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
            self.context = fit(&mut self.memory, self.level, tier, 0)?;
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
/// At least `least` bytes of it are used.
fn fit(
    memory: &mut Vec<u64>,
    level: i32,
    tier: usize,
    least: usize,
) -> Result<NonNull<ZSTD_CCtx>, CodecError> {
    // SAFETY: arithmetic on plain values.
    let (params, bytes) = unsafe {
        let params = ZSTD_getCParams(level, tier as u64, 0);
        (params, ZSTD_estimateCCtxSize_usingCParams(params))
    };
    if failure(bytes).is_some() {
        return Err(CodecError::Workspace);
    }
    let bytes = bytes.max(least);
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

/// A dictionary of content alone, ready to compress and decompress with; does not
/// change any more.
#[derive(Debug)]
pub(crate) struct Dictionary {
    compress: NonNull<ZSTD_CDict>,
    decompress: NonNull<ZSTD_DDict>,
    /// What the two lie in, and refer to.
    memory: [Vec<u64>; 3],
}

// SAFETY: the library only reads dictionaries once they are made, and they keep
// nothing of the thread they were made in.
unsafe impl Send for Dictionary {}
// SAFETY: as above: any number of contexts may refer to one at the same time.
unsafe impl Sync for Dictionary {}

impl Dictionary {
    /// For units of up to a few pages, compressed at `level`.
    pub(crate) fn new(content: &[u8], level: i32) -> Result<Self, CodecError> {
        let mut bytes = workspace(content.len())?;
        for (word, chunk) in bytes.iter_mut().zip(content.chunks(8)) {
            let mut raw = [0; 8];
            raw[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(raw);
        }
        let by_reference = ZSTD_dictLoadMethod_e::ZSTD_dlm_byRef;
        let raw = ZSTD_dictContentType_e::ZSTD_dct_rawContent;
        // SAFETY: arithmetic on plain values.
        let (params, compress_len, decompress_len) = unsafe {
            let params = ZSTD_getCParams(level, 4096, content.len());
            (
                params,
                ZSTD_estimateCDictSize_advanced(content.len(), params, by_reference),
                ZSTD_estimateDDictSize(content.len(), by_reference),
            )
        };
        if failure(compress_len).is_some() || failure(decompress_len).is_some() {
            return Err(CodecError::Workspace);
        }
        let mut compress_memory = workspace(compress_len)?;
        let mut decompress_memory = workspace(decompress_len)?;
        // SAFETY: the workspaces are as long and as aligned as was asked for; they
        // and the content live, unmoved and unchanged, as long as this value (the
        // vectors' buffers do not move with them).
        let (compress, decompress) = unsafe {
            (
                ZSTD_initStaticCDict(
                    compress_memory.as_mut_ptr().cast(),
                    compress_len,
                    bytes.as_ptr().cast(),
                    content.len(),
                    by_reference,
                    raw,
                    params,
                ),
                ZSTD_initStaticDDict(
                    decompress_memory.as_mut_ptr().cast(),
                    decompress_len,
                    bytes.as_ptr().cast(),
                    content.len(),
                    by_reference,
                    raw,
                ),
            )
        };
        let made = NonNull::new(compress.cast_mut()).zip(NonNull::new(decompress.cast_mut()));
        let (compress, decompress) = made.ok_or(CodecError::Workspace)?;
        Ok(Self {
            compress,
            decompress,
            memory: [bytes, compress_memory, decompress_memory],
        })
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.memory
            .iter()
            .map(|of| of.len() * size_of::<u64>())
            .sum()
    }
}

/// A compression context for units with a dictionary.
#[derive(Debug)]
pub(crate) struct DictionaryEncoder {
    inner: Encoder,
    dictionary_len: usize,
}

impl DictionaryEncoder {
    /// For dictionaries of up to `dictionary_len` bytes.
    pub(crate) fn new(level: i32, unit: usize, dictionary_len: usize) -> Result<Self, CodecError> {
        let mut made = Self {
            inner: Encoder {
                context: NonNull::dangling(),
                memory: Vec::new(),
                level,
                tier: 0,
            },
            dictionary_len,
        };
        made.fit(tier_of(unit))?;
        Ok(made)
    }

    /// As [`fit`], with room for what a dictionary's parameters ask for.
    fn fit(&mut self, tier: usize) -> Result<(), CodecError> {
        self.inner.tier = 0;
        // The library takes the larger of the unit's and the dictionary's
        // tables; a unit as large as both together has no smaller ones.
        let whole = tier_of(tier + self.dictionary_len);
        // SAFETY: arithmetic on plain values.
        let bytes = unsafe {
            let level = self.inner.level;
            let of = |params| ZSTD_estimateCCtxSize_usingCParams(params);
            of(ZSTD_getCParams(level, whole as u64, 0)).max(of(ZSTD_getCParams(
                level,
                tier as u64,
                self.dictionary_len,
            )))
        };
        if failure(bytes).is_some() {
            return Err(CodecError::Workspace);
        }
        if self.inner.memory.len() * size_of::<u64>() < bytes {
            self.inner.memory = Vec::new();
            self.inner.memory = workspace(bytes)?;
        }
        self.inner.context = fit(&mut self.inner.memory, self.inner.level, tier, bytes)?;
        self.inner.tier = tier;
        Ok(())
    }

    /// Compresses one frame with a dictionary; returns its length.
    pub(crate) fn compress(
        &mut self,
        dictionary: &Dictionary,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<usize, CodecError> {
        let tier = tier_of(src.len());
        if tier != self.inner.tier {
            self.fit(tier)?;
        }
        // SAFETY: the context is live and between two frames; the dictionary
        // outlives the frame, and is taken off below.
        let referred = succeeded(unsafe {
            ZSTD_CCtx_refCDict(self.inner.context.as_ptr(), dictionary.compress.as_ptr())
        });
        let result = referred.and_then(|()| self.inner.compress(src, dst));
        // A frame that failed would keep the context from letting go.
        // SAFETY: the context is live, and between two frames once it was reset;
        // null is no dictionary.
        let let_go = unsafe {
            let context = self.inner.context.as_ptr();
            succeeded(ZSTD_CCtx_reset(
                context,
                ZSTD_ResetDirective::ZSTD_reset_session_only,
            ))
            .and_then(|()| succeeded(ZSTD_CCtx_refCDict(context, core::ptr::null())))
        };
        if let Err(error) = let_go {
            // It may still refer to the dictionary: made anew before its next use.
            self.inner.tier = 0;
            return Err(error);
        }
        result
    }
}

impl Decoder {
    /// Decompresses one frame that was made with `dictionary`.
    pub(crate) fn decompress_with(
        &mut self,
        dictionary: &Dictionary,
        src: &[u8],
        dst: &mut [u8],
    ) -> Result<usize, CodecError> {
        // SAFETY: the context is live and ours alone; the dictionary outlives the
        // call, and the next call names its own or none; both slices are valid for
        // the lengths given.
        let result = unsafe {
            ZSTD_decompress_usingDDict(
                self.context.as_ptr(),
                dst.as_mut_ptr().cast(),
                dst.len(),
                src.as_ptr().cast(),
                src.len(),
                dictionary.decompress.as_ptr(),
            )
        };
        match failure(result) {
            None => Ok(result),
            Some(ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) => Err(CodecError::DoesNotFit),
            Some(_) => Err(CodecError::Corrupt),
        }
    }
}
