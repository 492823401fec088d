//! `max`: what is not exceeded for long, and what happens there.
//!
//! Below it everything goes on as without: `high` is where reclaim works and
//! faults are slowed. A fault that has waited long enough at `high` gets memory
//! beyond it; at `max` it does not, or the process ends, or it is counted only.
//! (First touches of memory that is not registered yet ask nobody: the control
//! thread looks at usage as well.)
//!
//! It is the run's, as `high` is: a process may have what the others leave of it,
//! and an equal part always (`fair_share.rs`). What another had that has ended counts for
//! two seconds more, so nobody is ended for the others before it has lasted
//! longer; and then only one at a time, since that may be enough.

use crate::budget::Memory;
use crate::options::OnMax;
use crate::segment::{Counter, GroupEvent};
use core::sync::atomic::Ordering;
use zfolio_mm::PAGE_SHIFT;
use zfolio_sys::thread::{Clock, now_ns};

/// Looks in a row at which the control thread finds usage above `max`, nothing
/// having helped, before the process is ended.
const LOOKS: u32 = 100;
/// For so long `max` must be exceeded because of what others have, before that ends
/// the process, ns: longer than one that has ended counts.
const EXCEEDED_NS: u64 = 3_000_000_000;
/// Between two processes that are ended for that, ns.
const APART_NS: u64 = 1_000_000_000;

impl Memory {
    /// What this process may have, pages: all of the run's `max` or its group's, or its part.
    fn max(&self) -> Option<usize> {
        let part = self.max_part.load(Ordering::Relaxed);
        (part < usize::MAX).then_some(part)
    }

    /// The same, whatever others have.
    fn max_alone(&self) -> usize {
        self.max_alone.load(Ordering::Relaxed)
    }

    fn count_max(&self) {
        self.count(Counter::MaxEvents, 1);
        self.count_group_event(GroupEvent::Max);
    }

    /// Whether `usage` pages are more than there may be.
    pub(crate) fn exceeds_max(&self, usage: usize) -> bool {
        self.options.on_max != OnMax::Allow && self.max().is_some_and(|max| usage > max)
    }

    /// Whether a process that would have `usage` pages is to be ended: at once
    /// where that is too much for it alone.
    fn is_to_end(&self, usage: usize) -> bool {
        if usage > self.max_alone() {
            return true;
        }
        let now = now_ns(Clock::Monotonic);
        let since = self.max_since_ns.load(Ordering::Relaxed);
        if since == 0 {
            self.max_since_ns.store(now, Ordering::Relaxed);
        }
        if since == 0 || now.saturating_sub(since) < EXCEEDED_NS {
            return false;
        }
        let ended = &self.segment().max_ended_ns;
        let last = ended.load(Ordering::Relaxed);
        now.saturating_sub(last) >= APART_NS
            && ended
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// A fault that lost its patience wants `pages` beyond `high`: whether it
    /// gets them. Ends the process if that is what was asked for.
    pub(crate) fn may_go_beyond(&self, pages: usize) -> bool {
        let usage = self.usage() + pages;
        if self.max().is_none_or(|max| usage <= max) {
            self.max_since_ns.store(0, Ordering::Relaxed);
            return true;
        }
        self.count_max();
        match self.options.on_max {
            OnMax::Allow => true,
            OnMax::Kill if self.is_to_end(usage) => self.end_at_max(),
            OnMax::Wait | OnMax::Kill => false,
        }
    }

    /// How far the watermarks may be raised.
    pub(crate) fn overdraft_within_max(&self, overdraft: usize) -> usize {
        match (self.max(), self.options.on_max) {
            (Some(max), OnMax::Kill | OnMax::Wait) => {
                overdraft.min(max.saturating_sub(self.watermarks().limit))
            }
            _ => overdraft,
        }
    }

    /// The control thread's look at `usage`; `over` counts those above `max`.
    /// `helpless`: nothing more can be moved out or written back.
    pub(crate) fn look_at_max(&self, usage: usize, helpless: bool, over: &mut u32) {
        if self.max().is_none_or(|max| usage <= max) {
            *over = 0;
            // (A fault may want more than there is: its own look says so again.)
            if self.max().is_some_and(|max| usage < max) && !helpless {
                self.max_since_ns.store(0, Ordering::Relaxed);
            }
            return;
        }
        *over += u32::from(helpless);
        if *over >= LOOKS {
            *over = 0;
            self.count_max();
            if self.options.on_max == OnMax::Kill && self.is_to_end(usage) {
                self.end_at_max();
            }
        }
    }

    /// Whether a fault may have to wait until the program frees something.
    pub(crate) fn may_wait_for_ever(&self) -> bool {
        self.options.on_max == OnMax::Wait && self.max().is_some()
    }

    /// A fault begins, or ends, to wait at `max`.
    pub(crate) fn wait_at_max(&self, begins: bool) {
        if self.may_wait_for_ever() {
            self.note_max_waiter(begins);
        }
    }

    fn end_at_max(&self) -> ! {
        self.membership.leave(self.segment());
        let mib = |pages: usize| pages >> (20 - PAGE_SHIFT);
        self.fail(format_args!(
            "its memory reached --max ({} MiB, of which it may have {}) and no more of it can \
             be moved out",
            mib(self.max_alone()),
            mib(self.max().unwrap_or(0)),
        ))
    }
}
