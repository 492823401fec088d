//! The second tier at work: when what has long been in the pool is compressed
//! again, denser. How is `zfolio_zswap::tier`'s matter.
//!
//! The control thread does it where it would sleep otherwise: while memory is not
//! short, the program hardly faults, and it leaves half a processor idle at least;
//! and never for more than one part in twenty of a processor's time. Where the pool
//! itself is what takes the memory, room is worth more than time: then neither
//! faults nor the processors are asked, and it may take one part in five.

use crate::control::Counter;
use crate::control_thread::Relief;
use crate::manager::Manager;
use core::sync::atomic::Ordering;
use zfolio_sys::thread::{Clock, now_ns, processors};
use zfolio_zswap::TierContext;
use zfolio_zswap::tier::STEP;

/// Time for it in a turn of the control thread, ns.
const TURN_NS: u64 = 1_000_000;
/// One part in so many of a processor's time.
const SHARE: u64 = 20;
/// The same where the pool is what takes the memory.
const SHARE_OF_POOL: u64 = 5;
/// Between the end of a round of the hand and the next, ns: what is tried has been in
/// the pool for as long at least.
const AGE_NS: u64 = 2_000_000_000;
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

impl Manager {
    /// Recompresses for a while, if there is a tier and this is the time for it.
    /// `rung`: the bell as it was when the control thread last looked; it stops when
    /// that rings.
    pub(crate) fn tend_tier(&self, tier: &mut Tier, relief: Relief, pressed: bool, rung: u32) {
        if tier.context.is_none() || self.zswap.pool_pages() == 0 {
            return;
        }
        let now = now_ns(Clock::Monotonic);
        tier.note(self.see(now), processors() as u64);
        let crowded = if pressed {
            relief == Relief::Exhausted
        } else {
            self.density.get()
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
        tier.turn_ns = now + spent * (share - 1);
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
        let Some(context) = &mut tier.context else {
            return false;
        };
        loop {
            if self.zswap.recompress_step(context, STEP).ended {
                return true;
            }
            let wanted = self.control_wake.load(Ordering::Relaxed) != rung
                || self.frame_waiters.load(Ordering::Relaxed) > 0
                || self.is_called_away();
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
