//! Operations: what changes frames or the pool outside the core lock.
//!
//! None begins while a fork freezes the manager or an event is parked; the last one to end
//! lets parked events be applied.

use crate::address_space::Space;
use crate::address_space::core::Core;
use crate::fork_handshake::{ForkWords, request};
use core::sync::atomic::Ordering;

impl Space {
    /// Starts an operation that changes frames or the pool outside the core
    /// lock. Refused (false) while a fork or a remap waits for quiet.
    pub(crate) fn begin(&self, core: &Core) -> bool {
        let open = core.is_open();
        if open {
            self.inflight.fetch_add(1, Ordering::Acquire);
        }
        open
    }

    /// Ends an operation; the last one lets parked events be applied.
    pub(crate) fn end(&self) {
        if self.inflight.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut core = self.core.lock();
            self.apply_parked(&mut core);
        }
    }

    /// Does something that is an operation, unless a fork or a remap wants quiet.
    pub(crate) fn while_open<R>(&self, operation: impl FnOnce() -> R) -> Option<R> {
        {
            let mut core = self.core.lock();
            if !self.may_start(&mut core) {
                return None;
            }
            self.begin(&core);
        }
        let result = operation();
        self.end();
        Some(result)
    }

    /// Runs what changes the pool; false if nothing may begin now.
    pub(crate) fn as_operation(&self, run: impl FnOnce()) -> bool {
        {
            let mut core = self.core.lock();
            if !self.may_start(&mut core) {
                return false;
            }
            self.begin(&core);
        }
        run();
        self.end();
        true
    }

    /// A fork asks for quiet.
    pub(crate) fn should_yield(&self) -> bool {
        let mut core = self.core.lock();
        core.freeze.is_raw_fork() || !self.may_start(&mut core) || self.fork_asked()
    }

    /// A program thread waits to fork.
    pub(crate) fn fork_asked(&self) -> bool {
        self.fork_words().request().load(Ordering::Acquire) == request::PREPARE
    }

    /// What is shared with the parent and the next child during a fork.
    pub(crate) fn fork_words(&self) -> ForkWords {
        ForkWords::new(self.words.get())
    }

    /// Operations under way.
    pub(crate) fn operations(&self) -> usize {
        self.inflight.load(Ordering::Relaxed) as usize
    }

    /// Whether an operation is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.inflight.load(Ordering::Acquire) > 0
    }
}
