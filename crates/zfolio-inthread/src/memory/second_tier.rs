//! The second tier (`--tier auto`): what stays in the pool is compressed again, denser. How is
//! `zfolio_zswap`'s matter, when `zfolio_runtime::tier`'s.
//!
//! No thread of ours is idle whose time that could be. So it is done before calls that wait, as a
//! rule, for something, where the program is idle by what it did lately; and by threads that are stopped
//! as they run (`life::ticks`), where the pool is what takes the memory. A call is put off by a 20th of
//! the time since the last such turn, [`LONGEST_NS`] at most.
//!
//! Each step is made under the core lock, with nothing in transit, as all else that is done with the
//! pool: a fork finds it whole.

use super::core::MemoryCore;
use crate::memory::layer::MemoryState;
use core::sync::atomic::Ordering;
use zfolio_runtime::segment::Counter;
use zfolio_runtime::tier::{Seen, Turn};
use zfolio_sys::thread::{Clock, now_ns, processors};

/// Longest turn, ns.
const LONGEST_NS: u64 = 1_000_000;
/// Of the time since the last turn, one part in so many.
const SHARE: u64 = 20;

/// What a thread is at that has time for a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    /// It is about to wait for something.
    Wait,
    /// It was stopped as it ran.
    Tick,
}

impl MemoryState {
    /// Recompresses for a while, if there is a tier and this is the time for it. All signals are
    /// blocked, on the service stack; no lock of ours is held.
    pub(crate) fn tend_tier(&self, at: At) {
        let following = &self.following;
        if !following.tier.load(Ordering::Relaxed)
            || self.has_left()
            || !self.is_own_process()
            || following.recompresses.swap(true, Ordering::Acquire)
        {
            return;
        }
        self.recompress(at);
        following.recompresses.store(false, Ordering::Release);
    }

    fn recompress(&self, at: At) {
        let begun = now_ns(Clock::Monotonic);
        let Some((turn, time)) = self.exclusive().tier_turn(self, at, begun) else {
            return;
        };
        let work = self.begin_work();
        let cpu = now_ns(Clock::ThreadCpu);
        let mut is_round = false;
        while !is_round && now_ns(Clock::Monotonic) < begun + time {
            // (Whoever waits for the lock has it in between.)
            is_round = self.exclusive().recompress_some();
        }
        let spent = now_ns(Clock::ThreadCpu).saturating_sub(cpu);
        self.exclusive().end_turn(turn, spent, is_round);
        self.end_reclaim(work);
        self.end_work(work, 0);
    }
}

impl MemoryCore {
    /// What a turn at `now` is for, and how long it may take, ns; `None`: there is to be none.
    fn tier_turn(&mut self, state: &MemoryState, at: At, now: u64) -> Option<(Turn, u64)> {
        if self.closes_nothing() {
            return None;
        }
        let pressed = state.is_behind();
        let overdrawn = self.closing.overdraft > 0;
        let pool = self.pool.as_mut()?;
        let taken = pool.zswap.pool_pages();
        let count = |counter| pool.stats.counter(counter).load(Ordering::Relaxed);
        let moved = self.figures.faults + self.figures.pages_out;
        let seen = Seen {
            at_ns: now,
            events: count(Counter::FaultsServed) + count(Counter::PagesOut) + moved,
            cpu_ns: now_ns(Clock::ProcessCpu),
        };
        pool.tier.note(seen, processors() as u64);
        let turn = Turn {
            idle: at == At::Wait && pool.tier.is_calm() && !pressed,
            crowded: !pool.turnover.returns() && (overdrawn || taken * 2 > self.high),
        };
        let since = now.saturating_sub(pool.tier_ended_ns);
        let time = (since / SHARE).min(LONGEST_NS);
        (taken > 0 && time > 0 && pool.tier.begins(now, turn)).then_some((turn, time))
    }

    /// A step; whether all has been looked at.
    fn recompress_some(&mut self) -> bool {
        let nothing = self.closes_nothing();
        let pool = self.pool.as_mut().filter(|_| !nothing);
        pool.is_none_or(|pool| pool.tier.step(pool.zswap, pool.stats))
    }

    fn end_turn(&mut self, turn: Turn, spent: u64, is_round: bool) {
        if let Some(pool) = &mut self.pool {
            let now = now_ns(Clock::Monotonic);
            pool.stats.add(Counter::RecompressCpuNs, spent);
            pool.tier.ended(now, turn, spent, is_round);
            pool.tier_ended_ns = now;
        }
    }
}
