//! `zfolio bench kernel-build`: a real C project of many files, compiled in less memory than it
//! needs, as the kernel's series compile the kernel: by codec and size of folio under
//! `zfolio run`, beside zram, zswap and a swap file.
//!
//! The project is a Debian source package that apt fetches, or what lies in a directory. It is
//! compiled once without a limit; the object files of every other build must be the same.
//!
//! | module | concept |
//! |---|---|
//! | `source` | the project: fetched, copied, and what was built of it |
//! | `plan` | what is run, and the columns it gives |
//! | `published` | ours beside what the series found |
//! | `report` | table, JSON, plot |

mod plan;
mod published;
mod report;
mod source;

use crate::args::BenchKernelBuild;
use crate::output::results::Results;
use crate::rig::Rig;
use plan::{Plan, columns};
use source::Project;
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};

/// Runs the experiment.
///
/// # Errors
/// When the command line makes no sense, the project cannot be had or compiled, a file cannot be
/// written, or a build comes out otherwise.
pub(crate) fn kernel_build(args: &BenchKernelBuild) -> Result<ExitCode, Failure> {
    let results = Results::open("kernel-build", &args.files)?;
    let failed =
        |why: String, mend: &str| Failure::new(Status::Internal, "bench kernel-build", why, mend);
    let mut rig = Rig::new().map_err(|why| failed(why, "free what it names"))?;
    let columns = columns(&rig, &args.only, args.quick)?;
    let found = Project::find(args.source.as_deref(), &args.package, rig.scratch());
    let project = match found {
        Ok(project) => project,
        // (Without a network this experiment is none, and the machine is as it was.)
        Err(why) if args.source.is_none() => {
            eprintln!("SKIPPED: bench kernel-build: {why}; name an unpacked project with --source");
            return Ok(ExitCode::SUCCESS);
        }
        Err(why) => return Err(failed(why, "name another --source")),
    };
    let mut plan = Plan::of(args, &project);
    plan.without_limit(&mut rig, &project)
        .map_err(|why| failed(format!("without a limit: {why}"), "see how make ends there"))?;
    let all = plan.compare(&mut rig, &project, &columns);
    let text = report::text(&plan, &rig, &all);
    let json = report::to_json(&plan, &rig, &all);
    results.finish(&text, &json, || report::draw(&all))?;
    match all.iter().find(|measured| measured.broken) {
        None => Ok(ExitCode::SUCCESS),
        Some(measured) => Err(Failure::new(
            Status::Internal,
            format!("bench kernel-build: {}", measured.column.name()),
            measured.failed.clone().unwrap_or_default(),
            "report this",
        )),
    }
}
