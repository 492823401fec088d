//! A run that has ended.

use crate::options::settings::Settings;
use crate::supervise::Outcome;
use crate::tree::unreached::Stranger;
use std::ffi::OsString;
use std::time::Duration;
use zfolio_host::controller::Bought;
use zfolio_host::statistics::Tree;
use zfolio_host::store_totals::StoreTotals;

/// What the program cost, from rusage of everything waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    /// Elapsed.
    pub(crate) wall: Duration,
    /// CPU in user mode, all processes.
    pub(crate) user: Duration,
    /// CPU in the kernel, all processes.
    pub(crate) sys: Duration,
    /// Largest resident set of one process, bytes.
    pub(crate) max_rss: u64,
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Its process id.
    pub(crate) pid: u32,
    /// What was asked for.
    pub(crate) settings: Settings,
    /// What the segment said.
    pub(crate) tree: Tree,
    /// What `--slowdown` came to.
    pub(crate) bought: Option<Bought>,
    /// Whom it never reached.
    pub(crate) unreached: Vec<Stranger>,
    /// What it cost.
    pub(crate) usage: Usage,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// What went to a store and came from it.
    pub(crate) store: Option<StoreTotals>,
}
