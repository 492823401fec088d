//! `zfolio bench arena`: what folio compaction does for a running program.
//!
//! A workload that scatters its pool over the arena, and has huge pages that go out
//! and come back meanwhile (`work::arena`), runs under `zfolio run` with folio
//! compaction off and on, in turn, each pair with a seed of its own: in an arena of
//! the usual size, where blocks of 2 MiB are plentiful, and in the one that a process
//! gets whose addresses are limited (RLIMIT_AS), where they are not.
//!
//! | module | concept |
//! |---|---|
//! | `run` | one run, and what was seen while it lasted |
//! | `rows` | the figures |

mod rows;
mod run;

use super::args::BenchArena;
use super::ministat::{Difference, Summary};
use super::plot::{self, Series};
use super::progress::Progress;
use super::results::Results;
use super::table::Table;
use crate::exit::{Failure, Status};
use crate::machine;
use crate::size::{MIN_HIGH, short};
use rows::ROWS;
use run::Ran;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// How many addresses the arena has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Room {
    /// Eight times `high`, 1 GiB at least.
    Usual,
    /// Twice `high`, 64 MiB at least: what is left where RLIMIT_AS is set.
    Limited,
}

impl Room {
    const ALL: [Self; 2] = [Self::Usual, Self::Limited];

    fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Limited => "limited",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Usual => "Arena of the usual size: 8 * high, 1 GiB at least",
            Self::Limited => "Arena where addresses are limited: 2 * high, 64 MiB at least",
        }
    }
}

/// What to do.
#[derive(Debug)]
struct Plan {
    size: u64,
    high: u64,
    rounds: u64,
    runs: u64,
    seed: u64,
    timeout: Duration,
}

/// The runs in one arena, pair by pair.
#[derive(Debug, Default)]
struct Compared {
    off: Vec<Ran>,
    on: Vec<Ran>,
}

/// Runs the experiment.
///
/// # Errors
/// When the command line makes no sense, a file cannot be written, or a run fails,
/// as it does when a word is not as it was written.
pub(super) fn arena(args: &BenchArena) -> Result<ExitCode, Failure> {
    let plan = Plan::of(args)?;
    let results = Results::open(&args.files)?;
    let progress = Progress::new("arena", plan.runs * 2 * Room::ALL.len() as u64);
    let mut all = Vec::new();
    for room in Room::ALL {
        all.push((room, plan.compare(room, &progress)?));
    }
    drop(progress);
    let json = to_json(&plan, &all);
    results.finish(&report(&plan, &all), &json, || draw(&all))?;
    Ok(ExitCode::SUCCESS)
}

impl Plan {
    fn of(args: &BenchArena) -> Result<Self, Failure> {
        let memory = machine::mem_total();
        let size = args.size.bytes(memory);
        let high = args.high.map_or(size / 2, |high| high.bytes(memory));
        let wrong = |why: String, mend| Err(Failure::new(Status::Usage, "bench arena", why, mend));
        if high < MIN_HIGH || high >= size {
            let why = format!("--size {} in --high {}", short(size), short(high));
            return wrong(why, "choose 8M <= high < size");
        }
        if size > machine::available() / 2 {
            let why = format!("{} is more than half of the memory", short(size));
            return wrong(why, "give it less");
        }
        Ok(Self {
            size,
            high,
            rounds: args.rounds,
            runs: args.runs,
            seed: args.seed,
            timeout: Duration::from_secs(args.limit),
        })
    }

    fn compare(&self, room: Room, progress: &Progress) -> Result<Compared, Failure> {
        let mut compared = Compared::default();
        for run in 0..self.runs {
            let seed = self.seed.wrapping_add(run);
            // Neither is always the first.
            let first = run % 2 == 1;
            for on in [first, !first] {
                let ran = self.run(room, on, seed).map_err(|why| {
                    let what = format!("bench arena, seed {seed}");
                    Failure::new(Status::Internal, what, why, "report this")
                })?;
                if on {
                    compared.on.push(ran);
                } else {
                    compared.off.push(ran);
                }
                progress.step();
            }
        }
        Ok(compared)
    }
}

/// The figures of a row, where every run has one.
fn summary(runs: &[Ran], of: fn(&Ran) -> Option<f64>) -> Option<Summary> {
    let figures: Option<Vec<f64>> = runs.iter().map(of).collect();
    Summary::of(&figures?)
}

/// Standard deviation in % of the mean.
fn spread(summary: &Summary) -> String {
    if summary.avg == 0.0 {
        return "-".to_owned();
    }
    format!("{:.1}", summary.stddev * 100.0 / summary.avg.abs())
}

fn report(plan: &Plan, all: &[(Room, Compared)]) -> String {
    let mut text = format!(
        "Folio compaction off and on: {} of memory in --high {}, {} rounds of churn, {} run(s), \
         in turn, seeds from {}.\nMeans, and standard deviations in % of them. Linux {}, {} \
         processors.\n* : differs at 95 % confidence (Student's t).\n",
        short(plan.size),
        short(plan.high),
        plan.rounds,
        plan.runs,
        plan.seed,
        machine::kernel_release(),
        machine::cpus(),
    );
    for (room, compared) in all {
        let _ = write!(text, "\n{}\n{}", room.title(), table(compared));
    }
    text
}

fn table(compared: &Compared) -> String {
    let mut table = Table::new(["figure", "off", "%sd", "on", "%sd", "change"]);
    for row in &ROWS {
        let [off, on] = [&compared.off, &compared.on].map(|runs| summary(runs, row.of));
        let shown = |summary: &Option<Summary>| match summary {
            None => ["-".to_owned(), "-".to_owned()],
            Some(summary) => [row.shown(summary.avg), spread(summary)],
        };
        let ([off_mean, off_spread], [on_mean, on_spread]) = (shown(&off), shown(&on));
        let change = match (&off, &on) {
            (Some(off), Some(on)) if off.avg != 0.0 => {
                let proven = Difference::between(off, on).is_some_and(|d| d.is_proven());
                let mark = if proven { " *" } else { "" };
                format!("{:+.1} %{mark}", (on.avg / off.avg - 1.0) * 100.0)
            }
            _ => "-".to_owned(),
        };
        let label = row.label.to_owned();
        table.row([label, off_mean, off_spread, on_mean, on_spread, change]);
    }
    table.text()
}

fn draw(all: &[(Room, Compared)]) -> Result<String, String> {
    let limited = all.iter().filter(|(room, _)| *room == Room::Limited);
    let series = limited.flat_map(|(_, compared)| {
        [("off", &compared.off), ("on", &compared.on)].map(|(name, runs)| Series {
            name: name.to_owned(),
            points: runs.first().map_or(Vec::new(), |ran| {
                let looks = ran.looks.iter();
                looks.map(|look| (look.at, look.free_blocks)).collect()
            }),
        })
    });
    let series: Vec<Series> = series.collect();
    let title = "Where addresses are limited, first run";
    plot::lines(title, "seconds", "free blocks of 2 MiB", &series)
}

fn to_json(plan: &Plan, all: &[(Room, Compared)]) -> Value {
    let arenas = all.iter().map(|(room, compared)| {
        let runs = |runs: &[Ran]| -> Vec<Value> {
            let one = |ran: &Ran| {
                let figures = ROWS.iter().map(|row| {
                    let figure = (row.of)(ran);
                    (
                        row.label.to_owned(),
                        figure.map_or(Value::Null, Value::from),
                    )
                });
                json!({
                    "seed": ran.seed,
                    "looks": ran.looks.len(),
                    "figures": Value::Object(figures.collect()),
                    "stats": ran.stats,
                })
            };
            runs.iter().map(one).collect()
        };
        json!({
            "arena": room.name(),
            "off": runs(&compared.off),
            "on": runs(&compared.on),
        })
    });
    json!({
        "bench": "arena",
        "size_bytes": plan.size,
        "high_bytes": plan.high,
        "rounds": plan.rounds,
        "runs": plan.runs,
        "seed": plan.seed,
        "machine": { "kernel": machine::kernel_release(), "cpus": machine::cpus() },
        "arenas": arenas.collect::<Vec<_>>(),
    })
}
