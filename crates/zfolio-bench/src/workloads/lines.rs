//! The lines a workload prints: phases, and what must be the same everywhere.

use serde_json::{Value, json};
use std::io::Write;

/// Prints a line of a phase.
pub(super) fn tell(phase: &str, value: f64, unit: &str) {
    print_line(&json!({ "phase": phase, "value": value, "unit": unit }));
}

/// Prints a line of what must be the same everywhere.
pub(super) fn check(value: &str) {
    print_line(&json!({ "check": value }));
}

pub(super) fn print_line(line: &Value) {
    let mut out = std::io::stdout();
    // Nobody may be reading any more.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// FNV-1a, 64 bits: a short name for many bytes.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
