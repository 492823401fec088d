//! System calls close pages where `high` has sunk.
//!
//! Room is made by the thread that needs memory, or ahead of it while memory runs short. A lower `high`
//! (`--slowdown`, `zfolio set`, a limit of memory that shrank) would take effect at the next fault only,
//! and a program whose memory is all there makes none. So each call compares the `high` of the process's
//! groups with what was kept last: a load for each group, and a comparison. Where they differ, a call
//! that waits for something, or else one in [`PASSED`], closes up to [`STEP`] pages before it is made.
//! That goes on until usage is within what the process may have, or nothing more can be closed. A fault
//! that needs room meanwhile closes as many, and as many again as it brings.
//!
//! The same goes for the other limits that `zfolio set` changes, and for a compaction that was asked for
//! (`zfolio compact`): how often either has happened is part of what is compared.
//!
//! A thread that makes neither calls nor faults is stopped now and then, every 50 ms that it runs, and
//! does the same (`life::ticks`), every 4 ms as long as there is more to be closed. So a process keeps
//! what it has only while all of its threads sleep, each in one call.
//!
//! The time that the program's threads spend on our work is counted here too, where `zfolio run`
//! has to know what it costs (`--slowdown`).

use super::core::MemoryCore;
use super::following::{SIGNAL_NS, Work};
use super::second_tier::At;
use super::way;
use crate::memory::layer::MemoryState;
use crate::raw::{PAGE, nr};
use core::sync::atomic::Ordering;
use zfolio_runtime::segment::Counter;
use zfolio_sys::thread::{Clock, now_ns};

/// Pages closed by one call at most, but for those that hold nothing: some 300 us.
const STEP: usize = 64;
/// Between two looks by ticks at what the process has and may have, ns: as a rule, and while nothing is
/// out yet, when no fault does it.
const LOOKS_NS: u64 = 500_000_000;
const LOOKS_UNMANAGED_NS: u64 = 100_000_000;
/// So many calls that do not wait pass, then one closes pages as well.
const PASSED: u32 = 32;

/// Whether a call sleeps, as a rule, until something comes.
const fn waits(number: usize) -> bool {
    matches!(
        number,
        nr::POLL
            | nr::SELECT
            | nr::PPOLL
            | nr::PSELECT6
            | nr::EPOLL_WAIT
            | nr::EPOLL_PWAIT
            | nr::EPOLL_PWAIT2
            | nr::NANOSLEEP
            | nr::CLOCK_NANOSLEEP
            | nr::ACCEPT
            | nr::ACCEPT4
            | nr::WAIT4
            | nr::WAITID
            | nr::PAUSE
            | nr::RT_SIGTIMEDWAIT
            | nr::RT_SIGSUSPEND
    )
}

impl MemoryState {
    /// Begins what is counted under `--slowdown`.
    pub(crate) fn begin_work(&self) -> Option<Work> {
        if !self.options.follows || self.following.slot.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // (Who shares a processor with others waits for that, and not for us; who is one of
        // several threads may wait for another's work.)
        let clock = if self.is_several() {
            Clock::Monotonic
        } else {
            Clock::ThreadCpu
        };
        Some(Work(clock, now_ns(clock)))
    }

    /// Ends it; `more`: what it took beside that, ns.
    pub(crate) fn end_work(&self, work: Option<Work>, more: u64) {
        self.add_work(Counter::InlineNs, work, more);
    }

    /// Ends a part of such work, which moved pages out.
    pub(super) fn end_reclaim(&self, work: Option<Work>) {
        self.add_work(Counter::ReclaimNs, work, 0);
    }

    fn add_work(&self, counter: Counter, work: Option<Work>, more: u64) {
        let slot = self.following.slot.load(Ordering::Acquire);
        // SAFETY: null, or a slot of the segment, which is never unmapped.
        if let (Some(Work(clock, begun)), Some(slot)) = (work, unsafe { slot.as_ref() }) {
            let took = now_ns(clock).saturating_sub(begun);
            slot.add(counter, took + more);
        }
    }

    /// Follows what is asked for, before call `number` is made, where that has changed; and recompresses
    /// some, where there is a second tier. No lock of ours is held.
    #[inline]
    pub(crate) fn follow_asked(&self, number: usize) {
        if self.is_behind() {
            self.follow(number);
        }
        if self.following.tier.load(Ordering::Relaxed) && waits(number) {
            self.at_rest(|| self.tend_tier(At::Wait));
        }
    }

    /// Whether what is asked for is not what was followed last.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        self.membership.asked(self.segment) != self.following.kept.load(Ordering::Relaxed)
    }

    #[cold]
    fn follow(&self, number: usize) {
        let passes = || {
            let before = self.following.passed.fetch_add(1, Ordering::Relaxed);
            !before.is_multiple_of(PASSED)
        };
        if !waits(number) && passes() {
            return;
        }
        // (The child of posix_spawn shares the memory, and has nothing to say of it.)
        if !self.is_own_process() {
            return;
        }
        // (All signals are blocked: no handler leaves by a jump, or ends the thread, in between.)
        self.at_rest(|| {
            self.follow_a_step(0);
            self.count_what_stays();
        });
    }

    /// Closes pages, and compacts, once, unless another thread does; whether it has. All signals are
    /// blocked. `more`: what it takes beside that, ns.
    fn follow_a_step(&self, more: u64) -> bool {
        let following = &self.following;
        if following.busy.swap(true, Ordering::Acquire) {
            return false;
        }
        // (Read before: what is asked for meanwhile is followed the next time.)
        let asked = self.membership.asked(self.segment);
        let work = self.begin_work();
        let shrunk = self.exclusive().shrink(self);
        let compacted = self.compact_on_request();
        if shrunk && compacted {
            following.kept.store(asked, Ordering::Relaxed);
        }
        self.end_work(work, more);
        following.busy.store(false, Ordering::Release);
        true
    }

    /// A thread of the program has run for a while (`life::ticks`): looks at what the process may have,
    /// every [`LOOKS_NS`], and closes pages where it has more; what cannot leave is counted. Whether
    /// it has more still. In a handler of ours: all signals are blocked, on the service stack.
    pub(crate) fn tick(&self) -> bool {
        if !self.is_own_process() {
            return false;
        }
        let following = &self.following;
        let (now, last) = (
            now_ns(Clock::Monotonic),
            following.looked_ns.load(Ordering::Relaxed),
        );
        let between = match following.slot.load(Ordering::Relaxed).is_null() {
            true => LOOKS_UNMANAGED_NS,
            false => LOOKS_NS,
        };
        let looks = now.saturating_sub(last) >= between
            && following
                .looked_ns
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if looks {
            self.exclusive().look_again(self);
        }
        self.tend_tier(At::Tick);
        if looks {
            self.compact_in_tick();
        }
        self.count_what_stays();
        if !self.is_behind() {
            return false;
        }
        if self.follow_a_step(SIGNAL_NS) {
            self.count(Counter::HighTicks, 1);
        }
        self.is_behind()
    }

    /// A thread of the program has made so many calls. They are counted from the moment on that the process has
    /// memory out, those before it as well.
    pub(crate) fn count_calls(&self, calls: u32) {
        if calls == 0 || !self.is_own_process() {
            return;
        }
        let following = &self.following;
        following.calls.fetch_add(calls.into(), Ordering::Relaxed);
        if !following.slot.load(Ordering::Relaxed).is_null() {
            let all = following.calls.swap(0, Ordering::Relaxed);
            self.count(Counter::CallsSeen, all);
        }
    }

    /// Counts something, where anything is counted.
    fn count(&self, counter: Counter, more: u64) {
        let slot = self.following.slot.load(Ordering::Acquire);
        // SAFETY: null, or a slot of the segment, which is never unmapped.
        if let Some(slot) = unsafe { slot.as_ref() } {
            slot.add(counter, more);
        }
    }
}

impl MemoryState {
    /// Has calls close pages, whether `high` has changed or not: the process has more than it may.
    pub(crate) fn fall_behind(&self) {
        // (What no `high` is.)
        self.following.kept.store(u64::MAX, Ordering::Relaxed);
    }
}

impl MemoryCore {
    /// Looks at what the process has, and may have beside others; calls and ticks close pages where
    /// that has become less.
    fn look_again(&mut self, state: &MemoryState) {
        if self.closes_nothing() || state.has_left() {
            return;
        }
        if self.pool.is_some() {
            self.look(state, true);
        } else {
            self.say_unmanaged(state, 0);
        }
        if self.usage(state) > self.limit() {
            state.fall_behind();
        }
    }

    /// Takes what the process may have now, and closes, or writes back, some of what it has beyond that.
    /// Whether it has no more now, or nothing goes.
    pub(crate) fn shrink(&mut self, state: &MemoryState) -> bool {
        if self.closes_nothing() || state.has_left() {
            return true;
        }
        if self.pool.is_none() {
            self.say_unmanaged(state, 0);
            if self.usage(state) <= self.limit() || self.begin_managing(state).is_err() {
                return true;
            }
            self.close_all_that_is_empty(state);
        }
        self.closing.bounds.begin();
        self.look(state, true);
        let goes_on = self.shrink_pool_to_limit(state);
        let (limit, usage) = (self.limit(), self.usage(state));
        if usage <= limit {
            return !goes_on;
        }
        let goal = self.next_step(state, limit, 0);
        self.close_down_to(state, goal, 0);
        // (Of what stays the limit is raised, but not beyond `max`. What has gained nothing has gone over all.)
        let now = self.usage(state);
        !goes_on && (now <= self.limit() || now >= usage)
    }

    /// The usage to close down to now, on the way to `goal`, where `pages` are to come, which a fault
    /// waits for or nobody. The hand is elsewhere then.
    pub(super) fn next_step(&mut self, state: &MemoryState, goal: usize, pages: usize) -> usize {
        self.closing.hand = self.elsewhere();
        goal.max(self.usage(state).saturating_sub(pages + STEP))
    }

    /// Where the next step begins: steps are spread evenly over the managed memory, by the golden
    /// ratio. A hand that went on from where it is would, in a part that is in use, take only what
    /// comes back, step after step.
    fn elsewhere(&mut self) -> usize {
        const GOLDEN: u32 = 0x9e37_79b9;
        self.closing.followed = self.closing.followed.wrapping_add(1);
        let part = u64::from(self.closing.followed.wrapping_mul(GOLDEN));
        let page = (part * self.ranges.managed_pages() as u64) >> 32;
        let page = usize::try_from(page).unwrap_or(0);
        // (Groups of pages that close together are not begun in their middle.)
        let address = self.ranges.managed_page(page).unwrap_or(0);
        address / (STEP * PAGE) * (STEP * PAGE)
    }

    /// Closes what of the managed memory holds nothing: it would count as usage, and be taken for
    /// memory that was saved.
    pub(super) fn close_all_that_is_empty(&mut self, state: &MemoryState) {
        state
            .batches
            .begin(|| state.threads.pinned(), &mut self.seen);
        let mut at = 0;
        while let Some(range) = self.ranges.managed_from(at) {
            at = range.end;
            // (Where faults are reported what is absent is closed by that.)
            if self.is_watched(state, &range) && self.way.kind != way::Kind::InThread {
                self.close_empty(state, &range);
            }
        }
        state.batches.end();
    }
}
