//! `zfolio advise --once`: the curve from one run, under `--slowdown`, by what that sees.
//!
//! Nothing is compared with a run without a limit: a level's cost is what the run thinks it lost for what came
//! back while it had so much. It goes down no further than the slowdown allows.

use crate::output::plot::{self, Series};
use crate::output::table::Table;
use crate::rig::{Job, Ran, Rig, Side};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::time::Duration;
use zfolio_host::machine;
use zfolio_host::size::{MIN_HIGH, human};

/// So much memory, and what was lost with it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Level {
    /// Bytes.
    had: u64,
    /// Percent of the time that it ran.
    lost: f64,
}

/// What one run showed.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Once {
    /// Percent.
    asked: f64,
    /// What it needed, the mean since memory was first taken, bytes; 0: none was.
    needed: u64,
    /// From much memory to little.
    levels: Vec<Level>,
    /// Seconds that it took, and percent of them that it thinks it lost.
    wall: f64,
    estimated: f64,
    /// How good its forecasts were.
    forecasts: Value,
}

/// Runs `command` once.
///
/// # Errors
/// How it fails.
pub(super) fn run(
    rig: &mut Rig,
    command: &[OsString],
    asked: f64,
    timeout: Duration,
) -> Result<Once, String> {
    let promise = format!("{asked}%");
    let ran = rig.run(
        &Side::Run,
        &Job {
            command,
            // (What is promised is the only limit.)
            limit: machine::mem_total().max(MIN_HIGH),
            swap: 0,
            options: &["--slowdown", &promise],
            settings: &[],
            timeout,
            watched: false,
        },
    )?;
    Once::of(&ran, asked).ok_or_else(|| "its statistics cannot be read".to_owned())
}

impl Once {
    fn of(ran: &Ran, asked: f64) -> Option<Self> {
        let told = &ran.stats["slowdown"];
        let needed = told["needed_since_bytes"].as_u64()?;
        let levels = told["curve"].as_array()?.iter().map(|level| {
            let had = level["had_percent"].as_f64()? / 100.0;
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of what is needed"
            )]
            let had = (had * needed as f64) as u64;
            Some(Level {
                had,
                lost: level["lost_percent"].as_f64()?,
            })
        });
        let mut levels = levels.collect::<Option<Vec<_>>>()?;
        // (Less memory costs no less: where a level cost more than one below it, that was the step down, which
        // takes pages that are in use and come back.)
        let mut least = f64::INFINITY;
        for level in levels.iter_mut().rev() {
            least = least.min(level.lost);
            level.lost = least;
        }
        Some(Self {
            asked,
            needed,
            levels,
            wall: ran.wall,
            estimated: told["estimated_percent"].as_f64()?,
            forecasts: told["forecasts"].clone(),
        })
    }

    /// The least memory that cost no more than asked for, as all above it.
    fn taken(&self) -> Option<&Level> {
        let is_fast = |level: &&Level| level.lost <= self.asked;
        let fast = self.levels.iter().take_while(is_fast);
        fast.last().filter(|_| self.needed > 0)
    }

    /// `--high` for a level, MiB.
    fn high(level: &Level) -> u64 {
        level.had.div_ceil(1 << 20).max(MIN_HIGH >> 20)
    }

    pub(super) fn text(&self) -> String {
        let Some(taken) = self.taken() else {
            if let Some(level) = self.levels.first() {
                return format!(
                    "The least that was lost is {:.1} %, with {} of {}: no memory can be saved at {} %.\n",
                    level.lost,
                    human(level.had),
                    human(self.needed),
                    self.asked
                );
            }
            return format!(
                "Nothing was taken in a run of {:.1} s: it was too short, grew until it ended, or uses all of its memory. \
                 Without --once it is run with less and less.\n",
                self.wall
            );
        };
        let mut table = Table::new(["had, MiB", "of what it needs, %", "lost, %"]);
        for level in &self.levels {
            let mark = if level == taken { " <" } else { "" };
            table.row([
                (level.had >> 20).to_string(),
                format!("{:.0}", level.had as f64 / self.needed as f64 * 100.0),
                format!("{:.2}{mark}", level.lost),
            ]);
        }
        let mut text = table.text();
        text.push_str(&format!(
            "Take --high {}M: {:.0} % less memory than {} for {:.1} % (asked {} %), by one run of {:.1} s, which thinks it lost {:.1} % in all. \
             Or --slowdown {}%, which follows the program.\n",
            Self::high(taken),
            (1.0 - taken.had as f64 / self.needed as f64) * 100.0,
            human(self.needed),
            taken.lost,
            self.asked,
            self.wall,
            self.estimated,
            self.asked,
        ));
        text
    }

    pub(super) fn json(&self) -> Value {
        let level = |level: &Level| json!({ "had_bytes": level.had, "lost_percent": level.lost });
        json!({
            "once": true,
            "slowdown_percent": self.asked,
            "needed_bytes": self.needed,
            "levels": self.levels.iter().map(level).collect::<Vec<_>>(),
            "forecasts": self.forecasts,
            "wall_s": self.wall,
            "estimated_percent": self.estimated,
            "take_high_bytes": self.taken().map(|level| Self::high(level) << 20),
        })
    }

    pub(super) fn plot(&self, name: &str) -> Result<String, String> {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let at = |level: &Level| (mib(level.had), level.lost);
        let taken = self.taken().map(|level| Series {
            name: format!("--high {}M", Self::high(level)),
            points: vec![(mib(level.had), 0.0), at(level)],
        });
        let curve = Series {
            name: name.to_owned(),
            points: self.levels.iter().map(at).collect(),
        };
        let asked = Series {
            name: format!("{} %", self.asked),
            points: vec![(0.0, self.asked), (mib(self.needed), self.asked)],
        };
        let series: Vec<Series> = [curve, asked].into_iter().chain(taken).collect();
        plot::lines(
            "memory against what is lost, one run",
            "memory had, MiB",
            "lost, %",
            &series,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(curve: &Value) -> Ran {
        Ran {
            wall: 60.0,
            stats: json!({ "slowdown": {
                "needed_since_bytes": 200 << 20,
                "estimated_percent": 3.5,
                "forecasts": { "judged": 9 },
                "curve": curve,
            } }),
            ..Ran::default()
        }
    }

    #[test]
    fn the_least_that_cost_no_more_is_taken() {
        let level = |had: f64, lost: f64| json!({ "had_percent": had, "lost_percent": lost });
        // (90 % cost more when it was come to than 75 % did afterwards.)
        let curve = json!([
            level(100.0, 0.0),
            level(90.0, 200.0),
            level(75.0, 1.5),
            level(50.0, 7.0)
        ]);
        let once = Once::of(&ran(&curve), 5.0).unwrap();
        assert_eq!(once.json()["take_high_bytes"], 150 << 20);
        assert_eq!(once.json()["levels"][1]["lost_percent"], 1.5);
        let text = once.text();
        assert!(
            text.contains("Take --high 150M: 25 % less memory than 200 MiB for 1.5 %"),
            "{text}"
        );
        assert!(once.plot("it").unwrap().contains("--high 150M"));
    }

    #[test]
    fn where_all_costs_too_much_that_is_told() {
        let curve = json!([{ "had_percent": 90.0, "lost_percent": 7.0 }]);
        let once = Once::of(&ran(&curve), 5.0).unwrap();
        assert!(once.json()["take_high_bytes"].is_null());
        let text = once.text();
        assert!(text.contains("7.0 %, with 180 MiB of 200 MiB"), "{text}");
    }

    #[test]
    fn where_nothing_was_taken_that_is_told() {
        let once = Once::of(&ran(&json!([])), 5.0).unwrap();
        assert!(once.json()["take_high_bytes"].is_null());
        assert!(once.text().contains("Nothing was taken in a run of 60.0 s"));
        assert_eq!(Once::of(&Ran::default(), 5.0), None);
    }
}
