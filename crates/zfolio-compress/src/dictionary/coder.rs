//! Compressing with whatever dictionary is current, and one unit in [`TRIAL`] both ways.

use super::{Dictionaries, PLAIN, TRIAL, UNIT, train};
use crate::dense;
use crate::ffi::zstd as ffi;
use crate::probe::looks_random;
use crate::unit::{compress_each, decompress_each};
use crate::{BatchOutcome, CodecError, CompressUnit, Compressor, Context, DecompressUnit};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What one thread compresses with, and decompresses what was made with any dictionary.
pub(crate) struct Coder {
    plain: ffi::Encoder,
    /// `None`: it compresses without.
    with: Option<ffi::DictionaryEncoder>,
    decoder: ffi::Decoder,
    dictionaries: Arc<Dictionaries>,
    /// One unit in [`TRIAL`] is compressed both ways.
    tries: bool,
    trial: u32,
    /// Where trials go.
    scratch: Vec<u8>,
}

impl Coder {
    /// Compresses at the table's level with whatever dictionary is current.
    pub(crate) fn new(dictionaries: &Arc<Dictionaries>) -> Result<Self, CodecError> {
        let level = dictionaries.level;
        let with = ffi::DictionaryEncoder::new(level, UNIT, train::MAX_DICTIONARY)?;
        Ok(Self {
            with: Some(with),
            tries: true,
            ..Self::without(level, UNIT, dictionaries)?
        })
    }

    /// The same for units of several pages, by which no dictionary is judged.
    pub(crate) fn of_units(dictionaries: &Arc<Dictionaries>) -> Result<Self, CodecError> {
        let level = dictionaries.level;
        let with = ffi::DictionaryEncoder::new(level, dense::UNIT, train::MAX_DICTIONARY)?;
        Ok(Self {
            with: Some(with),
            ..Self::without(dense::LEVEL, dense::UNIT, dictionaries)?
        })
    }

    /// Compresses units of `unit` bytes at `level` and without dictionaries.
    pub(crate) fn without(
        level: i32,
        unit: usize,
        dictionaries: &Arc<Dictionaries>,
    ) -> Result<Self, CodecError> {
        Ok(Self {
            plain: ffi::Encoder::new(level, unit)?,
            with: None,
            tries: false,
            decoder: ffi::Decoder::new()?,
            dictionaries: dictionaries.clone(),
            trial: 0,
            scratch: Vec::new(),
        })
    }

    /// Writes a byte and a frame; returns their length.
    pub(crate) fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        let with = self.with.as_mut();
        let Some((with, (version, dictionary))) = with.zip(self.dictionaries.begin()) else {
            return compress_plain(&mut self.plain, src, dst);
        };
        let Ok((tag, rest)) = room_for_tag(src, dst) else {
            self.dictionaries.let_go(version);
            return Err(CodecError::DoesNotFit);
        };
        *tag = PLAIN + version;
        let result = with.compress(&dictionary, src, rest);
        self.trial = self.trial.wrapping_add(1);
        if self.tries && self.trial.is_multiple_of(TRIAL) {
            self.try_both(version, &dictionary, src, result.is_ok());
        }
        if result.is_err() {
            self.dictionaries.let_go(version);
        }
        result.map(|len| len + 1)
    }

    /// How long it becomes with and without, whatever was asked for.
    fn try_both(&mut self, version: u8, dictionary: &ffi::Dictionary, src: &[u8], used: bool) {
        let capacity = ffi::bound(src.len());
        if let Some(more) = capacity.checked_sub(self.scratch.len()) {
            if self.scratch.try_reserve_exact(more).is_err() {
                return;
            }
            self.scratch.resize(capacity, 0);
        }
        let buffer = &mut self.scratch[..capacity];
        let Some(with) = &mut self.with else {
            return;
        };
        if let Ok(with) = with.compress(dictionary, src, buffer)
            && let Ok(without) = self.plain.compress(src, buffer)
        {
            self.dictionaries.judge(version, [with, without], used);
        }
    }

    /// Reads what [`Self::compress`] of any coder of this table wrote.
    pub(crate) fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        let (tag, rest) = src.split_first().ok_or(CodecError::Corrupt)?;
        let version = tag.checked_sub(PLAIN).ok_or(CodecError::Corrupt)?;
        if version == 0 {
            return self.decoder.decompress(rest, dst);
        }
        let dictionary = self.dictionaries.find(version);
        let dictionary = dictionary.ok_or(CodecError::Corrupt)?;
        self.decoder.decompress_with(&dictionary, rest, dst)
    }
}

/// Writes the byte of no dictionary and a frame, which any coder reads; returns their length.
pub(crate) fn compress_plain(
    encoder: &mut ffi::Encoder,
    src: &[u8],
    dst: &mut [u8],
) -> Result<usize, CodecError> {
    let (tag, rest) = room_for_tag(src, dst)?;
    *tag = PLAIN;
    encoder.compress(src, rest).map(|len| len + 1)
}

/// The byte in front and what is behind it, unless less is asked for than there is of what
/// has nothing to leave out.
fn room_for_tag<'a>(
    src: &[u8],
    dst: &'a mut [u8],
) -> Result<(&'a mut u8, &'a mut [u8]), CodecError> {
    if dst.len() < src.len() && looks_random(src) {
        return Err(CodecError::DoesNotFit);
    }
    dst.split_first_mut().ok_or(CodecError::DoesNotFit)
}

/// zstd with whatever dictionary is current.
pub struct ZstdDictionary {
    dictionaries: Arc<Dictionaries>,
}

impl ZstdDictionary {
    /// Uses the table's level and dictionaries.
    #[must_use]
    pub fn new(dictionaries: Arc<Dictionaries>) -> Self {
        Self { dictionaries }
    }
}

impl Compressor for ZstdDictionary {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn batch_size(&self) -> usize {
        1
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        Ok(Box::new(Coder::new(&self.dictionaries)?))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        1 + ffi::bound(unit)
    }
}

impl Context for Coder {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        compress_each(units, |src, dst| self.compress(src, dst))
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        decompress_each(units, |src, dst| self.decompress(src, dst))
    }
}
