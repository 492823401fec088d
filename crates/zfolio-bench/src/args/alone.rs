//! The command lines of the experiments on our own parts.

use super::files::BenchFiles;
use clap::{Args, value_parser};
use std::path::PathBuf;
use zfolio_host::compressor::Compressor;
use zfolio_host::size::{self, Size};
use zfolio_mm::Order;

/// `zfolio bench zsmalloc`.
#[derive(Args, Debug)]
pub struct BenchZsmalloc {
    /// Where the pseudo-random patterns begin: the same seed, the same figures
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Patterns tried per class, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Objects left of a hundred when the others were freed, 1 to 99
    #[arg(long, value_name = "PERCENT", default_value_t = 33, value_parser = value_parser!(u32).range(1..=99))]
    pub keep: u32,
    /// Most pages of a zspage, 1 to 16: 10 gives the 140 classes of the kernel series
    #[arg(long, value_name = "PAGES", default_value_t = 10, value_parser = value_parser!(u8).range(1..=16))]
    pub chain: u8,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
}

impl BenchZsmalloc {
    /// Most pages of a zspage.
    pub(crate) fn chain(&self) -> usize {
        self.chain.into()
    }
}

/// `zfolio bench compaction`.
#[derive(Args, Debug)]
pub struct BenchCompaction {
    /// Where the random numbers start: the same seed gives the same arenas
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Arenas of each kind, each with a seed of its own, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u64).range(1..=1000))]
    pub runs: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
}

/// `zfolio bench compressors`.
#[derive(Args, Debug)]
pub struct BenchCompressors {
    /// Codecs, as `run --compressor` names them, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = Compressor::parse,
          default_value = "lz4,zstd,deflate-iaa,deflate-iaa:dynamic,deflate-iaa:canned")]
    pub compressors: Vec<Compressor>,
    /// Unit sizes, powers of two from 4K to 2M, separated by commas
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_folio,
          default_value = "4K,16K,64K")]
    pub units: Vec<Order>,
    /// Units of a batch, 2 to 64
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u32).range(2..=64))]
    pub batch: u32,
    /// Numbers of engines besides none, 0 to 16, separated by commas
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,2",
          value_parser = value_parser!(u32).range(0..=16))]
    pub engines: Vec<u32>,
    /// Rounds in which every way takes its turn, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Compress the pages of FILE (a dump of memory, say) instead of those of
    /// programs started for it (python3, sqlite3, node: those there are)
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Most memory taken of each
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = Size::parse)]
    pub pages: Size,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
}

/// `zfolio bench arena`.
#[derive(Args, Debug)]
pub struct BenchArena {
    /// What the workload needs, half of it in huge pages
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = Size::parse)]
    pub size: Size,
    /// What it is given; default: half of that
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    pub high: Option<Size>,
    /// Huge pages are split, and all leaves in folios of SIZE: 64K and 256K want blocks of
    /// orders 4 and 6
    #[arg(long, value_name = "SIZE", value_parser = size::parse_folio)]
    pub folio: Option<Order>,
    /// Rounds of churn in a run, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u64).range(1..=1000))]
    pub rounds: u64,
    /// Pairs of runs, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u64).range(1..=100))]
    pub runs: u64,
    /// Where the random numbers of the first pair begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Seconds a run may last
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
}

/// `zfolio bench tier`.
#[derive(Args, Debug)]
pub struct BenchTier {
    /// What the workload fills
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = Size::parse)]
    pub size: Size,
    /// What it is given; default: three fifths of that
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    pub high: Option<Size>,
    /// Seconds in which it hardly touches it, 1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u64).range(1..=3600))]
    pub idle: u64,
    /// Random reads afterwards
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub reads: u64,
    /// Pairs of runs, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u64).range(1..=100))]
    pub runs: u64,
    /// Where the random numbers of the first pair begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Take pages from FILE instead of from programs that are started
    #[arg(long, value_name = "FILE")]
    pub corpus: Option<PathBuf>,
    /// Seconds a run may last besides
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
}
