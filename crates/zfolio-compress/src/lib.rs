//! Codecs behind one batch interface.
//!
//! A [`Codec`] is a choice ("zstd, level 3"), a [`Compressor`] is that choice
//! made usable, a [`Context`] is the working memory one thread compresses and
//! decompresses with. Contexts are made once and live as long as their thread:
//! no call on a context that has seen its unit size allocates.
//!
//! | module | concept |
//! |---|---|
//! | [`codec`] | names and options, and their parser |
//! | [`mod@unit`] | the units of a batch, results and errors |
//! | [`lz4`] | the fast tier |
//! | [`zstd`] | the dense tier |
//! | [`dictionary`] | zstd with dictionaries made from a program's own pages |
//! | [`dense`] | several pages as one unit, for a second tier |
//! | [`noop`] | a twin that copies, to isolate the codec's cost |
//! | [`deflate`] | raw deflate with a 4 KiB window, as an accelerator reads it |
//! | [`engine`] | work queues and the threads behind them |
//! | [`verify`] | decompress what was compressed, and compare |
//! | [`checksum`] | a cheap check of compressed bytes |
//! | [`fill`] | pages that hold one repeated word |
//! | [`probe`] | pages that look random: no codec is tried on them |
//! | [`sample`] | made-up pages for benches and tests |
//! | `ffi` | the C libraries, and the only unsafe code here |
//!
//! # Invariants
//! - A codec writes nowhere but its unit's `dst`, whatever the input bytes.
//! - `decompress(compress(x)) == x` for every unit up to [`MAX_UNIT`] bytes.
//! - Nothing here takes memory from the C heap or touches thread-local
//!   storage: it runs in threads that have neither.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod adaptive;
pub mod checksum;
pub mod codec;
pub mod deflate;
pub mod dense;
pub mod dictionary;
pub mod engine;
#[allow(unsafe_code, reason = "the fence: C libraries behind safe wrappers")]
mod ffi;
pub mod fill;
pub mod lz4;
pub mod noop;
pub mod probe;
pub mod sample;
pub mod unit;
pub mod verify;
pub mod zstd;

pub use codec::{Codec, ParseCodecError};
pub use unit::{BatchOutcome, CodecError, CompressUnit, DecompressUnit};

use alloc::boxed::Box;
use alloc::sync::Arc;
use dictionary::Dictionaries;

/// Largest unit any codec takes, in bytes: an order-9 folio.
pub const MAX_UNIT: usize = 2 << 20;

/// Bytes of the units of a compressor that was made for no other: a page.
pub const PAGE_UNIT: usize = 4096;

/// A way to compress, shared by every thread.
pub trait Compressor: Send + Sync {
    /// Short name as options and statistics spell it: `lz4`, `zstd`, `none`.
    fn name(&self) -> &'static str;

    /// Units the engine behind it works on at once: 1 for software codecs,
    /// more for an accelerator with queues. Callers may pass any number.
    fn batch_size(&self) -> usize;

    /// Bytes of the units it is made for: contexts are ready for them. Others
    /// work as well.
    fn unit_size(&self) -> usize {
        PAGE_UNIT
    }

    /// Working memory for one thread, ready for units of [`Self::unit_size`]. A
    /// larger unit makes it grow once.
    ///
    /// # Errors
    /// [`CodecError::Workspace`] when the memory cannot be had.
    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError>;

    /// Bytes of `dst` with which compressing `unit` bytes never fails with
    /// [`CodecError::DoesNotFit`].
    fn max_compressed_len(&self, unit: usize) -> usize;

    /// What compresses the same units again, when nobody waits, into less room at
    /// more time: its contexts read what this one's wrote, and the reverse. `None`:
    /// there is no such thing.
    fn dense(&self) -> Option<Box<dyn Compressor>> {
        None
    }

    /// As [`Self::dense`], for units of several pages ([`dense`]): the contexts of the
    /// others read those as well.
    fn dense_units(&self) -> Option<Box<dyn Compressor>> {
        None
    }

    /// The table of the dictionaries with which [`Self::dense`] compresses. Who keeps
    /// what it made tells the table so.
    fn dictionaries(&self) -> Option<Arc<Dictionaries>> {
        None
    }
}

/// One thread's working memory.
pub trait Context {
    /// Compresses every unit; each carries its own result.
    ///
    /// A result is the number of bytes of `dst` used. A `dst` shorter than
    /// [`Compressor::max_compressed_len`] is how the caller says what it
    /// would still find worth keeping.
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome;

    /// Decompresses every unit; each carries its own result, the number of
    /// bytes of `dst` filled. After an error `dst` holds unspecified bytes.
    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome;
}
