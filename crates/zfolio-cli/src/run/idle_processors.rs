//! `--engines auto`: whether a processor is idle, for the engines of every process of a run.
//!
//! The engines work if processors were idle for a whole one's time in the last fifth of a second,
//! and rest again once they are for less than a quarter of one's: what engines do then, somebody
//! else waits for. (What they take themselves is not idle any more, so the two differ.) Once
//! they rest they do for two seconds.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use zfolio_host::machine;
use zfolio_runtime::segment::Config;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(200);
/// How long engines rest at least.
const REST: Duration = Duration::from_secs(2);
/// Idle processors at which engines begin to work.
const ENOUGH: f64 = 1.0;
/// The same at which they come to rest.
const TOO_FEW: f64 = 0.25;
/// Ticks of [`machine::idle_ticks`] in a second.
const TICKS: f64 = 100.0;

/// What was seen last.
pub(super) struct IdleProcessors {
    seen: Option<(Instant, u64)>,
    resting_since: Option<Instant>,
}

impl IdleProcessors {
    /// At first the engines rest.
    pub(super) const fn new() -> Self {
        Self {
            seen: None,
            resting_since: None,
        }
    }

    /// Looks, if that is due, and has the engines work or rest.
    pub(super) fn look(&mut self, config: &Config, now: Instant) {
        if config.engines.auto.load(Relaxed) == 0 {
            return;
        }
        let due = |(at, _): (Instant, u64)| now.saturating_duration_since(at) >= EVERY;
        if self.seen.is_none_or(due)
            && let Some(idle) = machine::idle_ticks()
        {
            self.note(config, now, idle);
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "ticks of a fifth of a second")]
    fn note(&mut self, config: &Config, now: Instant, idle: u64) {
        let Some((at, before)) = self.seen.replace((now, idle)) else {
            return;
        };
        let time = now.saturating_duration_since(at).as_secs_f64() * TICKS;
        let idle = idle.saturating_sub(before) as f64 / time.max(1.0);
        let rests = config.engines.rest.load(Relaxed) != 0;
        let rested = |since| now.saturating_duration_since(since) >= REST;
        if !rests && idle < TOO_FEW {
            self.resting_since = Some(now);
            config.engines.rest.store(1, Relaxed);
        } else if rests && idle >= ENOUGH && self.resting_since.is_none_or(rested) {
            config.engines.rest.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_host::segment_file::OwnSegment;

    #[test]
    fn engines_work_while_a_processor_is_idle() {
        let segment = OwnSegment::create(|segment| {
            segment.config().engines.auto.store(1, Relaxed);
            segment.config().engines.rest.store(1, Relaxed);
        });
        let segment = segment.expect("a segment");
        let config = segment.config();
        let begin = Instant::now();
        let (mut idle, mut ticks) = (IdleProcessors::new(), 0);
        // Tenths of a second, with so many ticks of idle time in each; whether they rest then.
        let mut after = |from: u64, to: u64, each: u64| {
            for tenth in from..to {
                ticks += each;
                idle.note(config, begin + Duration::from_millis(100 * tenth), ticks);
            }
            config.engines.rest.load(Relaxed) == 1
        };
        assert!(after(0, 5, 9), "not a whole processor");
        assert!(!after(5, 6, 10));
        assert!(!after(6, 9, 4), "they take some of it themselves");
        assert!(after(9, 10, 2), "others want it");
        assert!(after(10, 28, 20), "they rest for a while");
        assert!(!after(28, 32, 20));
    }
}
