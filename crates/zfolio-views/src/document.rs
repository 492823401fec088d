//! A run that lasts, as JSON.

use crate::config::Config;
use crate::look::{Look, Seen};
use crate::slowdown::Slowdown;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};
use zfolio_host::shown::Program;
use zfolio_host::statistics::Tree;
use zfolio_host::store_totals::{ShownTotals, StoreTotals};

/// What `zfolio stat --json` prints: `--stats` has the same keys and more, but `time_s`,
/// `control` and `engines_rest`.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "zfolio stat --json")]
pub(crate) struct Document<'a> {
    zfolio: Program,
    /// Seconds since 1970.
    time_s: f64,
    /// The control segment.
    control: String,
    /// Of `zfolio run`.
    run_pid: Option<u32>,
    config: &'a Config,
    /// No processor is idle, and the engines rest (`--engines auto`).
    engines_rest: bool,
    /// Null without `--slowdown`.
    slowdown: Option<Slowdown>,
    /// Null without a store behind the pool.
    store: Option<ShownTotals>,
    #[serde(flatten)]
    tree: &'a Tree,
}

impl<'a> Document<'a> {
    pub(crate) fn new(look: &Look, seen: &'a Seen) -> Self {
        Self {
            zfolio: Program::THIS,
            time_s: unix_time(),
            control: look.path().to_string_lossy().into_owned(),
            run_pid: look.pid(),
            config: &seen.config,
            engines_rest: look.segment().config().engines.rest.load(Relaxed) != 0,
            slowdown: Slowdown::read(look.segment()),
            store: seen.store.as_ref().map(StoreTotals::shown),
            tree: &seen.tree,
        }
    }
}

/// Seconds since 1970; 0 where the clock is before.
pub(crate) fn unix_time() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
