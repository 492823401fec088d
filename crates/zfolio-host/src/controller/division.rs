//! How `high` is divided among the processes of a run: so that a byte costs as much in each.
//!
//! By itself the rule of shares gives who lacks memory equal parts, whether a byte costs much time in
//! one process and little in another. Here each process has a *price*: the time it lost lately, for
//! each byte that it has less than it needs. Where prices differ memory is in the wrong place: who pays
//! more than all do together gets a larger weight in the rule, who pays less a smaller one. So weights
//! come to rest where a byte more would save as much time in each. (The price of the next byte would
//! be what counts; what is known is the mean of all that are out.)
//!
//! Like the controller it has no clock and makes no call. `high` itself is the controller's.
//!
//! # Invariant
//! Weights are within [`MOST_WEIGHT`] times [`WEIGHT`] and as small a part of it.

use super::{bytes, seconds};
use std::collections::HashMap;
use std::time::Duration;
use zfolio_runtime::segment::{MOST_WEIGHT, WEIGHT};

/// Between two changes of weights, seconds.
const EVERY: f64 = 1.0;
/// Of the time lost lately, the part that the last such time stands for.
const LATELY: f64 = 0.5;
/// Time lost in a second below which prices say nothing, seconds.
const LEAST_LOST: f64 = 2e-4;
/// A process that has nearly all it needs is taken to lack this part of it.
const LEAST_LACK: f64 = 1.0 / 64.0;
/// A price is seen as if each byte cost so much of the mean price besides: from who pays nothing
/// memory is taken step by step, not at once.
const FLOOR: f64 = 0.2;
/// A weight changes by the ratio of prices to this power, and by so much at most.
const POWER: f64 = 0.5;
const MOST_STEP: f64 = 1.3;

/// What is known of a process at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Names it, among all that were in this run.
    pub id: u64,
    /// Memory it would have without us, bytes.
    pub needed: u64,
    /// What it has, its pool included, bytes.
    pub resident: u64,
    /// Time that its threads stood still because of us so far.
    pub stall: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    stall: f64,
    /// Lost in a second lately, seconds.
    rate: f64,
    weight: f64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Division {
    known: HashMap<u64, Known>,
    /// When weights were last looked at, seconds.
    at: f64,
    changes: u64,
}

impl Division {
    /// Takes what is known `at` so long after the start; `takes`: `high` is below what may be had at
    /// most. The weights that are others now, by process; of the others it stays.
    pub fn step(&mut self, at: Duration, parts: &[Part], takes: bool) -> Vec<(u64, u32)> {
        let now = seconds(at);
        let passed = now - self.at;
        if passed < EVERY {
            return Vec::new();
        }
        self.at = now;
        self.known
            .retain(|id, _| parts.iter().any(|part| part.id == *id));
        for part in parts {
            let stall = seconds(part.stall);
            let known = self.known.entry(part.id).or_insert(Known {
                stall,
                rate: 0.0,
                weight: f64::from(WEIGHT),
            });
            let lost = (stall - known.stall).max(0.0) / passed;
            known.rate += (lost - known.rate) * LATELY;
            known.stall = stall;
        }
        let changed = self.weigh(parts, takes);
        self.changes += changed.len() as u64;
        changed
    }

    /// Weights that were changed so far.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    fn weigh(&mut self, parts: &[Part], takes: bool) -> Vec<(u64, u32)> {
        let rate = |of: &Self, part: &Part| of.known.get(&part.id).map_or(0.0, |of| of.rate);
        let all: f64 = parts.iter().map(|part| rate(self, part)).sum();
        let mean = all / parts.iter().map(lacks).sum::<f64>().max(1.0);
        let tells = takes && parts.len() > 1 && all >= LEAST_LOST;
        let mut changed = Vec::new();
        for part in parts {
            let price = rate(self, part) / lacks(part).max(1.0);
            let Some(known) = self.known.get_mut(&part.id) else {
                continue;
            };
            let before = whole_weight(known.weight);
            if tells {
                let ratio = (price / mean + FLOOR) / (1.0 + FLOOR);
                let step = ratio.powf(POWER).clamp(1.0 / MOST_STEP, MOST_STEP);
                let most = f64::from(WEIGHT) * f64::from(MOST_WEIGHT);
                let least = f64::from(WEIGHT) / f64::from(MOST_WEIGHT);
                known.weight = (known.weight * step).clamp(least, most);
            } else if !takes {
                known.weight = f64::from(WEIGHT);
            }
            let weight = whole_weight(known.weight);
            if weight != before {
                changed.push((part.id, weight));
            }
        }
        changed
    }
}

/// What a process has less than it needs, bytes.
fn lacks(part: &Part) -> f64 {
    let lack = bytes(part.needed.saturating_sub(part.resident));
    lack.max(bytes(part.needed) * LEAST_LACK)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within the bounds of weights"
)]
fn whole_weight(of: f64) -> u32 {
    of.round() as u32
}
