//! `zfolio advise -- CMD`: memory against slowdown of a program of one's own, and the point to
//! take.
//!
//! The program is run without a limit, then with less and less, until that is far too slow,
//! then once more between the last that was fast enough and the first that was not, then
//! without a limit again: how far these two differ is how little a difference of the others
//! says. It must be a program that does the same each time. With `--once` it is run once ([`once`]).

mod once;

use crate::args::Advise;
use crate::output::plot::{self, Series};
use crate::output::progress::Progress;
use crate::output::results::Results;
use crate::output::table::Table;
use crate::rig::{self, Job, Ran, Rig, Side};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::size::{MIN_HIGH, human};

/// Parts of what the program needs that are tried.
const PARTS: u64 = 8;
/// What `--slowdown` compresses with.
const OPTIONS: [&str; 2] = ["--compressor", "zstd:1"];
/// Seconds that a run may take more than a slowdown says.
const GRACE: f64 = 2.0;

/// A run with a limit.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Point {
    /// `--high`, bytes.
    high: u64,
    /// Most memory used, bytes; 0 if it was ended.
    used: u64,
    /// Seconds; infinite if it was ended because it took too long.
    wall: f64,
}

/// What was found.
#[derive(Clone, PartialEq, Debug, Default)]
struct Curve {
    /// Percent.
    asked: f64,
    /// Without a limit: most memory used, bytes, and seconds, a run each.
    memory: Vec<u64>,
    walls: Vec<f64>,
    /// From much memory to little.
    points: Vec<Point>,
}

/// Runs it.
///
/// # Errors
/// When the program fails, or a file cannot be written.
pub(crate) fn advise(args: &Advise) -> Result<ExitCode, Failure> {
    let failed = |why: String| {
        let mend = "it must end by itself, with status 0, and do the same each time";
        Failure::new(Status::Internal, "zfolio advise", why, mend)
    };
    let results = Results::open("advise", &args.files)?;
    let mut rig = Rig::own().map_err(failed)?;
    let limit = Duration::from_secs(args.limit);
    let name = args.command.first().map(|name| name.to_string_lossy());
    let name = name.unwrap_or_default();
    if args.once {
        let once = once::run(&mut rig, &args.command, args.slowdown, limit).map_err(failed)?;
        results.finish(&once.text(), &once.json(), || once.plot(&name))?;
        return Ok(ExitCode::SUCCESS);
    }
    let progress = Progress::new("runs", PARTS + 2);
    let mut run = |high: Option<u64>, timeout: Duration| {
        let ran = run(&mut rig, &args.command, high, timeout);
        progress.step();
        ran
    };
    let curve = Curve::find(args.slowdown, limit, &mut run).map_err(failed)?;
    results.finish(&curve.text(), &curve.json(), || curve.plot(&name))?;
    Ok(ExitCode::SUCCESS)
}

fn run(
    rig: &mut Rig,
    command: &[OsString],
    high: Option<u64>,
    timeout: Duration,
) -> Result<Ran, String> {
    let side = high.map_or(Side::Native, |_| Side::Run);
    let ran = rig.run(
        &side,
        &Job {
            command,
            limit: high.unwrap_or(0),
            swap: 0,
            options: if high.is_some() { &OPTIONS } else { &[] },
            settings: &[],
            timeout,
            watched: true,
        },
    );
    rig::settle();
    ran
}

impl Curve {
    /// Runs the program as often as it takes.
    ///
    /// # Errors
    /// How it fails.
    fn find(
        asked: f64,
        limit: Duration,
        run: &mut impl FnMut(Option<u64>, Duration) -> Result<Ran, String>,
    ) -> Result<Self, String> {
        let mut curve = Self {
            asked,
            ..Self::default()
        };
        // (The first run reads the files that it needs.)
        run(None, limit)?;
        curve.add_bare(&run(None, limit)?);
        let need = curve.memory[0];
        if need / PARTS * (PARTS - 1) < MIN_HIGH {
            return Err(format!("it needs {} only", human(need)));
        }
        for part in (1..PARTS).rev() {
            let high = need / PARTS * part;
            if high < MIN_HIGH || !curve.add(high, limit, run)? {
                break;
            }
        }
        if let Some((good, bad)) = curve.crossing() {
            curve.add(u64::midpoint(good, bad), limit, run)?;
        }
        curve.add_bare(&run(None, limit)?);
        curve.points.sort_by_key(|point| u64::MAX - point.high);
        Ok(curve)
    }

    fn add_bare(&mut self, ran: &Ran) {
        self.memory.push(ran.high_water);
        self.walls.push(ran.wall);
    }

    /// A run with so much; whether less is worth a try.
    fn add(
        &mut self,
        high: u64,
        limit: Duration,
        run: &mut impl FnMut(Option<u64>, Duration) -> Result<Ran, String>,
    ) -> Result<bool, String> {
        // Far beyond what was asked for there is nothing to learn.
        let most = 1.0 + (4.0 * self.asked).max(50.0) / 100.0;
        let enough = Duration::from_secs_f64(self.bare() * most + GRACE);
        let point = match run(Some(high), enough.min(limit)) {
            Ok(ran) => {
                let used = ran.stats["usage"]["max_rss_bytes"].as_u64();
                Point {
                    high,
                    used: used.ok_or("its statistics cannot be read")? + ran.first,
                    wall: ran.wall,
                }
            }
            Err(why) if enough < limit && why.starts_with(rig::ENDED) => Point {
                high,
                used: 0,
                wall: f64::INFINITY,
            },
            Err(why) => return Err(why),
        };
        self.points.push(point);
        Ok(point.wall / self.bare() < most)
    }

    /// Seconds without a limit, the mean.
    fn bare(&self) -> f64 {
        let count = u32::try_from(self.walls.len()).unwrap_or(1);
        (self.walls.iter().sum::<f64>() / f64::from(count)).max(1e-9)
    }

    /// Percent.
    fn slowdown(&self, point: &Point) -> f64 {
        (point.wall / self.bare() - 1.0) * 100.0
    }

    fn is_fast(&self, point: &Point) -> bool {
        self.slowdown(point) <= self.asked
    }

    /// The least memory that was fast enough, as all above it were, and the most that was not;
    /// bytes.
    fn crossing(&self) -> Option<(u64, u64)> {
        let need = self.memory.first().copied()?;
        let slow = self.points.iter().filter(|point| !self.is_fast(point));
        let bad = slow.map(|point| point.high).max()?;
        Some((self.taken().map_or(need, |point| point.high), bad))
    }

    /// The point to take.
    fn taken(&self) -> Option<&Point> {
        let slow = self.points.iter().filter(|point| !self.is_fast(point));
        let bad = slow.map(|point| point.high).max().unwrap_or(0);
        let fast = self.points.iter().filter(|point| point.high > bad);
        fast.min_by_key(|point| point.high)
    }

    /// How far the runs without a limit differ, percent.
    fn noise(&self) -> f64 {
        let most = self.walls.iter().copied().fold(0.0, f64::max);
        let least = self.walls.iter().copied().fold(f64::INFINITY, f64::min);
        (most / least.max(1e-9) - 1.0) * 100.0
    }

    fn text(&self) -> String {
        let mut table = Table::new(["high, MiB", "used, MiB", "seconds", "slowdown, %"]);
        let need = self.memory.iter().copied().max().unwrap_or(0);
        let mib = |bytes: u64| (bytes >> 20).to_string();
        let bare = format!("{:.2}", self.bare());
        table.row(["-".to_owned(), mib(need), bare, "-".to_owned()]);
        let taken = self.taken();
        for point in &self.points {
            let mark = if Some(point) == taken { " <" } else { "" };
            table.row(if point.wall.is_finite() {
                [
                    mib(point.high),
                    mib(point.used),
                    format!("{:.2}", point.wall),
                    format!("{:.1}{mark}", self.slowdown(point)),
                ]
            } else {
                [
                    mib(point.high),
                    "-".into(),
                    "-".into(),
                    "far too slow".into(),
                ]
            });
        }
        let mut text = table.text();
        text.push_str(&match taken {
            Some(point) => format!(
                "Take --high {}M: {:.0} % less memory at {:.1} % (asked {} %). Or --slowdown {}%, which follows the program.\n",
                point.high >> 20,
                (1.0 - point.used as f64 / need.max(1) as f64) * 100.0,
                self.slowdown(point),
                self.asked,
                self.asked,
            ),
            None => format!("No memory can be saved at {} %.\n", self.asked),
        });
        if self.noise() > self.asked {
            text.push_str(&format!(
                "Runs without a limit differ by {:.0} %: on this machine, now, the figures mean little.\n",
                self.noise()
            ));
        }
        text
    }

    fn json(&self) -> Value {
        let point = |point: &Point| {
            let ran = point.wall.is_finite();
            json!({
                "high_bytes": point.high,
                "used_bytes": ran.then_some(point.used),
                "wall_s": ran.then_some(point.wall),
                "slowdown_percent": ran.then(|| self.slowdown(point)),
            })
        };
        json!({
            "slowdown_percent": self.asked,
            "bare_bytes": self.memory,
            "bare_wall_s": self.walls,
            "points": self.points.iter().map(point).collect::<Vec<_>>(),
            "take_high_bytes": self.taken().map(|point| point.high),
        })
    }

    fn plot(&self, name: &str) -> Result<String, String> {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let ran = self.points.iter().filter(|point| point.wall.is_finite());
        // (Axes begin at 0: quicker than without a limit is not told apart.)
        let at = |point: &Point| (mib(point.used), self.slowdown(point).max(0.0));
        let need = self.memory.iter().copied().max().unwrap_or(0);
        let taken = self.taken().map(|point| {
            let (x, y) = at(point);
            Series {
                name: format!("--high {}M", point.high >> 20),
                points: vec![(x, 0.0), (x, y)],
            }
        });
        let curve = Series {
            name: name.to_owned(),
            points: [(mib(need), 0.0)].into_iter().chain(ran.map(at)).collect(),
        };
        let asked = Series {
            name: format!("{} %", self.asked),
            points: vec![(0.0, self.asked), (mib(need), self.asked)],
        };
        let series: Vec<Series> = [curve, asked].into_iter().chain(taken).collect();
        plot::lines(
            "memory against slowdown",
            "memory used, MiB",
            "slowdown, %",
            &series,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A program that needs 80 MiB and ten seconds, and below 45 MiB is ever slower.
    fn program(high: Option<u64>, timeout: Duration) -> Result<Ran, String> {
        let lacking = (45 * MIB).saturating_sub(high.unwrap_or(u64::MAX)) / MIB;
        let wall = 10.0 + lacking as f64 * 0.2;
        if wall > timeout.as_secs_f64() {
            return Err(format!("{} {timeout:?}", rig::ENDED));
        }
        Ok(Ran {
            wall,
            high_water: 80 * MIB,
            first: 5 * MIB,
            stats: json!({ "usage": { "max_rss_bytes": high } }),
            ..Ran::default()
        })
    }

    #[test]
    fn the_least_that_is_fast_enough_is_taken() {
        let limit = Duration::from_secs(100);
        let curve = Curve::find(5.0, limit, &mut program).unwrap();
        // Eighths down to 20 MiB, which is half as slow again; then between 50 and 40.
        let highs: Vec<u64> = curve.points.iter().map(|point| point.high / MIB).collect();
        assert_eq!(highs, [70, 60, 50, 45, 40, 30, 20]);
        assert_eq!(curve.taken().map(|point| point.high), Some(45 * MIB));
        assert_eq!((curve.walls.len(), curve.noise()), (2, 0.0));
        let text = curve.text();
        assert!(
            text.contains("Take --high 45M: 38 % less memory at 0.0 %"),
            "{text}"
        );
        assert!(!text.contains("mean little"), "{text}");
        assert_eq!(curve.json()["take_high_bytes"], 45 * MIB);
        assert!(curve.plot("it").unwrap().contains("--high 45M"));
    }

    #[test]
    fn one_that_needs_all_of_it_is_told_so() {
        let mut slow = |high: Option<u64>, timeout: Duration| {
            let mut ran = program(high, timeout)?;
            ran.wall = if high.is_some() { 1000.0 } else { 10.0 };
            if ran.wall > timeout.as_secs_f64() {
                return Err(format!("{} {timeout:?}", rig::ENDED));
            }
            Ok(ran)
        };
        let curve = Curve::find(5.0, Duration::from_secs(100), &mut slow).unwrap();
        assert_eq!(curve.taken(), None);
        let text = curve.text();
        assert!(text.contains("far too slow"), "{text}");
        assert!(text.contains("No memory can be saved at 5 %"), "{text}");
        assert!(curve.json()["take_high_bytes"].is_null());
    }

    #[test]
    fn how_it_fails_is_told() {
        let mut fails = |_: Option<u64>, _: Duration| Err("exit status: 3".to_owned());
        let told = Curve::find(5.0, Duration::from_secs(9), &mut fails);
        assert_eq!(told, Err("exit status: 3".to_owned()));
        let mut small = |_: Option<u64>, _: Duration| {
            Ok(Ran {
                high_water: 5 * MIB,
                wall: 1.0,
                ..Ran::default()
            })
        };
        let told = Curve::find(5.0, Duration::from_secs(9), &mut small);
        assert!(told.is_err_and(|why| why.contains("it needs 5")));
    }
}
