//! `zfolio bench saved`: how much memory real programs save while they are at
//! most so many percent slower.
//!
//! For each program and configuration the smallest `--high` is searched that is within the
//! limit. Every such run is compared with one without a limit of the same round:
//! configurations take turns, so that what disturbs the machine disturbs all. What a run used is its kernel's high-water
//! mark, manager and pool included, and `zfolio run` besides.
//!
//! | module | concept |
//! |---|---|
//! | `plan` | what is run, and the columns it gives |
//! | `workload` | the programs, and how long they are made to take |
//! | `search` | the smallest `--high`, by a curve through all runs |
//! | `report` | table, JSON, plot |

mod plan;
mod report;
mod search;
mod workload;

use crate::args::BenchSaved;
use crate::output::results::Results;
use crate::rig::Rig;
use plan::{Compared, Plan};
use std::process::ExitCode;
use workload::Program;
use zfolio_host::exit::{Failure, Status};

/// Runs the experiment.
///
/// # Errors
/// When the command line makes no sense, a file cannot be written, or a program
/// fails or has another result.
pub(crate) fn saved(args: &BenchSaved) -> Result<ExitCode, Failure> {
    let plan = Plan::of(args)?;
    let results = Results::open("saved", &args.files)?;
    let mut rig = Rig::own()
        .map_err(|why| Failure::new(Status::Internal, "bench saved", why, "free what it names"))?;
    let compare = |program: &&'static Program| plan.compare(&mut rig, program);
    let all: Vec<Compared> = plan.programs.iter().map(compare).collect();
    let told = report::Report {
        plan: &plan,
        all: &all,
    };
    results.finish(&told.text(), &told.json(), || told.plot())?;
    let broken = |compared: &Compared| {
        let column = compared.columns.iter().find(|c| c.failed.is_some())?;
        let what = format!("{}, {}", compared.program.name, column.config.name);
        Some((what, column.failed.clone().unwrap_or_default()))
    };
    match all.iter().find_map(broken) {
        None => Ok(ExitCode::SUCCESS),
        Some((what, why)) => Err(Failure::new(
            Status::Internal,
            format!("bench saved: {what}"),
            why,
            "report this",
        )),
    }
}
