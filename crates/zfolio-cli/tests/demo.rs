//! The built-in demonstration, and its workload under `zfolio run`, measured
//! from outside.

mod support;

use support::{finish, real};

#[test]
fn the_demonstration_keeps_its_promises() {
    let Some(z) = real() else { return };
    let output = finish(
        &mut z.command(["demo", "--size", "256M", "--high", "100M"]),
        "",
    );
    let table = &output.succeeded().stdout;
    for row in ["peak resident memory", "fill", "read at random", "verify"] {
        assert!(table.contains(row), "{row}: {table}");
    }
    assert!(table.lines().any(|line| {
        line.split_whitespace()
            .eq(["every", "record", "right", "yes", "yes"])
    }));
}

#[test]
fn what_zfolio_says_is_what_the_kernel_says() {
    const HIGH: u64 = 100 << 20;
    let Some(z) = real() else { return };
    let exe = z.exe().to_str().expect("a plain path");
    let run = || Some(z.run("100M", &[exe, "demo-work", "--size", "256M"]));
    let output = support::until(run, |output| {
        output.succeeded();
        let peak = output.peak_rss();
        support::check(peak < HIGH + HIGH / 10 + (16 << 20), || {
            format!("{peak} bytes resident")
        })?;
        // Sampled at different instants, by different means.
        let told = output.counter("resident_peak_bytes");
        support::check(told.abs_diff(peak) < HIGH / 4, || {
            format!("{told} told, {peak} seen")
        })
    });
    let Some(output) = output else { return };
    assert!(
        output.counter("program_peak_bytes") >= 256 << 20,
        "{}",
        output.stats["total"]
    );
    assert!(output.counter("zswpout") > 0 && output.counter("zswpin") > 0);
    let held = &output.stats["total"]["most_held"];
    assert!(held["ratio_compressed"].as_f64() > Some(2.0), "{held}");
    assert!(
        held["pool_bytes"].as_u64() >= held["compressed_bytes"].as_u64(),
        "{held}"
    );
}

#[test]
fn sizes_that_compare_nothing_are_refused() {
    let z = support::zfolio();
    let output = finish(
        &mut z.command(["demo", "--size", "64M", "--high", "128M"]),
        "",
    );
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
}
