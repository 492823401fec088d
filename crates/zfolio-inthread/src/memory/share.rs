//! The process's part of a `high` that all processes of the run have together, while nothing of it is out.
//!
//! No thread of ours is there to say what it has, so its own threads do: in calls that change the
//! address space, each time what may be resident has changed by a [`STEP`]th of `high`, and in ticks. What
//! is mapped counts as needed, since no call comes when it is touched; what is resident as had, be it managed or
//! not. Where that is more than the process may have beside the others, management begins.
//!
//! After a fork parent and child have the same pages, which both would count. So each says its
//! proportional part of what it shares, as the kernel tells it.

use super::core::MemoryCore;
use crate::memory::layer::MemoryState;
use zfolio_runtime::fair_share::{Having, grown, high_now};
use zfolio_sys::identity;

/// What has changed by this part of `high` is said.
const STEP: usize = 64;

impl MemoryCore {
    /// The process has forked, or is the child.
    pub(crate) fn share_with_child(&mut self, is_child: bool) {
        self.closing.said.forks.note(is_child);
    }

    /// Says what a process has that has nothing out, where that has changed, with `pages` that it is to
    /// have; and takes its share.
    pub(super) fn say_if_changed(&mut self, state: &MemoryState, pages: usize) {
        if self.pool.is_some() || self.closes_nothing() || state.has_left() {
            return;
        }
        let usage = self.usage(state) + pages;
        if usage.abs_diff(self.closing.said.usage) >= state.options.high / STEP {
            self.say_unmanaged(state, pages);
        }
    }

    /// The same, in any case.
    pub(super) fn say_unmanaged(&mut self, state: &MemoryState, pages: usize) {
        // (The child of posix_spawn has its parent's memory.)
        if !state.is_own_process() {
            return;
        }
        let (segment, begun) = (state.segment, state.options.high);
        let most = state.membership.most_of(segment, high_now(segment, begun));
        let resident = self.way.resident();
        // (What is mapped counts, so what is not managed is more than this as long as some of it is untouched.)
        self.closing.apart = resident.unwrap_or(0).saturating_sub(self.open_pages(state));
        let usage = self.usage(state) + pages;
        self.closing.said.usage = usage;
        self.high = most;
        let Some(resident) = resident else {
            return;
        };
        let of_others = self.closing.said.forks.look();
        let own = |pages: usize| pages.saturating_sub(of_others);
        let has = Having {
            owner: identity::of_process(),
            resident: own(resident),
            needs: grown(own(usage.max(resident))),
            ..Having::default()
        };
        let allowed = state.membership.update(segment, has, begun);
        state.membership.stay(segment);
        // (Usage has what is others' part as well.)
        self.high = most.min(allowed.high + of_others);
    }

    /// Begins to manage a process that has more than its share.
    pub(super) fn keep_to_share(&mut self, state: &MemoryState) {
        if self.pool.is_some() || self.closes_nothing() || state.has_left() {
            return;
        }
        self.say_if_changed(state, 0);
        if self.usage(state) > self.limit() && self.begin_managing(state).is_ok() {
            self.close_all_that_is_empty(state);
        }
    }
}
