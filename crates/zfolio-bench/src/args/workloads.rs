//! The command lines of the workloads, and of what an experiment starts them through.

use clap::{Args, Subcommand, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;
use zfolio_host::size::Size;

/// `zfolio usemem`.
#[derive(Args, Debug)]
pub struct Usemem {
    /// Processes that use memory
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=4096))]
    pub nproc: u32,
    /// Anonymous memory, which it always is
    #[arg(short = 'O', long)]
    pub anonymous: bool,
    /// Write; without it, read
    #[arg(short, long)]
    pub write: bool,
    /// Go over the memory N times; words written are checked by the next pass
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Words at random instead of in order
    #[arg(short = 'R', long)]
    pub random: bool,
    /// Seconds to sleep after the work
    #[arg(short, long, value_name = "SECONDS", default_value_t = 0)]
    pub sleep: u64,
    /// Bind process I to processor I * N; 0: to none
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = value_parser!(u32).range(0..=4096))]
    pub bind: u32,
    /// Tell how long the mapping took
    #[arg(long)]
    pub init_time: bool,
    /// Advise the kernel to use huge pages
    #[arg(long)]
    pub thp: bool,
    /// Which of the processes this one is
    #[arg(long, hide = true)]
    pub child: Option<u32>,
    /// What each process uses: 10g, 512m
    #[arg(value_name = "SIZE", value_parser = Size::parse)]
    pub size: Size,
}

/// `zfolio bench-child`.
#[derive(Args, Debug)]
pub struct BenchChild {
    /// The experiment; when it ends, so does the program
    #[arg(long)]
    pub parent: u32,
    /// `cgroup.procs` of the group to enter
    #[arg(long)]
    pub group: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// `zfolio bench-work`.
#[derive(Args, Debug)]
pub struct BenchWork {
    /// Which.
    #[command(subcommand)]
    pub work: Work,
}

/// The workloads.
#[derive(Subcommand, Debug)]
pub enum Work {
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
        /// The directory it works in.
        #[arg(long)]
        dir: PathBuf,
        /// Where the random numbers begin.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}
