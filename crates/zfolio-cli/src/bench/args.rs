//! The command lines of the experiments that stand beside the kernel.

use crate::args::BenchFiles;
use crate::exit::{Failure, Status};
use crate::size::{self, Size};
use clap::{Args, Subcommand, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;
use zfolio_mm::Order;

/// `zfolio bench pool`.
#[derive(Args, Debug)]
pub(crate) struct BenchPool {
    /// Where the choice of pages and the order of freeing begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Orders of freeing, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Pages stored, 100 to 4000000
    #[arg(long, value_name = "N", default_value = "24000", value_parser = pages)]
    pub(crate) pages: usize,
    /// Take them from FILE instead of from programs that are started
    #[arg(long, value_name = "FILE")]
    pub(crate) corpus: Option<PathBuf>,
    /// Our side alone
    #[arg(long)]
    pub(crate) no_kernel: bool,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub(crate) files: BenchFiles,
}

fn pages(text: &str) -> Result<usize, String> {
    let pages = text.parse().ok().filter(|n| (100..=4_000_000).contains(n));
    pages.ok_or_else(|| "a number from 100 to 4000000".to_owned())
}

/// `zfolio bench peers`.
#[derive(Args, Debug)]
pub(crate) struct BenchPeers {
    /// What the workloads need when nothing limits them; 1G, or 128M with --quick
    #[arg(long, value_name = "SIZE", value_parser = Size::parse, conflicts_with = "command")]
    pub(crate) size: Option<Size>,
    /// What every row may use, pools included: a part of what the workload needs,
    /// 5 to 95; default: 75, and 40 for programs
    #[arg(long, value_name = "PERCENT", value_parser = value_parser!(u32).range(5..=95))]
    pub(crate) share: Option<u32>,
    /// Rounds, 1 to 100; 5, or 1 with --quick
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100))]
    pub(crate) runs: Option<u32>,
    /// Only these workloads, by commas: fill, thp, seq, rand, hot, threads, python,
    /// redis, compile
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "command"
    )]
    pub(crate) workload: Vec<String>,
    /// Only these rows, by commas: native, run, region, zram-lz4, zswap-lzo,
    /// file ...
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Small and once: whether it works, not how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// Where the pseudo-random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds a run may last before it is ended and its row left out
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub(crate) files: BenchFiles,
    /// A program of your own in place of the workloads, by what it takes; what it
    /// prints of the form {"phase":NAME,"value":N,"unit":UNIT} is a figure too, and
    /// {"check":TEXT} must be the same in every run
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `zfolio bench usemem`.
#[derive(Args, Debug)]
pub(crate) struct BenchUsemem {
    /// What each process writes; 256M, or 48M with --quick
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    pub(crate) size: Option<Size>,
    /// Processes, 1 to 64; two for each processor
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=64))]
    pub(crate) processes: Option<u32>,
    /// Only these sizes of folio, by commas: 4K, 64K, 2M
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = usemem_folio)]
    pub(crate) folio: Vec<Order>,
    /// Only these columns, by commas: run-lz4, run-zstd, zram-lz4, file ...
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Rounds, 1 to 100; 3, or 1 with --quick
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100))]
    pub(crate) runs: Option<u32>,
    /// Small and once: whether it works, not how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seconds a run may last before it is ended and its column left out
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub(crate) files: BenchFiles,
}

fn usemem_folio(text: &str) -> Result<Order, String> {
    let order = size::parse_folio(text).ok();
    let order = order.filter(|order| [Order::PAGE, Order::K64, Order::HUGE].contains(order));
    order.ok_or_else(|| "4K, 64K or 2M".to_owned())
}

/// `zfolio bench saved`.
#[derive(Args, Debug)]
pub(crate) struct BenchSaved {
    /// How much slower than without a limit a program may be
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) slowdown: u32,
    /// About what the programs need when nothing limits them; 256M, or 48M with
    /// --quick
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    pub(crate) size: Option<Size>,
    /// How long they take then, 1 to 600; 6, or 1 with --quick
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u32).range(1..=600))]
    pub(crate) seconds: Option<u32>,
    /// Pairs of runs for each `--high` tried, 1 to 99; 3, or 1 with --quick
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) runs: Option<u32>,
    /// Only these programs, by commas: python, sqlite, node, compile, memory
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) workload: Vec<String>,
    /// Only these configurations, by commas: lz4, zstd, auto, auto-tier
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Small, once and coarse: whether it works, not how much is saved
    #[arg(long)]
    pub(crate) quick: bool,
    /// Where the pseudo-random numbers begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds a run may last before the experiment gives up on it
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub(crate) files: BenchFiles,
}

/// Those of `offered` that were asked for by name, all if none was.
///
/// # Errors
/// A name that none has; `option` is how it was asked for.
pub(super) fn chosen<'a, T>(
    option: &str,
    asked: &[String],
    offered: &'a [T],
    name: impl Fn(&T) -> &'static str,
) -> Result<Vec<&'a T>, Failure> {
    if asked.is_empty() {
        return Ok(offered.iter().collect());
    }
    let found = asked.iter().map(|asked| {
        let found = offered.iter().find(|one| name(one) == asked);
        found.ok_or_else(|| {
            let names: Vec<&str> = offered.iter().map(&name).collect();
            let why = format!("none is called {asked}");
            let mend = format!("choose of {}", names.join(", "));
            Failure::new(Status::Usage, option, why, mend)
        })
    });
    found.collect()
}

/// `zfolio bench arena`.
#[derive(Args, Debug)]
pub(crate) struct BenchArena {
    /// What the workload needs, half of it in huge pages
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = Size::parse)]
    pub(crate) size: Size,
    /// What it is given; default: half of that
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    pub(crate) high: Option<Size>,
    /// Rounds of churn in a run, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u64).range(1..=1000))]
    pub(crate) rounds: u64,
    /// Pairs of runs, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u64).range(1..=100))]
    pub(crate) runs: u64,
    /// Where the random numbers of the first pair begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds a run may last
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub(crate) files: BenchFiles,
}

/// `zfolio bench tier`.
#[derive(Args, Debug)]
pub(crate) struct BenchTier {
    /// What the workload fills
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = Size::parse)]
    pub(crate) size: Size,
    /// What it is given; default: three fifths of that
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    pub(crate) high: Option<Size>,
    /// Seconds in which it hardly touches it, 1 to 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u64).range(1..=3600))]
    pub(crate) idle: u64,
    /// Random reads afterwards
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub(crate) reads: u64,
    /// Pairs of runs, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u64).range(1..=100))]
    pub(crate) runs: u64,
    /// Where the random numbers of the first pair begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Take pages from FILE instead of from programs that are started
    #[arg(long, value_name = "FILE")]
    pub(crate) corpus: Option<PathBuf>,
    /// Seconds a run may last besides
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub(crate) limit: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub(crate) files: BenchFiles,
}

/// `zfolio usemem`.
#[derive(Args, Debug)]
pub(crate) struct Usemem {
    /// Processes that use memory
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=4096))]
    pub(crate) nproc: u32,
    /// Anonymous memory, which it always is
    #[arg(short = 'O', long)]
    pub(crate) anonymous: bool,
    /// Write; without it, read
    #[arg(short, long)]
    pub(crate) write: bool,
    /// Go over the memory N times; words written are checked by the next pass
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Words at random instead of in order
    #[arg(short = 'R', long)]
    pub(crate) random: bool,
    /// Seconds to sleep after the work
    #[arg(short, long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) sleep: u64,
    /// Bind process I to processor I * N; 0: to none
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = value_parser!(u32).range(0..=4096))]
    pub(crate) bind: u32,
    /// Tell how long the mapping took
    #[arg(long)]
    pub(crate) init_time: bool,
    /// Advise the kernel to use huge pages
    #[arg(long)]
    pub(crate) thp: bool,
    /// Which of the processes this one is
    #[arg(long, hide = true)]
    pub(crate) child: Option<u32>,
    /// What each process uses: 10g, 512m
    #[arg(value_name = "SIZE", value_parser = Size::parse)]
    pub(crate) size: Size,
}

/// `zfolio bench-child`.
#[derive(Args, Debug)]
pub(crate) struct BenchChild {
    /// The experiment; when it ends, so does the program
    #[arg(long)]
    pub(crate) parent: u32,
    /// `cgroup.procs` of the group to enter
    #[arg(long)]
    pub(crate) group: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// `zfolio bench-work`.
#[derive(Args, Debug)]
pub(crate) struct BenchWork {
    /// Which.
    #[command(subcommand)]
    pub(crate) work: Work,
}

/// The workloads.
#[derive(Subcommand, Debug)]
pub(crate) enum Work {
    /// Records in one mapping
    Memory {
        /// Bytes of records.
        #[arg(long)]
        size: usize,
        /// fill or thp (with huge pages), seq, rand, rand-N (by N threads), hot, tail;
        /// by commas
        #[arg(long, value_delimiter = ',')]
        phases: Vec<String>,
        /// Threads that fill.
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// In a region that may use so many bytes.
        #[arg(long)]
        region: Option<usize>,
        /// Accesses of a random phase.
        #[arg(long, default_value_t = 100_000)]
        reads: u64,
        /// Where the random numbers begin.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Small pages discarded where they lie, huge pages in and out
    Arena {
        /// Bytes of both.
        #[arg(long)]
        size: usize,
        /// Rounds of the churn.
        #[arg(long)]
        rounds: u64,
        /// Most addresses of the process, bytes.
        #[arg(long)]
        addresses: Option<u64>,
        /// Where the random numbers begin.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Filled, idle, read at random
    Idle {
        /// Bytes filled.
        #[arg(long)]
        size: usize,
        /// Pages to fill it with, over and over; without it: records.
        #[arg(long)]
        file: Option<PathBuf>,
        /// How long it is idle.
        #[arg(long)]
        seconds: u64,
        /// Random reads afterwards.
        #[arg(long)]
        reads: u64,
        /// Where the random numbers begin.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// The compiler on a generated file
    Compile {
        /// Functions in the file.
        #[arg(long)]
        functions: usize,
        /// Where files go.
        #[arg(long)]
        dir: PathBuf,
    },
    /// redis-server with a skewed load
    Redis {
        /// Keys, of about a kilobyte.
        #[arg(long)]
        keys: u64,
        /// Requests measured.
        #[arg(long)]
        requests: u64,
        /// Where the socket goes.
        #[arg(long)]
        dir: PathBuf,
        /// Where the random numbers begin.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}
