//! What is done at `max`: faults that want more, and the control thread's look.

use crate::budget::Memory;
use crate::budget::hard_limit::{Beyond, HardLimit};
use crate::segment::{Counter, GroupEvent};

/// Looks in a row at which the control thread finds usage above `max`, nothing
/// having helped, before the process is ended.
const LOOKS: u32 = 100;

impl Memory {
    /// `max` as it is now.
    pub(super) fn hard(&self) -> &HardLimit {
        if self.scope.has_own_limits() {
            &self.hard
        } else {
            self.hard.follow(self.segment().config())
        }
    }

    fn count_max(&self) {
        self.count(Counter::MaxEvents, 1);
        self.count_group_event(GroupEvent::Max);
    }

    /// Whether `usage` pages are more than there may be.
    pub(crate) fn exceeds_max(&self, usage: usize) -> bool {
        !self.is_inspected() && self.hard().is_exceeded_by(usage)
    }

    /// A fault that lost its patience wants `pages` beyond `high`: whether it
    /// gets them. Ends the process if that is what was asked for.
    pub(crate) fn may_go_beyond(&self, pages: usize) -> bool {
        if self.is_inspected() {
            return true;
        }
        let beyond = self
            .hard()
            .beyond(&self.segment().max_ended_ns, self.usage() + pages);
        if beyond != Beyond::Within {
            self.count_max();
        }
        if beyond == Beyond::Ends {
            self.end_at_max();
        }
        beyond != Beyond::Waits
    }

    /// How far the watermarks may be raised.
    pub(crate) fn overdraft_within_max(&self, overdraft: usize) -> usize {
        let limit = self.watermarks().limit;
        self.hard().overdraft_within(limit, overdraft)
    }

    /// The control thread's look at `usage`; `over` counts those above `max`.
    /// `helpless`: nothing more can be moved out or written back.
    pub(crate) fn look_at_max(&self, usage: usize, helpless: bool, over: &mut u32) {
        let hard = self.hard();
        if self.is_inspected() || hard.pages().is_none_or(|max| usage <= max) {
            *over = 0;
            // (A fault may want more than there is: its own look says so again.)
            if hard.pages().is_some_and(|max| usage < max) && !helpless {
                hard.note_within();
            }
            return;
        }
        *over += u32::from(helpless);
        if *over >= LOOKS {
            *over = 0;
            self.count_max();
            if hard.beyond(&self.segment().max_ended_ns, usage) == Beyond::Ends {
                self.end_at_max();
            }
        }
    }

    /// Whether a fault may have to wait until the program frees something.
    pub(crate) fn may_wait_for_ever(&self) -> bool {
        self.hard().waits()
    }

    /// A fault begins, or ends, to wait at `max`.
    pub(crate) fn wait_at_max(&self, begins: bool) {
        if self.may_wait_for_ever() {
            self.note_max_waiter(begins);
        }
    }

    fn end_at_max(&self) -> ! {
        self.membership.leave(self.segment());
        self.fail(format_args!("{}", self.hard.reached()))
    }
}
