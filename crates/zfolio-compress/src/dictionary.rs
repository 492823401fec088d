//! zstd with dictionaries made from a program's own pages.
//!
//! | module | concept |
//! |---|---|
//! | this | the table of dictionaries |
//! | [`coder`] | the compressor that uses it |
//! | [`train`] | choosing what goes into one, in fixed memory |
//!
//! A byte in front of each unit says how it was made: [`PLAIN`] without, [`PLAIN`] and
//! a version with the dictionary in that place of the table.
//!
//! # Who needs a dictionary
//!
//! *Units* are those that somebody keeps; who keeps them says [`Dictionaries::keep`] and
//! [`Dictionaries::release`]. *Busy* is what is under way: a unit counts from when it is
//! compressed until it is kept or let go ([`Dictionaries::let_go`]), a load of what may be
//! released meanwhile from [`Dictionaries::hold`] on. A dictionary that is not current
//! goes, and its place may be taken anew, once both are nought. Who forgets one of these
//! keeps a dictionary for ever, nothing worse.
//!
//! Whether one pays is measured, not believed: before it is installed, on pages it
//! was not made from, and then on one unit in [`TRIAL`], which is compressed
//! both ways; below [`LEAST_GAIN`] percent it is retired.

use crate::CodecError;
use crate::ffi::zstd as ffi;
use crate::zstd::LEVELS;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use zfolio_sys::lock::Mutex;

pub mod coder;
pub mod train;

/// Dictionaries at a time: the current one, and those that stored units need.
pub const VERSIONS: usize = 4;
/// First byte of a unit made without a dictionary; with version v it is this and v.
pub const PLAIN: u8 = 2;
/// One unit in so many is compressed with and without.
pub const TRIAL: u32 = 64;
/// Least saving, percent of the compressed bytes.
pub const LEAST_GAIN: u64 = 3;
/// Trials before the saving is judged.
const TRIALS: u64 = 128;
/// Unit size contexts are fitted to, bytes.
const UNIT: usize = 4096;

/// The version of the dictionary that a unit was made with, by its first byte; 0: none.
#[must_use]
pub fn version_of(unit: &[u8]) -> u8 {
    let tag = unit.first().copied().unwrap_or(PLAIN);
    let version = tag.saturating_sub(PLAIN);
    if usize::from(version) <= VERSIONS {
        version
    } else {
        0
    }
}

/// A dictionary's place in the table.
#[derive(Default)]
struct Place {
    held: Option<Held>,
}

struct Held {
    dictionary: Arc<ffi::Dictionary>,
    /// Units made with it that somebody keeps.
    units: u64,
    /// Units and loads under way.
    busy: u64,
}

/// The table.
pub struct Dictionaries {
    level: i32,
    places: [Mutex<Place>; VERSIONS],
    /// 1 + place of the one that new units use; 0: none.
    current: AtomicU32,
    /// Trials of the current one: how many, bytes with it and without.
    trials: [AtomicU64; 3],
    /// Bytes that it saved, as far as trials tell, since somebody asked.
    saved: AtomicU64,
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

/// A dictionary that is yet to show that it pays.
pub struct Candidate {
    dictionary: Arc<ffi::Dictionary>,
    plain: ffi::Encoder,
    with: ffi::DictionaryEncoder,
    buffer: Vec<u8>,
    with_bytes: u64,
    without_bytes: u64,
}

impl Candidate {
    /// Tries `page` (4 KiB), which the dictionary should not have been made from, both
    /// ways.
    ///
    /// # Errors
    /// As the codec says; the page counts for nothing then.
    pub fn judge(&mut self, page: &[u8]) -> Result<(), CodecError> {
        let with = self
            .with
            .compress(&self.dictionary, page, &mut self.buffer)?;
        let without = self.plain.compress(page, &mut self.buffer)?;
        self.with_bytes += with as u64;
        self.without_bytes += without as u64;
        Ok(())
    }

    /// What it has saved of the pages tried, percent of their compressed bytes.
    #[must_use]
    pub fn gain(&self) -> u64 {
        percent_saved(self.with_bytes, self.without_bytes)
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
            saved: AtomicU64::new(0),
            retired: AtomicU64::new(0),
        }
    }

    /// A dictionary of `content`, to be tried.
    ///
    /// # Errors
    /// [`CodecError::Workspace`] when the memory cannot be had.
    pub fn candidate(&self, content: &[u8]) -> Result<Candidate, CodecError> {
        let mut buffer = Vec::new();
        let len = ffi::bound(UNIT);
        buffer
            .try_reserve_exact(len)
            .map_err(|_| CodecError::Workspace)?;
        buffer.resize(len, 0);
        Ok(Candidate {
            dictionary: Arc::new(ffi::Dictionary::new(content, self.level)?),
            plain: ffi::Encoder::new(self.level, UNIT)?,
            with: ffi::DictionaryEncoder::new(self.level, UNIT, content.len())?,
            buffer,
            with_bytes: 0,
            without_bytes: 0,
        })
    }

    /// Makes a candidate the current dictionary if it has shown that it pays. Returns
    /// its version.
    ///
    /// # Errors
    /// See [`Refused`]; the current one stays.
    pub fn install(&self, candidate: Candidate) -> Result<u8, Refused> {
        let gain = candidate.gain();
        if gain < LEAST_GAIN {
            return Err(Refused::DoesNotPay(gain));
        }
        self.collect();
        for (version, place) in (1_u8..).zip(&self.places) {
            let mut place = place.lock();
            if place.held.is_none() {
                place.held = Some(Held {
                    dictionary: candidate.dictionary,
                    units: 0,
                    busy: 0,
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
        if self.current.swap(0, Relaxed) != 0 {
            self.retired.fetch_add(1, Relaxed);
        }
    }

    /// The current version; 0 for none.
    #[must_use]
    pub fn current(&self) -> u32 {
        self.current.load(Relaxed)
    }

    /// Dictionaries retired so far.
    #[must_use]
    pub fn retired(&self) -> u64 {
        self.retired.load(Relaxed)
    }

    /// Bytes that dictionaries saved since this was last asked: what the trials saved,
    /// times [`TRIAL`].
    pub fn take_saved(&self) -> u64 {
        self.saved.swap(0, Relaxed) * u64::from(TRIAL)
    }

    /// Units kept that were made with a version; `None` if there is no such dictionary.
    #[must_use]
    pub fn units(&self, version: u8) -> Option<u64> {
        self.with_held(version, |held| held.units)
    }

    /// Whether a dictionary could be installed, once those that nobody needs are gone.
    #[must_use]
    pub fn has_place(&self) -> bool {
        self.places.iter().any(|place| place.lock().held.is_none())
    }

    /// Bytes of memory that the dictionaries take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let places = self.places.iter();
        let bytes = |place: &Mutex<Place>| {
            let place = place.lock();
            place
                .held
                .as_ref()
                .map_or(0, |held| held.dictionary.bytes())
        };
        places.map(bytes).sum()
    }

    /// A unit that was compressed with a version is kept from now on. (Version 0 is
    /// none, here and below.)
    pub fn keep(&self, version: u8) {
        self.with_held(version, |held| {
            held.units += 1;
            held.busy = held.busy.saturating_sub(1);
        });
    }

    /// A unit that was kept is kept no longer.
    pub fn release(&self, version: u8) {
        self.with_held(version, |held| held.units = held.units.saturating_sub(1));
    }

    /// Somebody is about to read a unit of a version, which may be released meanwhile.
    pub fn hold(&self, version: u8) {
        self.with_held(version, |held| held.busy += 1);
    }

    /// A unit that was compressed was not kept, or one that was held has been read.
    pub fn let_go(&self, version: u8) {
        self.with_held(version, |held| held.busy = held.busy.saturating_sub(1));
    }

    /// Drops dictionaries that are not current and that nobody needs; returns
    /// how many.
    pub fn collect(&self) -> usize {
        let mut dropped = 0;
        for (version, place) in (1_u32..).zip(&self.places) {
            let mut place = place.lock();
            // A unit begins to count under this lock, so none can between.
            let idle = |held: &Held| held.units == 0 && held.busy == 0;
            if self.current.load(Relaxed) != version && place.held.as_ref().is_some_and(idle) {
                let gone = place.held.take();
                drop(place);
                drop(gone);
                dropped += 1;
            }
        }
        dropped
    }

    /// In the child of a fork: forgets holders of locks and what was under way in
    /// threads that do not exist, and takes the units that are kept here: of version 1,
    /// 2, and so on. Only while the process has one thread.
    pub fn reset_in_fork_child(&self, kept: [u64; VERSIONS]) {
        for (place, units) in self.places.iter().zip(kept) {
            zfolio_sys::lock::reset_in_fork_child(place);
            if let Some(held) = &mut place.lock().held {
                held.units = units;
                held.busy = 0;
            }
        }
    }

    fn with_held<R>(&self, version: u8, with: impl FnOnce(&mut Held) -> R) -> Option<R> {
        let place = self.places.get(usize::from(version).checked_sub(1)?)?;
        place.lock().held.as_mut().map(with)
    }

    /// The current dictionary, with one unit more that is under way.
    fn begin(&self) -> Option<(u8, Arc<ffi::Dictionary>)> {
        let version = u8::try_from(self.current()).ok()?;
        // (Not current any more is no harm; another one in its place neither.)
        self.with_held(version, |held| {
            held.busy += 1;
            (version, held.dictionary.clone())
        })
    }

    fn find(&self, version: u8) -> Option<Arc<ffi::Dictionary>> {
        self.with_held(version, |held| held.dictionary.clone())
    }

    /// Takes what a unit became with a version and without, and whether it was of use.
    fn judge(&self, version: u8, [with, without]: [usize; 2], used: bool) {
        if used {
            let saved = without.saturating_sub(with) as u64;
            self.saved.fetch_add(saved, Relaxed);
        }
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
