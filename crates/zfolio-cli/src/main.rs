//! `zfolio`: compressed memory for any program, from user space.
//!
//! Reads as parse -> dispatch -> exit. Bottom to top; a module knows those above it in this
//! table only (`tests/rooms.rs` checks it):
//!
//! | module | concept |
//! |---|---|
//! | `own` | which build this is, and the preload library inside it |
//! | `options` | the command line, and what it asks of a run |
//! | `preload` | where the preload library is, and how a program gets it |
//! | `fitting` | `high` that keeps under the memory limit the run is in |
//! | `tree` | the processes of a run while it lasts |
//! | `slowdown` | `high` that follows what the program loses |
//! | `supervise` | starting, signalling, waiting |
//! | `requests` | what can be asked of a run while it lasts |
//! | `report` | what is told afterwards |
//! | `run`, `set`, `compact`, `inspect`, `doctor`, `demo`, `manual` | the commands; `advise`, `bench` and `usemem` are those of `zfolio-bench`, `stat`, `top`, `metrics` and `plot` of `zfolio-views` |
//! | `schema` | what the JSON looks like that commands write |
//!
//! What this crate, `zfolio-bench` and `zfolio-views` need of the machine is in `zfolio-host`.
#![forbid(unsafe_code)]

mod compact;
mod demo;
mod doctor;
#[cfg(test)]
#[path = "../../zfolio-host/src/example.rs"]
mod example;
mod fitting;
mod inspect;
mod manual;
mod options;
mod own;
mod preload;
mod report;
mod requests;
mod run;
mod schema;
mod set;
mod slowdown;
mod supervise;
mod tree;

use options::args::{self, Command};
use options::layers::{self, Around};
use std::io::Write;
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status, one_line};

fn main() -> ExitCode {
    configured().unwrap_or_else(|failure| {
        // Nobody may be reading any more.
        let _ = writeln!(std::io::stderr(), "{failure}");
        ExitCode::from(failure.status.code())
    })
}

/// The command line with what variables and files say besides, carried out.
fn configured() -> Result<ExitCode, Failure> {
    let layers = layers::layered(std::env::args_os().collect(), &Around::here())?;
    for line in &layers.told {
        let _ = writeln!(std::io::stderr(), "{}", one_line(line));
    }
    match args::parse(layers.words)?.command {
        Command::Run(args) if args.print_config => run::print_config(&args, &layers.given),
        command => dispatch(command),
    }
}

fn dispatch(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(args) => run::run(*args),
        Command::Doctor(args) => match &args.seccomp_profile {
            Some(base) => doctor::seccomp_profile::write_out(base),
            None => doctor::doctor(args.json, &args.backing),
        },
        Command::Stat(args) => zfolio_views::stat(&args),
        Command::Top(args) => zfolio_views::top(&args),
        Command::Metrics(args) => zfolio_views::metrics(&args),
        Command::Plot(args) => zfolio_views::plot(&args),
        Command::Advise(args) => zfolio_bench::advise(&args),
        Command::Set(args) => set::set(&args),
        Command::Compact(args) => compact::compact(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Demo(args) => demo::demo(&args),
        Command::Bench(args) => zfolio_bench::bench(&args),
        Command::Man(args) => manual::man(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::Schema(args) => schema::schema(&args),
        Command::DemoWork(args) => Ok(demo::work(&args)),
        Command::Usemem(args) => zfolio_bench::usemem(&args),
        Command::Pager => pager(),
        Command::BenchKeeper => Ok(zfolio_bench::serve_as_keeper()),
        Command::BenchChild(args) => zfolio_bench::become_child(&args),
        Command::BenchWork(args) => zfolio_bench::work(&args),
    }
}

fn pager() -> Result<ExitCode, Failure> {
    let served = zfolio_pager::serve::serve(std::io::BufReader::new(std::io::stdin()));
    let mend = "look at the lines above, and at zfolio doctor --backing";
    served
        .map(|()| ExitCode::SUCCESS)
        .map_err(|why| Failure::new(Status::Internal, "the pager", why, mend))
}
