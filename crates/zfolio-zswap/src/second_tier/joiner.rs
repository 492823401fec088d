//! What units are made with, and whether they pay.

use super::step::STEP;
use crate::pool::context::buffer_of;
use alloc::boxed::Box;
use zfolio_compress::dense::{PAGES, UNIT};
use zfolio_compress::{CodecError, Compressor, Context};

/// One unit in so many is compressed both ways.
pub(super) const TRIAL: u32 = 8;
/// Trials before units are judged.
const TRIALS: u32 = 32;
/// Least saving over pages compressed alone, percent: a load of one page decodes four.
const LEAST_GAIN: u64 = 5;
/// Rounds without units where they do not pay.
const REST: u32 = 32;
/// Units of a step, at most.
pub(super) const MOST: usize = STEP / PAGES;

/// What units are made with.
pub(super) struct Joiner {
    pub(super) codec: Box<dyn Context + Send>,
    /// A unit taken apart.
    pub(super) plain: Box<[u8]>,
    /// Units of a step, compressed.
    pub(super) packed: Box<[u8]>,
    /// Units tried.
    pub(super) count: u32,
    trials: u32,
    /// Bytes of the trials as units, and alone.
    with: u64,
    without: u64,
    rest: u32,
}

/// Four of a step that are to be one object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Join {
    /// Which of the step's they are, the first of them.
    pub(super) first: usize,
    pub(super) len: u16,
    pub(super) checksum: u32,
    pub(super) version: u8,
}

pub(super) type Joins = [Option<Join>; MOST];

impl Joiner {
    pub(super) fn new(compressor: &dyn Compressor) -> Result<Self, CodecError> {
        Ok(Self {
            codec: compressor.context()?,
            plain: buffer_of(UNIT)?,
            packed: buffer_of(MOST * UNIT)?,
            count: 0,
            trials: 0,
            with: 0,
            without: 0,
            rest: 0,
        })
    }

    pub(super) fn pays(&self) -> bool {
        self.rest == 0
    }

    pub(super) fn round_ended(&mut self) {
        self.rest = self.rest.saturating_sub(1);
    }

    /// Judges by what four pages take as a unit, and alone.
    pub(super) fn judge(&mut self, with: usize, without: usize) {
        self.with += with as u64;
        self.without += without as u64;
        self.trials += 1;
        if self.trials >= TRIALS {
            if self.with * 100 > self.without * (100 - LEAST_GAIN) {
                self.rest = REST;
            }
            (self.trials, self.with, self.without) = (0, 0, 0);
        }
    }
}
