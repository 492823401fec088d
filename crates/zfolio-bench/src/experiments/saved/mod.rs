//! `zfolio bench saved`: how much memory real programs save while they are at
//! most so many percent slower.
//!
//! For each program and configuration the smallest limit is searched that is within the
//! slowdown: `--high`, or that of a control group before the kernel's zram or zswap. The configuration
//! `slowdown` searches nothing: the controller of `zfolio run` does. Every run is compared with one
//! without a limit at the same time, or of the same round: configurations take turns, so that what
//! disturbs the machine disturbs all. What a run used is its kernel's high-water mark, manager and pool included, and `zfolio
//! run` besides.
//!
//! | module | concept |
//! |---|---|
//! | `config` | what holds memory down |
//! | `plan` | what is run |
//! | `column` | the runs of a configuration, and what they come to |
//! | `workload` | the programs, and how long they are made to take |
//! | `search` | the smallest limit, by a curve through all runs |
//! | `report` | table and plot |
//! | `json` | all of it |

mod column;
mod config;
mod json;
mod plan;
mod report;
mod search;
mod workload;

use crate::args::BenchSaved;
use crate::output::results::Results;
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
    let mut plan = Plan::of(args)?;
    let results = Results::open("saved", &args.files)?;
    let mut rig = plan
        .rig()
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
