//! What is run, where its cold pages go, and what came of it.

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Where the cold pages of a run go.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    /// Nowhere: no limit.
    Native,
    /// Into our pool.
    Run,
    /// Into our pool, by a region that the program asks for.
    Region,
    /// Into a zram device with this algorithm.
    Zram(String),
    /// Into zswap with this compressor, before a swap file.
    Zswap(String),
    /// Into a swap file.
    SwapFile,
}

impl Side {
    /// As tables and `--only` spell it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Native => "native".to_owned(),
            Self::Run => "run".to_owned(),
            Self::Region => "region".to_owned(),
            Self::Zram(algorithm) => format!("zram-{algorithm}"),
            Self::Zswap(compressor) => format!("zswap-{compressor}"),
            Self::SwapFile => "file".to_owned(),
        }
    }

    /// Whether it is the kernel's.
    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self, Self::Zram(_) | Self::Zswap(_) | Self::SwapFile)
    }
}

/// A program, and how it is to be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) command: &'a [OsString],
    /// Bytes it may keep resident: `--high`, or the group's limit.
    pub(crate) limit: u64,
    /// Bytes of swap.
    pub(crate) swap: u64,
    /// More options of `zfolio run`.
    pub(crate) options: &'a [&'a str],
    /// Settings of the kernel's while it runs.
    pub(crate) settings: &'a [(PathBuf, String)],
    pub(crate) timeout: Duration,
    /// Look at its memory from outside, limit or not.
    pub(crate) watched: bool,
}

/// How it went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    /// Seconds.
    pub(crate) wall: f64,
    pub(crate) user: f64,
    pub(crate) sys: f64,
    /// Most memory charged to its group, bytes.
    pub(crate) charged: Option<u64>,
    /// Most memory resident in one of its processes, as far as was seen; only of
    /// a run without a limit, or one that was watched.
    pub(crate) resident: u64,
    /// The same by the kernel's high-water marks: nothing between looks is missed.
    pub(crate) high_water: u64,
    /// Of the process that was started alone: of our side `zfolio run` itself.
    pub(crate) first: u64,
    /// Most memory of the kernel's pool that is charged to nobody, bytes.
    pub(crate) pool: u64,
    /// What the kernel counted, the machine over.
    pub(crate) kernel: BTreeMap<String, u64>,
    /// What `zfolio run --stats` wrote.
    pub(crate) stats: Value,
}

impl Ran {
    /// Memory used at most, as far as it is known.
    pub(crate) fn used(&self) -> Option<u64> {
        self.charged.map(|charged| charged + self.pool)
    }
}
