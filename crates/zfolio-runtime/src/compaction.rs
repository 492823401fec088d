//! Compaction while the program runs: when, and how much at a time. Of zspages
//! here, of the arena's folios in `evacuate`.
//!
//! The control thread does it between rounds of reclaim. Whether it pays is
//! [`Policy`]'s to say; here is only how it goes on: some steps a turn, so that
//! neither reclaim nor a fork waits for it, until the pool has been gone
//! through once.

use crate::evacuate::Evacuating;
use crate::manager::Manager;
use zfolio_sys::thread::{Clock, now_ns};
use zfolio_zswap::Compaction;
use zfolio_zswap::compaction_policy::{Cause, Policy, Situation};

/// Time for compaction in a turn of the control thread, ns.
const TURN_NS: u64 = 1_000_000;
/// The same while reclaim has more to do than it could.
const PRESSED_NS: u64 = 250_000;

/// What the control thread remembers of compaction.
pub(crate) struct Compacting {
    policy: Policy,
    run: Option<Run>,
    evacuating: Evacuating,
}

/// A compaction under way, and what came of it so far.
struct Run {
    compaction: Compaction,
    cause: Cause,
    objs_moved: u64,
    pages_freed: u64,
}

impl Compacting {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            policy: Policy::new(now_ms()),
            run: None,
            evacuating: Evacuating::new(slots),
        }
    }
}

impl Manager {
    /// Compacts for a while, if that is due or under way. `pressed`: memory is
    /// short, and what reclaim could do at once is done.
    pub(crate) fn compact(&self, state: &mut Compacting, pressed: bool) {
        let time = if pressed { PRESSED_NS } else { TURN_NS };
        self.compact_zspages(state, pressed, time);
        if self.options.folio_compaction {
            self.while_open(|| self.evacuate(&mut state.evacuating, time));
        }
    }

    fn compact_zspages(&self, state: &mut Compacting, pressed: bool, time: u64) {
        if state.run.is_none() && state.policy.may_be_due(now_ms(), pressed) {
            let situation = Situation {
                freeable_pages: self.zswap.freeable_pages(),
                pool_pages: self.zswap.pool_pages(),
                pressure: pressed,
                request: false,
            };
            state.run = state
                .policy
                .due(now_ms(), situation)
                .and_then(|cause| Run::begin(self, cause));
        }
        let Some(run) = &mut state.run else { return };
        if self.while_open(|| self.compact_for(run, time)) == Some(true) {
            let (cause, moved, freed) = (run.cause, run.objs_moved, run.pages_freed);
            state.policy.ran(now_ms(), cause, moved, freed);
            state.run = None;
        }
    }

    /// Does something that is an operation, unless a fork or a remap wants quiet.
    pub(crate) fn while_open<R>(&self, operation: impl FnOnce() -> R) -> Option<R> {
        {
            let mut core = self.core.lock();
            if !self.opens(&mut core) {
                return None;
            }
            self.begin(&core);
        }
        let result = operation();
        self.end();
        Some(result)
    }

    /// Does steps until `time` ns have gone by or somebody wants quiet; whether
    /// the run has ended.
    fn compact_for(&self, run: &mut Run, time: u64) -> bool {
        let until = now_ns(Clock::Monotonic) + time;
        let mut ended = false;
        while !ended && now_ns(Clock::Monotonic) < until && !self.is_called_away() {
            match self.zswap.compaction_step(&run.compaction) {
                Some(step) => {
                    run.objs_moved += step.objs_moved as u64;
                    run.pages_freed += step.pages_freed as u64;
                }
                None => ended = true,
            }
        }
        ended
    }
}

impl Run {
    fn begin(manager: &Manager, cause: Cause) -> Option<Self> {
        Some(Self {
            compaction: manager.zswap.begin_compaction()?,
            cause,
            objs_moved: 0,
            pages_freed: 0,
        })
    }
}

fn now_ms() -> u64 {
    now_ns(Clock::Monotonic) / 1_000_000
}
