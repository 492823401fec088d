//! What must go on: noted by whoever does it, looked at by the watchdog.

use crate::faces::manager::Manager;
use crate::segment::{Counter, ProcessSlot};
use core::sync::atomic::Ordering;
use zfolio_sys::thread::{Clock, now_ns};

impl Manager {
    /// This process's statistics.
    pub(crate) fn stats(&self) -> &'static ProcessSlot {
        &self.segment.slots[self.statistics.load(Ordering::Relaxed)]
    }

    pub(crate) fn count(&self, counter: Counter, amount: usize) {
        self.stats().add(counter, amount as u64);
    }

    /// The control thread has got on.
    pub(crate) fn control_goes_on(&self) {
        self.control_turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the calling worker's CPU time.
    pub(crate) fn note_cpu(&self, index: usize) {
        self.cpu_ns[index].store(now_ns(Clock::ThreadCpu), Ordering::Relaxed);
    }

    /// Runs what may wait for the backing: a slow device is no hang.
    pub(crate) fn during_io<R>(&self, run: impl FnOnce() -> R) -> R {
        if !self.zswap.is_backed() {
            return run();
        }
        self.io_under_way.fetch_add(1, Ordering::Relaxed);
        let result = run();
        self.io_under_way.fetch_sub(1, Ordering::Relaxed);
        self.note_io();
        result
    }

    /// The backing has answered.
    pub(crate) fn note_io(&self) {
        self.io_done.fetch_add(1, Ordering::Relaxed);
    }
}
