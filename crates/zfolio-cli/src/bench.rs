//! `zfolio bench`: experiments that justify what the pool and the frames do.

use crate::exit::Failure;
use clap::Subcommand;
use std::process::ExitCode;

mod compaction;

/// The experiments.
#[derive(Subcommand, Debug)]
pub(crate) enum Bench {
    /// Folio compaction: how many large blocks, at what cost, by variant
    Compaction(compaction::Compaction),
}

/// Runs one.
///
/// # Errors
/// As it says.
pub(crate) fn bench(which: &Bench) -> Result<ExitCode, Failure> {
    match which {
        Bench::Compaction(args) => compaction::compaction(args),
    }
}
