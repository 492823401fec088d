//! What `--slowdown` bought.

use super::finished::Finished;
use schemars::JsonSchema;
use serde::Serialize;
use zfolio_host::controller::{Bought, Forecasts, Level, Phase};
use zfolio_host::size::{human, percent};

/// What calls cost is told from this part of what was asked for on.
const MANY_CALLS: f64 = 0.1;
/// A program that ran for less, seconds, was too short for more than a beginning.
const SHORT: f64 = 3.0;

impl Finished {
    /// A line on it, where it was asked for.
    pub(super) fn about_slowdown(&self) -> Option<String> {
        let part = f64::from(self.settings.slowdown?.slowdown) / 1e6;
        let asked = self.settings.slowdown?.percent();
        let bought = self.bought.as_ref()?;
        let mut lost = percent(bought.lost.all);
        if bought.lost.by_calls > part * MANY_CALLS {
            lost = format!(
                "{lost}, {} of it for its system calls",
                percent(bought.lost.by_calls)
            );
        }
        if bought.needed_since == 0 {
            return Some(format!(
                "zfolio: slowdown: nothing was taken: {}.",
                why(bought, part)
            ));
        }
        let why = if bought.run < SHORT {
            "; it ran too shortly for more"
        } else if bought.rests > 0 {
            "; for a part of the time nothing was taken, since it used all of its memory"
        } else {
            ""
        };
        Some(format!(
            "zfolio: slowdown: lived in {} instead of {} on average since memory was first taken ({} instead of {} over all), at about {lost} (asked {asked}){why}.",
            human(bought.resident_since),
            human(bought.needed_since),
            human(bought.resident),
            human(bought.needed),
        ))
    }
}

/// As `--stats` has it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Slowdown")]
pub(super) struct BoughtShown {
    estimated_percent: f64,
    calls_percent: f64,
    run_s: f64,
    needed_mean_bytes: u64,
    resident_mean_bytes: u64,
    needed_since_bytes: u64,
    resident_since_bytes: u64,
    least_high_bytes: u64,
    steps_down: u64,
    steps_up: u64,
    rests: u64,
    weighed: u64,
    phase: &'static str,
    forecasts: ForecastsShown,
    curve: Vec<LevelShown>,
}

/// What was expected of steps down, and what came of them.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Forecasts")]
struct ForecastsShown {
    judged: u64,
    expected_percent: f64,
    seen_percent: f64,
    error_points: f64,
}

/// What was lost with so much memory.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Level")]
struct LevelShown {
    had_percent: f64,
    lost_percent: f64,
}

impl BoughtShown {
    pub(super) fn of(bought: &Bought) -> Self {
        Self {
            estimated_percent: bought.lost.all * 100.0,
            calls_percent: bought.lost.by_calls * 100.0,
            run_s: bought.run,
            needed_mean_bytes: bought.needed,
            resident_mean_bytes: bought.resident,
            needed_since_bytes: bought.needed_since,
            resident_since_bytes: bought.resident_since,
            least_high_bytes: bought.least_high,
            steps_down: bought.steps[0],
            steps_up: bought.steps[1],
            rests: bought.rests,
            weighed: bought.weighed,
            phase: bought.phase.name(),
            forecasts: ForecastsShown::of(&bought.forecasts),
            curve: bought.forecasts.curve.iter().map(LevelShown::of).collect(),
        }
    }
}

impl ForecastsShown {
    fn of(forecasts: &Forecasts) -> Self {
        let mean = |sum| forecasts.mean(sum) * 100.0;
        Self {
            judged: forecasts.count,
            expected_percent: mean(forecasts.expected),
            seen_percent: mean(forecasts.seen),
            error_points: mean(forecasts.error),
        }
    }
}

impl LevelShown {
    const fn of(level: &Level) -> Self {
        Self {
            had_percent: level.part * 100.0,
            lost_percent: level.rate * 100.0,
        }
    }
}

/// Why nothing was taken.
fn why(bought: &Bought, asked: f64) -> &'static str {
    match bought.phase {
        Phase::Growing => "the program grew until it ended",
        Phase::Young => "the program ran too shortly",
        _ if bought.run < SHORT => "the program ran too shortly",
        _ if bought.lost.by_calls > asked / 2.0 => {
            "its system calls, which are seen before they are made, cost as much as may be lost, or nearly"
        }
        _ => "there was nothing to take above the least that was allowed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_host::controller::Lost;

    #[test]
    fn why_nothing_was_taken_is_told() {
        let of = |phase, run| {
            let bought = Bought {
                phase,
                run,
                ..Bought::default()
            };
            why(&bought, 0.05)
        };
        assert!(of(Phase::Growing, 9.0).contains("grew"));
        assert!(of(Phase::Young, 0.1).contains("too shortly"));
        assert!(of(Phase::Holding, 1.0).contains("too shortly"));
        assert!(of(Phase::Holding, 60.0).contains("nothing to take"));
        let bought = Bought {
            lost: Lost {
                all: 0.04,
                by_calls: 0.04,
            },
            phase: Phase::Holding,
            run: 60.0,
            ..Bought::default()
        };
        assert!(why(&bought, 0.05).contains("system calls"));
        assert!(!why(&bought, 0.10).contains("system calls"));
    }
}
