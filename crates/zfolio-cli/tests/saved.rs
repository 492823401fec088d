//! `zfolio bench saved` as a command: what is refused, and that its table and its
//! JSON say the same of a run small enough for a test.

mod support;

use serde_json::Value;
use std::fs;
use support::{finish, tempdir, zfolio};

#[test]
fn mistakes_are_told_before_the_work_begins() {
    for (args, status, told) in [
        (&["--workload", "sort"][..], 2, "sort"),
        (&["--only", "gzip"], 2, "gzip"),
        (&["--size", "1M"], 2, "--size"),
        (&["--size", "90%"], 2, "--size"),
        (&["--slowdown", "0"], 2, "--slowdown"),
        (&["--seconds", "0"], 2, "--seconds"),
        (&["--runs", "0"], 2, "--runs"),
        (&["--faults", "telepathy"], 2, "--faults"),
        (&["--paired", "both"], 2, "--paired"),
        (&["--workload", "memory", "--", "true"], 2, "--workload"),
        (&["--json", "/no/such/x.json"], 73, "--json"),
        (&["--plot", "/no/such/x.svg"], 73, "--plot"),
    ] {
        let all = [&["bench", "saved"], args].concat();
        let output = finish(&mut zfolio().command(&all), "");
        assert_eq!(output.status.code(), Some(status), "{}", output.stderr);
        assert_eq!(output.stdout, "", "{all:?}");
        assert!(output.stderr.contains(told), "{}", output.stderr);
    }
}

/// Middle of an odd number of figures.
fn median(of: &Value) -> f64 {
    let figures = of.as_array().expect("figures").iter();
    let mut figures: Vec<f64> = figures.filter_map(Value::as_f64).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A small search, and what it printed: five times the time is allowed, since how
/// much is stored is asked here, not how fast.
fn searched() -> Option<(Value, String)> {
    let z = support::real()?;
    let dir = tempdir();
    let (json, plot) = (dir.path().join("out.json"), dir.path().join("out.svg"));
    let options = "bench saved --quick --slowdown 400 --workload memory --only zstd";
    let mut command = z.command(options.split_whitespace());
    command.arg("--json").arg(&json).arg("--plot").arg(&plot);
    let output = finish(&mut command, "");
    output.succeeded();
    assert!(fs::read_to_string(&plot).expect("drawn").contains("zstd"));
    let text = fs::read_to_string(&json).expect("--json was written");
    Some((serde_json::from_str(&text).expect("JSON"), output.stdout))
}

#[test]
fn what_is_saved_is_found_and_adds_up() {
    let percent = |found: &Value| {
        let saved = &found["programs"][0]["columns"][0]["saved"];
        saved["percent"].as_f64().unwrap_or(0.0)
    };
    let found = support::until(searched, |(found, _)| {
        support::check(percent(found) > 1.0, || found.to_string())
    });
    let Some((found, text)) = found else { return };
    assert!(text.contains("no more than 400 % slowdown"), "{text}");
    assert_eq!(found["slowdown_percent"], 400);
    let program = &found["programs"][0];
    let column = &program["columns"][0];
    assert!(column["failed"].is_null(), "{column}");
    let saved = &column["saved"];
    let number = |name: &str| saved[name].as_f64().expect("a figure");
    // Something was stored, and the records in it halve at least.
    assert!(
        number("pool_ratio") > 1.5 && percent(&found) < 100.0,
        "{saved}"
    );
    assert!(saved["slowdown_percent"]["curve"].as_f64() <= Some(400.0));
    let mut tried = column["tried"].as_array().expect("tried").iter();
    let at = tried.find(|tried| tried["high"] == saved["high"]);
    let at = at.expect("it was tried");
    assert_eq!(median(&at["used"]), number("used"));
    assert!(at["times"][0].as_f64() <= Some(5.0), "{column}");
    // Beside runs without a limit, where there are two processors.
    let pairs = program["alike"].as_array().expect("pairs").len();
    assert_eq!(found["paired"], pairs == 1, "{program}");
    let need = median(&program["memory"]);
    assert!(
        (need - number("used") - number("bytes")).abs() < 1.0,
        "{program}"
    );
    let line = format!("zstd {:.0} %.", percent(&found));
    assert!(text.contains(&line), "{line} in {text}");
}

/// The controller's row, of a command of one's own.
#[test]
fn a_command_of_ones_own_is_run_by_the_controller() {
    let Some(z) = support::real() else { return };
    let dir = tempdir();
    let json = dir.path().join("out.json");
    let run = |work: &str| {
        let mut command = z.command("bench saved --quick --runs 2 --only slowdown".split(' '));
        command
            .arg("--json")
            .arg(&json)
            .args(["--", "sh", "-c", work]);
        finish(&mut command, "")
    };
    let output = run("echo done");
    output.succeeded();
    assert!(
        output.stdout.contains("sh -c echo done"),
        "{}",
        output.stdout
    );
    assert!(output.stdout.contains("of 2 runs"), "{}", output.stdout);
    let text = fs::read_to_string(&json).expect("--json was written");
    let found: Value = serde_json::from_str(&text).expect("JSON");
    let controlled = &found["programs"][0]["columns"][0]["controlled"];
    assert_eq!(
        controlled["runs"].as_array().map(Vec::len),
        Some(2),
        "{found}"
    );
    // What prints something else each time has no result that could be compared.
    let output = run("echo $$");
    assert!(output.stdout.contains("its result is"), "{}", output.stdout);
}
