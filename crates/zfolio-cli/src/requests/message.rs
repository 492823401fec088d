//! What is asked of a run, and its answer: one JSON text each way, of at most [`MOST`] bytes. Each
//! ends with a newline, or with that direction of the connection.

use serde::{Deserialize, Serialize};

/// Most bytes of either.
pub(crate) const MOST: usize = 4096;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Change these limits, all or none.
    Set(Changes),
    /// Have every process compact.
    Compact,
    /// Hold the processes of these turns, as long as the connection is open.
    Inspect(Vec<u64>),
}

/// A limit, bytes, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Limit {
    /// There is none.
    None,
    /// Bytes.
    Bytes(u64),
}

/// What is to be otherwise.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Changes {
    /// Of this group, not the run.
    pub(crate) group: Option<String>,
    /// Memory that may be resident.
    pub(crate) high: Option<Limit>,
    /// What may be out, uncompressed.
    pub(crate) swap_max: Option<Limit>,
    /// Where faults begin to wait, uncompressed bytes that are out.
    pub(crate) swap_high: Option<Limit>,
    /// Compressed bytes in the pool.
    pub(crate) zswap_max: Option<Limit>,
    /// Whether anything is written to the backing.
    pub(crate) writeback: Option<bool>,
    /// Memory that must not be exceeded for long.
    pub(crate) max: Option<Limit>,
    /// What happens there: `zfolio_runtime::segment::on_max`.
    pub(crate) on_max: Option<u32>,
    /// Most that the pool takes of `high` before it is written back, percent.
    pub(crate) max_pool: Option<u32>,
    /// At what part of that it takes pages again, percent.
    pub(crate) accept_threshold: Option<u32>,
    /// Whether it is written back because memory is short.
    pub(crate) shrinker: Option<bool>,
    /// Attributes of the engines: `NAME=VALUE,...`.
    pub(crate) engines: Option<String>,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// What was, and what is now; a line each.
    Changed(Vec<String>),
    /// Processes have done it once [`compacted`] of each is this number or more.
    ///
    /// [`compacted`]: zfolio_runtime::segment::ProcessSlot::compacted
    Compacting(u32),
    /// They are to be held: each says in its slot when it is.
    Holding,
    /// Nothing has changed.
    Refused(Refused),
}

/// Why not, as a failure has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Refused {
    /// The option.
    pub(crate) what: String,
    /// Why.
    pub(crate) why: String,
    /// What to do.
    pub(crate) mend: String,
}

impl Refused {
    /// Of an option.
    pub(crate) fn new(
        what: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self {
            what: what.into(),
            why: why.into(),
            mend: mend.into(),
        }
    }
}
