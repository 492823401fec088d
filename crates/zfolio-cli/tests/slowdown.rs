//! `zfolio run --slowdown`: memory is taken where little is lost, nothing while a program grows,
//! and little of one that uses all it has; every word is what it was. `zfolio advise` finds a
//! point. What is asked for is generous, and what is looked at are counters: on a machine that
//! others use as well a program loses more than it does alone.

mod memory;
mod support;

use memory::compiled;
use serde_json::Value;
use std::fs;
use std::sync::Mutex;
use support::{Output, check, finish};

/// They measure themselves: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn run(options: &[&str], words: &[&str]) -> Option<Output> {
    run_by(&[], options, words)
}

/// The same, the program started by another command.
fn run_by(starts: &[&str], options: &[&str], words: &[&str]) -> Option<Output> {
    let z = support::real()?;
    let program = compiled("slowdown")?;
    let program = program.to_str().expect("a path of text");
    let _alone = ALONE.lock().unwrap_or_else(|of| of.into_inner());
    let all: Vec<&str> = starts
        .iter()
        .chain(&[program])
        .chain(words)
        .copied()
        .collect();
    let output = z.run_with(options, &all, "");
    output.succeeded();
    assert_eq!(
        output.stats["processes_managed"].as_u64().map(|of| of <= 1),
        Some(true)
    );
    Some(output)
}

fn figure(output: &Output, name: &str) -> f64 {
    let value = &output.stats["slowdown"][name];
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {}", output.stats["slowdown"]))
}

fn told(output: &Output) -> String {
    format!("{} {}", output.stats["slowdown"], output.stderr)
}

#[test]
fn what_is_cold_is_taken() {
    let options = ["--slowdown", "30%"];
    let seen = support::until(
        || run(&options, &["cold", "200", "5", "seconds"]),
        |output| {
            let (needed, had) = (
                figure(output, "needed_since_bytes"),
                figure(output, "resident_since_bytes"),
            );
            let moved = output.counter("pages_out") > 4096 && figure(output, "steps_down") > 3.0;
            let kept = figure(output, "estimated_percent") < 45.0;
            check(moved && kept && had < needed * 0.9, || told(output))
        },
    );
    if let Some(output) = seen {
        assert_eq!(output.stats["config"]["slowdown_percent"], 30.0);
        assert!(output.stderr.contains("(asked 30 %)"), "{}", output.stderr);
        // Dense from the start: what is in the pool takes a third, by zstd.
        assert!(output.counter("zswpout") > 0);
    }
}

/// What zfolio's threads do on the only processor that the program may use is a loss of the program's, whether
/// others are idle or not.
#[test]
fn on_one_processor_the_time_of_our_threads_is_lost() {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is one");
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first: String = allowed
        .expect("a list")
        .trim()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let options = ["--slowdown", "30%", "--faults", "message"];
    let words = ["cold", "200", "5", "seconds"];
    let seen = run_by(&["taskset", "-c", &first], &options, &words);
    let Some(output) = seen else { return };
    let lost = figure(&output, "estimated_percent") / 100.0 * figure(&output, "run_s");
    let reclaim = std::time::Duration::from_nanos(output.counter("reclaim_ns")).as_secs_f64();
    assert!(output.counter("pages_out") > 1024, "{}", told(&output));
    // (What of it comes after the last look is not in the estimate.)
    assert!(
        reclaim > 0.0 && lost > 0.7 * reclaim,
        "{lost} {reclaim} {}",
        told(&output)
    );
    assert!(output.counter("reclaim_ns") <= output.counter("manager_cpu_ns"));
}

/// Without privilege the program's own calls take what is cold.
#[test]
fn what_is_cold_is_taken_by_calls() {
    let Some(z) = support::real() else { return };
    for way in support::ways_without_privilege(z) {
        let options = ["--slowdown", "40%", "--faults", way];
        support::until(
            || run(&options, &["serve", "160", "5", "seconds"]),
            |output| {
                let (needed, had) = (
                    figure(output, "needed_since_bytes"),
                    figure(output, "resident_since_bytes"),
                );
                let moved = output.counter("pages_out") > 2048;
                let (inline, reclaim) = (output.counter("inline_ns"), output.counter("reclaim_ns"));
                let done = reclaim > 0 && inline > reclaim;
                check(moved && done && had < needed * 0.97, || told(output))
            },
        );
    }
}

/// Without privilege each call takes longer, whatever memory there is: what that costs is not there to be spent on memory.
#[test]
fn what_calls_cost_is_counted() {
    let Some(z) = support::real() else { return };
    for way in support::ways_without_privilege(z) {
        let options = ["--slowdown", "3%", "--faults", way];
        let Some(output) = run(&options, &["ask", "64", "4", "seconds"]) else {
            return;
        };
        let told_by_it: Value = serde_json::from_str(&output.stdout).expect("a line of JSON");
        let made = told_by_it["did"].as_u64().expect("reads") / 20;
        let seen = output.counter("calls_seen");
        assert!(
            (made - made / 20..made + 10_000).contains(&seen),
            "{way}: {seen}"
        );
        let [of_calls, of_all] =
            ["calls_percent", "estimated_percent"].map(|of| figure(&output, of));
        let by_count = seen as f64 / 1e7 / figure(&output, "run_s") * 100.0;
        assert!(
            of_calls > by_count / 2.0 && of_calls <= of_all,
            "{way}: {}",
            told(&output)
        );
        assert!(
            output.stderr.contains("system calls"),
            "{way}: {}",
            output.stderr
        );
        // (The first step shows it: before that nothing is said of a process.)
        let [needed, had] =
            ["needed_since_bytes", "resident_since_bytes"].map(|of| figure(&output, of));
        assert!(had > 0.9 * needed, "{way}: {}", told(&output));
    }
}

/// A program that grows, sleeps, reads all and works here and there: every word is right, whoever is told of faults.
#[test]
fn a_life_of_phases_is_followed() {
    let Some(z) = support::real() else { return };
    let mut ways = vec!["message"];
    ways.extend(support::ways_without_privilege(z));
    for way in ways {
        let options = ["--slowdown", "40%", "--faults", way];
        let seen = run(&options, &["life", "64", "30000000"]);
        assert!(
            seen.is_none_or(|output| figure(&output, "run_s") > 0.0),
            "{way}"
        );
    }
}

/// Two programs in one run, one that uses all of its memory and one that uses a tenth: memory is where
/// it is used.
#[test]
fn memory_is_taken_of_the_program_that_uses_it_least() {
    let (Some(z), Some(program)) = (support::real(), compiled("slowdown")) else {
        return;
    };
    let path = program.to_str().expect("a path of text");
    let both = format!("{path} scan 120 8 seconds & {path} cold 120 8 seconds && wait $!");
    let once = || {
        let _alone = ALONE.lock().unwrap_or_else(|of| of.into_inner());
        let output = z.run_with(&["--slowdown", "40%"], &["sh", "-c", &both], "");
        output.succeeded();
        Some(output)
    };
    support::until(once, |output| {
        let (changes, steps) = (figure(output, "weighed"), figure(output, "steps_down"));
        check(changes >= 4.0 && steps > 3.0, || told(output))
    });
}

#[test]
fn a_floor_is_kept() {
    let options = ["--slowdown", "50%", "--low", "190M", "--high", "1G"];
    let Some(output) = run(&options, &["cold", "200", "3", "seconds"]) else {
        return;
    };
    assert!(
        figure(&output, "least_high_bytes") >= f64::from(190 << 20),
        "{}",
        told(&output)
    );
    assert_eq!(output.stats["config"]["high_bytes"], 1 << 30);
    assert_eq!(output.stats["config"]["low_bytes"], 190 << 20);
}

#[test]
fn nothing_is_taken_of_one_that_grows() {
    let seen = support::until(
        || run(&["--slowdown", "5%"], &["grow", "200", "100"]),
        |output| check(figure(output, "steps_down") == 0.0, || told(output)),
    );
    if let Some(output) = seen {
        assert_eq!(output.counter("pages_out"), 0, "{}", told(&output));
        assert!(
            output.stderr.contains("slowdown: nothing was taken"),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn little_is_taken_of_one_that_reads_all() {
    let seen = support::until(
        || run(&["--slowdown", "5%"], &["scan", "200", "4", "seconds"]),
        |output| {
            let (needed, had) = (
                figure(output, "needed_mean_bytes"),
                figure(output, "resident_mean_bytes"),
            );
            check(had > needed * 0.75, || told(output))
        },
    );
    assert!(seen.is_none_or(|output| output.stats["slowdown"]["phase"] != Value::Null));
}

#[test]
fn stat_says_what_it_has_come_to() {
    let Some(z) = support::real() else { return };
    let Some(program) = compiled("slowdown") else {
        return;
    };
    let _alone = ALONE.lock().unwrap_or_else(|of| of.into_inner());
    let mut command = z.command(["run", "--slowdown", "2.5%", "--"]);
    command.arg(program).args(["cold", "64", "60", "seconds"]);
    let child = support::Guard(command.spawn().expect("it starts"));
    let begin = std::time::Instant::now();
    loop {
        let stat = z.command(["stat", &child.0.id().to_string()]).output();
        let told = String::from_utf8_lossy(&stat.expect("it runs").stdout).into_owned();
        if told
            .lines()
            .any(|line| line.starts_with("slowdown: ") && line.ends_with("(asked 2.5 %)"))
        {
            break;
        }
        assert!(begin.elapsed().as_secs() < 60, "{told}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let z = support::zfolio();
    for (options, why) in [
        (&["--slowdown", "0%"][..], "between"),
        (&["--slowdown", "fast"], "percent"),
        (&["--low", "64M"], "--slowdown"),
        (&["--slowdown", "5%", "--per-process"], "--per-process"),
        (
            &["--slowdown", "5%", "--high", "64M", "--low", "65M"],
            "above --high",
        ),
    ] {
        let mut command = z.command(["run"]);
        let ran = command
            .args(options)
            .args(["--", "true"])
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!(ran.status.code(), Some(2), "{options:?}: {told}");
        assert!(told.contains(why), "{options:?}: {told}");
    }
}

#[test]
fn advise_draws_a_curve() {
    let Some(z) = support::real() else { return };
    let Some(program) = compiled("slowdown") else {
        return;
    };
    let _alone = ALONE.lock().unwrap_or_else(|of| of.into_inner());
    let dir = support::tempdir();
    let (json, plot) = (dir.path().join("curve.json"), dir.path().join("curve.svg"));
    let mut command = z.command(["advise", "--slowdown", "100%", "--json"]);
    command.arg(&json).arg("--plot").arg(&plot).arg("--");
    command.arg(program).args(["cold", "48", "15000000"]);
    let ran = support::finish(&mut command, "");
    ran.succeeded();
    assert!(ran.stdout.contains("slowdown, %"), "{}", ran.stdout);
    let json: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert!(
        json["points"]
            .as_array()
            .is_some_and(|points| !points.is_empty()),
        "{json}"
    );
    assert_eq!(json["bare_wall_s"].as_array().map(Vec::len), Some(2));
    assert!(std::fs::read_to_string(plot).unwrap().contains("<svg"));
}

/// `zfolio advise --once`: the curve of one run falls in memory and rises in cost, and what is advised is on it.
#[test]
fn one_run_is_enough_for_advice() {
    let (Some(z), Some(program)) = (support::real(), compiled("slowdown")) else {
        return;
    };
    let path = program.to_str().expect("a path of text");
    let dir = support::tempdir();
    let [json, plot] = ["advice.json", "advice.svg"].map(|name| dir.path().join(name));
    let _alone = ALONE.lock().unwrap_or_else(|of| of.into_inner());
    let once = || {
        let mut command = z.command(["advise", "--once", "--slowdown", "40%", "--json"]);
        command.arg(&json).arg("--plot").arg(&plot).arg("--");
        let output = finish(command.args([path, "cold", "120", "8", "seconds"]), "");
        output.succeeded();
        Some(output)
    };
    support::until(once, |output| {
        let text = fs::read_to_string(&json).expect("JSON is written");
        let told: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(told["experiment"], "advise");
        let levels = told["levels"].as_array().expect("levels");
        let figures = |name: &str| -> Vec<f64> {
            let of = levels.iter().map(|level| level[name].as_f64());
            of.map(|of| of.expect("a number")).collect()
        };
        let (had, lost) = (figures("had_bytes"), figures("lost_percent"));
        assert!(had.is_sorted_by(|more, less| more > less), "{told}");
        assert!(lost.is_sorted(), "{told}");
        let drawn = fs::read_to_string(&plot).expect("a plot is written");
        assert!(
            drawn.starts_with("<svg") || drawn.starts_with("<?xml"),
            "{drawn}"
        );
        let advice = output
            .stdout
            .lines()
            .find(|line| line.starts_with("Take --high "));
        let size = advice.and_then(|line| line["Take --high ".len()..].split(':').next());
        let size = size.and_then(|size| size.strip_suffix('M')?.parse::<f64>().ok());
        let is_on_it = |size: f64| {
            had.iter()
                .any(|had| (had / 1_048_576.0 - size).abs() <= 1.0)
        };
        support::check(size.is_some_and(is_on_it) && levels.len() > 3, || {
            format!("{} {told}", output.stdout)
        })
    });
}
