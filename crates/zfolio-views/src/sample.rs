//! What is shown of a run over time: memory now, and counters whose differences are rates.

use crate::look::Seen;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zfolio_host::statistics::Figures;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::segment::Counter;

/// Memory of a process, or of all that live. Bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// What it would need without us.
    pub program_bytes: u64,
    /// Resident, all of it: the next five, and what of the program is resident.
    pub resident_bytes: u64,
    /// Moved out, not compressed.
    pub standby_bytes: u64,
    /// Frames of the pool.
    pub pool_bytes: u64,
    /// Backed frames with nothing in them.
    pub free_bytes: u64,
    /// Tables and buffers of the manager.
    pub tables_bytes: u64,
    /// Program memory that is in the pool, uncompressed size.
    pub stored_bytes: u64,
    /// What its objects take.
    pub compressed_bytes: u64,
    /// In the backing.
    pub backing_bytes: u64,
}

impl Memory {
    /// Of these figures.
    pub fn of(figures: &Figures) -> Self {
        let pages = |which| figures.get(which).saturating_mul(PAGE_SIZE as u64);
        Self {
            program_bytes: figures.get(Counter::ProgramBytes),
            resident_bytes: figures.get(Counter::ResidentBytes),
            standby_bytes: pages(Counter::StandbyPages),
            pool_bytes: figures.get(Counter::PoolBytes),
            free_bytes: pages(Counter::FreeFrames),
            tables_bytes: figures.get(Counter::ManagerHeap),
            stored_bytes: pages(Counter::StoredPages),
            compressed_bytes: figures.get(Counter::CompressedBytes),
            backing_bytes: figures.get(Counter::BackingBytes),
        }
    }

    /// What of the program itself is resident.
    pub fn own(&self) -> u64 {
        let ours = self.standby_bytes + self.pool_bytes + self.free_bytes + self.tables_bytes;
        self.resident_bytes.saturating_sub(ours)
    }

    /// By how much less is resident than it would be without us.
    pub fn saved(&self) -> u64 {
        self.program_bytes.saturating_sub(self.resident_bytes)
    }
}

/// Counters of a process, or of all of a run: they only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Pages moved out.
    pub pages_out: u64,
    /// Pages brought back.
    pub pages_in: u64,
    /// Faults served.
    pub faults: u64,
    /// Time that took, of those that were timed. Nanoseconds.
    pub fault_ns: u64,
    /// Time that faults reclaimed or waited at `high`. Nanoseconds.
    pub high_stall_ns: u64,
    /// Processor time of the manager's threads. Nanoseconds.
    pub manager_cpu_ns: u64,
}

impl Counts {
    /// Of these figures.
    pub fn of(figures: &Figures) -> Self {
        let faults = figures.all_faults();
        Self {
            pages_out: figures.get(Counter::PagesOut),
            pages_in: figures.get(Counter::PagesIn),
            faults: faults.count(),
            fault_ns: faults.sum_ns,
            high_stall_ns: figures.get(Counter::StallNs),
            manager_cpu_ns: figures.get(Counter::ManagerCpuNs),
        }
    }

    /// What came since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let more = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            pages_out: more(self.pages_out, before.pages_out),
            pages_in: more(self.pages_in, before.pages_in),
            faults: more(self.faults, before.faults),
            fault_ns: more(self.fault_ns, before.fault_ns),
            high_stall_ns: more(self.high_stall_ns, before.high_stall_ns),
            manager_cpu_ns: more(self.manager_cpu_ns, before.manager_cpu_ns),
        }
    }
}

/// So many a second, where there were `count` in `seconds`.
#[allow(clippy::cast_precision_loss, reason = "shown with three figures")]
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// A run at an instant.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Seconds since the program was started.
    pub time_s: f64,
    /// `high` then. Bytes.
    pub high_bytes: u64,
    /// Managed processes that live.
    pub processes: u64,
    /// Memory of those that live.
    #[serde(flatten)]
    pub memory: Memory,
    /// Counters of all there were.
    #[serde(flatten)]
    pub counts: Counts,
}

impl Sample {
    /// Of a look, so many seconds after the start.
    pub fn of(seen: &Seen, time_s: f64) -> Self {
        let live = seen.processes();
        let live = live.filter(|(process, place)| place.lives && process.was_managed());
        Self {
            time_s,
            high_bytes: seen.config.high_bytes(),
            processes: live.count() as u64,
            memory: Memory::of(&seen.now),
            counts: Counts::of(&seen.tree.total),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_host::statistics::Tree;

    #[test]
    fn what_is_resident_is_parted() {
        let segment = crate::example::example();
        for (which, value) in [
            (Counter::ProgramBytes, 474 << 20),
            (Counter::ResidentBytes, 200 << 20),
            (Counter::StandbyPages, 256),
            (Counter::FreeFrames, 512),
            (Counter::ManagerHeap, 3 << 20),
        ] {
            segment.slots[0].set(which, value);
        }
        let memory = Memory::of(&Tree::read(&segment).total);
        assert_eq!(memory.own(), (200 - 1 - 122 - 2 - 3) << 20);
        assert_eq!(memory.saved(), 274 << 20);
        assert_eq!(memory.stored_bytes, 380 << 20);
    }

    #[test]
    fn a_sample_survives_its_line() {
        let sample = Sample {
            time_s: 1.5,
            high_bytes: 3,
            processes: 1,
            memory: Memory {
                pool_bytes: 7,
                ..Memory::default()
            },
            counts: Counts {
                faults: 9,
                ..Counts::default()
            },
        };
        let line = serde_json::to_string(&sample).unwrap();
        assert!(line.contains("\"pool_bytes\":7") && line.contains("\"faults\":9"));
        assert_eq!(serde_json::from_str::<Sample>(&line).unwrap(), sample);
        let more = Counts {
            faults: 12,
            ..Counts::default()
        };
        assert_eq!(more.since(&sample.counts).faults, 3);
    }
}
