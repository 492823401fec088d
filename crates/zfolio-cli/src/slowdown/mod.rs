//! `--slowdown`: `high` of the run follows what the program loses.
//!
//! `zfolio run` looks at the tree ten times a second, and four times while `high` stays, hands what it sees to the controller
//! (`zfolio_host::controller`) and writes what that says to `high` of the run's group, which
//! every process reads when it says next what it has. Among several processes it weighs who gets how much
//! of it (`zfolio_host::controller::division`).
//!
//! | module | concept |
//! |---|---|
//! | `signal` | time run and time lost, memory needed and had, of the whole tree |
//! | `slots` | what each process says it has and has done |
//! | `spare` | what processors were idle, which what we do costs nobody |

mod signal;
mod slots;
mod spare;

use crate::options::slowdown::Asked;
use signal::Signal;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use zfolio_host::controller::division::Division;
use zfolio_host::controller::{self, Bought, Controller};
use zfolio_host::owners::own_id_in_proc;
use zfolio_runtime::segment::Segment;

/// Between two looks at least; and while `high` stays where it is.
const EVERY: Duration = Duration::from_millis(100);
const STAYS: Duration = Duration::from_millis(250);
/// So many looks without a change of it are many.
const LONG: u32 = 10;
/// Looking takes at most this part of the time.
const SHARE: u32 = 200;

/// Follows a run.
#[derive(Debug)]
pub(crate) struct Following {
    controller: Controller,
    division: Division,
    signal: Signal,
    began: Instant,
    next: Instant,
    /// Looks since `high` changed.
    stayed: u32,
}

impl Following {
    /// From `now` on, in a run that begins with so much `high` (bytes).
    pub(crate) fn new(asked: Asked, high: u64, now: Instant) -> Self {
        let asked = controller::Asked {
            slowdown: f64::from(asked.slowdown) / 1e6,
            low: asked.low,
            high,
        };
        Self {
            controller: Controller::new(asked),
            division: Division::default(),
            signal: Signal::default(),
            began: now,
            next: now,
            stayed: 0,
        }
    }

    /// Looks, if it is time. `most`: what `high` may be at most now, bytes.
    pub(crate) fn look(&mut self, segment: &Segment, most: u64, now: Instant) {
        if now < self.next {
            return;
        }
        // (As /proc has us, which may be another namespace's.)
        if let Some(root) = own_id_in_proc() {
            let at = now.saturating_duration_since(self.began);
            let (sample, parts) = self.signal.sample(segment, root, at);
            self.controller.set_most(most);
            let before = self.controller.high();
            let high = self.controller.step(sample);
            self.stayed = if high == before { self.stayed + 1 } else { 0 };
            let takes = self.controller.took_something();
            slots::weigh(segment, &self.division.step(at, &parts, takes));
            segment.groups[0].high.store(high, Relaxed);
            self.tell(segment);
        }
        let every = if self.stayed < LONG { EVERY } else { STAYS };
        self.next = now + every.max(now.elapsed() * SHARE);
    }

    /// Writes what it has come to where `zfolio stat` reads it.
    fn tell(&self, segment: &Segment) {
        let bought = self.controller.bought();
        let to = &segment.slowdown;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not below 0; saturates"
        )]
        to.estimated.store((bought.lost.all * 1e6) as u64, Relaxed);
        to.needed_bytes.store(bought.needed_since, Relaxed);
        to.resident_bytes.store(bought.resident_since, Relaxed);
    }

    /// What was bought.
    pub(crate) fn finish(&self) -> Bought {
        Bought {
            weighed: self.division.changes(),
            ..self.controller.bought()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_is_written_where_processes_read_it() {
        let segment = crate::example::example();
        segment.config().limits.high.store(1 << 30, Relaxed);
        let begin = Instant::now();
        let asked = Asked {
            slowdown: 50_000,
            low: 8 << 20,
        };
        let mut following = Following::new(asked, 1 << 30, begin);
        following.look(&segment, 512 << 20, begin);
        assert_eq!(segment.groups[0].high.load(Relaxed), 512 << 20, "the most");
        // Not yet time.
        following.look(&segment, 256 << 20, begin + EVERY / 2);
        assert_eq!(segment.groups[0].high.load(Relaxed), 512 << 20);
        let bought = following.finish();
        assert_eq!((bought.steps, bought.needed_since), ([0, 0], 0));
        assert_eq!(segment.slowdown.needed_bytes.load(Relaxed), 0);
    }
}
