//! The process's part of a `high` that all processes of the run have together, while nothing of it is out.
//!
//! No thread of ours is there to say what it has, so its own threads do: in calls that change the
//! address space, each time what may be resident has changed by a [`STEP`]th of `high`, and in ticks. What
//! is mapped counts as needed, since no call comes when it is touched; what is resident as had. Where
//! that is more than the process may have beside the others, management begins.
//!
//! After a fork parent and child have the same pages, which both would count. So each says its
//! proportional part of what it shares, as the kernel tells it.

use super::core::MemoryCore;
use crate::memory::layer::MemoryState;
use crate::raw::PAGE;
use zfolio_runtime::fair_share::{Having, grown, high_now};
use zfolio_sys::identity;
use zfolio_sys::rollup::Anonymous;
use zfolio_sys::syscall::Linux;
use zfolio_sys::thread::{Clock, now_ns};

/// What has changed by this part of `high` is said.
const STEP: usize = 64;
/// The kernel is asked for the proportional part again after so many times what the last answer took.
const RARELY: u64 = 100;
/// Fewer shared pages than these are all libraries': no child has more.
const FEW: usize = 64;

/// What a process has said while nothing was out.
#[derive(Default)]
pub(super) struct Said {
    /// Usage then, pages.
    usage: usize,
    forks: Forks,
}

/// What is shared since a fork.
#[derive(Default)]
struct Forks {
    /// Something may be.
    any: bool,
    /// Resident pages that are other processes' part of it.
    of_others: usize,
    /// When that is looked at next, ns.
    next_ns: u64,
}

impl Forks {
    fn look(&mut self) -> usize {
        let begun = now_ns(Clock::Monotonic);
        if !self.any || begun < self.next_ns {
            return self.of_others;
        }
        // (Where the kernel does not tell, all counts in each.)
        let found = Anonymous::look::<Linux>().unwrap_or_default();
        self.of_others = found.of_others() * 1024 / PAGE;
        self.any = self.of_others >= FEW;
        let ended = now_ns(Clock::Monotonic);
        self.next_ns = ended + (ended - begun) * RARELY;
        self.of_others
    }
}

impl MemoryCore {
    /// The process has forked, or is the child.
    pub(crate) fn share_with_child(&mut self, is_child: bool) {
        let forks = &mut self.closing.said.forks;
        forks.any = true;
        if is_child {
            forks.next_ns = 0;
        }
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
        let (segment, begun) = (state.segment, state.options.high);
        let most = state.membership.most_of(segment, high_now(segment, begun));
        let usage = self.usage(state) + pages;
        self.closing.said.usage = usage;
        self.high = most;
        // (The child of posix_spawn has its parent's memory.)
        if !state.is_own_process() {
            return;
        }
        let Some(resident) = self.way.resident() else {
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
