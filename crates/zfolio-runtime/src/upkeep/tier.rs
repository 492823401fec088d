//! When the second tier is worth a turn: what is remembered of it and of the program.

use zfolio_zswap::{Recompressed, TierContext};

/// Pages tried by which it is judged whether it gains something, and the part of them
/// that must.
const JUDGED: usize = 256;
const GAIN: usize = 4;
/// Shortest time that tells whether the program is calm, ns.
const WINDOW_NS: u64 = 10_000_000;
/// Fewer than one fault or page moved out in so many ns is calm.
const EVENT_NS: u64 = 1_000_000;

/// What the control thread remembers of the tier.
#[derive(Default, Debug)]
pub(crate) struct Tier {
    /// `None`: there is no tier.
    pub(super) context: Option<TierContext>,
    /// When the next round may begin, and the next turn, ns.
    pub(super) round_ns: u64,
    pub(super) turn_ns: u64,
    pub(super) seen: Seen,
    pub(super) calm: bool,
    /// Of the last pages tried: how many became denser, and how many did not.
    pub(super) gained: usize,
    pub(super) poor: usize,
}

/// What was seen of the program, and when.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Seen {
    pub(super) at_ns: u64,
    /// Faults, and pages moved out.
    pub(super) events: u64,
    /// CPU time of the process, ns.
    pub(super) cpu_ns: u64,
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

    pub(crate) fn count(&mut self, done: &Recompressed) {
        self.gained += done.recompressed;
        self.poor += done.poor;
    }

    /// Whether it has gained something lately, as far as that can be told yet.
    pub(crate) fn gains(&mut self) -> bool {
        let tried = self.gained + self.poor;
        if tried < JUDGED {
            return true;
        }
        let gains = self.gained * GAIN >= tried;
        (self.gained, self.poor) = (0, 0);
        gains
    }

    pub(crate) fn note(&mut self, now: Seen, processors: u64) {
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
