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
//! | `plan` | what is run |
//! | `run` | one run, and what was seen while it lasted |
//! | `rows` | the figures |

mod plan;
mod rows;
mod run;

use crate::args::BenchArena;
use crate::output::ministat::{Difference, Summary};
use crate::output::plot::{self, Series};
use crate::output::progress::Progress;
use crate::output::results::Results;
use crate::output::table::Table;
use plan::{Addresses, Plan};
use rows::ROWS;
use run::Ran;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::short;
use zfolio_mm::Order;

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
pub(crate) fn arena(args: &BenchArena) -> Result<ExitCode, Failure> {
    let plan = Plan::of(args)?;
    let results = Results::open("arena", &args.files)?;
    let progress = Progress::new("arena", plan.runs * 2 * Addresses::ALL.len() as u64);
    let mut all = Vec::new();
    for addresses in Addresses::ALL {
        all.push((addresses, plan.compare(addresses, &progress)?));
    }
    drop(progress);
    let json = to_json(&plan, &all);
    results.finish(&report(&plan, &all), &json, || draw(&all))?;
    Ok(ExitCode::SUCCESS)
}

impl Plan {
    fn compare(&self, addresses: Addresses, progress: &Progress) -> Result<Compared, Failure> {
        let mut compared = Compared::default();
        for run in 0..self.runs {
            let seed = self.seed.wrapping_add(run);
            // Neither is always the first.
            let first = run % 2 == 1;
            for on in [first, !first] {
                let ran = self.run(addresses, on, seed).map_err(|why| {
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

fn report(plan: &Plan, all: &[(Addresses, Compared)]) -> String {
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
    if let Some(folio) = plan.folio {
        let size = short(folio.bytes() as u64);
        let _ = writeln!(
            text,
            "Huge pages are split; all leaves in folios of {size} at most."
        );
    }
    for (addresses, compared) in all {
        let _ = write!(text, "\n{}\n{}", addresses.title(), table(compared));
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

fn draw(all: &[(Addresses, Compared)]) -> Result<String, String> {
    let limited = all
        .iter()
        .filter(|(addresses, _)| *addresses == Addresses::Limited);
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

fn to_json(plan: &Plan, all: &[(Addresses, Compared)]) -> Value {
    let arenas = all.iter().map(|(addresses, compared)| {
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
            "arena": addresses.name(),
            "off": runs(&compared.off),
            "on": runs(&compared.on),
        })
    });
    json!({
        "size_bytes": plan.size,
        "high_bytes": plan.high,
        "rounds": plan.rounds,
        "runs": plan.runs,
        "seed": plan.seed,
        "folio_bytes": plan.folio.map(Order::bytes),
        "arenas": arenas.collect::<Vec<_>>(),
    })
}
