//! The experiments of `zfolio bench`, and the workloads they run.
//!
//! Bottom to top; a module knows those above it in this table only
//! (`crates/zfolio-cli/tests/rooms.rs` checks it):
//!
//! | module | concept |
//! |---|---|
//! | `sequence` | pseudo-random numbers |
//! | `args` | command lines |
//! | `output` | how an experiment shows itself: tables, plots, JSON, progress, statistics |
//! | `corpus` | pages of real programs |
//! | `keeper` | sets up what the kernel's rows need, and undoes it |
//! | `rig` | one run of a program in a given memory, ours or the kernel's way |
//! | `workloads` | the programs that are measured, and the tool `usemem` |
//! | `experiments` | a folder or a file for each experiment, called as on the command line |
//!
//! Experiments on pools and arenas are deterministic: the same arguments, the same
//! figures, but for times.

#![forbid(unsafe_code)]

pub mod args;
mod corpus;
mod experiments;
mod keeper;
mod output;
mod rig;
pub mod sequence;
mod workloads;

pub use keeper::serve as serve_as_keeper;
pub use rig::child as become_child;
pub use workloads::usemem::usemem;
pub use workloads::work;

use args::{Bench, Experiment};
use std::process::ExitCode;
use zfolio_host::exit::Failure;

/// Finds out how much memory a program can do without.
///
/// # Errors
/// When it fails, or a file cannot be written.
pub fn advise(args: &args::Advise) -> Result<ExitCode, Failure> {
    experiments::advise::advise(args)
}

/// What the JSON of experiments looks like.
pub fn schema() -> zfolio_host::schema::Schema {
    zfolio_host::schema::of::<output::results::Written<'_>>()
}

/// Runs the experiment that was asked for.
///
/// # Errors
/// When a file cannot be written, or the experiment finds something broken.
pub fn bench(args: &Bench) -> Result<ExitCode, Failure> {
    match &args.experiment {
        Experiment::Zsmalloc(args) => experiments::zsmalloc::zsmalloc(args),
        Experiment::Compaction(args) => experiments::compaction::compaction(args),
        Experiment::Arena(args) => experiments::arena::arena(args),
        Experiment::Pool(args) => experiments::pool::pool(args),
        Experiment::Peers(args) => experiments::peers::peers(args),
        Experiment::Usemem(args) => experiments::usemem::usemem(args),
        Experiment::KernelBuild(args) => experiments::kernel_build::kernel_build(args),
        Experiment::Tier(args) => experiments::tier::tier(args),
        Experiment::Store(args) => experiments::store::store(args),
        Experiment::Saved(args) => experiments::saved::saved(args),
        Experiment::Cleanup => keeper::cleanup(),
        Experiment::Compressors(args) => experiments::compressors::compressors(args),
    }
}
