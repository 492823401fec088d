//! `max`: what is not exceeded for long, and what happens there.
//!
//! Below it everything goes on as without: `high` is where reclaim works and
//! faults are slowed. A fault that has waited long enough at `high` gets memory
//! beyond it; at `max` it does not, or the process ends, or it is counted only.
//! (First touches of memory that is not registered yet ask nobody: the control
//! thread looks at usage as well.)

use crate::control::Counter;
use crate::manager::Manager;
use crate::options::OnMax;
use core::sync::atomic::Ordering;
use zfolio_mm::PAGE_SHIFT;

/// Looks in a row at which the control thread finds usage above `max`, nothing
/// having helped, before the process is ended.
const LOOKS: u32 = 100;

impl Manager {
    /// Whether `usage` pages are more than there may be.
    pub(crate) fn exceeds_max(&self, usage: usize) -> bool {
        self.options.on_max != OnMax::Allow && self.options.max.is_some_and(|max| usage > max)
    }

    /// A fault that lost its patience wants `pages` beyond `high`: whether it
    /// gets them. Ends the process if that is what was asked for.
    pub(crate) fn may_go_beyond(&self, pages: usize) -> bool {
        let Some(max) = self.options.max else {
            return true;
        };
        if self.usage() + pages <= max {
            return true;
        }
        self.count(Counter::MaxEvents, 1);
        match self.options.on_max {
            OnMax::Allow => true,
            OnMax::Wait => false,
            OnMax::Kill => self.end_at_max(max),
        }
    }

    /// How far the watermarks may be raised.
    pub(crate) fn room_within_max(&self, room: usize) -> usize {
        match (self.options.max, self.options.on_max) {
            (Some(max), OnMax::Kill | OnMax::Wait) => {
                room.min(max.saturating_sub(self.watermarks().limit))
            }
            _ => room,
        }
    }

    /// The control thread's look at `usage`; `over` counts those above `max`.
    /// `helpless`: nothing more can be moved out or written back.
    pub(crate) fn look_at_max(&self, usage: usize, helpless: bool, over: &mut u32) {
        let Some(max) = self.options.max.filter(|max| usage > *max) else {
            *over = 0;
            return;
        };
        *over += u32::from(helpless);
        if *over >= LOOKS {
            *over = 0;
            self.count(Counter::MaxEvents, 1);
            if self.options.on_max == OnMax::Kill {
                self.end_at_max(max);
            }
        }
    }

    /// Whether a fault may have to wait until the program frees something.
    pub(crate) fn may_wait_for_ever(&self) -> bool {
        self.options.on_max == OnMax::Wait && self.options.max.is_some()
    }

    /// A fault begins, or ends, to wait at `max`.
    pub(crate) fn wait_at_max(&self, begins: bool) {
        if self.may_wait_for_ever() {
            if begins {
                self.max_waiters.fetch_add(1, Ordering::Relaxed);
            } else {
                self.max_waiters.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn end_at_max(&self, max: usize) -> ! {
        self.fail(format_args!(
            "its memory reached --max ({} MiB) and no more of it can be moved out",
            max >> (20 - PAGE_SHIFT)
        ))
    }
}
