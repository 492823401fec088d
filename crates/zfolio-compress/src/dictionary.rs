//! zstd with dictionaries made from a program's own pages.
//!
//! | module | concept |
//! |---|---|
//! | this | the table of dictionaries and the compressor that uses it |
//! | [`train`] | choosing what goes into one, in fixed memory |
//!
//! A byte in front of each unit says which dictionary it was made with: 0 none,
//! else the number of its place in the table. A unit counts for its dictionary
//! from when it is compressed until whoever keeps it says [`Dictionaries::release`];
//! a dictionary that is not current goes, and its place may be taken anew, once no
//! unit counts. Who forgets a release keeps a dictionary for ever, nothing worse.
//!
//! Whether one pays is measured, not believed: before it is installed, on pages it
//! was not made from, and then on one unit in [`TRIAL`], which is compressed
//! both ways; below [`LEAST_GAIN`] percent it is retired.

use crate::ffi::zstd as ffi;
use crate::unit::{compress_each, decompress_each};
use crate::zstd::LEVELS;
use crate::{BatchOutcome, CodecError, CompressUnit, Compressor, Context, DecompressUnit};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use zfolio_sys::lock::Mutex;

pub mod train;

/// Dictionaries at a time: the current one, and those that stored units need.
pub const VERSIONS: usize = 4;
/// One unit in so many is compressed with and without.
pub const TRIAL: u32 = 64;
/// Least saving, percent of the compressed bytes.
pub const LEAST_GAIN: u64 = 3;
/// Trials before the saving is judged.
const TRIALS: u64 = 128;
/// Unit size contexts are fitted to, bytes.
const UNIT: usize = 4096;

/// A dictionary's place in the table.
#[derive(Default)]
struct Place {
    held: Option<Held>,
}

struct Held {
    dictionary: Arc<ffi::Dictionary>,
    /// Units made with it that somebody keeps.
    units: u64,
}

/// The table.
pub struct Dictionaries {
    level: i32,
    places: [Mutex<Place>; VERSIONS],
    /// 1 + place of the one that new units use; 0: none.
    current: AtomicU32,
    /// Trials of the current one: how many, bytes with it and without.
    trials: [AtomicU64; 3],
    /// Dictionaries retired because they did not pay.
    retired: AtomicU64,
}

/// Why a dictionary was not installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Units are stored with each of the others.
    NoPlace,
    /// It saves too little; percent of the compressed bytes, 0 if nothing.
    DoesNotPay(u64),
    /// No memory.
    Workspace,
}

impl From<CodecError> for Refused {
    fn from(_: CodecError) -> Self {
        Self::Workspace
    }
}

impl Dictionaries {
    /// An empty table, for units compressed at `level`.
    #[must_use]
    pub fn new(level: i32) -> Self {
        Self {
            level: level.clamp(*LEVELS.start(), *LEVELS.end()),
            places: Default::default(),
            current: AtomicU32::new(0),
            trials: Default::default(),
            retired: AtomicU64::new(0),
        }
    }

    /// Makes `content` the current dictionary if it pays on `pages`, which should
    /// not be those it was made from. Returns its version.
    ///
    /// # Errors
    /// See [`Refused`]; the current one stays.
    pub fn install(&self, content: &[u8], pages: &[&[u8]]) -> Result<u8, Refused> {
        let dictionary = Arc::new(ffi::Dictionary::new(content, self.level)?);
        let mut plain = ffi::Encoder::new(self.level, UNIT)?;
        let mut with = ffi::DictionaryEncoder::new(self.level, UNIT, content.len())?;
        let mut room = Vec::new();
        let longest = pages.iter().map(|page| page.len()).max().unwrap_or(0);
        room.try_reserve_exact(ffi::bound(longest))
            .map_err(|_| Refused::Workspace)?;
        room.resize(ffi::bound(longest), 0);
        let (mut without_bytes, mut with_bytes) = (0, 0);
        for page in pages {
            without_bytes += plain.compress(page, &mut room)? as u64;
            with_bytes += with.compress(&dictionary, page, &mut room)? as u64;
        }
        let gain = percent_saved(with_bytes, without_bytes);
        if gain < LEAST_GAIN {
            return Err(Refused::DoesNotPay(gain));
        }
        self.collect();
        for (version, place) in (1_u8..).zip(&self.places) {
            let mut place = place.lock();
            if place.held.is_none() {
                place.held = Some(Held {
                    dictionary,
                    units: 0,
                });
                for trial in &self.trials {
                    trial.store(0, Relaxed);
                }
                self.current.store(version.into(), Relaxed);
                return Ok(version);
            }
        }
        Err(Refused::NoPlace)
    }

    /// New units are made without a dictionary from now on.
    pub fn retire_current(&self) {
        self.current.store(0, Relaxed);
    }

    /// The current version; 0 for none.
    #[must_use]
    pub fn current(&self) -> u32 {
        self.current.load(Relaxed)
    }

    /// Dictionaries retired because they did not pay.
    #[must_use]
    pub fn retired(&self) -> u64 {
        self.retired.load(Relaxed)
    }

    /// Units that count for a version; `None` if there is no such dictionary.
    #[must_use]
    pub fn units(&self, version: u8) -> Option<u64> {
        let place = self.place(version)?.lock();
        place.held.as_ref().map(|held| held.units)
    }

    /// A compressed unit is kept no longer, or was not kept at all.
    pub fn release(&self, unit: &[u8]) {
        let version = unit.first().copied().unwrap_or(0);
        if let Some(place) = self.place(version)
            && let Some(held) = &mut place.lock().held
        {
            held.units = held.units.saturating_sub(1);
        }
    }

    /// Drops dictionaries that are not current and that no unit needs; returns
    /// how many.
    pub fn collect(&self) -> usize {
        let mut dropped = 0;
        for (version, place) in (1_u32..).zip(&self.places) {
            let mut place = place.lock();
            // A unit begins to count under this lock, so none can between.
            let idle = place.held.as_ref().is_some_and(|held| held.units == 0);
            if idle && self.current.load(Relaxed) != version {
                place.held = None;
                dropped += 1;
            }
        }
        dropped
    }

    /// In the child of a fork: forgets holders of locks that do not exist. Only
    /// while the process has one thread.
    pub fn reset_in_fork_child(&self) {
        for place in &self.places {
            zfolio_sys::lock::reset_in_fork_child(place);
        }
    }

    fn place(&self, version: u8) -> Option<&Mutex<Place>> {
        self.places.get(usize::from(version).checked_sub(1)?)
    }

    /// The current dictionary, with one unit more that counts for it.
    fn begin(&self) -> Option<(u8, Arc<ffi::Dictionary>)> {
        let version = u8::try_from(self.current()).ok()?;
        let mut place = self.place(version)?.lock();
        // (Not current any more is no harm; another one in its place neither.)
        let held = place.held.as_mut()?;
        held.units += 1;
        Some((version, held.dictionary.clone()))
    }

    fn find(&self, version: u8) -> Option<Arc<ffi::Dictionary>> {
        let place = self.place(version)?.lock();
        place.held.as_ref().map(|held| held.dictionary.clone())
    }

    fn judge(&self, version: u8, with: usize, without: usize) {
        let [trials, with_bytes, without_bytes] = &self.trials;
        let with = with_bytes.fetch_add(with as u64, Relaxed) + with as u64;
        let without = without_bytes.fetch_add(without as u64, Relaxed) + without as u64;
        let pays = percent_saved(with, without) >= LEAST_GAIN;
        if trials.fetch_add(1, Relaxed) + 1 >= TRIALS {
            // From the start again: what pays may change.
            for trial in &self.trials {
                trial.store(0, Relaxed);
            }
            let retire = || {
                let version = version.into();
                self.current.compare_exchange(version, 0, Relaxed, Relaxed)
            };
            if !pays && retire().is_ok() {
                self.retired.fetch_add(1, Relaxed);
            }
        }
    }
}

fn percent_saved(with: u64, without: u64) -> u64 {
    let saved = without.saturating_sub(with) * 100;
    saved.checked_div(without).unwrap_or(0)
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
        let level = self.dictionaries.level;
        Ok(Box::new(DictionaryContext {
            plain: ffi::Encoder::new(level, UNIT)?,
            with: ffi::DictionaryEncoder::new(level, UNIT, train::MAX_DICTIONARY)?,
            decoder: ffi::Decoder::new()?,
            dictionaries: self.dictionaries.clone(),
            trial: 0,
            scratch: Vec::new(),
        }))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        1 + ffi::bound(unit)
    }
}

struct DictionaryContext {
    plain: ffi::Encoder,
    with: ffi::DictionaryEncoder,
    decoder: ffi::Decoder,
    dictionaries: Arc<Dictionaries>,
    trial: u32,
    /// Where trials go.
    scratch: Vec<u8>,
}

impl DictionaryContext {
    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        let (tag, rest) = dst.split_first_mut().ok_or(CodecError::DoesNotFit)?;
        let Some((version, dictionary)) = self.dictionaries.begin() else {
            *tag = 0;
            return self.plain.compress(src, rest).map(|len| len + 1);
        };
        *tag = version;
        let result = self.with.compress(&dictionary, src, rest);
        match result {
            Ok(len) => {
                self.trial = self.trial.wrapping_add(1);
                if self.trial.is_multiple_of(TRIAL) {
                    self.try_without(version, src, len);
                }
                Ok(len + 1)
            }
            Err(error) => {
                self.dictionaries.release(&[version]);
                Err(error)
            }
        }
    }

    fn try_without(&mut self, version: u8, src: &[u8], with: usize) {
        let room = ffi::bound(src.len());
        if let Some(more) = room.checked_sub(self.scratch.len()) {
            if self.scratch.try_reserve_exact(more).is_err() {
                return;
            }
            self.scratch.resize(room, 0);
        }
        if let Ok(without) = self.plain.compress(src, &mut self.scratch[..room]) {
            self.dictionaries.judge(version, with, without);
        }
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
        let (version, rest) = src.split_first().ok_or(CodecError::Corrupt)?;
        if *version == 0 {
            return self.decoder.decompress(rest, dst);
        }
        let dictionary = self.dictionaries.find(*version);
        let dictionary = dictionary.ok_or(CodecError::Corrupt)?;
        self.decoder.decompress_with(&dictionary, rest, dst)
    }
}

impl Context for DictionaryContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        compress_each(units, |src, dst| self.compress(src, dst))
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        decompress_each(units, |src, dst| self.decompress(src, dst))
    }
}
