//! Counters of the engines.

use core::ops::AddAssign;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of one queue, as they are counted.
#[derive(Debug, Default)]
pub(super) struct QueueStats {
    pub(super) submitted: AtomicU64,
    completed: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(super) taken_back: AtomicU64,
    pub(super) timeouts: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) broken: AtomicU64,
    input_bytes: AtomicU64,
    output_bytes: AtomicU64,
}

/// Of one queue, or all added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueTotals {
    /// Descriptors submitted.
    pub submitted: u64,
    /// Of these, done by the engine in time.
    pub completed: u64,
    /// Times that no descriptor was free.
    pub busy: u64,
    /// Taken back by the submitter before the engine began.
    pub taken_back: u64,
    /// Given up while the engine worked on them.
    pub timeouts: u64,
    /// Of those, finished later for nobody.
    pub late: u64,
    /// Descriptors that had two holders: 0, or there is a bug.
    pub broken: u64,
    /// Bytes that completed ones read, of those that compress.
    pub input_bytes: u64,
    /// Bytes that they wrote.
    pub output_bytes: u64,
}

impl QueueStats {
    pub(super) fn completed(&self, input: u32, output: u32) {
        self.completed.fetch_add(1, Relaxed);
        self.input_bytes.fetch_add(u64::from(input), Relaxed);
        self.output_bytes.fetch_add(u64::from(output), Relaxed);
    }

    /// From nothing: what was counted was somebody else's.
    pub(super) fn restart(&self) {
        for count in [
            &self.submitted,
            &self.completed,
            &self.busy,
            &self.taken_back,
            &self.timeouts,
            &self.late,
            &self.broken,
            &self.input_bytes,
            &self.output_bytes,
        ] {
            count.store(0, Relaxed);
        }
    }

    pub(super) fn totals(&self) -> QueueTotals {
        QueueTotals {
            submitted: self.submitted.load(Relaxed),
            completed: self.completed.load(Relaxed),
            busy: self.busy.load(Relaxed),
            taken_back: self.taken_back.load(Relaxed),
            timeouts: self.timeouts.load(Relaxed),
            late: self.late.load(Relaxed),
            broken: self.broken.load(Relaxed),
            input_bytes: self.input_bytes.load(Relaxed),
            output_bytes: self.output_bytes.load(Relaxed),
        }
    }
}

impl AddAssign for QueueTotals {
    fn add_assign(&mut self, other: Self) {
        self.submitted += other.submitted;
        self.completed += other.completed;
        self.busy += other.busy;
        self.taken_back += other.taken_back;
        self.timeouts += other.timeouts;
        self.late += other.late;
        self.broken += other.broken;
        self.input_bytes += other.input_bytes;
        self.output_bytes += other.output_bytes;
    }
}

/// Of all engines together.
#[derive(Debug, Default)]
pub struct Totals {
    /// Units that submitters did themselves, for whatever reason.
    pub inline: AtomicU64,
    /// Times that an engine came or went.
    pub rebalanced: AtomicU64,
    /// Batches to be decompressed that were submitted.
    pub decomp_batches: AtomicU64,
    /// Batches of many units that were decompressed by whoever loads, since that takes less.
    pub sw_decomp_batches: AtomicU64,
    /// Units that engines decompressed.
    pub decomp_units: AtomicU64,
}

impl Totals {
    /// From nothing.
    pub(super) fn restart(&self) {
        for count in [
            &self.inline,
            &self.rebalanced,
            &self.decomp_batches,
            &self.sw_decomp_batches,
            &self.decomp_units,
        ] {
            count.store(0, Relaxed);
        }
    }
}
