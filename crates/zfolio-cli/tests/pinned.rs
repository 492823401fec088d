//! What cannot leave stays, with its bytes; and is told of where `high` is not kept.

mod memory;
mod support;

use memory::compiled;
use support::{
    Output, Zfolio, by_messages, compile, managed, real, tempdir, ways_without_privilege,
};

const MIB: u64 = 1 << 20;

/// Runs `tests/programs/readonly.c` with 96 MiB that cannot leave.
fn staying(z: &Zfolio, way: &str, high: &str, words: &[&str]) -> Output {
    let dir = tempdir();
    let source = include_str!("../../../tests/programs/readonly.c");
    let program = compile(dir.path(), "readonly", source, &[]).expect("cc compiles it");
    let program = [program.to_str().expect("a plain path"), "96"];
    let program = [&program[..], words].concat();
    let output = z.run_with(&["--faults", way, "--high", high], &program, "");
    output.succeeded();
    output
}

/// The line that tells of it, with what the counter of that reason says, bytes.
fn told_of(output: &Output, counter: &str) -> (String, u64) {
    let told = output.stderr.lines();
    let told: Vec<_> = told
        .filter(|line| line.contains("high was not kept"))
        .collect();
    let [line] = told[..] else {
        panic!("not one line of it: {}", output.stderr);
    };
    (line.to_owned(), output.counter(counter))
}

#[test]
fn what_cannot_leave_stays_and_is_told_of() {
    let Some(z) = real() else { return };
    let all = ["message"].into_iter().chain(ways_without_privilege(z));
    for way in all {
        let output = staying(z, way, "48M", &[]);
        if way != "message" {
            // (Without privilege it leaves.)
            assert!(!output.stderr.contains("not kept"), "{}", output.stderr);
            assert!(output.counter("pages_out") > 64 * MIB / 4096);
            continue;
        }
        let (line, stays) = told_of(&output, "stays_read_only_bytes");
        assert!(stays > 24 * MIB && stays <= 97 * MIB, "{way}: {stays}");
        assert!(line.contains("MiB read-only"), "{way}: {line}");
    }
    // (What is managed is far below `high` here, and begins to leave since all of it counts.)
    for way in ways_without_privilege(z) {
        let output = staying(z, way, "48M", &["grows"]);
        assert!(output.counter("pages_out") > 1000, "{way}");
        let (line, stays) = told_of(&output, "stays_apart_bytes");
        assert!(stays > 80 * MIB && stays < 105 * MIB, "{way}: {stays}");
        assert!(line.contains("MiB stack and small"), "{way}: {line}");
    }
}

/// Who is above `high` for a moment only, and ends, is told of as well.
#[test]
fn it_is_told_of_programs_that_run_for_milliseconds() {
    let Some(z) = real() else { return };
    for way in ways_without_privilege(z) {
        let output = staying(z, way, "48M", &["grows", "0"]);
        let (line, stays) = told_of(&output, "stays_apart_bytes");
        // (Where the kernel keeps no names of memory as much as is ours is taken off.)
        assert!(stays > 56 * MIB && stays < 105 * MIB, "{way}: {stays}");
        assert!(line.contains("MiB stack and small"), "{way}: {line}");
    }
}

#[test]
fn nothing_is_told_where_high_is_kept() {
    let Some(z) = real() else { return };
    let all = ["message"].into_iter().chain(ways_without_privilege(z));
    for way in all {
        let output = staying(z, way, "192M", &[]);
        assert!(!output.stderr.contains("not kept"), "{}", output.stderr);
        assert_eq!(output.counter("stays_read_only_bytes"), 0, "{way}");
    }
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

/// io_uring, io_setup: as by a kernel without them, or the process is managed no longer.
#[test]
fn addresses_that_the_kernel_keeps() {
    let (Some(z), Some(program)) = (real(), compiled("inthread_uring")) else {
        return;
    };
    let path = program.to_str().expect("a plain path");
    for way in ways_without_privilege(z) {
        for (asked, state) in [("refuse", "managing"), ("unmanaged", "unmanaged")] {
            let options = ["--faults", way, "--high", "16M", "--io-uring", asked];
            let output = z.run_with(&options, &[path, asked], "");
            output.succeeded();
            if output.stdout.contains("SKIPPED") {
                return support::skip(&output.stdout);
            }
            assert_eq!(output.stats["config"]["io_uring"], asked);
            assert!(output.counter("pages_out") > 1000, "{way}, {asked}");
            let process = &output.stats["processes"][0];
            assert_eq!(process["state"], state, "{way}: {process}");
            let told = output.stderr.contains("it has the kernel keep addresses");
            assert_eq!(told, asked == "unmanaged", "{way}: {}", output.stderr);
        }
    }
    // Not said, it runs as it does bare where it could be managed by messages.
    if let Some(z) = by_messages() {
        let options = ["--faults", "in-thread", "--high", "16M"];
        let output = z.run_with(&options, &[path, "unmanaged"], "");
        output.succeeded();
        assert_eq!(output.stats["config"]["io_uring"], "unmanaged");
        assert_eq!(output.stats["processes"][0]["state"], "unmanaged");
    }
}
