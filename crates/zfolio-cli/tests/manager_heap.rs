//! The manager's own memory: bounded by what it has to remember, whatever the program does
//! and however often.

mod memory;
mod support;

use memory::compiled;
use support::Output;

const MIB: u64 = 1 << 20;

/// Runs a mode of `large_discards`; the manager's heap at its peak, bytes.
#[track_caller]
fn heap_peak(high: &str, mode: &str, count: &str) -> Option<(Output, u64)> {
    let z = support::by_messages()?;
    let path = compiled("large_discards")?;
    let path = path.to_str().expect("a plain path");
    let output = z.run_with(&["--quiet", "--high", high], &[path, mode, count], "");
    output.succeeded();
    let peak = output.counter("manager_heap_peak_bytes");
    assert!(peak > 0, "{}", output.stats);
    Some((output, peak))
}

#[test]
fn large_discards_of_many_sizes_leave_nothing_behind() {
    let Some((_, few)) = heap_peak("64M", "sizes", "2") else {
        return;
    };
    let Some((output, many)) = heap_peak("64M", "sizes", "600") else {
        return;
    };
    assert!(output.counter("removes") >= 600);
    assert!(many < few + MIB, "{few} bytes after 2, {many} after 600");
}

#[test]
fn a_page_in_each_extent_of_a_large_reservation() {
    let Some((_, few)) = heap_peak("64M", "sparse", "200") else {
        return;
    };
    let Some((output, many)) = heap_peak("64M", "sparse", "20200") else {
        return;
    };
    assert!(output.counter("pages_out") > 10_000);
    let each = many.saturating_sub(few) / 20_000;
    assert!(each < 700, "{each} bytes for an extent with one page");
}

#[test]
fn extents_whose_pages_were_discarded_are_forgotten() {
    let Some((_, few)) = heap_peak("64M", "vanish", "200") else {
        return;
    };
    let Some((_, many)) = heap_peak("64M", "vanish", "20200") else {
        return;
    };
    assert!(
        many < few + MIB,
        "{few} bytes after 200, {many} after 20200"
    );
}
