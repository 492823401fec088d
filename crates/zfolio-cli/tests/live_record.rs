//! `zfolio run --record` and `zfolio plot`.

mod live;
#[path = "support/nobody.rs"]
mod nobody;
mod support;

use live::{Live, zfolio};
use serde_json::Value;
use std::fs;
use std::thread;
use std::time::Duration;

#[test]
fn a_run_is_recorded_and_drawn() {
    let dir = support::tempdir();
    let (record, picture) = (dir.path().join("record"), dir.path().join("out.svg"));
    let (record, picture) = (
        record.to_str().expect("text"),
        picture.to_str().expect("text"),
    );
    let Some(mut live) = Live::start(&["--record", record]) else {
        return;
    };
    live.reads();
    thread::sleep(Duration::from_millis(1200));
    live.reads();
    // While it lasts, too.
    zfolio(&["plot", record, "-o", picture]).succeeded();
    let end = live.end();
    let text = fs::read_to_string(record).expect("a record");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let [header, samples @ ..] = &lines[..] else {
        panic!("{text}")
    };
    assert_eq!(header["zfolio"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        (&header["record"], &header["every_s"]),
        (&1.into(), &1.into())
    );
    assert_eq!(header["command"][0], "python3");
    assert_eq!(header["config"]["high_bytes"], 32 << 20);
    assert!(samples.len() >= 3, "{text}");
    let most = |name: &str| {
        samples
            .iter()
            .map(|one| one[name].as_u64().expect(name))
            .max()
    };
    for name in [
        "program_bytes",
        "resident_bytes",
        "pool_bytes",
        "stored_bytes",
    ] {
        assert!(most(name) > Some(1 << 20), "{name}: {text}");
    }
    let last = samples.last().expect("a sample");
    let total = &end["total"];
    assert_eq!(
        last["pages_out"], total["counters"]["pages_out"],
        "the last is of the end"
    );
    assert_eq!(last["faults"], total["faults"]["all"]["count"]);
    assert_eq!(last["processes"], 0);
    zfolio(&["plot", record, "-o", picture]).succeeded();
    let svg = fs::read_to_string(picture).expect("a picture");
    for part in ["memory (MiB)", "time (s)", "moved (MiB/s)", "python3 -c"] {
        assert!(svg.contains(part), "{part}");
    }
    assert_eq!(svg.matches("<polyline").count(), 8);
    // What it did: managed at once, it moved and waited, or rested between.
    assert!(svg.contains(">waiting at high<") && svg.matches("<rect").count() > 5);
    let picture = dir.path().join("out.png");
    let path = picture.to_str().expect("text");
    zfolio(&["plot", record, "-o", path]).succeeded();
    let png = fs::read(&picture).expect("a picture");
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 10_000);
    let other = zfolio(&["plot", record, "-o", "out.gif"]);
    assert_eq!(other.status.code(), Some(2), "{}", other.stderr);
    let pipe = zfolio(&["run", "--record", "/dev/null", "--", "true"]);
    assert_eq!(pipe.status.code(), Some(73), "{}", pipe.stderr);
}
