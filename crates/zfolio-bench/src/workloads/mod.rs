//! The workloads of `bench peers`, `bench arena` and `bench tier`, each a program of its own
//! (`zfolio bench-work`): the same binary runs bare, on the kernel's swap and
//! under `zfolio run`.
//!
//! They print a JSON line a phase: `{"phase", "value", "unit"}`; and may print
//! `{"check"}`, which must be the same wherever they run. Data that is not as it
//! was written is their end, with status 1.

mod arena;
mod compile;
mod idle;
mod lines;
mod memory;
pub(crate) mod objects;
mod redis;
pub(crate) mod usemem;

pub(crate) use lines::fingerprint;

use crate::args::{BenchWork, Work};
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};

/// Runs the workload that was asked for.
///
/// # Errors
/// When it cannot be run, or data was damaged.
pub fn work(args: &BenchWork) -> Result<ExitCode, Failure> {
    let done = match &args.work {
        Work::Memory {
            size,
            phases,
            threads,
            region,
            reads,
            seed,
        } => memory::Load {
            size: *size,
            threads: (*threads).clamp(1, 64),
            region: *region,
            reads: *reads,
            seed: *seed,
        }
        .run(phases),
        Work::Arena {
            size,
            rounds,
            addresses,
            seed,
        } => arena::Churn {
            size: *size,
            rounds: *rounds,
            addresses: *addresses,
            seed: *seed,
        }
        .run(),
        Work::Idle {
            size,
            file,
            seconds,
            reads,
            seed,
        } => idle::Idle {
            size: *size,
            file: file.clone(),
            seconds: *seconds,
            reads: *reads,
            seed: *seed,
        }
        .run(),
        Work::Compile { functions, dir } => compile::run(*functions, dir),
        Work::Redis {
            keys,
            requests,
            dir,
            seed,
        } => redis::run(*keys, *requests, dir, *seed),
    };
    done.map(|()| ExitCode::SUCCESS)
        .map_err(|why| Failure::new(Status::Internal, "bench-work", why, "report this"))
}
