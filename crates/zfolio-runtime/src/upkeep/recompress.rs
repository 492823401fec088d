//! The second tier at work: when what has long been in the pool is compressed
//! again, denser. How is `zfolio_zswap::tier`'s matter.
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
use core::sync::atomic::Ordering;
use zfolio_compress::adaptive::Form;
use zfolio_sys::thread::{Clock, now_ns, processors};
use zfolio_zswap::tier::STEP;
use zfolio_zswap::{Recompressed, TierContext};

/// Time for it in a turn of the control thread, ns.
const TURN_NS: u64 = 1_000_000;
/// One part in so many of a processor's time.
const SHARE: u64 = 20;
/// The same where the pool is what takes the memory.
const SHARE_OF_POOL: u64 = 5;
/// Between the end of a round of the hand and the next, ns: what is tried has been in
/// the pool for as long at least.
const AGE_NS: u64 = 2_000_000_000;
/// Pages tried by which it is judged whether it gains something, and the part of them
/// that must.
const JUDGED: usize = 256;
const GAIN: usize = 4;
/// Rest where time is dear and it gains nothing, ns.
const REST_NS: u64 = 5_000_000_000;
/// Shortest time that tells whether the program is calm, ns.
const WINDOW_NS: u64 = 10_000_000;
/// Fewer than one fault or page moved out in so many ns is calm.
const EVENT_NS: u64 = 1_000_000;

/// What the control thread remembers of the tier.
#[derive(Default, Debug)]
pub(crate) struct Tier {
    /// `None`: there is no tier.
    context: Option<TierContext>,
    /// When the next round may begin, and the next turn, ns.
    round_ns: u64,
    turn_ns: u64,
    seen: Seen,
    calm: bool,
    /// Of the last pages tried: how many became denser, and how many did not.
    gained: usize,
    poor: usize,
}

/// What the control thread knows when it asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// How its round of reclaim ended, and whether memory was short.
    pub(crate) relief: Relief,
    pub(crate) pressed: bool,
    /// Much of what is stored comes back.
    pub(crate) returns: bool,
    /// The bell when it last looked: it stops when that rings.
    pub(crate) rung: u32,
}

/// What was seen of the program, and when.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    at_ns: u64,
    /// Faults, and pages moved out.
    events: u64,
    /// CPU time of the process, ns.
    cpu_ns: u64,
}

impl Tier {
    pub(crate) fn new(context: Option<TierContext>) -> Self {
        Self {
            context,
            ..Self::default()
        }
    }

    /// For the child of a fork, whose clocks and counters are others.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.context.take());
    }

    fn count(&mut self, done: &Recompressed) {
        self.gained += done.recompressed;
        self.poor += done.poor;
    }

    /// Whether it has gained something lately, as far as that can be told yet.
    fn gains(&mut self) -> bool {
        let tried = self.gained + self.poor;
        if tried < JUDGED {
            return true;
        }
        let gains = self.gained * GAIN >= tried;
        (self.gained, self.poor) = (0, 0);
        gains
    }

    fn note(&mut self, now: Seen, processors: u64) {
        if now.at_ns.saturating_sub(self.seen.at_ns) >= WINDOW_NS {
            self.calm = now.is_calm_since(&self.seen, processors);
            self.seen = now;
        }
    }
}

impl Seen {
    fn is_calm_since(&self, before: &Self, processors: u64) -> bool {
        let time = self.at_ns.saturating_sub(before.at_ns);
        let events = self.events.saturating_sub(before.events);
        let cpu = self.cpu_ns.saturating_sub(before.cpu_ns);
        // (The first look has nothing to compare with.)
        before.at_ns != 0
            && events.saturating_mul(EVENT_NS) < time
            && cpu + time / 2 <= time.saturating_mul(processors)
    }
}

impl Upkeep {
    /// Recompresses for a while, if there is a tier and this is the time for it.
    pub(crate) fn tend_tier(&self, tier: &mut Tier, now: Situation) {
        let Situation {
            relief,
            pressed,
            returns,
            rung,
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
        let ended = self.while_open(|| self.recompress(tier, now + TURN_NS, rung));
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
    fn recompress(&self, tier: &mut Tier, until: u64, rung: u32) -> bool {
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
            let wanted = self.wakeups.control.load(Ordering::Relaxed) != rung
                || self.wakeups.frame_waiters.load(Ordering::Relaxed) > 0
                || self.is_called_away();
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
            events: count(Counter::Pgmajfault) + count(Counter::PagesOut),
            cpu_ns: now_ns(Clock::ProcessCpu),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn seen(at_ms: u64, events: u64, cpu_ms: u64) -> Seen {
        Seen {
            at_ns: at_ms * MS,
            events,
            cpu_ns: cpu_ms * MS,
        }
    }

    #[test]
    fn calm_is_few_faults_and_half_a_processor_idle() {
        let before = seen(100, 500, 1000);
        assert!(seen(120, 500, 1000).is_calm_since(&before, 1));
        assert!(seen(120, 519, 1010).is_calm_since(&before, 1));
        assert!(!seen(120, 520, 1000).is_calm_since(&before, 1));
        assert!(!seen(120, 500, 1011).is_calm_since(&before, 1));
        assert!(seen(120, 500, 1030).is_calm_since(&before, 2));
        assert!(!seen(120, 500, 1031).is_calm_since(&before, 2));
        assert!(!seen(20, 0, 0).is_calm_since(&Seen::default(), 4));
    }

    #[test]
    fn it_gains_unless_most_of_what_was_tried_stays_as_it_is() {
        let mut tier = Tier::default();
        let done = |recompressed, poor| Recompressed {
            recompressed,
            poor,
            ..Recompressed::default()
        };
        tier.count(&done(0, JUDGED - 1));
        assert!(tier.gains(), "too few to judge by");
        tier.count(&done(0, 1));
        assert!(!tier.gains());
        tier.count(&done(JUDGED / 4, JUDGED / 2));
        tier.count(&done(0, JUDGED / 4));
        assert!(tier.gains(), "judged anew");
    }

    #[test]
    fn what_is_seen_is_kept_until_there_is_enough_to_judge_by() {
        let mut tier = Tier::default();
        tier.note(seen(100, 0, 0), 2);
        tier.note(seen(105, 1000, 0), 2);
        assert!(!tier.calm, "nothing to compare with yet");
        tier.note(seen(110, 5, 0), 2);
        assert!(tier.calm);
        tier.note(seen(119, 900, 0), 2);
        assert!(tier.calm);
        tier.note(seen(120, 900, 0), 2);
        assert!(!tier.calm);
    }
}
