//! The second tier at work: when what has long been in the pool is compressed
//! again, denser. How is `zfolio_zswap`'s matter (`second_tier`).
//!
//! The control thread does it where it would sleep otherwise: while memory is not
//! short, the program hardly faults, and it leaves half a processor idle at least;
//! and never for more than one part in twenty of a processor's time. Where the pool
//! itself is what takes the memory, and little of it comes back, room is worth more
//! than time: then neither faults nor the processors are asked, and it may take one
//! part in five, as long as it gains something.
//!
//! Dictionaries are made in the same time, a step in place of one that recompresses.

use crate::budget::pressure::Relief;
use crate::segment::Counter;
use crate::upkeep::Upkeep;
use crate::upkeep::tier::{Seen, Tier, Turn};
use core::sync::atomic::Ordering;
use zfolio_sys::thread::{Clock, now_ns, processors};

/// Time for it in a turn of the control thread, ns.
const TURN_NS: u64 = 1_000_000;

/// What the control thread knows when it asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// How its round of reclaim ended, and whether memory was short.
    pub(crate) relief: Relief,
    pub(crate) pressed: bool,
    /// Much of what is stored comes back.
    pub(crate) returns: bool,
    /// The bell when it last looked: it stops when that rings.
    pub(crate) wake_seq: u32,
}

impl Upkeep {
    /// Recompresses for a while, if there is a tier and this is the time for it.
    pub(crate) fn tend_tier(&self, tier: &mut Tier, now: Situation) {
        let Situation {
            relief,
            pressed,
            returns,
            wake_seq,
        } = now;
        if !tier.is_there() || self.zswap.pool_pages() == 0 {
            return;
        }
        let now = now_ns(Clock::Monotonic);
        tier.note(self.see(now), processors() as u64);
        let crowded = if pressed {
            relief == Relief::Exhausted
        } else {
            let [dense, _] = self.watermarks().dense(returns);
            self.zswap.pool_pages() > dense && !returns
        };
        let turn = Turn {
            idle: tier.is_calm() && !pressed,
            crowded,
        };
        if !tier.begins(now, turn) {
            return;
        }
        let began = now_ns(Clock::ThreadCpu);
        let ended = self.while_open(|| self.recompress(tier, now + TURN_NS, wake_seq));
        let spent = now_ns(Clock::ThreadCpu).saturating_sub(began);
        self.stats().add(Counter::RecompressCpuNs, spent);
        let now = now_ns(Clock::Monotonic);
        tier.ended(now, turn, spent, ended == Some(true));
        if turn.idle {
            self.release_surplus();
        }
    }

    /// Does steps until `until`, ns, or somebody wants something; whether the hand
    /// has been round.
    fn recompress(&self, tier: &mut Tier, until: u64, wake_seq: u32) -> bool {
        loop {
            if tier.step(&self.zswap, self.stats()) {
                return true;
            }
            let wanted = self.wakeups.is_control_called(wake_seq)
                || self.wakeups.are_frames_awaited()
                || self.should_yield();
            if wanted || now_ns(Clock::Monotonic) >= until {
                return false;
            }
        }
    }

    /// Gives frames beyond those to be kept at hand to the system: what the pool has
    /// shrunk by while the program does not ask for any.
    fn release_surplus(&self) {
        let keep = self.frames_to_keep(self.usage());
        let surplus = self.arena().free_frames().saturating_sub(keep);
        if surplus > 0 {
            self.arena().release(surplus);
        }
    }

    fn see(&self, now: u64) -> Seen {
        let count = |counter| self.stats().counter(counter).load(Ordering::Relaxed);
        Seen {
            at_ns: now,
            events: count(Counter::FaultsServed) + count(Counter::PagesOut),
            cpu_ns: now_ns(Clock::ProcessCpu),
        }
    }
}
