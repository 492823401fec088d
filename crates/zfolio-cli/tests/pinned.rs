//! What cannot leave stays, with its bytes; and is told of where `high` is not kept.

mod support;

use support::{compile, managed};

const MIB: u64 = 1 << 20;

#[test]
fn what_may_only_be_read_stays_and_is_told_of() {
    let Some(z) = managed() else { return };
    let program = compile("readonly");
    let program = program.to_str().expect("a plain path");
    let output = z.run("48M", &[program, "96"]);
    output.succeeded();
    let stays = output.counter("stays_read_only_bytes");
    assert!(stays > 24 * MIB && stays <= 97 * MIB, "{stays} bytes");
    let told = output.stderr.lines();
    let told: Vec<_> = told
        .filter(|line| line.contains("high was not kept"))
        .collect();
    assert_eq!(told.len(), 1, "{}", output.stderr);
    assert!(told[0].contains("MiB read-only"), "{}", told[0]);
}

#[test]
fn nothing_is_told_where_high_is_kept() {
    let Some(z) = managed() else { return };
    let program = compile("readonly");
    let program = program.to_str().expect("a plain path");
    let output = z.run("192M", &[program, "96"]);
    output.succeeded();
    assert!(!output.stderr.contains("not kept"), "{}", output.stderr);
    assert_eq!(output.counter("stays_read_only_bytes"), 0);
}
