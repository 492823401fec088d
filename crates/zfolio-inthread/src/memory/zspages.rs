//! Zspage compaction: the pool gives back the frames of zspages whose objects others have room for.
//!
//! How it goes is `zfolio_runtime::zspage_compaction`'s matter; here is who has the time for it. Who makes
//! room does it first, while a run is due or under way: a page had that way costs some copies, one that is closed is
//! compressed. The thread that reclaims beside the program does so for longer, and so does, where memory is not short, a thread
//! that is stopped as it runs (`life::ticks`). A run that somebody asks for (`zfolio compact`) is begun and gone on
//! with by any of them, and by calls and ticks as a `high` that sinks is followed ([`follow`](super::follow)).
//!
//! Steps are made under the core lock, so that a fork finds the pool whole. What is in transit is pinned, and stays
//! where it is.

use super::core::MemoryCore;
use crate::memory::layer::MemoryState;
use core::sync::atomic::Ordering;
use zfolio_sys::thread::{Clock, now_ns};

/// For each making of room, ns.
const ROOM_NS: u64 = 50_000;
/// For a turn that nobody waits for, ns.
const TURN_NS: u64 = 1_000_000;
/// Of either, with the lock held where others fault beside, ns.
const HELD_NS: u64 = 20_000;

impl MemoryCore {
    /// Compacts for some `time`, ns, if a run is due, asked for or under way; whether it is to go on. `pressed`:
    /// memory is short.
    fn compact_for(&mut self, state: &MemoryState, time: u64, pressed: bool) -> bool {
        if self.leaving {
            return false;
        }
        self.follow_requests(state);
        let Some(pool) = self.pool.as_mut() else {
            return false;
        };
        if pool.zspages.is_due(pool.zswap, pressed) {
            pool.zspages.compact(pool.zswap, time, || false);
        }
        let goes_on = pool.zspages.is_under_way();
        self.follow_requests(state);
        goes_on
    }

    /// Begins what was asked for, and says in the process's slot what has been done of it.
    fn follow_requests(&mut self, state: &MemoryState) {
        let Some(pool) = self.pool.as_mut() else {
            return;
        };
        let asked = requests(state);
        let was = pool.requests.done();
        if pool.requests.follow(asked, pool.zspages.is_requested()) {
            pool.zspages.request();
        }
        let done = pool.requests.done();
        if done != was {
            // (What came of it is looked for once this is there.)
            let stats = pool.stats;
            self.publish(state);
            stats.compacted.store(done, Ordering::Release);
        }
    }

    /// Whether a run that was asked for is to begin or to go on.
    fn is_asked_to_compact(&self, state: &MemoryState) -> bool {
        let pool = self.pool.as_ref().filter(|_| !self.leaving);
        pool.is_some_and(|pool| pool.requests.done() != requests(state))
    }

    /// The same, of who is about to make room, with nobody beside.
    pub(super) fn compact_for_room(&mut self, state: &MemoryState) {
        self.compact_for(state, ROOM_NS, true);
    }
}

/// How often somebody has asked for a run.
pub(super) fn requests(state: &MemoryState) -> u32 {
    let folios = &state.segment.config().folios;
    folios.compactions.load(Ordering::Relaxed)
}

impl MemoryState {
    /// The same, beside others, who have the lock in between: of who wants room, or, `ahead`, of the thread
    /// that reclaims for others, until it is called off. All signals are blocked.
    pub(super) fn compact_beside(&self, ahead: bool, is_called_off: impl Fn() -> bool) {
        let time = if ahead { TURN_NS } else { ROOM_NS };
        self.compact_in_steps(time, true, is_called_off);
    }

    /// The same, of a thread that was stopped as it ran, where memory need not be short.
    pub(super) fn compact_in_tick(&self) {
        self.compact_in_steps(TURN_NS, false, || false);
    }

    /// Does a part of what was asked for; whether there is no more of it. All signals are blocked.
    pub(super) fn compact_on_request(&self) -> bool {
        let is_asked = || self.core.lock().is_asked_to_compact(self);
        if !is_asked() {
            return true;
        }
        self.compact_in_steps(TURN_NS, false, || false);
        !is_asked()
    }

    fn compact_in_steps(&self, time: u64, pressed: bool, is_called_off: impl Fn() -> bool) {
        let until = now_ns(Clock::Monotonic) + time;
        while !is_called_off()
            && self.core.lock().compact_for(self, HELD_NS, pressed)
            && now_ns(Clock::Monotonic) < until
        {}
    }
}
