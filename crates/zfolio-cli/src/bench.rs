//! `zfolio bench`: experiments on the parts zfolio is made of.
//!
//! | module | concept |
//! |---|---|
//! | `zsmalloc` | what zspage compaction costs, five ways |
//! | `compaction` | what folio compaction gets, and costs, six ways |
//! | `arena` | what folio compaction does for a running program |
//! | `tier` | what the second tier gains and costs for a program that is idle |
//! | `compressors` | codecs, units, batches and engines on real pages |
//! | `ministat` | mean, spread, Student's t |
//! | `pool` | memory used for the same pages, ours beside the kernel's |
//! | `corpus` | pages of real programs |
//! | `peers` | a workload native, under `zfolio run`, and on the kernel's swap |
//! | `usemem` | the runs of the kernel's swap series, ours and the kernel's way |
//! | `saved` | memory saved at a slowdown, by codec |
//! | `work` | the workloads' programs |
//! | `told` | what they tell |
//! | `rig` | one run of a program in a given memory, ours or the kernel's way |
//! | `args` | command lines |
//! | `keeper` | sets up what the kernel's rows need, and undoes it |
//! | `table`, `plot`, `progress`, `results` | how any experiment shows itself |
//!
//! Experiments on pools and arenas are deterministic: the same arguments, the same
//! figures, but for times.

mod arena;
pub(crate) mod args;
mod compaction;
mod compressors;
mod corpus;
pub(crate) mod keeper;
mod ministat;
mod peers;
mod plot;
mod pool;
mod progress;
mod results;
pub(crate) mod rig;
mod saved;
mod table;
mod tier;
mod told;
mod usemem;
pub(crate) mod work;
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
        Experiment::Arena(args) => arena::arena(args),
        Experiment::Pool(args) => pool::pool(args),
        Experiment::Peers(args) => peers::peers(args),
        Experiment::Usemem(args) => usemem::usemem(args),
        Experiment::Tier(args) => tier::tier(args),
        Experiment::Saved(args) => saved::saved(args),
        Experiment::Cleanup => keeper::cleanup(),
        Experiment::Compressors(args) => compressors::compressors(args),
    }
}

/// Pseudo-random numbers: splitmix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence(pub(crate) u64);

impl Sequence {
    /// A sequence of its own for each of `names`.
    pub(crate) fn named(names: &[u64]) -> Self {
        let state = names.iter().fold(0, |state, name| {
            Self(state ^ name.wrapping_mul(0xd134_2543_de82_ef95)).next()
        });
        Self(state)
    }

    pub(crate) fn next(&mut self) -> u64 {
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
