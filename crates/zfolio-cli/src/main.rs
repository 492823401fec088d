//! `zfolio`: compressed memory for any program, from user space.
//!
//! Reads as parse -> dispatch -> exit.
//!
//! | module | concept |
//! |---|---|
//! | `args`, `size`, `exit` | command line, sizes, exit statuses |
//! | `run` | `zfolio run`, from checks to summary |
//! | `behind`, `groups` | its options about the backing and `max`, and about groups |
//! | `target`, `elf`, `preload`, `uffd_probe` | what must hold before a program starts |
//! | `ways` | who is told of faults, and which options go with that |
//! | `segment` | the control segment as a file (the only unsafe here) |
//! | `supervise` | starting, signalling, waiting |
//! | `cramped`, `unattended` | what is told, and ended, while it runs |
//! | `peaks`, `held`, `stats`, `histogram`, `report`, `outfile` | what is told afterwards |
//! | `doctor`, `stat`, `demo` | the other commands |
//! | `bench` | the experiments |
//! | `usemem` | a workload of theirs that is also a tool |
//! | `limit`, `fitting` | the memory limit it is in, and `high` that keeps under it |
//! | `machine`, `watch` | what /proc says |
#![deny(unsafe_code)]

mod args;
mod behind;
mod bench;
mod cramped;
mod demo;
mod doctor;
mod elf;
mod ended;
mod exit;
mod fitting;
mod groups;
mod held;
mod histogram;
mod limit;
mod machine;
mod members;
mod outfile;
mod owners;
mod peaks;
mod preload;
mod report;
mod run;
#[allow(unsafe_code, reason = "maps the control segment")]
mod segment;
mod size;
mod slots;
mod stat;
mod stats;
mod staying;
mod supervise;
mod target;
mod uffd_probe;
mod unattended;
mod unreached;
mod usemem;
#[allow(unreachable_pub, reason = "the tests include it as well")]
mod watch;
mod ways;

use args::{Cli, Command};
use exit::Failure;
use std::io::Write;
use std::process::ExitCode;

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
        Command::Stat(args) => stat::stat(args.which.as_deref()),
        Command::Demo(args) => demo::demo(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::DemoWork(args) => Ok(demo::work(&args)),
        Command::Usemem(args) => usemem::usemem(&args),
        Command::BenchKeeper => Ok(bench::keeper::serve()),
        Command::BenchChild(args) => bench::rig::child(&args),
        Command::BenchWork(args) => bench::work::work(&args),
    }
}
