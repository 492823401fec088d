//! The command lines of `zfolio bench` and of the workloads.

mod alone;
mod beside_kernel;
mod files;
mod series;
mod workloads;

pub use alone::{BenchArena, BenchCompaction, BenchCompressors, BenchTier, BenchZsmalloc};
pub use beside_kernel::{
    Advise, BenchKernelBuild, BenchPeers, BenchPool, BenchSaved, BenchStore, BenchUsemem,
};
pub use files::BenchFiles;
pub(crate) use files::chosen;
pub use series::KernelSeries;
pub use workloads::{BenchChild, BenchWork, Usemem, Work};

use clap::{Args, Subcommand};

/// `zfolio bench`.
#[derive(Args, Debug)]
pub struct Bench {
    /// Which experiment.
    #[command(subcommand)]
    pub experiment: Experiment,
}

/// The experiments.
#[derive(Subcommand, Debug)]
pub enum Experiment {
    /// Copies that zspage compaction needs: the kernel's old and new way, and ours
    Zsmalloc(BenchZsmalloc),
    /// Folio compaction: how many large blocks, at what cost, by variant
    Compaction(BenchCompaction),
    /// A running program with folio compaction off and on: huge pages, blocks, time
    Arena(BenchArena),
    /// An idle program with the second tier off and auto: memory, reads, CPU
    Tier(BenchTier),
    /// Memory used for the same pages: our pool beside the kernel's
    Pool(BenchPool),
    /// One workload native, under `zfolio run`, on zram, zswap and a swap file
    Peers(BenchPeers),
    /// usemem by folio size and codec, under `zfolio run` and on the kernel's swap
    Usemem(BenchUsemem),
    /// A real C project compiled by make -j, by codec and folio size, and on the kernel's swap
    KernelBuild(BenchKernelBuild),
    /// Memory saved at a slowdown: the smallest `--high` for it, by codec, for real
    /// programs
    Saved(BenchSaved),
    /// A store behind the pool, beside a file behind it and the kernel's swap file
    Store(BenchStore),
    /// Undo what experiments that were killed have left of devices and swap
    Cleanup,
    /// Codecs, unit sizes, batches and engines on the pages of real programs
    Compressors(BenchCompressors),
}
