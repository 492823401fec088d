//! The core lock, taken at a moment at which nothing is in transit, or something may begin.

use super::waits::Ring;
use crate::memory::core::{InTransit, MemoryCore};
use crate::memory::layer::MemoryState;
use crate::threads::Record;
use core::sync::atomic::Ordering;
use zfolio_sys::lock::MutexGuard;

/// So many transits in a row by one thread, with none beside, and threads do not fault at once any more.
const CROWD: u32 = 256;

impl MemoryCore {
    /// A stage of `thread` has pages in transit from here on.
    pub(super) fn begin_transit(&mut self, thread: Option<&Record>) {
        let thread = thread.map_or(0, |thread| core::ptr::from_ref(thread) as usize);
        let is_last = core::mem::replace(&mut self.transit.last, thread) == thread;
        self.transit.crowd = if is_last && self.transit.transits.is_quiet() {
            self.transit.crowd.saturating_sub(1)
        } else {
            CROWD
        };
        self.transit.transits.begin();
    }

    /// In the child of a fork, which was made while nothing was in transit: the threads that waited
    /// for that are the parent's.
    pub(crate) fn forget_who_waits(&mut self) {
        self.transit = InTransit::new();
    }
}

impl MemoryState {
    /// Takes the core lock at a moment at which nothing is in transit, which it stays as long
    /// as the lock is held. All signals are blocked.
    pub(crate) fn exclusive(&self) -> MutexGuard<'_, MemoryCore> {
        let mut core = self.core.lock();
        if core.transit.transits.is_quiet() {
            return core;
        }
        core.transit.transits.want();
        while !core.transit.transits.is_quiet() {
            let heard = self.bells.quiet.listen();
            drop(core);
            if !self.bells.quiet.wait(heard) {
                self.fail_if_lost();
            }
            core = self.core.lock();
        }
        if core.transit.transits.have() == Ring::Gate && self.bells.gate.ring() {
            self.bells.gate.wake();
        }
        core
    }

    /// Runs `f` under the core lock while nothing is in transit: all signals blocked, on the
    /// service stack.
    pub(crate) fn locked<R>(&self, f: impl FnOnce(&mut MemoryCore) -> R) -> R {
        self.at_rest(|| f(&mut self.exclusive()))
    }

    /// Ends the process if a thread that has pages in transit is not there any more.
    #[cold]
    pub(super) fn fail_if_lost(&self) {
        if let Some(thread) = self.stages.lost(self.pid.load(Ordering::Relaxed)) {
            self.core.lock().fail(format_args!(
                "thread {thread} has ended while it brought pages in or out"
            ));
        }
    }

    /// Takes the core lock at a moment at which something may begin.
    pub(super) fn at_gate(&self) -> MutexGuard<'_, MemoryCore> {
        loop {
            let core = self.core.lock();
            if core.transit.transits.may_begin() {
                return core;
            }
            let heard = self.bells.gate.listen();
            drop(core);
            self.bells.gate.wait(heard);
        }
    }

    /// Ends what the thread began with stage `stage`, whose pages it has said what they are.
    pub(super) fn end_transit(&self, mut core: MutexGuard<'_, MemoryCore>, stage: usize) {
        self.stages.note_thread(stage, None);
        let quiet = core.transit.transits.end() == Ring::Quiet && self.bells.quiet.ring();
        let bell = self.stages.bell(stage);
        let touched = bell.ring();
        drop(core);
        if quiet {
            self.bells.quiet.wake();
        }
        if touched {
            bell.wake();
        }
    }
}
