//! Figures as JSON: what `--stats`, `zfolio stat --json` and the record of a run have in common.
//!
//! Every figure has one name, and stands there for a process and for the total alike.

use crate::class_table::ClassTable;
use crate::engine_queues::QueueShown;
use crate::group_state::GroupShown;
use crate::held::{Held, HeldShown};
use crate::histogram::Latency;
use crate::schema::{keys, shown_as};
use crate::statistics::{Figures, Process, Tree};
use crate::{engine_queues::EngineQueues, group_state::GroupState};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_runtime::segment::{Counter, FaultKind};

/// Version of the JSON's shape; raised when a key changes its meaning.
pub const SCHEMA: u32 = 1;

/// Which program wrote the JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Program {
    version: &'static str,
    schema: u32,
}

impl Program {
    /// This one.
    pub const THIS: Self = Self {
        version: env!("CARGO_PKG_VERSION"),
        schema: SCHEMA,
    };

    /// Its version.
    pub const fn version(self) -> &'static str {
        self.version
    }
}

/// Objects that zspage compaction moved, by why it ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
struct MovedBy {
    period: u64,
    pressure: u64,
    request: u64,
}

/// The pool in the columns of zram's `mm_stat`, in their order, and `objs_moved` as the zspage
/// series adds it. It is printed as the line of that file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct MmStat {
    orig_data_size: u64,
    compr_data_size: u64,
    mem_used_total: u64,
    mem_limit: u64,
    mem_used_max: u64,
    same_pages: u64,
    pages_compacted: u64,
    huge_pages: u64,
    huge_pages_since: u64,
    objs_moved: u64,
    /// No column: of those.
    objs_moved_by: MovedBy,
}

impl MmStat {
    /// Of a process, or of all.
    pub fn of(figures: &Figures) -> Self {
        let of = |which| figures.get(which);
        Self {
            orig_data_size: of(Counter::StoredPages).saturating_mul(PAGE_SIZE as u64),
            compr_data_size: of(Counter::CompressedBytes),
            mem_used_total: of(Counter::PoolBytes),
            mem_limit: 0,
            mem_used_max: of(Counter::PoolPeak),
            same_pages: of(Counter::SameFilled),
            pages_compacted: of(Counter::PagesCompacted),
            huge_pages: of(Counter::StoredIncompressible),
            huge_pages_since: of(Counter::HugePagesSince),
            objs_moved: of(Counter::ObjsMoved),
            objs_moved_by: MovedBy {
                period: of(Counter::ObjsMovedPeriod),
                pressure: of(Counter::ObjsMovedPressure),
                request: of(Counter::ObjsMovedRequest),
            },
        }
    }
}

impl fmt::Display for MmStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = [
            self.orig_data_size,
            self.compr_data_size,
            self.mem_used_total,
            self.mem_limit,
            self.mem_used_max,
            self.same_pages,
            self.pages_compacted,
            self.huge_pages,
            self.huge_pages_since,
            self.objs_moved,
        ];
        f.write_str(&columns.map(|column| column.to_string()).join(" "))
    }
}

/// Folios of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct FoliosOfSize {
    /// Stored whole.
    pub zswpout: u64,
    /// Loaded whole, of which a page at least was in the pool.
    pub zswpin: u64,
    /// Loaded whole from the backing.
    pub swpin: u64,
    /// To be loaded whole, and came in less.
    pub swpin_fallback: u64,
    /// Not stored whole.
    pub swpout_fallback: u64,
    /// Of these, split.
    pub split: u64,
    /// Of these, for nothing.
    pub split_failed: u64,
}

impl FoliosOfSize {
    /// Every size, by its name: `hugepages-4kB` and so on.
    pub fn all(figures: &Figures) -> impl Iterator<Item = (String, Self)> {
        let folios = figures.folios;
        Order::all().map(move |order| {
            let at = order.index();
            let counts = Self {
                zswpout: folios.out[at],
                zswpin: folios.back[at],
                swpin: folios.read[at],
                swpin_fallback: folios.read_fallback[at],
                swpout_fallback: folios.fallback[at],
                split: folios.split[at],
                split_failed: folios.split_failed[at],
            };
            (size_name(order), counts)
        })
    }
}

/// The kernel's name of a size.
fn size_name(order: Order) -> String {
    format!("hugepages-{}kB", order.bytes() >> 10)
}

/// Service times in short.
#[derive(Serialize, JsonSchema)]
struct Times {
    count: u64,
    mean_ns: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl Times {
    fn of(latency: &Latency) -> Self {
        Self {
            count: latency.count(),
            mean_ns: latency.mean_ns(),
            p50_ns: latency.percentile_ns(50),
            p99_ns: latency.percentile_ns(99),
            max_ns: latency.max_ns,
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct FiguresShown<'a> {
    program_peak_bytes: u64,
    resident_peak_bytes: u64,
    resident_peak_steady_bytes: u64,
    pool_peak_bytes: u64,
    pages_out: u64,
    pages_in: u64,
    #[schemars(with = "HeldShown")]
    most_held: Held,
    #[schemars(schema_with = "each_fault")]
    faults: BTreeMap<&'static str, Times>,
    #[schemars(schema_with = "each_size")]
    folios: BTreeMap<String, FoliosOfSize>,
    mm_stat: MmStat,
    #[schemars(with = "ClassTable")]
    classes: &'a ClassTable,
    #[schemars(with = "Vec<QueueShown>")]
    engine_queues: &'a EngineQueues,
    #[schemars(schema_with = "each_counter")]
    counters: BTreeMap<&'static str, u64>,
}

fn each_fault(of: &mut SchemaGenerator) -> Schema {
    let kinds = FaultKind::ALL.iter().map(|kind| kind.name());
    keys::<Times>(kinds.chain(["all"]), of)
}

fn each_size(of: &mut SchemaGenerator) -> Schema {
    let sizes: Vec<String> = Order::all().map(size_name).collect();
    keys::<FoliosOfSize>(sizes.iter().map(String::as_str), of)
}

fn each_counter(of: &mut SchemaGenerator) -> Schema {
    keys::<u64>(Counter::ALL.iter().map(|which| which.name()), of)
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let of = |which| self.get(which);
        let kinds = FaultKind::ALL.iter();
        let kinds = kinds.map(|kind| (kind.name(), Times::of(self.faults_of(*kind))));
        let shown = FiguresShown {
            program_peak_bytes: of(Counter::ProgramPeak),
            resident_peak_bytes: of(Counter::ResidentPeak),
            resident_peak_steady_bytes: of(Counter::ResidentPeakSteady),
            pool_peak_bytes: of(Counter::PoolPeak),
            pages_out: of(Counter::PagesOut),
            pages_in: of(Counter::PagesIn),
            most_held: self.most_held,
            faults: kinds
                .chain([("all", Times::of(&self.all_faults()))])
                .collect(),
            folios: FoliosOfSize::all(self).collect(),
            mm_stat: MmStat::of(self),
            classes: &self.classes,
            engine_queues: &self.queues,
            counters: Counter::ALL
                .iter()
                .map(|which| (which.name(), of(*which)))
                .collect(),
        };
        shown.serialize(serializer)
    }
}

#[derive(Serialize, JsonSchema)]
struct ProcessShown<'a> {
    pid: u32,
    comm: &'a str,
    faults_told_by: &'static str,
    state: &'static str,
    message: &'a str,
    #[serde(flatten)]
    figures: &'a Figures,
}

impl Serialize for Process {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = ProcessShown {
            pid: self.pid,
            comm: &self.comm,
            faults_told_by: self.told_by,
            state: self.state_name(),
            message: &self.message,
            figures: &self.figures,
        };
        shown.serialize(serializer)
    }
}

#[derive(Serialize, JsonSchema)]
struct TreeShown<'a> {
    processes_loaded: u64,
    processes_managed: u64,
    processes_not_listed: u64,
    shared_resident_peak_bytes: u64,
    shared_backing_peak_bytes: u64,
    #[schemars(with = "Vec<GroupShown<'_>>")]
    groups: &'a [GroupState],
    total: &'a Figures,
    processes: &'a [Process],
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = TreeShown {
            processes_loaded: self.loaded,
            processes_managed: self.managed_count(),
            processes_not_listed: self.not_listed,
            shared_resident_peak_bytes: self.resident_peak,
            shared_backing_peak_bytes: self.backing_peak,
            groups: &self.groups,
            total: &self.total,
            processes: &self.processes,
        };
        shown.serialize(serializer)
    }
}

shown_as!(Figures, FiguresShown<'_>, "Figures");
shown_as!(Process, ProcessShown<'_>, "Process");
shown_as!(Tree, TreeShown<'_>, "Tree");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::example;
    use serde_json::{Map, Value, json};
    use zfolio_mm::ORDERS;

    #[test]
    fn the_line_is_that_of_zram() {
        let tree = Tree::read(&example());
        let line = MmStat::of(&tree.total).to_string();
        let (stored, compressed, pool, peak) = (380 << 20, 120 << 20, 122 << 20, 124 << 20);
        let expected = format!("{stored} {compressed} {pool} 0 {peak} 70 30 40 50 60");
        assert_eq!(line, expected);
    }

    #[test]
    fn every_counter_and_kind_is_in_the_json_by_name() {
        let json = serde_json::to_value(Tree::read(&example())).expect("JSON");
        for part in [&json["total"], &json["processes"][0]] {
            for which in Counter::ALL {
                assert!(part["counters"][which.name()].is_u64(), "{}", which.name());
            }
            for kind in FaultKind::ALL {
                assert!(
                    part["faults"][kind.name()]["p99_ns"].is_u64(),
                    "{}",
                    kind.name()
                );
            }
            assert_eq!(
                part["folios"]["hugepages-64kB"],
                json!({
                    "zswpout": 3, "zswpin": 0, "swpin": 2, "swpin_fallback": 6,
                    "swpout_fallback": 5, "split": 4, "split_failed": 1,
                })
            );
            let mm_stat = json!({
                "orig_data_size": 380 << 20, "compr_data_size": 120 << 20,
                "mem_used_total": 122 << 20, "mem_limit": 0, "mem_used_max": 124 << 20,
                "same_pages": 70, "pages_compacted": 30, "huge_pages": 40,
                "huge_pages_since": 50, "objs_moved": 60,
                "objs_moved_by": { "period": 10, "pressure": 20, "request": 30 },
            });
            assert_eq!(part["mm_stat"], mm_stat);
            assert_eq!(part["classes"][1]["obj_used"], 80);
            let queues = part["engine_queues"].as_array().expect("a list");
            assert_eq!(queues.len(), 1, "rows of none are left out");
            assert_eq!(queues[0]["kind"], "compress");
            assert_eq!(
                (&queues[0]["engine"], &queues[0]["queue"]),
                (&json!(1), &json!(2))
            );
            assert_eq!(
                (&queues[0]["submitted"], &queues[0]["output_bytes"]),
                (&json!(9), &json!(7))
            );
            assert_eq!(part["folios"].as_object().map(Map::len), Some(ORDERS));
            assert_eq!(part["most_held"]["ratio_compressed"], 3.167);
        }
        assert_eq!(json["processes"][1]["most_held"]["ratio_pool"], Value::Null);
        assert_eq!(json["processes_managed"], 1);
    }
}
