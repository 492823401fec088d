//! The command lines of `set`, `compact` and `inspect`, which ask a run that lasts.

use crate::options::backing_options::OnMax;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use zfolio_host::size::Size;

/// `zfolio set`.
#[derive(Args, Debug)]
pub(crate) struct Set {
    /// Process id of a `zfolio run` or of a program under it, or the path of
    /// a control segment
    #[arg(value_name = "PID|FILE")]
    pub(crate) which: PathBuf,
    /// Of this named group of the run, not of the run
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// What may be resident together (--per-process: of each): 8M at least, four
    /// times what the run began with at most; of a group whatever it is to be, or none
    #[arg(long, value_name = "SIZE|none", value_parser = MaySize::parse)]
    pub(crate) high: Option<MaySize>,
    /// Most that may be out, uncompressed size
    #[arg(long, value_name = "SIZE|none", value_parser = MaySize::parse)]
    pub(crate) swap_max: Option<MaySize>,
    /// Where faults begin to wait: so much out, uncompressed size
    #[arg(long, value_name = "SIZE|none", value_parser = MaySize::parse)]
    pub(crate) swap_high: Option<MaySize>,
    /// Most compressed bytes in the pool
    #[arg(long, value_name = "SIZE|none", value_parser = MaySize::parse)]
    pub(crate) zswap_max: Option<MaySize>,
    /// Whether anything is written to the backing
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub(crate) writeback: Option<YesNo>,
    /// Memory that must not be exceeded for long; --high at least
    #[arg(long, value_name = "SIZE|none", value_parser = MaySize::parse)]
    pub(crate) max: Option<MaySize>,
    /// What happens at --max
    #[arg(long, value_name = "WHAT", value_enum)]
    pub(crate) on_max: Option<OnMax>,
    /// How large the pool may be.
    #[command(flatten)]
    pub(crate) pool: SetPool,
    /// Attributes of the engines, separated by commas: those that a batch reads as it begins
    /// (docs/engines.md)
    #[arg(long, value_name = "NAME=VALUE,...")]
    pub(crate) engines: Option<String>,
}

/// What of the pool `zfolio set` changes.
#[derive(Args, Debug)]
pub(crate) struct SetPool {
    /// Most that the pool may take of --high, percent: then it is written back; without a
    /// backing nothing more goes into it
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=90))]
    pub(crate) max_pool: Option<u32>,
    /// A pool that was at --max-pool takes pages again once it is down to so much of that, percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) accept_threshold: Option<u32>,
    /// Whether the pool is written to the backing because memory is short, and not only at
    /// --max-pool or --zswap-max
    #[arg(long, value_name = "WHETHER", value_enum)]
    pub(crate) shrinker: Option<YesNo>,
}

/// A limit, or that there is none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct MaySize(pub(crate) Option<Size>);

impl MaySize {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            size => Size::parse(size)
                .map(|size| Self(Some(size)))
                .map_err(|error| format!("{error}; or none")),
        }
    }
}

/// Yes or no.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum YesNo {
    /// It is
    Yes,
    /// It is not
    No,
}

impl YesNo {
    /// Whether it is yes.
    pub(crate) fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

/// Why an option of `run` is not one of `set`, and what to do.
pub(crate) fn fixed(option: &str) -> (&'static str, &'static str) {
    let why = match option {
        "no-writeback" => return ("what does is --writeback", "give --writeback no"),
        "no-shrinker" => return ("what does is --shrinker", "give --shrinker no"),
        "compressor" | "folio" | "split-huge-pages" | "tier" | "page-cluster"
        | "huge-page-assembly" => "pools are made with it when a process begins to be managed",
        "faults" => "a process keeps to the way in which it began",
        "per-process" => "members count as they began",
        "backing" => "each process has opened it",
        _ => "it is read at the start only",
    };
    (why, "start the run anew with it")
}

/// `zfolio compact`.
#[derive(Args, Debug)]
pub(crate) struct Compact {
    /// Process id of a `zfolio run` or of a program under it, or the path of
    /// a control segment
    #[arg(value_name = "PID|FILE")]
    pub(crate) which: PathBuf,
}

/// `zfolio inspect`.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// Process id of a program under `zfolio run`
    #[arg(value_name = "PID")]
    pub(crate) pid: u32,
    /// All managed processes among it and those below it
    #[arg(long)]
    pub(crate) tree: bool,
    /// For so long at most: then what was held may leave again, and the command is asked to end
    /// (SIGTERM)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub(crate) timeout: Option<u64>,
    /// Even where too little memory is free for what has to come back
    #[arg(long)]
    pub(crate) force: bool,
    /// What is run while all is in memory, and its arguments: `py-spy dump --pid PID`, say. Without
    /// one all stays until Ctrl-C
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
