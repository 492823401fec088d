//! What must go on: noted by whoever does it, looked at by the watchdog.

use crate::health::Health;
use crate::segment::{Counter, ProcessSlot, Segment};
use core::sync::atomic::Ordering;
use zfolio_sys::thread::{Clock, now_ns};
use zfolio_sys::{identity, thread};

impl Health {
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

    pub(crate) fn segment(&self) -> &'static Segment {
        self.segment
    }

    /// Which process its threads run in.
    pub(crate) fn identity(&self) -> u64 {
        self.identity.load(Ordering::Relaxed)
    }

    /// In the child of a fork: this process is another one from here on.
    pub(crate) fn is_this_process(&self) {
        self.pid.store(thread::pid(), Ordering::Relaxed);
        self.identity
            .store(identity::of_process(), Ordering::Relaxed);
    }

    /// In the child of a fork: a slot of its own.
    pub(crate) fn claim_slot(&self) {
        let slot = self.segment.claim(thread::pid());
        self.statistics.store(slot, Ordering::Relaxed);
    }

    /// In the child of a fork: the parent's threads are not its own.
    pub(crate) fn forget_cpu_time(&self) {
        for thread in &self.cpu_ns {
            thread.store(0, Ordering::Relaxed);
        }
    }

    /// Worker `index` serves a fault that was read at `since_ns`; 0: none.
    pub(crate) fn note_serving(&self, index: usize, since_ns: u64) {
        self.serving_since[index].store(since_ns, Ordering::Relaxed);
    }

    /// When the faults that workers serve were read, ns.
    pub(crate) fn serving_since(&self) -> impl Iterator<Item = u64> {
        let all = self.serving_since.iter();
        all.map(|since| since.load(Ordering::Relaxed))
            .filter(|since| *since > 0)
    }

    /// Messages were read.
    pub(crate) fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Times that messages were read.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Turns of the control thread.
    pub(crate) fn control_turns(&self) -> u64 {
        self.control_turns.load(Ordering::Relaxed)
    }

    /// A fault begins, or ends, to wait at `max`.
    pub(crate) fn note_max_waiter(&self, begins: bool) {
        if begins {
            self.max_waiters.fetch_add(1, Ordering::Relaxed);
        } else {
            self.max_waiters.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether a fault waits at `max`.
    pub(crate) fn any_waits_at_max(&self) -> bool {
        self.max_waiters.load(Ordering::Relaxed) > 0
    }

    /// CPU time of the workers' threads, ns, as they noted it last.
    pub(crate) fn workers_cpu_ns(&self) -> u64 {
        let each = self.cpu_ns.iter();
        each.map(|ns| ns.load(Ordering::Relaxed)).sum()
    }

    /// Of that, the control thread's.
    pub(crate) fn control_cpu_ns(&self) -> u64 {
        self.cpu_ns[0].load(Ordering::Relaxed)
    }
}
