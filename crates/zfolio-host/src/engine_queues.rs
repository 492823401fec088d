//! What the queues of a process's engines counted, copied out of its slot.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_runtime::segment::{ENGINE_QUEUES, ProcessSlot, engine_queue};

/// The queues of a process, or of all: which each is, then what it counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EngineQueues([[u64; engine_queue::WORDS]; ENGINE_QUEUES]);

/// Engine, queue of it, kind.
type Which = (u8, u8, &'static str);
/// Names and values.
type Counts = Vec<(&'static str, u64)>;

impl Default for EngineQueues {
    fn default() -> Self {
        Self([[0; engine_queue::WORDS]; ENGINE_QUEUES])
    }
}

impl EngineQueues {
    pub(crate) fn read(slot: &ProcessSlot) -> Self {
        let rows = slot.engine_queues.each_ref();
        Self(rows.map(|row| row.each_ref().map(|word| word.load(Relaxed))))
    }

    /// Adds another process's. (All processes of a run have the same queues.)
    pub(crate) fn add(&mut self, other: &Self) {
        for (sums, more) in self.0.iter_mut().zip(&other.0) {
            sums[0] = sums[0].max(more[0]);
            for (sum, more) in sums[1..].iter_mut().zip(&more[1..]) {
                *sum = sum.saturating_add(*more);
            }
        }
    }

    /// The queues there are: which, and the counters with their names.
    fn rows(&self) -> impl Iterator<Item = (Which, Counts)> {
        self.0.iter().filter_map(|words| {
            let counts = engine_queue::COUNTS.into_iter();
            let counts = counts.zip(words[1..].iter().copied());
            Some((engine_queue::identified(words[0])?, counts.collect()))
        })
    }

    /// A line a queue.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.rows().map(|((engine, queue, kind), counts)| {
            let counts = counts.iter();
            let counts: Vec<String> = counts.map(|(name, of)| format!("{of} {name}")).collect();
            let counts = counts.join(", ");
            format!("engine {engine}, queue {queue} ({kind}): {counts}")
        })
    }
}

/// A queue in the statistics: which it is, then its counters by name.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EngineQueue")]
pub(crate) struct QueueShown {
    engine: u8,
    queue: u8,
    kind: &'static str,
    #[serde(flatten)]
    counts: BTreeMap<&'static str, u64>,
}

impl Serialize for EngineQueues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.rows()
                .map(|((engine, queue, kind), counts)| QueueShown {
                    engine,
                    queue,
                    kind,
                    counts: counts.into_iter().collect(),
                }),
        )
    }
}
