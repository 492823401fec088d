//! Zspage compaction: the pool gives back the frames of zspages whose objects others have room for.
//!
//! How it goes is `zfolio_runtime::zspage_compaction`'s matter; here is who has the time for it. Who makes
//! room does it first, while a run is due or under way: a page had that way costs some copies, one that is closed is
//! compressed. The thread that reclaims beside the program does so for longer, and so does, where memory is not short, a thread
//! that is stopped as it runs (`life::ticks`).
//!
//! Steps are made under the core lock, so that a fork finds the pool whole. What is in transit is pinned, and stays
//! where it is.

use super::core::MemoryCore;
use crate::memory::layer::MemoryState;
use zfolio_sys::thread::{Clock, now_ns};

/// For each making of room, ns.
const ROOM_NS: u64 = 50_000;
/// With the lock held, of a turn that nobody waits for, ns.
const HELD_NS: u64 = 20_000;
/// For such a turn, ns.
const TURN_NS: u64 = 1_000_000;

impl MemoryCore {
    /// Compacts for some `time`, ns, if a run is due or under way; whether it is to go on. `pressed`: memory is
    /// short.
    fn compact_for(&mut self, time: u64, pressed: bool) -> bool {
        let nothing = self.closes_nothing();
        let Some(pool) = self.pool.as_mut().filter(|_| !nothing) else {
            return false;
        };
        if pool.zspages.is_due(pool.zswap, pressed) {
            pool.zspages.compact(pool.zswap, time, || false);
        }
        pool.zspages.is_under_way()
    }

    /// The same, of who is about to make room.
    pub(super) fn compact_for_room(&mut self) {
        self.compact_for(ROOM_NS, true);
    }
}

impl MemoryState {
    /// A turn of compaction, with the lock had by others in between. All signals are blocked.
    pub(super) fn compact_for_a_while(&self, pressed: bool) {
        let until = now_ns(Clock::Monotonic) + TURN_NS;
        while self.core.lock().compact_for(HELD_NS, pressed) && now_ns(Clock::Monotonic) < until {}
    }
}
