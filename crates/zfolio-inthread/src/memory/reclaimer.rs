//! Reclaim beside the program's threads, by a thread of ours: what the kernel's kswapd does.
//!
//! It closes pages before they are wanted, down to some below the limit at which the program's threads make
//! room themselves. Whether there is such a thread, and how it lives: `life::reclaimer`; when it is
//! called: [`pressure`](super::pressure).

use super::core::MemoryCore;
use super::transit::relief::{Whom, make_room};
use crate::memory::layer::MemoryState;
use zfolio_sys::thread::{Clock, now_ns};

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
}

impl MemoryState {
    /// One turn of the thread: closes pages until there is room again, or it is to end. `false` where nothing
    /// could be closed that should be.
    pub(crate) fn reclaim_ahead(&self) -> bool {
        let begun = now_ns(Clock::ThreadCpu);
        let closed = make_room(self, &mut self.stages.take(), Whom::Others);
        let took = now_ns(Clock::ThreadCpu).saturating_sub(begun);
        let mut core = self.core.lock();
        core.figures.beside.pages += closed as u64;
        core.figures.beside.cpu_ns += took;
        closed > 0 || core.usage(self) <= core.goal_ahead()
    }
}
