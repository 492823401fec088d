//! The command lines of the experiments that stand beside the kernel.

use super::files::BenchFiles;
use super::series::KernelSeries;
use clap::{Args, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;
use zfolio_host::size::{self, Size};
use zfolio_mm::Order;

/// `zfolio bench pool`.
#[derive(Args, Debug)]
pub struct BenchPool {
    /// Where the choice of pages and the order of freeing begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Orders of freeing, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Pages stored, 100 to 4000000
    #[arg(long, value_name = "N", default_value = "24000", value_parser = pages)]
    pub pages: usize,
    /// Take them from FILE instead of from programs that are started
    #[arg(long, value_name = "FILE")]
    pub corpus: Option<PathBuf>,
    /// Our side alone
    #[arg(long)]
    pub no_kernel: bool,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
}

fn pages(text: &str) -> Result<usize, String> {
    let pages = text.parse().ok().filter(|n| (100..=4_000_000).contains(n));
    pages.ok_or_else(|| "a number from 100 to 4000000".to_owned())
}

/// `zfolio bench peers`.
#[derive(Args, Debug)]
pub struct BenchPeers {
    /// What the workloads need when nothing limits them; 1G, or 128M with --quick
    #[arg(long, value_name = "SIZE", value_parser = Size::parse, conflicts_with = "command")]
    pub size: Option<Size>,
    /// What every row may use, pools included: a part of what the workload needs,
    /// 5 to 95; default: 75, and 40 for programs
    #[arg(long, value_name = "PERCENT", value_parser = value_parser!(u32).range(5..=95))]
    pub share: Option<u32>,
    /// Rounds, 1 to 100; 5, or 1 with --quick
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100))]
    pub runs: Option<u32>,
    /// Only these workloads, by commas: fill, thp, seq, rand, hot, threads, python,
    /// redis, compile
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "command"
    )]
    pub workload: Vec<String>,
    /// Only these rows, by commas: native, run, region, zram-lz4, zswap-lzo,
    /// file ...
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// How the row `run` serves faults, as of `zfolio run`
    #[arg(long, value_name = "WAY", default_value = "auto",
        value_parser = ["auto", "in-thread", "guard", "protect", "message"])]
    pub faults: String,
    /// Small and once: whether it works, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Where the pseudo-random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Seconds a run may last before it is ended and its row left out
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
    /// A program of your own in place of the workloads, by what it takes; what it
    /// prints of the form {"phase":NAME,"value":N,"unit":UNIT} is a figure too, and
    /// {"check":TEXT} must be the same in every run
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `zfolio bench usemem`.
#[derive(Args, Debug)]
pub struct BenchUsemem {
    /// What a series of the kernel's measured: its sizes of folio, columns, page-cluster, and part of
    /// the memory that may be kept. --folio, --only and --page-cluster change it
    #[arg(long, value_name = "SERIES", value_enum)]
    pub series: Option<KernelSeries>,
    /// What each process writes; 256M, or 48M with --quick
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    pub size: Option<Size>,
    /// Processes, 1 to 64; two for each processor
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=64))]
    pub processes: Option<u32>,
    /// Only these sizes of folio, by commas: 4K, 64K, 2M
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = usemem_folio)]
    pub folio: Vec<Order>,
    /// Only these columns, by commas: run-lz4, run-zstd, zram-lz4, file ...
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Read-ahead fixed at 2^N pages in all columns, as by the kernel's page-cluster, 0 to 9:
    /// the series had 2 (v8) and 0 (v9); else as the kernel has it, and ours judged
    #[arg(long, value_name = "N", value_parser = value_parser!(u8).range(0..=9))]
    pub page_cluster: Option<u8>,
    /// Rounds, 1 to 100; 3, or 1 with --quick
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100))]
    pub runs: Option<u32>,
    /// Small and once: whether it works, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Seconds a run may last before it is ended and its column left out
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
}

fn usemem_folio(text: &str) -> Result<Order, String> {
    let order = size::parse_folio(text).ok();
    let order = order.filter(|order| [Order::PAGE, Order::K64, Order::HUGE].contains(order));
    order.ok_or_else(|| "4K, 64K or 2M".to_owned())
}

/// `zfolio bench kernel-build`.
#[derive(Args, Debug)]
pub struct BenchKernelBuild {
    /// The Debian source package to compile; without a network the experiment is skipped
    #[arg(long, value_name = "NAME", default_value = "libzstd")]
    pub package: String,
    /// Compile what lies unpacked in this directory instead; nothing is written there
    #[arg(long, value_name = "DIR")]
    pub source: Option<PathBuf>,
    /// Where in it make runs
    #[arg(long, value_name = "DIR", default_value = "lib")]
    pub subdirectory: PathBuf,
    /// What make is to make, and its variables, by commas
    #[arg(
        long,
        value_name = "WORDS",
        value_delimiter = ',',
        default_value = "libzstd.a"
    )]
    pub make: Vec<String>,
    /// make -j, 1 to 64; processors and one
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=64))]
    pub jobs: Option<u32>,
    /// Memory allowed, percent of what the build needs without a limit, 10 to 100
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = value_parser!(u32).range(10..=100))]
    pub share: u32,
    /// Only these columns, by commas: native, run-lz4-64K, run-zstd-2M, zram-lz4, zswap-zstd, file ...
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// How the columns of `zfolio run` serve faults
    #[arg(long, value_name = "WAY", default_value = "auto",
        value_parser = ["auto", "in-thread", "guard", "protect", "message"])]
    pub faults: String,
    /// Rounds, 1 to 100; 3, or 1 with --quick
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100))]
    pub runs: Option<u32>,
    /// Once, without optimisation, and a column of each kind: whether it works, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Seconds a build may last before it is ended and its column left out
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
}

/// How much the programs of `zfolio bench saved` are given to do.
#[derive(Args, Debug)]
pub struct SavedLoad {
    /// About what the programs need when nothing limits them; 256M, or 48M with
    /// --quick
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    pub size: Option<Size>,
    /// How long they take then, 1 to 600; 6, or 1 with --quick
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u32).range(1..=600))]
    pub seconds: Option<u32>,
    /// Where the pseudo-random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// `zfolio bench saved`.
#[derive(Args, Debug)]
pub struct BenchSaved {
    /// How much slower than without a limit a program may be
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    pub slowdown: u32,
    /// What the programs are given to do
    #[command(flatten)]
    pub load: SavedLoad,
    /// Pairs of runs for each `--high` tried, 1 to 99; 3, or 1 with --quick
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=99))]
    pub runs: Option<u32>,
    /// Only these programs, by commas: python, sqlite, node, java, redis, compile, memory
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub workload: Vec<String>,
    /// Only these configurations, by commas: lz4, zstd, auto, auto-tier, slowdown; and, where they
    /// are named, deflate-iaa, lz4-engines, zstd-engines, deflate-iaa-engines, and the kernel's:
    /// zram-lz4, zram-zstd, zram-lzo-rle, zswap-zstd, zswap-lzo, zswap-deflate
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// How faults are served, as of `zfolio run`
    #[arg(long, value_name = "WAY", default_value = "auto",
        value_parser = ["auto", "in-thread", "guard", "protect", "message"])]
    pub faults: String,
    /// Whether each run goes on beside one without a limit, on half of the processors, which they
    /// exchange ten times a second, or after it: auto is on for the programs there are, where there are
    /// two processors, and off for one of your own
    #[arg(long, value_name = "WHETHER", default_value = "auto", value_parser = ["auto", "on", "off"])]
    pub paired: String,
    /// Small, once and coarse: whether it works, not how much is saved
    #[arg(long)]
    pub quick: bool,
    /// Seconds a run may last before the experiment gives up on it
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
    /// A program of your own instead: it must end by itself, do the same each time, and print the same
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["workload", "size", "seconds", "seed"])]
    pub command: Vec<OsString>,
}

/// `zfolio bench store`.
#[derive(Args, Debug)]
pub struct BenchStore {
    /// The store, as for `zfolio run --backing`
    #[arg(value_name = "redis://HOST")]
    pub url: String,
    /// What the workloads need when nothing limits them
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = Size::parse)]
    pub size: Size,
    /// What each row may keep resident
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = Size::parse)]
    pub high: Size,
    /// Most of that for the pool, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = value_parser!(u32).range(1..=90))]
    pub max_pool: u32,
    /// Where the file of the row with one lies; default: beside the swap file
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Rounds, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..=100))]
    pub runs: u32,
    /// Only these workloads, by commas: memory, python
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = ["memory", "python"])]
    pub workload: Vec<String>,
    /// Where the pseudo-random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Seconds a run may last before it is ended and its row left out
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
}

/// `zfolio advise`.
#[derive(Args, Debug)]
pub struct Advise {
    /// The slowdown to find the memory for
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    pub slowdown: f64,
    /// Run it once, under --slowdown, and draw what that sees
    #[arg(long)]
    pub once: bool,
    /// Seconds a run may last
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = value_parser!(u64).range(1..=86_400))]
    pub limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub files: BenchFiles,
    /// The program and its arguments: it ends by itself and does the same each time
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// `5%`, `5` or `2.5%`.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let value = number.parse::<f64>().ok();
    let value = value.filter(|value| (0.1..=100.0).contains(value));
    value.ok_or_else(|| format!("{text:?} is not between 0.1% and 100%"))
}
