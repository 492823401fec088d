//! `zfolio bench peers`: one workload side by side, native, under `zfolio run`,
//! and on the kernel's zram, zswap and swap file, at equal total memory.
//!
//! What a workload needs is measured first, without a limit. `total` is a part
//! of that, and what every row may use, pool included. Each row's limit is searched
//! so that its use comes to `total`: the kernel's pool may be charged to nobody (zram;
//! zswap with control groups of version 1), and ours bounds what `zfolio run` manages,
//! itself not included. Then rounds: each row once a round, in an order that turns, so
//! that what disturbs the machine disturbs all rows. Ratios are of the same round.
//!
//! | module | concept |
//! |---|---|
//! | `plan` | what is run, and the rows it gives |
//! | `workload` | the workloads: how they are started |
//! | `report` | table, JSON, plot |

mod plan;
mod report;
mod workload;

use crate::args::BenchPeers;
use crate::output::results::Results;
use crate::rig::Rig;
use plan::{Compared, Plan, usage};
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};

/// Runs the experiment.
///
/// # Errors
/// When the command line makes no sense, a file cannot be written, or a workload
/// fails or finds its data damaged.
pub(crate) fn peers(args: &BenchPeers) -> Result<ExitCode, Failure> {
    let plan = Plan::of(args)?;
    let results = Results::open("peers", &args.files)?;
    let mut rig = Rig::new()
        .map_err(|why| Failure::new(Status::Internal, "bench peers", why, "free what it names"))?;
    let sides = plan.sides(&mut rig)?;
    let mut all = Vec::new();
    for workload in &plan.workloads {
        let compared = plan.compare(&mut rig, workload, &sides);
        if let (Some(name), Some(why)) = (plan.own.first(), &compared.left_out) {
            let what = format!("bench peers: {}", name.to_string_lossy());
            return Err(usage(&what, why, "run it by itself first"));
        }
        all.push(compared);
    }
    let told = report::Report {
        plan: &plan,
        left_out: &rig.left_out,
        group_version: rig.group_version(),
        all: &all,
    };
    results.finish(&told.text(), &told.json(), || told.plot())?;
    let broken = |compared: &Compared| {
        let row = compared.rows.iter().find(|row| row.broken)?;
        let why = row.failed.clone().unwrap_or_default();
        Some((compared.workload.name, row.side.clone(), why))
    };
    match all.iter().find_map(broken) {
        None => Ok(ExitCode::SUCCESS),
        Some((workload, side, why)) => Err(Failure::new(
            Status::Internal,
            format!("bench peers: {workload}, {}", side.name()),
            why,
            match (plan.own.is_empty(), side.is_kernel()) {
                (true, _) => "report this",
                (false, true) => "give it more (--share), or leave that row out (--only)",
                (false, false) => "see how it ends under zfolio run",
            },
        )),
    }
}
