//! How much was stored, compressed and in the pool at one instant.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::sync::atomic::Ordering::Relaxed;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::segment::{Counter, ProcessSlot};

/// Compressed memory at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Program bytes stored.
    pub stored: u64,
    /// What they compressed to, bytes.
    pub compressed: u64,
    /// What the pool takes for that, bytes.
    pub pool: u64,
}

impl Held {
    /// Reads a slot's gauges.
    pub fn read(slot: &ProcessSlot) -> Self {
        let get = |which| slot.counter(which).load(Relaxed);
        slot.at_once(|| Self {
            stored: get(Counter::StoredPages).saturating_mul(PAGE_SIZE as u64),
            compressed: get(Counter::CompressedBytes),
            pool: get(Counter::PoolBytes),
        })
    }

    /// Adds another process's.
    pub fn plus(self, other: Self) -> Self {
        Self {
            stored: self.stored.saturating_add(other.stored),
            compressed: self.compressed.saturating_add(other.compressed),
            pool: self.pool.saturating_add(other.pool),
        }
    }

    /// The one with more stored.
    pub fn larger(self, other: Self) -> Self {
        if other.stored > self.stored {
            other
        } else {
            self
        }
    }

    /// Stored bytes per compressed byte; `None` with nothing compressed.
    pub fn ratio(self) -> Option<f64> {
        quotient(self.stored, self.compressed)
    }
}

/// The object in the statistics; ratios are null with nothing compressed.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Held")]
pub(crate) struct HeldShown {
    stored_bytes: u64,
    compressed_bytes: u64,
    pool_bytes: u64,
    ratio_compressed: Option<f64>,
    ratio_pool: Option<f64>,
}

impl Serialize for Held {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = HeldShown {
            stored_bytes: self.stored,
            compressed_bytes: self.compressed,
            pool_bytes: self.pool,
            ratio_compressed: rounded(self.ratio()),
            ratio_pool: rounded(quotient(self.stored, self.pool)),
        };
        shown.serialize(serializer)
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a ratio shown with three figures"
)]
fn quotient(over: u64, under: u64) -> Option<f64> {
    (under > 0).then(|| over as f64 / under as f64)
}

fn rounded(ratio: Option<f64>) -> Option<f64> {
    ratio.map(|ratio| (ratio * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_sees_one_update() {
        const TIMES: u64 = 20_000;
        let segment = crate::example::example();
        let [slot, ..] = &segment.slots;
        let set = |n: u64| {
            slot.update(|| {
                slot.set(Counter::PoolBytes, n);
                slot.set(Counter::StoredPages, n);
                slot.set(Counter::CompressedBytes, n);
            });
            std::thread::yield_now();
        };
        set(0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (1..=TIMES).for_each(set));
            while !writer.is_finished() {
                let held = Held::read(slot);
                assert_eq!(held.compressed, held.pool);
                assert_eq!(held.stored, held.pool * PAGE_SIZE as u64);
            }
        });
        assert_eq!(Held::read(slot).pool, TIMES);
    }

    #[test]
    fn ratios_are_of_stored_bytes() {
        let held = Held {
            stored: 4096 * 3,
            compressed: 4096,
            pool: 8192,
        };
        let json = serde_json::to_value(held).unwrap();
        assert_eq!(json["ratio_compressed"], 3.0);
        assert_eq!(json["ratio_pool"], 1.5);
        assert_eq!(Held::default().ratio(), None);
        assert_eq!(held.larger(Held::default()), held);
        assert_eq!(Held::default().larger(held), held);
        assert_eq!(held.plus(held).stored, 2 * held.stored);
    }
}
