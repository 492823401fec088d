//! When the second tier is worth a turn: what is remembered of it and of the program.

use crate::segment::{Counter, ProcessSlot};
use zfolio_sys::thread::{Clock, now_ns};
use zfolio_zswap::TIER_STEP as STEP;
use zfolio_zswap::{Arena, Recompressed, TierContext, Zswap};

/// One part in so many of a processor's time.
const SHARE: u64 = 20;
/// The same where the pool is what takes the memory.
const SHARE_OF_POOL: u64 = 5;
/// Between the end of a round of the hand and the next, ns: what is tried has been in
/// the pool for as long at least.
const AGE_NS: u64 = 2_000_000_000;
/// Pause after a round that gained nothing, while the processors are busy, ns.
const REST_NS: u64 = 5_000_000_000;

/// Pages tried by which it is judged whether it gains something, and the part of them
/// that must.
const JUDGED: usize = 256;
const GAIN: usize = 4;
/// Shortest time that tells whether the program is calm, ns.
const WINDOW_NS: u64 = 10_000_000;
/// Fewer than one fault or page moved out in so many ns is calm.
const EVENT_NS: u64 = 1_000_000;

/// What is remembered of the tier.
#[derive(Default, Debug)]
pub struct Tier {
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

/// What was seen of the program, and when.
#[derive(Clone, Copy, Default, Debug)]
pub struct Seen {
    /// Monotonic, ns.
    pub at_ns: u64,
    /// Faults, and pages moved out.
    pub events: u64,
    /// CPU time of the process, ns.
    pub cpu_ns: u64,
}

/// What a turn is for.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The program leaves the time for it.
    pub idle: bool,
    /// The pool is what takes the memory.
    pub crowded: bool,
}

impl Tier {
    /// With what it recompresses with; `None`: there is no tier.
    #[must_use]
    pub fn new(context: Option<TierContext>) -> Self {
        Self {
            context,
            ..Self::default()
        }
    }

    /// For the child of a fork, whose clocks and counters are others.
    pub fn restart(&mut self) {
        *self = Self::new(self.context.take());
    }

    /// Whether there is a tier.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.context.is_some()
    }

    /// As last [noted](Self::note), the program hardly faults, and leaves half a processor idle.
    #[must_use]
    pub const fn is_calm(&self) -> bool {
        self.calm
    }

    /// Whether such a turn may begin at `now`, ns.
    #[must_use]
    pub fn begins(&self, now: u64, turn: Turn) -> bool {
        self.is_there() && now >= self.round_ns.max(self.turn_ns) && (turn.idle || turn.crowded)
    }

    /// Recompresses a few pages, or takes a step of making a dictionary; whether the hand has been
    /// round.
    pub fn step<A: Arena>(&mut self, zswap: &Zswap<A>, stats: &ProcessSlot) -> bool {
        let Some(context) = &mut self.context else {
            return true;
        };
        if step_dictionary(context, zswap, stats) {
            return false;
        }
        let done = zswap.recompress_step(context, STEP);
        self.count(&done);
        done.ended
    }

    /// A turn has ended at `now` that took `spent` of a processor, ns; `is_round`: the hand has been
    /// round.
    pub fn ended(&mut self, now: u64, turn: Turn, spent: u64, is_round: bool) {
        let share = if turn.crowded { SHARE_OF_POOL } else { SHARE };
        let rest = if turn.idle || self.gains() {
            0
        } else {
            REST_NS
        };
        self.turn_ns = now + (spent * (share - 1)).max(rest);
        if is_round {
            self.round_ns = now + AGE_NS;
        }
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

    /// Notes what is seen of the program, which may use so many processors.
    pub fn note(&mut self, now: Seen, processors: u64) {
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

/// A step of making a dictionary, if one is being made.
fn step_dictionary<A: Arena>(
    context: &mut TierContext,
    zswap: &Zswap<A>,
    stats: &ProcessSlot,
) -> bool {
    if !zswap.makes_dictionary(context) {
        return false;
    }
    let began = now_ns(Clock::ThreadCpu);
    let stepped = zswap.dictionary_step(context);
    let spent = now_ns(Clock::ThreadCpu).saturating_sub(began);
    stats.add(Counter::DictionaryCpuNs, spent);
    stepped
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
    fn turns_take_their_share_of_the_time() {
        let turn = |idle, crowded| Turn { idle, crowded };
        let mut tier = Tier::default();
        assert!(!tier.begins(100 * MS, turn(true, true)), "there is no tier");
        tier.ended(100 * MS, turn(true, false), MS, false);
        assert_eq!((tier.turn_ns, tier.round_ns), (119 * MS, 0), "a 20th");
        tier.ended(200 * MS, turn(false, true), MS, true);
        assert_eq!(tier.turn_ns, 204 * MS, "a fifth");
        assert_eq!(tier.round_ns, 200 * MS + AGE_NS);
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
