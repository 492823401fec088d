//! Reclaim by whoever needs a frame, and the storing of what was just moved out.

use crate::budget::pressure::Relief;
use crate::page::GROUP_PAGES;
use crate::segment::{Counter, GroupEvent};
use crate::swapout::Swap;
use crate::swapout::clock_hand::HandStep;
use crate::swapout::store::Stored;
use crate::transfer::worker::Worker;
use zfolio_sys::thread::{Clock, now_ns};

impl Swap {
    /// Reclaims for a fault that found no frame: stores what stands by, or
    /// waits for the control thread, which moves more out.
    pub(crate) fn make_frames(&self, worker: &mut Worker) {
        let start = now_ns(Clock::Monotonic);
        self.count(Counter::HighEvents, 1);
        self.count_group_event(GroupEvent::High);
        if !self.scope.serves_in_thread() {
            // While this thread is busy somebody must read events, or moves
            // out would be refused for ever.
            let core = self.core.lock();
            let unread = !core.inbox.has_reader();
            if unread && core.inbox.has_sleepers() {
                drop(core);
                self.wakeups.wake_sibling();
            } else if unread {
                let mut core = core;
                self.pump_for_others(&mut core);
            }
        }
        if self.make_frames_of_clean() {
            return;
        }
        self.wakeups.wake_control();
        if let Some(step) = self.reclaim_passed(false) {
            let _ = self.store_moved(worker, step);
        }
        match self.store_coldest(worker, 1) {
            Stored::Pages(_) => {}
            Stored::Nothing | Stored::Later => self.wakeups.await_frames(),
        }
        self.stats()
            .add(Counter::StallNs, now_ns(Clock::Monotonic) - start);
    }

    /// Stores what was just moved to the cold end.
    pub(crate) fn store_moved(&self, worker: &mut Worker, step: HandStep) -> Result<(), Relief> {
        let HandStep::Moved(pages) = step else {
            return Err(Relief::Later);
        };
        let mut folios = 0..pages.div_ceil(GROUP_PAGES);
        if folios.all(|_| self.store_coldest(worker, 1) != Stored::Later) {
            Ok(())
        } else {
            Err(Relief::Later)
        }
    }
}
