//! Reclaim beside the program's threads, by a thread of ours: what the kernel's kswapd does.
//!
//! It closes pages before they are wanted, down to some below the limit at which the program's threads make
//! room themselves. Whether there is such a thread, and how it lives: `life::reclaimer`; when it is
//! called: [`pressure`](super::pressure).

use super::core::MemoryCore;
use super::transit::relief::{Whom, make_room};
use crate::memory::layer::MemoryState;
use zfolio_sys::thread::{Clock, now_ns};

/// Pages closed under one hold of the lock, where that is how it is done.
const STEP: usize = 16;

impl MemoryCore {
    /// The usage that the thread closes down to.
    pub(super) fn goal_ahead(&self) -> usize {
        self.limit().saturating_sub(self.slack())
    }

    /// Calls the thread where there is little room left for `pages` that come.
    pub(super) fn call_reclaimer(&self, state: &MemoryState, usage: usize, pages: usize) {
        if usage + pages + self.slack() / 2 > self.limit() {
            state.pressure.call();
        }
    }

    /// Closes some pages under the lock; how many.
    fn close_a_step(&mut self, state: &MemoryState) -> usize {
        if self.closes_nothing() || self.pool.is_none() {
            return 0;
        }
        self.look(state, false);
        let (usage, goal) = (self.usage(state), self.goal_ahead());
        if usage <= goal {
            return 0;
        }
        self.closing.bounds.begin();
        self.close_until(state, goal.max(usage.saturating_sub(STEP)))
            .0
    }
}

impl MemoryState {
    /// One turn of the thread: closes pages until there is room again, or it is to end. `false` where nothing
    /// could be closed that should be.
    pub(crate) fn reclaim_ahead(&self) -> bool {
        let begun = now_ns(Clock::ThreadCpu);
        let mut closed = 0;
        if self.is_beside() {
            let mut taken = self.stages.take();
            closed = make_room(self, &mut taken, Whom::Others);
        } else {
            while !self.pressure.is_to_end() {
                let some = self.locked(|core| core.close_a_step(self));
                if some == 0 {
                    break;
                }
                closed += some;
            }
        }
        let took = now_ns(Clock::ThreadCpu).saturating_sub(begun);
        let mut core = self.core.lock();
        core.figures.beside.pages += closed as u64;
        core.figures.beside.cpu_ns += took;
        closed > 0 || core.usage(self) <= core.goal_ahead()
    }
}
