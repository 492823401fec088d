//! Compaction while the program runs: when, and how much at a time. Of zspages
//! here, of the arena's folios in `folio_compaction`.
//!
//! The control thread does it between rounds of reclaim. Whether it pays is
//! [`Policy`]'s to say; here is only how it goes on: some steps a turn, so that
//! neither reclaim nor a fork waits for it, until the pool has been gone
//! through once.
//!
//! In the thread that faults there is no control thread, and who makes room does it (`zfolio-inthread`).
//!
//! On request (`zfolio compact`) both are done whatever the policies say, once, with more time
//! a turn; the number of the last request that was done is in the process's slot.

use crate::upkeep::folio_compaction::Evacuating;
use zfolio_sys::lock::pause;
use zfolio_sys::thread::{Clock, now_ns};
use zfolio_zswap::compaction_policy::{Cause, Policy, Situation};
use zfolio_zswap::{Arena, Compaction, Zswap};

/// Time for compaction in a turn of the control thread, ns.
pub(crate) const TURN_NS: u64 = 1_000_000;
/// The same while reclaim has more to do than it could.
pub(crate) const PRESSED_NS: u64 = 250_000;
/// Time in a turn while a request is being done: a fork waits no longer than that.
pub(crate) const REQUESTED_NS: u64 = 5_000_000;

/// What the control thread remembers of compaction.
pub(crate) struct Compacting {
    pub(super) zspages: Zspages,
    pub(super) evacuating: Evacuating,
    requests: Requests,
}

/// What somebody asks for (`zfolio compact`), by number: how far it was followed.
pub struct Requests {
    /// Of the request that was done last.
    done: u32,
    /// Of the request that is being done.
    doing: Option<u32>,
}

/// Compaction of a pool's zspages.
pub struct Zspages {
    policy: Policy,
    run: Option<CompactionRun>,
    /// Somebody asked, and the run for it has not begun.
    asked: bool,
}

/// A compaction under way, and what came of it so far.
struct CompactionRun {
    compaction: Compaction,
    cause: Cause,
    objs_moved: u64,
    pages_freed: u64,
}

impl Compacting {
    /// For an arena of so many slots; nothing is to be done of what was asked for before.
    pub(crate) fn new(slots: usize, requests: u32) -> Self {
        Self {
            zspages: Zspages::default(),
            evacuating: Evacuating::new(slots),
            requests: Requests::new(requests),
        }
    }

    /// Begins what was asked for, and notes it when it is done. `folios`: those of the arena
    /// as well. Returns the number of the last request that is done.
    pub(crate) fn follow_requests(&mut self, requests: u32, folios: bool) -> u32 {
        let goes_on = self.zspages.is_requested() || self.evacuating.is_requested();
        if self.requests.follow(requests, goes_on) {
            self.zspages.request();
            if folios {
                self.evacuating.request();
            }
        }
        self.requests.done()
    }

    /// Whether somebody waits for it.
    pub(crate) const fn is_requested(&self) -> bool {
        self.requests.is_any_under_way()
    }
}

impl Requests {
    /// Nothing is to be done of the first `requests`.
    #[must_use]
    pub const fn new(requests: u32) -> Self {
        Self {
            done: requests,
            doing: None,
        }
    }

    /// What was asked for last is number `requests`; `goes_on`: what was begun for one is not at its
    /// end. Whether something is to be begun now.
    pub fn follow(&mut self, requests: u32, goes_on: bool) -> bool {
        match self.doing {
            Some(number) if !goes_on => {
                self.done = number;
                self.doing = None;
                false
            }
            None if requests != self.done => {
                self.doing = Some(requests);
                true
            }
            _ => false,
        }
    }

    /// Number of the last request that is done.
    #[must_use]
    pub const fn done(&self) -> u32 {
        self.done
    }

    /// Whether one is being done.
    #[must_use]
    pub const fn is_any_under_way(&self) -> bool {
        self.doing.is_some()
    }
}

impl Default for Zspages {
    /// None is under way; the first periodic one is a period away.
    fn default() -> Self {
        Self {
            policy: Policy::new(now_ms()),
            run: None,
            asked: false,
        }
    }
}

impl Zspages {
    /// Somebody asks for a run, whatever the policy says.
    pub const fn request(&mut self) {
        self.asked = true;
    }

    /// Whether a run that was asked for is under way, or to come.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        let asked = |run: &CompactionRun| run.cause == Cause::Request;
        self.asked || self.run.as_ref().is_some_and(asked)
    }

    /// Whether there is something to do: begins a run if one is due.
    /// `pressed`: memory is short, and what reclaim could do at once is done.
    pub fn is_due<A: Arena>(&mut self, zswap: &Zswap<A>, pressed: bool) -> bool {
        if self.run.is_none() && (self.asked || self.policy.may_be_due(now_ms(), pressed)) {
            let situation = Situation {
                freeable_pages: zswap.freeable_pages(),
                pool_pages: zswap.pool_pages(),
                pressure: pressed,
                request: self.asked,
            };
            let cause = self.policy.due(now_ms(), situation);
            self.run = cause.and_then(|cause| CompactionRun::begin(zswap, cause));
            self.asked &= self.run.is_none();
        }
        self.run.is_some()
    }

    /// Whether a run has begun and is not at its end.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.run.is_some()
    }

    /// Does steps until `time` ns have gone by or `stop` says so.
    pub fn compact<A: Arena>(&mut self, zswap: &Zswap<A>, time: u64, stop: impl Fn() -> bool) {
        let Some(run) = &mut self.run else { return };
        let until = now_ns(Clock::Monotonic) + time;
        while now_ns(Clock::Monotonic) < until && !stop() {
            if !run.step(zswap) {
                let (cause, moved, freed) = (run.cause, run.objs_moved, run.pages_freed);
                self.policy.ran(now_ms(), cause, moved, freed);
                self.run = None;
                return;
            }
        }
    }
}

/// Waits for a run that is under way, and how long each, ns.
const WAITS: u32 = 1000;
const WAIT_NS: u64 = 1_000_000;

/// Compacts until there is nothing more to do, for somebody who asks, in the calling thread: how
/// many objects moved, and pages came free. Nothing while another run does not end.
pub(crate) fn compact_on_request<A: Arena>(zswap: &Zswap<A>) -> (u64, u64) {
    let begin = |_| {
        let begun = CompactionRun::begin(zswap, Cause::Request);
        if begun.is_none() {
            pause(WAIT_NS);
        }
        begun
    };
    let Some(mut run) = (0..WAITS).find_map(begin) else {
        return (0, 0);
    };
    while run.step(zswap) {}
    (run.objs_moved, run.pages_freed)
}

impl CompactionRun {
    fn begin<A: Arena>(zswap: &Zswap<A>, cause: Cause) -> Option<Self> {
        Some(Self {
            compaction: zswap.begin_compaction()?,
            cause,
            objs_moved: 0,
            pages_freed: 0,
        })
    }

    /// Does a step; whether there was one to do.
    fn step<A: Arena>(&mut self, zswap: &Zswap<A>) -> bool {
        let Some(step) = zswap.compaction_step(&self.compaction) else {
            return false;
        };
        zswap.count_moved(self.cause, step.objs_moved);
        self.objs_moved += step.objs_moved as u64;
        self.pages_freed += step.pages_freed as u64;
        true
    }
}

fn now_ms() -> u64 {
    now_ns(Clock::Monotonic) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_come_while_one_is_done_are_one_more() {
        let mut requests = Requests::new(7);
        assert!(!requests.follow(7, false), "it was done before");
        assert!(requests.follow(8, false), "begun");
        assert!(!requests.follow(10, true) && requests.is_any_under_way());
        assert_eq!(requests.done(), 7);
        assert!(!requests.follow(10, false), "ended first");
        assert_eq!((requests.done(), requests.is_any_under_way()), (8, false));
        assert!(requests.follow(10, false));
        assert!(!requests.follow(10, false));
        assert_eq!((requests.done(), requests.follow(10, false)), (10, false));
    }
}
