//! What a segment says, copied out, and its JSON form.
//!
//! | type | what |
//! |---|---|
//! | [`Process`] | one slot |
//! | [`Tree`] | every slot in use, those that were, and their total |
//!
//! Totals add every counter up, except the `*_peak_*` ones, whose total is the
//! largest process's: peaks of different processes are not of one instant.

use crate::class_table::ClassTable;
use crate::engine_queues::EngineQueues;
use crate::exit::one_line;
use crate::group_state::GroupState;
use crate::held::Held;
use crate::histogram::Latency;
use crate::slots::used;
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use zfolio_mm::{ORDERS, Order, PAGE_SIZE};
use zfolio_runtime::segment::{Counter, FaultKind, MESSAGE, ProcessSlot, Segment, faults, state};

/// Folios by order: how many were stored, loaded, refused whole, and split then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Folios {
    out: [u64; ORDERS],
    back: [u64; ORDERS],
    read: [u64; ORDERS],
    read_fallback: [u64; ORDERS],
    fallback: [u64; ORDERS],
    split: [u64; ORDERS],
    split_failed: [u64; ORDERS],
}

impl Folios {
    fn json(&self) -> Value {
        let all = Order::all().map(|order| {
            let at = order.index();
            let values = json!({
                "zswpout": self.out[at],
                "zswpin": self.back[at],
                "swpin": self.read[at],
                "swpin_fallback": self.read_fallback[at],
                "swpout_fallback": self.fallback[at],
                "split": self.split[at],
                "split_failed": self.split_failed[at],
            });
            (format!("hugepages-{}kB", order.bytes() >> 10), values)
        });
        Value::Object(all.collect())
    }
}

/// Counters, folios and faults: of one process, or of all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figures {
    counters: [u64; Counter::COUNT],
    folios: Folios,
    queues: EngineQueues,
    /// The pool's classes.
    pub classes: ClassTable,
    /// By [`FaultKind`].
    faults: Vec<Latency>,
    /// At the instant when most was stored.
    pub most_held: Held,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            counters: [0; Counter::COUNT],
            folios: Folios::default(),
            queues: EngineQueues::default(),
            classes: ClassTable::default(),
            faults: vec![Latency::default(); FaultKind::COUNT],
            most_held: Held::default(),
        }
    }
}

impl Figures {
    fn read(slot: &ProcessSlot) -> Self {
        let orders = |words: &[std::sync::atomic::AtomicU64; ORDERS]| {
            std::array::from_fn(|at| words[at].load(Relaxed))
        };
        Self {
            counters: slot.at_once(|| std::array::from_fn(|at| slot.counters[at].load(Relaxed))),
            folios: Folios {
                out: orders(&slot.zswpout_order),
                back: orders(&slot.zswpin_order),
                read: orders(&slot.swpin_order),
                read_fallback: orders(&slot.swpin_fallback_order),
                fallback: orders(&slot.fallback_order),
                split: orders(&slot.split_order),
                split_failed: orders(&slot.split_failed_order),
            },
            queues: EngineQueues::read(slot),
            classes: ClassTable::read(slot),
            faults: slot.faults.iter().map(Latency::read).collect(),
            most_held: Held::read(slot),
        }
    }

    /// Adds another process's: sums, and of peaks the larger.
    pub fn add(&mut self, other: &Self) {
        for which in Counter::ALL {
            let (sum, more) = (
                &mut self.counters[*which as usize],
                other.counters[*which as usize],
            );
            *sum = if is_peak(*which) {
                (*sum).max(more)
            } else {
                sum.saturating_add(more)
            };
        }
        let lists = [
            (&mut self.folios.out, &other.folios.out),
            (&mut self.folios.back, &other.folios.back),
            (&mut self.folios.read, &other.folios.read),
            (&mut self.folios.read_fallback, &other.folios.read_fallback),
            (&mut self.folios.fallback, &other.folios.fallback),
            (&mut self.folios.split, &other.folios.split),
            (&mut self.folios.split_failed, &other.folios.split_failed),
        ];
        for (sums, more) in lists {
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum = sum.saturating_add(*more);
            }
        }
        self.queues.add(&other.queues);
        self.classes.add(&other.classes);
        for (sum, more) in self.faults.iter_mut().zip(&other.faults) {
            sum.merge(more);
        }
    }

    /// A counter.
    pub fn get(&self, which: Counter) -> u64 {
        self.counters[which as usize]
    }

    /// Its queues of engines, a line each.
    pub fn queue_lines(&self) -> impl Iterator<Item = String> {
        self.queues.lines()
    }

    /// Service times of every kind of fault together.
    pub fn all_faults(&self) -> Latency {
        let mut all = Latency::default();
        for kind in &self.faults {
            all.merge(kind);
        }
        all
    }

    /// The pool as zram's `mm_stat` has it.
    fn mm_stat(&self) -> Value {
        let of = |which| self.get(which);
        json!({
            "orig_data_size": of(Counter::StoredPages).saturating_mul(PAGE_SIZE as u64),
            "compr_data_size": of(Counter::CompressedBytes),
            "mem_used_total": of(Counter::PoolBytes),
            "mem_limit": 0,
            "mem_used_max": of(Counter::PoolPeak),
            "same_pages": of(Counter::SameFilled),
            "pages_compacted": of(Counter::PagesCompacted),
            "huge_pages": of(Counter::StoredIncompressible),
            "huge_pages_since": of(Counter::HugePagesSince),
            "objs_moved": of(Counter::ObjsMoved),
            "objs_moved_by": {
                "period": of(Counter::ObjsMovedPeriod),
                "pressure": of(Counter::ObjsMovedPressure),
                "request": of(Counter::ObjsMovedRequest),
            },
        })
    }

    fn json(&self) -> Map<String, Value> {
        let counters = Counter::ALL
            .iter()
            .map(|which| (which.name().to_owned(), self.get(*which).into()));
        let mut faults: Map<String, Value> = FaultKind::ALL
            .iter()
            .map(|kind| {
                (
                    kind.name().to_owned(),
                    latency(&self.faults[*kind as usize]),
                )
            })
            .collect();
        faults.insert("all".into(), latency(&self.all_faults()));
        let mut map = Map::new();
        map.insert(
            "program_peak_bytes".into(),
            self.get(Counter::ProgramPeak).into(),
        );
        map.insert(
            "resident_peak_bytes".into(),
            self.get(Counter::ResidentPeak).into(),
        );
        map.insert(
            "resident_peak_steady_bytes".into(),
            self.get(Counter::ResidentPeakSteady).into(),
        );
        map.insert("pool_peak_bytes".into(), self.get(Counter::PoolPeak).into());
        map.insert("pages_out".into(), self.get(Counter::PagesOut).into());
        map.insert("pages_in".into(), self.get(Counter::PagesIn).into());
        map.insert("most_held".into(), self.most_held.json());
        map.insert("faults".into(), Value::Object(faults));
        map.insert("folios".into(), self.folios.json());
        map.insert("mm_stat".into(), self.mm_stat());
        map.insert("classes".into(), self.classes.json());
        map.insert("engine_queues".into(), self.queues.json());
        map.insert("counters".into(), Value::Object(counters.collect()));
        map
    }
}

const fn is_peak(which: Counter) -> bool {
    matches!(
        which,
        Counter::ProgramPeak
            | Counter::ResidentPeak
            | Counter::ResidentPeakSteady
            | Counter::PoolPeak
    )
}

fn latency(of: &Latency) -> Value {
    json!({
        "count": of.count(),
        "mean_ns": of.mean_ns(),
        "p50_ns": of.percentile_ns(50),
        "p99_ns": of.percentile_ns(99),
        "max_ns": of.max_ns,
    })
}

/// One slot, copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: String,
    /// One of [`state`].
    pub state: u32,
    /// Why it is unmanaged or failed; empty otherwise.
    pub message: String,
    /// It said so itself.
    pub told: bool,
    /// How many processes this stands for: itself, and others that ended for the same reason.
    pub stands_for: u64,
    /// How its faults are told.
    pub told_by: &'static str,
    /// Its figures.
    pub figures: Figures,
}

/// How a process's faults are told. (What it wrote there may be anything.)
fn told_by(slot: &ProcessSlot) -> &'static str {
    match faults::NAMES.get(slot.told_by.load(Relaxed) as usize) {
        Some(name) if *name != "auto" => name,
        _ => "message",
    }
}

impl Process {
    /// Copies a slot that may be changing meanwhile.
    pub fn read(slot: &ProcessSlot) -> Self {
        let comm: Vec<u8> = slot
            .comm
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .collect();
        let len = usize::try_from(slot.message_len.load(Acquire))
            .unwrap_or(MESSAGE)
            .min(MESSAGE);
        let message: Vec<u8> = slot
            .message
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .take(len)
            .collect();
        Self {
            pid: slot.pid.load(Relaxed),
            comm: one_line(String::from_utf8_lossy(&comm).trim_end_matches('\0')),
            state: slot.state.load(Acquire),
            message: one_line(&String::from_utf8_lossy(&message)),
            told: slot.told.load(Acquire) != 0,
            stands_for: 1,
            told_by: told_by(slot),
            figures: Figures::read(slot),
        }
    }

    /// The state in a word.
    pub const fn state_name(&self) -> &'static str {
        match self.state {
            state::FREE => "free",
            state::WATCHING => "watching",
            state::MANAGING => "managing",
            state::UNMANAGED => "unmanaged",
            state::UNWATCHED => "unwatched",
            state::FAILED => "failed",
            _ => "unknown",
        }
    }

    /// Whether its memory was managed, until it ended or failed.
    pub fn was_managed(&self) -> bool {
        self.state == state::MANAGING || self.figures.get(Counter::PagesOut) > 0
    }

    fn json(&self) -> Value {
        let mut map = self.figures.json();
        map.insert("pid".into(), self.pid.into());
        map.insert("comm".into(), self.comm.clone().into());
        map.insert("faults_told_by".into(), self.told_by.into());
        map.insert("state".into(), self.state_name().into());
        map.insert("message".into(), self.message.clone().into());
        Value::Object(map)
    }
}

/// A whole tree of processes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    /// Processes that loaded the library and lived some milliseconds.
    pub loaded: u64,
    /// Every slot in use, in the order of claiming, after what is kept of processes whose
    /// slots are others' now.
    pub processes: Vec<Process>,
    /// Processes that are in the total and not among these.
    pub not_listed: u64,
    /// Of those, the managed.
    pub not_listed_managed: u64,
    /// The total.
    pub total: Figures,
    /// Where `high` is shared: what all had resident at once, at most. Bytes.
    pub resident_peak: u64,
    /// Most that their backings took together, bytes.
    pub backing_peak: u64,
    /// The run's named groups.
    pub groups: Vec<GroupState>,
}

impl Tree {
    /// Copies a segment that may be changing meanwhile.
    pub fn read(segment: &Segment) -> Self {
        let all = used(segment);
        let processes: Vec<Process> = all.iter().map(|used| Process::read(used.slot)).collect();
        let mut total = Figures::default();
        let mut held = Held::default();
        for process in &processes {
            total.add(&process.figures);
            held = held.plus(process.figures.most_held);
        }
        total.most_held = held;
        let loaded = segment.processes.load(Relaxed).max(processes.len() as u64);
        Self {
            loaded,
            processes,
            not_listed: 0,
            not_listed_managed: 0,
            total,
            resident_peak: segment.groups[0].resident_peak.load(Relaxed),
            backing_peak: segment.backing_peak.load(Relaxed),
            groups: GroupState::all(segment),
        }
    }

    /// Processes whose memory was managed.
    pub fn managed(&self) -> impl Iterator<Item = &Process> {
        self.processes
            .iter()
            .filter(|process| process.was_managed())
    }

    /// How many those are, whether they are listed or not.
    pub fn managed_count(&self) -> u64 {
        self.managed().count() as u64 + self.not_listed_managed
    }

    /// The JSON parts: totals, and one object a process.
    pub fn json(&self) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("processes_loaded".into(), self.loaded.into());
        map.insert("processes_managed".into(), self.managed_count().into());
        map.insert("processes_not_listed".into(), self.not_listed.into());
        let peak = self.resident_peak;
        map.insert("shared_resident_peak_bytes".into(), peak.into());
        let backing = self.backing_peak;
        map.insert("shared_backing_peak_bytes".into(), backing.into());
        let groups = self.groups.iter().map(GroupState::json);
        map.insert("groups".into(), groups.collect());
        map.insert("total".into(), Value::Object(self.total.json()));
        map.insert(
            "processes".into(),
            self.processes.iter().map(Process::json).collect(),
        );
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::example;

    #[test]
    fn a_tree_is_copied_and_added_up() {
        let tree = Tree::read(&example());
        assert_eq!(
            (tree.loaded, tree.processes.len(), tree.managed().count()),
            (3, 2, 1)
        );
        let [one, two] = &tree.processes[..] else {
            panic!("two processes")
        };
        assert_eq!(
            (one.pid, one.comm.as_str(), one.state_name()),
            (100, "python3", "managing")
        );
        assert_eq!(
            (two.comm.as_str(), two.message.as_str()),
            ("sh", "userfaultfd: not permitted")
        );
        assert_eq!(
            tree.total.get(Counter::ProgramPeak),
            474 << 20,
            "peaks are not added"
        );
        assert_eq!(tree.total.get(Counter::PagesOut), 300_000);
        assert_eq!(tree.total.all_faults().count(), 100);
        assert_eq!(tree.total.most_held.stored, 380 << 20);
    }

    #[test]
    fn every_counter_and_kind_is_in_the_json_by_name() {
        let json = Value::Object(Tree::read(&example()).json());
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
                    "zswpout": 3, "zswpin": 0, "swpin": 2, "swpin_fallback": 6, "swpout_fallback": 5, "split": 4, "split_failed": 1,
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
