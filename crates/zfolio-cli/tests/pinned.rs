//! What cannot leave stays, with its bytes; and is told of where `high` is not kept.

mod memory;
mod support;

use memory::compiled;
use support::{Output, Zfolio, compile, managed, tempdir, ways_without_privilege};

const MIB: u64 = 1 << 20;

/// Runs `tests/programs/readonly.c` with 96 MiB that may only be read.
fn read_only(z: &Zfolio, high: &str) -> Output {
    let dir = tempdir();
    let source = include_str!("../../../tests/programs/readonly.c");
    let program = compile(dir.path(), "readonly", source, &[]).expect("cc compiles it");
    z.run(high, &[program.to_str().expect("a plain path"), "96"])
}

#[test]
fn what_may_only_be_read_stays_and_is_told_of() {
    let Some(z) = managed() else { return };
    let output = read_only(z, "48M");
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
    let output = read_only(z, "192M");
    output.succeeded();
    assert!(!output.stderr.contains("not kept"), "{}", output.stderr);
    assert_eq!(output.counter("stays_read_only_bytes"), 0);
}

/// The kernel holds the pages of a direct read or write while a file system answers, which is a
/// process of the tree itself, whose requests are records.
#[test]
fn what_a_file_system_in_user_space_transfers() {
    let (Some(z), Some(program)) = (managed(), compiled("inthread_fuse")) else {
        return;
    };
    let program = [program.to_str().expect("a plain path")];
    let ways = ["message"].into_iter().chain(ways_without_privilege(z));
    for way in ways {
        let options = ["--quiet", "--faults", way, "--high", "12M"];
        let output = z.run_with(&options, &program, "");
        output.succeeded();
        if output.stdout.contains("SKIPPED") {
            return support::skip(&output.stdout);
        }
        assert!(output.counter("pages_out") > 1000, "{}", output.stats);
    }
}
