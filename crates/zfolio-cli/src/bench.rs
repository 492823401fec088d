//! `zfolio bench`: experiments on the parts zfolio is made of.
//!
//! | module | concept |
//! |---|---|
//! | `zsmalloc` | what zspage compaction costs, five ways |
//! | `compaction` | what folio compaction gets, and costs, six ways |
//! | `ministat` | mean, spread, Student's t |
//! | `table`, `plot`, `progress`, `results` | how any experiment shows itself |
//!
//! An experiment is deterministic: the same arguments, the same figures.

mod compaction;
mod ministat;
mod plot;
mod progress;
mod results;
mod table;
mod zsmalloc;

use crate::args::{Bench, Experiment};
use crate::exit::Failure;
use std::process::ExitCode;

/// Runs the experiment that was asked for.
///
/// # Errors
/// When a file cannot be written, or the experiment finds something broken.
pub(crate) fn bench(args: &Bench) -> Result<ExitCode, Failure> {
    match &args.experiment {
        Experiment::Zsmalloc(args) => zsmalloc::zsmalloc(args),
        Experiment::Compaction(args) => compaction::compaction(args),
    }
}

/// Pseudo-random numbers: splitmix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Copy, Debug)]
struct Sequence(u64);

impl Sequence {
    /// A sequence of its own for each of `names`.
    fn named(names: &[u64]) -> Self {
        let state = names.iter().fold(0, |state, name| {
            Self(state ^ name.wrapping_mul(0xd134_2543_de82_ef95)).next()
        });
        Self(state)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// True `percent` times of a hundred.
    fn chance(&mut self, percent: u32) -> bool {
        self.next() % 100 < u64::from(percent)
    }
}
