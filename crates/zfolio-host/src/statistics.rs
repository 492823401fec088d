//! What a segment says, copied out. (Its JSON form: `shown`.)
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
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use zfolio_mm::ORDERS;
use zfolio_runtime::segment::inspection::held;
use zfolio_runtime::segment::{
    Counter, FaultKind, MESSAGE, ProcessSlot, Segment, Used, faults, state,
};

/// Folios by order: how many were stored, loaded, refused whole, and split then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Folios {
    pub(crate) out: [u64; ORDERS],
    pub(crate) back: [u64; ORDERS],
    pub(crate) read: [u64; ORDERS],
    pub(crate) read_fallback: [u64; ORDERS],
    pub(crate) fallback: [u64; ORDERS],
    pub(crate) split: [u64; ORDERS],
    pub(crate) split_failed: [u64; ORDERS],
}

/// Counters, folios and faults: of one process, or of all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figures {
    counters: [u64; Counter::COUNT],
    pub(crate) folios: Folios,
    pub(crate) queues: EngineQueues,
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
                out: orders(&slot.by_order.zswpout),
                back: orders(&slot.by_order.zswpin),
                read: orders(&slot.by_order.swpin),
                read_fallback: orders(&slot.by_order.swpin_fallback),
                fallback: orders(&slot.by_order.fallback),
                split: orders(&slot.by_order.split),
                split_failed: orders(&slot.by_order.split_failed),
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

    /// What is left without these, which are among it. Gauges and peaks are not told apart.
    #[must_use]
    pub fn less<'a>(&self, some: impl Iterator<Item = &'a Self>) -> Self {
        let mut left = self.clone();
        for one in some {
            for (left, less) in left.counters.iter_mut().zip(&one.counters) {
                *left = left.saturating_sub(*less);
            }
            for (left, less) in left.faults.iter_mut().zip(&one.faults) {
                *left = left.since(less);
            }
        }
        left
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

    /// Service times of a kind of fault.
    pub fn faults_of(&self, kind: FaultKind) -> &Latency {
        &self.faults[kind as usize]
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

/// One slot, copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub comm: String,
    /// One of [`state`].
    pub state: u32,
    /// One of [`held`].
    pub held: u32,
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
    match faults::NAMES.get(slot.process.told_by.load(Relaxed) as usize) {
        Some(name) if *name != "auto" => name,
        _ => "message",
    }
}

impl Process {
    /// Copies a slot that may be changing meanwhile.
    pub fn read(slot: &ProcessSlot) -> Self {
        let comm: Vec<u8> = slot
            .process
            .comm
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .collect();
        let len = usize::try_from(slot.said.message_len.load(Acquire))
            .unwrap_or(MESSAGE)
            .min(MESSAGE);
        let message: Vec<u8> = slot
            .said
            .message
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .take(len)
            .collect();
        Self {
            pid: slot.process.pid.load(Relaxed),
            comm: one_line(String::from_utf8_lossy(&comm).trim_end_matches('\0')),
            state: slot.state.load(Acquire),
            held: slot.held.load(Acquire),
            message: one_line(&String::from_utf8_lossy(&message)),
            told: slot.said.told.load(Acquire) != 0,
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
            state::MANAGING if self.held == held::HELD => "held",
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
        Self::of(segment, &used(segment))
    }

    /// The same of these slots of it.
    pub fn of(segment: &Segment, all: &[Used<'_>]) -> Self {
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
            resident_peak: segment.groups[0].usage.resident_peak.load(Relaxed),
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
}
