//! A process that lives long has at its end what it had at its start. The long form is in
//! docs/architecture.md; this one is short enough for every run.

mod memory;
mod support;

use memory::compiled;

/// A line of `long_life`, without the times.
#[derive(Debug)]
struct Line {
    resident_mib: u64,
    mappings: u64,
    descriptors: u64,
}

/// The lines of a run after the first tenth, in which all is set up.
#[track_caller]
fn lines(args: &[&str]) -> Option<(Vec<Line>, u64)> {
    let z = support::by_messages()?;
    let path = compiled("long_life")?;
    let path = path.to_str().expect("a plain path");
    let command: Vec<&str> = [path].into_iter().chain(args.iter().copied()).collect();
    let output = z.run_with(&["--quiet", "--high", "64M"], &command, "");
    output.succeeded();
    let line = |text: &str| {
        let fields: Vec<f64> = text
            .split_whitespace()
            .map(|field| field.parse().expect("a number"))
            .collect();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts"
        )]
        let count = |at: usize| fields[at] as u64;
        Line {
            resident_mib: count(3),
            mappings: count(4),
            descriptors: count(5),
        }
    };
    let lines: Vec<Line> = output.stdout.lines().map(line).collect();
    assert_eq!(lines.len(), 11, "{}", output.stdout);
    Some((lines, output.counter("manager_heap_peak_bytes")))
}

#[test]
fn malloc_and_free_leave_nothing_behind() {
    const MIB: u64 = 1 << 20;
    let Some((short, little)) = lines(&["heap", "1"]) else {
        return;
    };
    let Some((long, much)) = lines(&["heap", "4"]) else {
        return;
    };
    for line in short.iter().chain(&long) {
        assert!(line.resident_mib <= 72, "{line:?}");
        // (Managed and not, the allocator's own mappings come and go.)
        assert!(line.mappings < 400, "{line:?}");
    }
    assert_eq!(short[1].descriptors, long[10].descriptors);
    assert!(
        much < little + 4 * MIB,
        "{little} bytes of the manager's after 1 GiB, {much} after 4"
    );
}
