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
mod memory;
mod redis;

use super::args::{BenchWork, Work};
use crate::exit::{Failure, Status};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

/// Runs the workload that was asked for.
///
/// # Errors
/// When it cannot be run, or data was damaged.
pub(crate) fn work(args: &BenchWork) -> Result<ExitCode, Failure> {
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

/// Prints a line of a phase.
fn tell(phase: &str, value: f64, unit: &str) {
    print_line(&json!({ "phase": phase, "value": value, "unit": unit }));
}

/// Prints a line of what must be the same everywhere.
fn check(value: &str) {
    print_line(&json!({ "check": value }));
}

fn print_line(line: &Value) {
    let mut out = std::io::stdout();
    // Nobody may be reading any more.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// FNV-1a, 64 bits: a short name for many bytes.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
