//! How short memory is: when to reclaim, how long a fault waits, and how many frames are borrowed from
//! the system.

use crate::budget::Memory;
use crate::segment::GroupEvent;
use crate::segment::run_group::RUN;
use core::sync::atomic::Ordering;
use zfolio_sys::lock::pause;
use zfolio_sys::thread::{Clock, now_ns};

/// Longest and shortest sleep between looks at usage, ns; and the longest where `high` is what was found to do
/// and nothing changes.
const LONGEST_NS: u64 = 20_000_000;
const LONGEST_CALM_NS: u64 = 50_000_000;
const SHORTEST_NS: u64 = 500_000;

/// How fast a program is taken to be able to grow: pages a millisecond, 2 GB/s.
const PAGES_PER_MS: usize = 500;

/// Waits for frames (a folio stored, or a millisecond) before a fault takes
/// memory beyond `high`: what is left does not compress.
const WAITS_BEFORE_OVERDRAFT: u32 = 100;

/// How long others wait less after one fault lost its patience, ns.
const HOPELESS_NS: u64 = 1_000_000_000;

/// Frames owed to the system at most.
const BORROWED: usize = 128;

/// How reclaim ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relief {
    /// Usage and free frames are where they should be.
    Enough,
    /// A fork, an event in flight, a store refused.
    Later,
    /// The hand went round and found nothing that may move.
    Exhausted,
}

/// How long to sleep when `headroom` pages are left to the next watermark; `calm`: nothing changes.
#[must_use]
pub(crate) fn nap_ns(headroom: usize, calm: bool) -> u64 {
    let longest = if calm { LONGEST_CALM_NS } else { LONGEST_NS };
    (headroom as u64 * 1_000_000 / PAGES_PER_MS as u64).clamp(SHORTEST_NS, longest)
}

impl Memory {
    /// Pages by which each process may be above its part of `high`, where that follows the program, before the run has
    /// what it may have at most: for a moment that does no harm.
    pub(crate) fn room_to_grow(&self) -> usize {
        if !self.options.follows {
            return 0;
        }
        let processes = self.segment().sharing.members_used.load(Ordering::Relaxed);
        self.options.high.saturating_sub(self.high()) / (processes as usize).max(1)
    }

    /// How long a fault waits because its group has more out than its `swap.high`, ns.
    pub(crate) fn swap_penalty_ns(&self) -> u64 {
        self.swap_penalty_ns.load(Ordering::Relaxed)
    }

    /// Waits for so long, before a fault is served. No lock is held.
    pub(crate) fn wait_at_swap_high(&self) {
        let wait = self.swap_penalty_ns();
        if wait > 0 {
            self.count_group_event(GroupEvent::SwapHigh);
            pause(wait);
        }
    }

    pub(crate) fn is_pressed(&self, usage: usize) -> bool {
        if self.is_inspected() {
            return false;
        }
        if usage > self.watermarks().start + self.overdraft() {
            return true;
        }
        if self.has_room_for_frames(usage) {
            return false;
        }
        // (Regions take frames from the system as long as there is memory.)
        let short =
            !self.scope.counts_frames() || usage > self.watermarks().stop + self.overdraft();
        short && self.arena().free_frames() < self.watermarks().free_low
    }

    /// Whether frames to keep at hand can be had of the system: where `high` follows the
    /// program, has been raised (`zfolio set`), or is shared with others, what is left of it may be above what the program needs, and
    /// pages that are moved out for a frame come back.
    pub(crate) fn has_room_for_frames(&self, usage: usize) -> bool {
        let wanted = 2 * self.watermarks().free_target;
        self.has_changing_high() && usage + wanted < self.watermarks().stop + self.overdraft()
    }

    /// Whether `high` of the run follows the program, was set anew, or is shared.
    fn has_changing_high(&self) -> bool {
        let run = &self.segment().groups[RUN as usize];
        self.options.follows
            || self.is_inspected()
            || self.allowance.changes.load(Ordering::Relaxed)
            || run.high.load(Ordering::Relaxed) != 0
    }

    /// Rings for the control thread if regions with `usage` have work for it.
    pub(crate) fn wake_control_at(&self, usage: usize) {
        if self.wakeups.control_sleeps() && self.is_pressed(usage) {
            self.wakeups.wake_control();
        }
    }

    /// Lets usage grow while faults wait and there is nothing to move out: what
    /// is left is the pool, and pages that may not move. Taken back, slowly,
    /// once reclaim finds enough again.
    pub(crate) fn adjust_overdraft(&self, relief: Relief) {
        let overdraft = self.overdraft.load(Ordering::Relaxed);
        let overdraft = match relief {
            Relief::Exhausted if self.wakeups.are_frames_awaited() => {
                self.wakeups.frames_freed();
                self.overdraft_within_max(overdraft + self.watermarks().free_low)
            }
            Relief::Enough => overdraft - overdraft.div_ceil(64),
            Relief::Exhausted | Relief::Later => overdraft,
        };
        self.overdraft.store(overdraft, Ordering::Relaxed);
    }

    /// Above the limit memory goes back to the system before faults get any:
    /// frames that they take keep usage where it is.
    pub(crate) fn frames_to_keep(&self, usage: usize) -> usize {
        if usage > self.watermarks().limit + self.overdraft() {
            self.watermarks().free_reserve
        } else {
            self.watermarks().free_target
        }
    }

    /// Whether a fault that waited `waits` times gets a frame beyond `high`.
    /// Once one has, what is left does not compress: others wait less.
    pub(crate) fn has_waited_enough(&self, waits: u32) -> bool {
        let now = now_ns(Clock::Monotonic);
        let last = self.urgent_ns.load(Ordering::Relaxed);
        let enough = if now.saturating_sub(last) < HOPELESS_NS {
            3
        } else {
            WAITS_BEFORE_OVERDRAFT
        };
        if waits >= enough {
            self.urgent_ns.store(now, Ordering::Relaxed);
        }
        waits >= enough
    }

    /// Whether copies of so many pages may take frames of the system's. What a region
    /// takes is counted, not asked for: there must be room below `limit`, whatever is
    /// free.
    pub(crate) fn may_take_of_the_system(&self, pages: usize) -> bool {
        if !self.scope.counts_frames() {
            return true;
        }
        let usage = self.usage() + pages;
        self.wake_control_at(usage);
        usage < self.watermarks().limit
    }

    /// Returns borrowed frames after a fault, within its operation. Never on a thread of the
    /// program's. While the control thread is awake it waits for twice as many, since that
    /// does the work itself.
    pub(crate) fn return_borrowed_after_fault(&self) {
        let patience = if self.wakeups.control_sleeps() { 1 } else { 2 };
        if !self.scope.serves_in_thread() {
            self.return_borrowed_from(patience * self.least_returned());
        }
    }

    /// Gives the system the frames that it is owed, once they are enough for a
    /// call; below `stop` they are forgiven, or usage would only ever sink. Frames
    /// must not change while a fork copies them: within an operation, or by the control
    /// thread, which freezes the manager for a fork itself.
    pub(crate) fn return_borrowed(&self) {
        self.return_borrowed_from(self.least_returned());
    }

    /// Owed frames that are enough for a call.
    pub(crate) fn least_returned(&self) -> usize {
        BORROWED.min(self.watermarks().free_low / 2)
    }

    pub(crate) fn return_borrowed_from(&self, least: usize) {
        if self.borrowed.load(Ordering::Relaxed) < least {
            return;
        }
        let borrowed = self.borrowed.swap(0, Ordering::Relaxed);
        if self.usage() < self.watermarks().stop {
            return;
        }
        let released = self.arena().release(borrowed);
        if released < borrowed {
            self.borrowed
                .fetch_add(borrowed - released, Ordering::Relaxed);
        }
    }

    /// Frames owed to the system.
    pub(crate) fn borrowed(&self) -> usize {
        self.borrowed.load(Ordering::Relaxed)
    }

    /// Copies took so many frames of the system's.
    pub(crate) fn borrow_frames(&self, pages: usize) {
        self.borrowed.fetch_add(pages, Ordering::Relaxed);
    }
}
