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
use crate::upkeep::tier::{Seen, Tier};
use core::sync::atomic::Ordering;
use zfolio_compress::adaptive::Form;
use zfolio_sys::thread::{Clock, now_ns, processors};
use zfolio_zswap::TIER_STEP as STEP;
use zfolio_zswap::TierContext;

/// Time for it in a turn of the control thread, ns.
const TURN_NS: u64 = 1_000_000;
/// One part in so many of a processor's time.
const SHARE: u64 = 20;
/// The same where the pool is what takes the memory.
const SHARE_OF_POOL: u64 = 5;
/// Between the end of a round of the hand and the next, ns: what is tried has been in
/// the pool for as long at least.
const AGE_NS: u64 = 2_000_000_000;
/// Pause after a round that gained nothing, while the processors are busy, ns.
const REST_NS: u64 = 5_000_000_000;

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
        if tier.context.is_none() || self.zswap.pool_pages() == 0 {
            return;
        }
        let now = now_ns(Clock::Monotonic);
        tier.note(self.see(now), processors() as u64);
        let crowded = if pressed {
            relief == Relief::Exhausted
        } else {
            self.density.get() != Form::Fast && !returns
        };
        let idle = tier.calm && !pressed;
        if now < tier.round_ns.max(tier.turn_ns) || !(idle || crowded) {
            return;
        }
        let began = now_ns(Clock::ThreadCpu);
        let ended = self.while_open(|| self.recompress(tier, now + TURN_NS, wake_seq));
        let spent = now_ns(Clock::ThreadCpu).saturating_sub(began);
        self.stats().add(Counter::RecompressCpuNs, spent);
        let share = if crowded { SHARE_OF_POOL } else { SHARE };
        let now = now_ns(Clock::Monotonic);
        let rest = if idle || tier.gains() { 0 } else { REST_NS };
        tier.turn_ns = now + (spent * (share - 1)).max(rest);
        if ended == Some(true) {
            tier.round_ns = now + AGE_NS;
        }
        if idle {
            self.release_surplus();
        }
    }

    /// Does steps until `until`, ns, or somebody wants something; whether the hand
    /// has been round.
    fn recompress(&self, tier: &mut Tier, until: u64, wake_seq: u32) -> bool {
        loop {
            let Some(context) = &mut tier.context else {
                return false;
            };
            if !self.step_dictionary(context) {
                let done = self.zswap.recompress_step(context, STEP);
                tier.count(&done);
                if done.ended {
                    return true;
                }
            }
            let wanted = self.wakeups.is_control_called(wake_seq)
                || self.wakeups.are_frames_awaited()
                || self.should_yield();
            if wanted || now_ns(Clock::Monotonic) >= until {
                return false;
            }
        }
    }

    /// A step of making a dictionary, if one is being made.
    fn step_dictionary(&self, context: &mut TierContext) -> bool {
        if !self.zswap.makes_dictionary(context) {
            return false;
        }
        let began = now_ns(Clock::ThreadCpu);
        let stepped = self.zswap.dictionary_step(context);
        let spent = now_ns(Clock::ThreadCpu).saturating_sub(began);
        self.stats().add(Counter::DictionaryCpuNs, spent);
        stepped
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
