//! Raw deflate (RFC 1951) that an accelerator with a 4 KiB history could read.
//!
//! Our own, because no library has all of it: no distance beyond
//! [`WINDOW`], and the *canned* form of the accelerator, in which preset
//! Huffman tables replace every header: the stream is symbols and the end mark,
//! nothing else. The other two forms are plain deflate and any inflater reads
//! them.
//!
//! | name | blocks |
//! |---|---|
//! | `deflate-iaa` | fixed tables, or stored: what the kernel's driver of the name makes |
//! | `deflate-iaa:dynamic` | dynamic tables, or fixed, or stored: whichever is shortest |
//! | `deflate-iaa:canned` | none: preset tables, no header per page |
//!
//! | module | concept |
//! |---|---|
//! | `symbols` | lengths and distances as RFC 1951 codes them |
//! | `huffman` | code lengths from frequencies, codes from lengths |
//! | `canned` | the preset code lengths |
//! | `tables` | the window, and which tables there are |
//! | `matches` | finding repeats: hash chains within the window |
//! | `encode` | symbols to bits |
//! | `decode` | bits to bytes; safe on any input |

mod canned;
mod decode;
mod encode;
mod huffman;
mod matches;
mod symbols;
mod tables;

use crate::unit::{compress_each, decompress_each};
use crate::{BatchOutcome, CodecError, CompressUnit, Compressor, Context, DecompressUnit};
use alloc::boxed::Box;
use decode::Decoder;
use encode::Encoder;
pub use tables::{Tables, WINDOW};

/// The deflate compressor.
#[derive(Clone, Copy, Debug)]
pub struct Deflate {
    tables: Tables,
}

impl Deflate {
    /// What the codec is called.
    pub const NAME: &str = "deflate-iaa";

    /// With these tables.
    #[must_use]
    pub fn new(tables: Tables) -> Self {
        Self { tables }
    }
}

impl Compressor for Deflate {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn batch_size(&self) -> usize {
        1
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(DeflateContext {
            encoder: Encoder::new(self.tables)?,
            decoder: Decoder::new(self.tables)?,
        }))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        // No code is longer than 15 bits, no symbol stands for less than a byte.
        unit * 2 + 64
    }
}

struct DeflateContext {
    encoder: Encoder,
    decoder: Decoder,
}

impl Context for DeflateContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        compress_each(units, |src, dst| self.encoder.compress(src, dst))
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        decompress_each(units, |src, dst| self.decoder.decompress(src, dst))
    }
}
