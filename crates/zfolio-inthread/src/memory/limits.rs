//! What may be out, in the pool, and resident at most: `swap.max`, `zswap.max`, `max`.
//!
//! The first two are the pool's to refuse ([`zfolio_zswap::GroupLimits`]); what may not go out
//! stays with the program, and reclaim stores nothing more in that batch. `max` is looked at
//! where reclaim gets nowhere: up to it the process may have what it wants, there the process
//! ends, or whoever wants memory waits.
//!
//! All limits are the run's, or a group's, and may change at any time (`zfolio set`). What of them this
//! process may have is worked out anew with each look at what it has resident, in the batch after a refusal,
//! and before anything is done because of `max`; a change is followed as that of `high` is
//! ([`follow`](super::follow)). As long as there is one threads make room with nothing beside.

use super::core::MemoryCore;
use super::reclaim::ROOM;
use crate::memory::layer::MemoryState;
use crate::raw::SHIFT;
use core::sync::atomic::Ordering;
use zfolio_runtime::fair_share::Allowed;
use zfolio_runtime::hard_limit::Beyond;
use zfolio_runtime::segment::{Counter, GroupEvent};
use zfolio_sys::lock::pause;
use zfolio_zswap::StoreError;

/// Between two looks whether there is room below `max`, ns.
const NAP_NS: u64 = 2_000_000;
/// Entries of the pool that one step looks at where it is to shrink, at most.
const TURN: usize = 256;

impl MemoryCore {
    /// Takes what this process may have from here on.
    pub(super) fn take_allowed(&mut self, state: &MemoryState, allowed: &Allowed) {
        self.closing.bounds.max.follow(state.segment.config());
        self.closing
            .bounds
            .max
            .set_part(allowed.max, allowed.max_alone);
        // (One that has sunk leaves less of what the limit was raised by.)
        let least = self.limit() - self.closing.overdraft;
        let overdraft = self.closing.overdraft;
        self.closing.overdraft = self.closing.bounds.max.overdraft_within(least, overdraft);
        let usage = self.usage(state);
        if self
            .closing
            .bounds
            .max
            .pages()
            .is_some_and(|max| usage <= max)
        {
            self.closing.bounds.max.note_within();
        }
        state.follow_limits();
        if let Some(pool) = &self.pool
            && pool.zswap.group_limits() != allowed.limits
        {
            pool.zswap.set_group_limits(allowed.limits);
        }
        self.tend_backing(state, allowed.backing);
    }

    /// A batch has ended that was to make room for `pages`: the limit is raised where it got
    /// nowhere (`helpless`), and lowered again, bit by bit, where it did.
    pub(super) fn settle_room(&mut self, state: &MemoryState, pages: usize, helpless: bool) {
        self.closing.bounds.waits = false;
        if !helpless || self.shrink_pool(state) || self.awaits_writes(state) {
            self.closing.overdraft -= self.closing.overdraft.div_ceil(64);
            return;
        }
        // (Nobody waits or ends at a `max` that was.)
        if state.is_behind() {
            self.look(state, true);
        }
        let least = self.limit() - self.closing.overdraft;
        // (Of a large range that is held the rest will get nowhere either.)
        let held = (self.closing.held.len() >> SHIFT) / 8;
        let raised = self.closing.overdraft + ROOM.max(pages).max(held);
        self.closing.overdraft = self.closing.bounds.max.overdraft_within(least, raised);
        let usage = self.usage(state) + pages;
        if self
            .closing
            .bounds
            .max
            .pages()
            .is_none_or(|max| usage <= max)
        {
            return;
        }
        // (What is mapped and was never touched counts as usage until it is closed.)
        let resident = self.way.resident();
        let usage = resident.map_or(usage, |resident| usage.min(resident + pages));
        let ended = &state.segment.max_ended_ns;
        let beyond = self.closing.bounds.max.beyond(ended, usage);
        if beyond != Beyond::Within
            && let Some(pool) = &self.pool
        {
            pool.stats.add(Counter::MaxEvents, 1);
            state.membership.count_event(state.segment, GroupEvent::Max);
        }
        match beyond {
            Beyond::Within | Beyond::Allowed => {}
            Beyond::Waits => self.closing.bounds.waits = true,
            Beyond::Ends => {
                state.membership.leave(state.segment);
                self.fail(format_args!("{}", self.closing.bounds.max.reached()));
            }
        }
    }

    /// A part of a pool that is larger than it may be, by a `--max-pool` or `high` that has sunk, is written
    /// back; whether there is more to go.
    pub(super) fn shrink_pool_to_limit(&mut self, state: &MemoryState) -> bool {
        let Some(pool) = self.pool.as_mut().filter(|pool| pool.zswap.is_backed()) else {
            return false;
        };
        let remote = &state.remote;
        if remote.is_used() {
            return state.write_ahead(pool.zswap, &mut pool.context) > 0;
        }
        let most = pool.zswap.limits().max_pool_pages.unwrap_or(usize::MAX);
        if pool.zswap.pool_pages() <= most || remote.retry_ns.load(Ordering::Relaxed) != 0 {
            return false;
        }
        state.share_backing(pool.zswap);
        let step = pool.zswap.shrinker_scan(&mut pool.context, TURN);
        if step.errno.is_some() || step.full {
            state.leave_alone_for_a_while(pool.zswap);
        }
        !step.is_stuck()
    }

    /// Whether whoever wants a page has to wait until there is room below `max`. Makes room.
    pub(crate) fn waits_at_max(&mut self, state: &MemoryState) -> bool {
        if self.closes_nothing() || self.closing.bounds.max.pages().is_none() {
            return false;
        }
        self.closing.bounds.waits = false;
        self.make_room(state, 1);
        if self.closing.bounds.waits {
            // (What the others have changes as well.)
            self.look(state, true);
        }
        self.closing.bounds.waits
    }
}

impl MemoryState {
    /// Waits a moment for room below `max`. No lock of ours is held.
    pub(crate) fn nap_at_max(&self) {
        pause(NAP_NS);
    }

    /// Takes over whether anything limits the process but `high`. The core lock is held, or nobody else
    /// there.
    pub(crate) fn follow_limits(&self) {
        // (With a backing or limits who makes room may have to wait for more than a page.)
        let is_backed = self.options.backing.is_some();
        let may = !is_backed && !self.membership.is_limited(self.segment);
        if self.beside.load(Ordering::Relaxed) != may {
            self.beside.store(may, Ordering::Relaxed);
        }
        self.pressure.permit(may);
    }

    /// Whether there is a `max` now, of the run or of a group.
    pub(crate) fn has_max(&self) -> bool {
        self.membership.has_max(self.segment)
    }

    /// Counts that the pool has refused pages, where it was a limit of the process's groups.
    pub(super) fn count_refusal(&self, error: StoreError) {
        let count = |event| self.membership.count_event(self.segment, event);
        match error {
            StoreError::SwapFull => {
                count(GroupEvent::SwapMax);
                count(GroupEvent::SwapFail);
            }
            StoreError::PoolFull => count(GroupEvent::SwapFail),
            _ => {}
        }
    }

    /// Waits until there is room below `max`, where there is one. No lock of ours is held.
    pub(crate) fn wait_at_max(&self) {
        if !self.has_max() {
            return;
        }
        while !self.has_left() && self.locked(|core| core.waits_at_max(self)) {
            self.nap_at_max();
        }
    }
}
