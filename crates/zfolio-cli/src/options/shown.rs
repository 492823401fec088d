//! What was asked for, as `config` of the JSON has it.

use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// How faults are served.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FaultsShown {
    /// The way that was taken; null where none works and the program runs unmanaged.
    pub(crate) faults: Option<&'static str>,
    pub(crate) faults_asked: &'static str,
    /// Ways that do not work, and why.
    pub(crate) faults_refused: BTreeMap<&'static str, String>,
}

/// What is behind the pool, and `max`. Null: none.
#[derive(Serialize, JsonSchema)]
pub(crate) struct BehindShown {
    pub(crate) max_bytes: Option<u64>,
    pub(crate) on_max: Option<String>,
    pub(crate) backing: Option<BackingShown>,
    pub(crate) max_pool_percent: Option<u32>,
    pub(crate) accept_threshold_percent: u32,
    pub(crate) shrinker_enabled: u8,
}

/// The backing.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum BackingShown {
    File {
        directory: String,
        size_bytes: u64,
        max_pool_percent: Option<u32>,
    },
    /// Two: to the first while it has room.
    InOrder { in_order: Vec<BackingShown> },
    Store {
        /// Where it is, without its password.
        store: String,
        copies: usize,
        wait: u32,
        /// Of values written, at most; null: as much as goes.
        bandwidth_bytes_per_second: Option<u64>,
        ttl_s: u64,
        /// Null: it is waited for as long as it takes.
        deadline_s: Option<u64>,
        size_bytes: u64,
        max_pool_percent: Option<u32>,
    },
}
