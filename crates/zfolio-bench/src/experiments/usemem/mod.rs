//! `zfolio bench usemem`: the runs of the kernel series on storing large folios
//! and on compressing in batches, scaled to this machine.
//!
//! `usemem` in several processes, which together may keep half of what they
//! write: by folio size and codec, under `zfolio run` and on the kernel's zram,
//! zswap and swap file. The rows are those of the series. Then the store path
//! alone (`store`): one page after another, and in batches.
//!
//! | module | concept |
//! |---|---|
//! | `plan` | what is run, and the columns it gives |
//! | `published` | folios stored whole against split ones, beside what the series found |
//! | `report` | what is shown of the runs: tables, JSON, a plot |
//! | `rows` | the rows of the tables, and where each figure is from |
//! | `store` | pages into the engine one by one and in batches |

mod plan;
mod published;
mod report;
mod rows;
mod store;

use crate::args::BenchUsemem;
use crate::output::results::Results;
use crate::rig::Rig;
pub(super) use published::{change, percent};
pub(super) use rows::{COUNTERS, GROUP, Row};

use plan::{FOLIOS, Plan, columns, of_series};
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};

/// Runs the experiment.
///
/// # Errors
/// When the command line makes no sense, a file cannot be written, or a run
/// fails.
pub(crate) fn usemem(args: &BenchUsemem) -> Result<ExitCode, Failure> {
    let plan = Plan::of(args)?;
    let results = Results::open("usemem", &args.files)?;
    let internal =
        |why: String| Failure::new(Status::Internal, "bench usemem", why, "free what it names");
    let mut rig = Rig::new().map_err(internal)?;
    let columns = match args.series.filter(|_| args.only.is_empty()) {
        Some(series) => of_series(&rig, series),
        None => columns(&rig, &args.only, args.quick)?,
    };
    let mut all = Vec::new();
    for folio in FOLIOS {
        if plan.is_wanted(folio) {
            all.push(plan.compare(&mut rig, folio, &columns));
        }
    }
    let stored = store::measure(plan.runs).map_err(internal)?;
    let text = report::text(&plan, &rig, &all, &stored);
    let json = report::to_json(&plan, &rig, &all, &stored);
    results.finish(&text, &json, || report::draw(&all))?;
    let mut measured = all.iter().flat_map(|compared| &compared.columns);
    match measured.find(|measured| measured.broken) {
        None => Ok(ExitCode::SUCCESS),
        Some(measured) => Err(Failure::new(
            Status::Internal,
            format!("bench usemem: {}", measured.column.name()),
            measured.failed.clone().unwrap_or_default(),
            "report this",
        )),
    }
}
