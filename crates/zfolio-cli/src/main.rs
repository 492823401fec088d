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
//! | `supervise` | starting, signalling, waiting |
//! | `report` | what is told afterwards |
//! | `run`, `stat`, `doctor`, `demo`, `manual` | the commands; `bench` and `usemem` are those of `zfolio-bench` |
//!
//! What both this crate and `zfolio-bench` need of the machine is in `zfolio-host`.
#![forbid(unsafe_code)]

mod demo;
mod doctor;
#[cfg(test)]
#[path = "../../zfolio-host/src/example.rs"]
mod example;
mod fitting;
mod manual;
mod options;
mod own;
mod preload;
mod report;
mod run;
mod stat;
mod supervise;
mod tree;

use options::args::{self, Cli, Command};
use std::io::Write;
use std::process::ExitCode;
use zfolio_host::exit::Failure;

fn main() -> ExitCode {
    args::parse(std::env::args_os())
        .and_then(dispatch)
        .unwrap_or_else(|failure| {
            // Nobody may be reading any more.
            let _ = writeln!(std::io::stderr(), "{failure}");
            ExitCode::from(failure.status.code())
        })
}

fn dispatch(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Run(args) => run::run(args),
        Command::Doctor(args) => Ok(doctor::doctor(args.json)),
        Command::Stat(args) => stat::stat(args.which.as_deref(), args.classes),
        Command::Demo(args) => demo::demo(&args),
        Command::Bench(args) => zfolio_bench::bench(&args),
        Command::Man(args) => manual::man(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::DemoWork(args) => Ok(demo::work(&args)),
        Command::Usemem(args) => zfolio_bench::usemem(&args),
        Command::BenchKeeper => Ok(zfolio_bench::serve_as_keeper()),
        Command::BenchChild(args) => zfolio_bench::become_child(&args),
        Command::BenchWork(args) => zfolio_bench::work(&args),
    }
}
