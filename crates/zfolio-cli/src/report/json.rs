//! The object that `--stats` writes.

use super::bought::BoughtShown;
use super::finished::Finished;
use crate::options::settings::Settings;
use crate::options::shown::{BehindShown, FaultsShown};
use crate::supervise::Outcome;
use crate::tree::unreached::Stranger;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use zfolio_host::engine_attributes::AttributeShown;
use zfolio_host::machine;
use zfolio_host::shown::Program;
use zfolio_host::statistics::Tree;
use zfolio_host::store_totals::{ShownTotals, StoreTotals};
use zfolio_mm::PAGE_SIZE;

/// What `--stats` writes.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "zfolio run --stats")]
pub(crate) struct StatsFile<'a> {
    zfolio: Program,
    command: Vec<String>,
    pid: u32,
    config: ConfigShown,
    machine: Machine,
    exit: Exit,
    usage: UsageShown,
    /// On the way to a store; null without one.
    store: Option<ShownTotals>,
    /// Null without `--slowdown`.
    slowdown: Option<BoughtShown>,
    /// Processes that zfolio never reached and that took more than `high`.
    unreached: &'a [Stranger],
    #[serde(flatten)]
    tree: &'a Tree,
}

/// What was asked for; what `zfolio set` has changed as it was at the end.
#[derive(Serialize, JsonSchema)]
struct ConfigShown {
    high_bytes: u64,
    /// It is the whole tree's.
    high_is_shared: bool,
    /// That `high` was chosen for; null where `high` was given, or there was none.
    limit_bytes: Option<u64>,
    slowdown_percent: Option<f64>,
    low_bytes: Option<u64>,
    compressor: String,
    folio_bytes: usize,
    folio_order: u8,
    split_huge_pages: bool,
    huge_page_assembly: bool,
    /// null: read-ahead is judged.
    page_cluster: Option<u8>,
    engines: u32,
    /// They work while processors are idle.
    engines_auto: bool,
    engine_attributes: Option<BTreeMap<&'static str, AttributeShown>>,
    folio_compaction: bool,
    tier: &'static str,
    /// Whether a thread of ours reclaims beside the program's: auto or off. Not by messages, where one always does.
    background_reclaim: &'static str,
    /// What becomes of a program that uses io_uring: refuse or unmanaged. Not by messages, where it may.
    io_uring: &'static str,
    #[serde(flatten)]
    faults: FaultsShown,
    #[serde(flatten)]
    behind: BehindShown,
}

impl ConfigShown {
    fn of(settings: &Settings) -> Self {
        Self {
            high_bytes: settings.high,
            high_is_shared: settings.shared,
            limit_bytes: settings.limit,
            slowdown_percent: settings.slowdown.map(|of| f64::from(of.slowdown) / 1e4),
            low_bytes: settings.slowdown.map(|of| of.low),
            compressor: settings.compressor.name(),
            folio_bytes: settings.folios.size.bytes(),
            folio_order: settings.folios.size.get(),
            split_huge_pages: settings.folios.split_huge_pages,
            huge_page_assembly: settings.folios.huge_page_assembly,
            page_cluster: settings.folios.page_cluster,
            engines: settings.engines.count,
            engines_auto: settings.engines.auto,
            engine_attributes: settings.engines.shown(),
            folio_compaction: settings.folios.compaction,
            tier: settings.tier.name(),
            background_reclaim: settings.in_thread.background.name(),
            io_uring: settings.in_thread.io_uring.name(),
            faults: settings.faults.shown(),
            behind: settings.behind.shown(),
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct Machine {
    kernel: String,
    cpus: usize,
    page_size_bytes: usize,
    mem_total_bytes: u64,
}

/// One of them is null.
#[derive(Serialize, JsonSchema)]
struct Exit {
    status: Option<u8>,
    signal: Option<i32>,
}

/// Of all children, by getrusage(2).
#[derive(Serialize, JsonSchema)]
struct UsageShown {
    wall_s: f64,
    user_s: f64,
    sys_s: f64,
    max_rss_bytes: u64,
}

impl Finished {
    /// What `--stats` writes.
    pub(crate) fn shown(&self) -> StatsFile<'_> {
        let (status, signal) = match self.outcome {
            Outcome::Exited(status) => (Some(status), None),
            Outcome::Killed(signal) => (None, Some(signal)),
        };
        let words = self.command.iter();
        StatsFile {
            zfolio: Program::THIS,
            command: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            pid: self.pid,
            config: ConfigShown::of(&self.settings),
            machine: Machine {
                kernel: machine::kernel_release(),
                cpus: machine::cpus(),
                page_size_bytes: PAGE_SIZE,
                mem_total_bytes: machine::mem_total(),
            },
            exit: Exit { status, signal },
            usage: UsageShown {
                wall_s: self.usage.wall.as_secs_f64(),
                user_s: self.usage.user.as_secs_f64(),
                sys_s: self.usage.sys.as_secs_f64(),
                max_rss_bytes: self.usage.max_rss,
            },
            store: self.store.as_ref().map(StoreTotals::shown),
            slowdown: self.bought.as_ref().map(BoughtShown::of),
            unreached: &self.unreached,
            tree: &self.tree,
        }
    }

    /// As a value, keys in the order of the alphabet.
    pub(crate) fn json(&self) -> Value {
        // (Its keys are all text, and no number is infinite: both are what could fail.)
        serde_json::to_value(self.shown()).unwrap_or_default()
    }
}
