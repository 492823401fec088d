//! What less memory would cost, by what it has cost lately.
//!
//! A curve: the rate (time lost for what came back, over time run) by the part of what is needed that was had.
//! It is filled as `high` goes down and up, and forgotten by and by, since programs change. A step down is
//! forecast before it is taken, and the forecast judged by the window that follows.

use super::terms::{Forecasts, Level};

/// Levels of the curve: what is had, in so many parts of what is needed.
const LEVELS: usize = 64;
/// What was seen at a level is taken to hold for so long, seconds.
const HOLDS: f64 = 30.0;
/// A window counts for this part of what is known of its level.
const WINDOW_PART: f64 = 0.5;

/// What was seen at a level.
#[derive(Clone, Copy, Debug)]
struct Seen {
    rate: f64,
    /// When last, seconds.
    at: f64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    levels: [Option<Seen>; LEVELS + 1],
    /// The level that `high` went down to, and the rate that is expected there.
    told: Option<(usize, f64)>,
    judged: Forecasts,
}

impl Forecast {
    pub(super) const fn new() -> Self {
        Self {
            levels: [None; LEVELS + 1],
            told: None,
            judged: Forecasts {
                count: 0,
                expected: 0.0,
                seen: 0.0,
                error: 0.0,
                curve: Vec::new(),
            },
        }
    }

    /// The program is another now.
    pub(super) const fn forget(&mut self) {
        self.levels = [None; LEVELS + 1];
        self.told = None;
    }

    /// A window has ended: `part` of what is needed was had, and `rate` lost. `at`: now, seconds.
    pub(super) fn note(&mut self, part: f64, rate: f64, at: f64) {
        let level = level(part);
        if let Some((to, expected)) = self.told.take()
            && level <= to + 1
        {
            self.judged.count += 1;
            self.judged.expected += expected;
            self.judged.seen += rate;
            self.judged.error += (expected - rate).abs();
        }
        let known = self.seen(level, at);
        let rate = known.map_or(rate, |known| known + (rate - known) * WINDOW_PART);
        self.levels[level] = Some(Seen { rate, at });
    }

    /// `high` goes down, so that `part` of what is needed is had.
    pub(super) fn tell(&mut self, part: f64, at: f64) {
        self.told = self.rate(part, at).map(|expected| (level(part), expected));
    }

    /// The rate that is expected if `part` of what is needed is had; `None` while nothing is known.
    pub(super) fn rate(&self, part: f64, at: f64) -> Option<f64> {
        let level = level(part);
        if let Some(rate) = self.seen(level, at) {
            return Some(rate);
        }
        let known = |level: usize| self.seen(level, at).map(|rate| (level, rate));
        let mut above = (level + 1..=LEVELS).filter_map(known);
        let below = (0..level).rev().find_map(known);
        let between = |(low, at_low): (usize, f64), (high, at_high): (usize, f64)| {
            (at_low - at_high) / count(high - low)
        };
        match (below, above.next(), above.next()) {
            (Some(below), Some(next), _) => {
                Some(next.1 + between(below, next) * count(next.0 - level))
            }
            // As it went so far, it goes on.
            (None, Some(next), Some(beyond)) => {
                Some(next.1 + between(next, beyond).max(0.0) * count(next.0 - level))
            }
            (None, Some((_, rate)), None) | (Some((_, rate)), None, _) => Some(rate),
            (None, None, _) => None,
        }
    }

    fn seen(&self, level: usize, at: f64) -> Option<f64> {
        let seen = self.levels[level].filter(|seen| at - seen.at <= HOLDS)?;
        Some(seen.rate)
    }

    /// How good they were, and the curve: all that was seen, however long ago.
    pub(super) fn forecasts(&self) -> Forecasts {
        let levels = self.levels.iter().enumerate().rev();
        let curve = levels.filter_map(|(level, seen)| {
            Some(Level {
                part: count(level) / count(LEVELS),
                rate: seen.as_ref()?.rate,
            })
        });
        Forecasts {
            curve: curve.collect(),
            ..self.judged.clone()
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from 0 to LEVELS"
)]
fn level(part: f64) -> usize {
    (part.clamp(0.0, 1.0) * count(LEVELS)).round() as usize
}

#[allow(clippy::cast_precision_loss, reason = "a number of levels")]
fn count(of: usize) -> f64 {
    of as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: Option<f64>, other: f64) -> bool {
        one.is_some_and(|one| (one - other).abs() < 1e-9)
    }

    #[test]
    fn what_was_seen_is_expected_again() {
        let mut forecast = Forecast::new();
        assert_eq!(forecast.rate(0.5, 0.0), None);
        forecast.note(1.0, 0.0, 1.0);
        assert!(
            near(forecast.rate(0.5, 1.0), 0.0),
            "flat while nothing else is known"
        );
        forecast.note(0.75, 0.01, 2.0);
        assert!(near(forecast.rate(0.75, 3.0), 0.01));
        assert!(near(forecast.rate(0.875, 3.0), 0.005), "between the two");
        assert!(near(forecast.rate(0.5, 3.0), 0.02), "it goes on as it went");
        assert_eq!(forecast.rate(0.75, 3.0 + HOLDS), None, "long ago");
        forecast.forget();
        assert_eq!(forecast.rate(0.75, 3.0), None);
    }

    #[test]
    fn a_rate_that_fell_is_not_expected_to_fall_further() {
        let mut forecast = Forecast::new();
        forecast.note(1.0, 0.02, 1.0);
        forecast.note(0.75, 0.01, 1.0);
        assert!(near(forecast.rate(0.5, 1.0), 0.01));
        let curve = forecast.forecasts().curve;
        let rates: Vec<f64> = curve.iter().map(|level| level.rate).collect();
        assert_eq!(rates, [0.02, 0.01]);
    }

    #[test]
    fn a_forecast_is_judged_by_the_window_that_follows() {
        let mut forecast = Forecast::new();
        forecast.note(1.0, 0.0, 1.0);
        forecast.note(0.75, 0.01, 2.0);
        forecast.tell(0.5, 2.0);
        forecast.note(0.5, 0.03, 3.0);
        let judged = forecast.forecasts();
        assert_eq!(judged.count, 1);
        assert!(near(Some(judged.expected), 0.02) && near(Some(judged.seen), 0.03));
        assert!(near(Some(judged.error), 0.01));
        // What did not come to that is not judged.
        forecast.tell(0.25, 3.0);
        forecast.note(0.5, 0.03, 4.0);
        forecast.note(0.25, 0.5, 5.0);
        assert_eq!(forecast.forecasts().count, 1);
    }
}
