//! Processes of one run share one `high`.

mod memory;
mod support;

use memory::compiled;
use support::Output;

/// Runs `count` times `plain 96 300` at once under 48 MiB.
fn together(count: usize, more: &[&str]) -> Option<Output> {
    let z = support::by_messages()?;
    let program = compiled("plain")?;
    let one = format!("{} 96 300 & ", program.display());
    // Each wait gives the status of one.
    let script = format!(
        "{} for job in $(jobs -p); do wait $job || exit 1; done",
        one.repeat(count)
    );
    let options = [&["--high", "48M"], more].concat();
    let output = z.run_with(&options, &["bash", "-c", &script], "");
    output.succeeded();
    Some(output)
}

fn managed(output: &Output) -> u64 {
    output.stats["processes_managed"]
        .as_u64()
        .expect("a number")
}

#[test]
fn two_processes_live_within_one_high() {
    let shared = |output: &Output| {
        let peak = &output.stats["shared_resident_peak_bytes"];
        let peak = peak.as_u64().expect("a number") >> 20;
        // Before each knows of the other they grow to half of it, both.
        support::check((24..120).contains(&peak), || {
            format!("{peak} MiB at once, of 192 and of `high` 48")
        })
    };
    let Some(output) = support::until(|| together(2, &[]), shared) else {
        return;
    };
    assert_eq!(managed(&output), 2);
}

#[test]
fn each_has_its_own_if_that_is_asked_for() {
    let Some(output) = together(2, &["--per-process"]) else {
        return;
    };
    assert_eq!(output.stats["config"]["high_is_shared"], false);
    assert_eq!(output.stats["shared_resident_peak_bytes"], 0);
    assert_eq!(managed(&output), 2);
}

#[test]
fn what_a_killed_process_had_is_the_others() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("plain") else {
        return;
    };
    // One is killed; the other, alone with 48 MiB long after, has them all: a
    // program of 40 MiB fits, and nothing more moves in its last rounds.
    let script = format!(
        "{0} 64 100000 & other=$!; sleep 2; kill -9 $other; wait $other; sleep 3; exec {0} 36 300",
        program.display()
    );
    let run = || Some(z.run_with(&["--high", "48M"], &["bash", "-c", &script], ""));
    support::until(run, |output| {
        output.succeeded();
        let processes = output.stats["processes"].as_array().expect("a list");
        let largest = processes
            .iter()
            .map(|one| one["resident_peak_bytes"].as_u64().unwrap_or(0))
            .max();
        support::check(largest > Some(20 << 20), || format!("{largest:?}"))
    });
}

/// A run whose program starts others in groups of it.
#[test]
fn a_group_within_a_run_keeps_to_its_own_high() {
    let Some(z) = support::real() else { return };
    let Some(program) = compiled("plain") else {
        return;
    };
    let script = format!(
        "$ZFOLIO run --group small --high 24M -- {0} 96 300 & \
         ZFOLIO_GROUP=large/one {0} 48 300 & \
         for job in $(jobs -p); do wait $job || exit 1; done",
        program.display()
    );
    let exe = env!("CARGO_BIN_EXE_zfolio");
    let mut command = vec!["env"];
    let variable = format!("ZFOLIO={exe}");
    command.extend([&*variable, "bash", "-c", &*script]);
    let options = ["--high", "96M", "--swap-max", "1G"];
    let run = || Some(z.run_with(&options, &command, ""));
    support::until(run, |output| {
        output.succeeded();
        let groups = output.stats["groups"].as_array().expect("a list");
        let peak_of = |name: &str| {
            let group = groups.iter().find(|group| group["name"] == name);
            let group = group.unwrap_or_else(|| panic!("no {name} in {groups:?}"));
            group["resident_peak_bytes"].as_u64().expect("a number") >> 20
        };
        assert_eq!(groups.len(), 3);
        let small = (4..80).contains(&peak_of("small"));
        let large = peak_of("large") >= peak_of("large/one") && peak_of("large/one") > 0;
        support::check(small && large, || format!("{groups:?}"))
    });
}

#[test]
fn what_may_not_go_out_stays() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("plain") else {
        return;
    };
    let options = ["--high", "24M", "--swap-max", "16M"];
    let command = [program.to_str().expect("a path"), "48", "50"];
    let run = || Some(z.run_with(&options, &command, ""));
    support::until(run, |output| {
        output.succeeded();
        let peak = output.counter("resident_peak_bytes") >> 20;
        // What does not go whole any more goes in parts: to the last page that may.
        let folio = &output.stats["total"]["folios"]["hugepages-64kB"];
        let of = |name: &str| folio[name].as_u64().expect("a number");
        assert_eq!(of("split") + of("split_failed"), of("swpout_fallback"));
        support::check(peak > 26 && of("split") > 0, || {
            format!("{peak} MiB: of 48, 16 may be out; {folio}")
        })
    });
}

#[test]
fn the_size_of_a_backing_is_shared() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("plain") else {
        return;
    };
    let script = format!(
        "{0} 96 300 & {0} 96 300 & for job in $(jobs -p); do wait $job || exit 1; done",
        program.display()
    );
    let behind = |more: &[&str]| {
        let dir = support::tempdir();
        let backing = format!("file:{},size=4M", dir.path().display());
        let options = ["--high", "32M", "--max-pool", "10", "--backing", &backing];
        let options = [&options[..], more].concat();
        let output = z.run_with(&options, &["bash", "-c", &script], "");
        output.succeeded();
        assert_eq!(output.counter("backing_write_fail"), 0, "{}", output.stats);
        output
    };
    support::until(
        || Some(behind(&[])),
        |output| {
            let peak = &output.stats["shared_backing_peak_bytes"];
            let kib = peak.as_u64().expect("a number") >> 10;
            // Some clusters more in the moment before one knows of the other.
            let both = (2048..5633).contains(&kib) && output.counter("backing_full") > 0;
            support::check(both, || format!("{kib} KiB behind both of 4096"))
        },
    );
    let apart = behind(&["--per-process"]);
    assert_eq!(apart.stats["shared_backing_peak_bytes"], 0);
    assert!(apart.counter("pswpout") > 500, "{}", apart.stats);
}

#[test]
fn at_a_shared_max_one_of_two_is_ended() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("atmax") else {
        return;
    };
    // Each alone is within it. Together they are not: one is ended, and then
    // there is room for the other.
    let script = format!(
        "{0} 32 32 & one=$!; {0} 32 32 & other=$!; wait $one; echo $?; wait $other; echo $?",
        program.display()
    );
    let options = ["--high", "48M", "--max", "96M", "--on-max", "kill"];
    let run = || Some(z.run_with(&options, &["bash", "-c", &script], ""));
    support::until(run, |output| {
        let mut ends: Vec<&str> = output.stdout.lines().collect();
        ends.sort_unstable();
        support::check(ends == ["0", "70"], || {
            format!("{ends:?} {}", output.stderr)
        })?;
        assert!(
            output.stderr.contains("reached --max (96 MiB"),
            "{}",
            output.stderr
        );
        Ok(())
    });
}

#[test]
fn at_a_max_for_each_both_go_on() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("atmax") else {
        return;
    };
    let script = format!(
        "{0} 32 32 & one=$!; {0} 32 32 || exit 1; wait $one",
        program.display()
    );
    let options = ["--high", "48M", "--max", "96M", "--per-process"];
    z.run_with(&options, &["bash", "-c", &script], "")
        .succeeded();
}

/// More processes than there are slots, one after another, and some that live on and need
/// memory when the others have gone.
#[track_caller]
fn thousands(options: &[&str], count: u64) {
    const STAYING: u64 = 3;
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("many") else {
        return;
    };
    let numbers = [count, STAYING, 12].map(|number| number.to_string());
    let program = program.to_str().expect("a path");
    let command = [program, &numbers[0], &numbers[1], &numbers[2]];
    let options = [&["--high", "9M"], options].concat();
    let output = z.run_with(&options, &command, "");
    output.succeeded();
    // (Those that come before their parent is managed are not, unless they stay and grow.)
    let all = 1 + STAYING + count;
    let early = all - managed(&output);
    assert!(early < all / 10, "{early} of {all} not managed");
    let forks = output.counter("forks");
    let least = all - 1 - early - STAYING;
    assert!(
        (least..all).contains(&forks),
        "{forks} forks, {early} early"
    );
    // A row for each of the last, and none for so many of the first.
    let processes = output.stats["processes"].as_array().expect("a list");
    let not_listed = output.stats["processes_not_listed"].as_u64();
    let rows = processes.len() as u64;
    assert_eq!(rows + not_listed.expect("a number"), all - early);
    assert!(
        not_listed > Some(0) && (512..1024).contains(&rows),
        "{rows} rows"
    );
    // Nobody had the slot of one that stayed.
    let mut stayed = 0;
    for line in output.stdout.lines() {
        let Some(pid) = line.strip_prefix("stayed ") else {
            continue;
        };
        let pid: u64 = pid.parse().expect("a process id");
        let row = processes.iter().find(|row| row["pid"] == pid);
        let row = row.unwrap_or_else(|| panic!("no row of {pid}"));
        assert!(row["pages_out"].as_u64() > Some(500), "{row}");
        stayed += 1;
    }
    assert_eq!(stayed, STAYING);
    // Four of 12 MiB: each has the least that a process gets, 8 MiB, or somewhat more.
    let resident = output.stdout.lines().find_map(|line| {
        let number = line.strip_prefix("resident ")?;
        number.parse::<u64>().ok()
    });
    assert!(resident.is_some_and(|mib| mib < 40), "{}", output.stdout);
}

#[test]
fn hundreds_of_processes_are_accounted_for() {
    // (More than there are slots without a reserve. A fork costs some milliseconds, and many
    // on a machine with too much to do; `ZFOLIO_MANY` asks for more.)
    let count = std::env::var("ZFOLIO_MANY").ok();
    thousands(
        &[],
        count.and_then(|count| count.parse().ok()).unwrap_or(850),
    );
}

#[test]
fn thousands_of_processes_are_accounted_for_by_guard() {
    // (Another way is asked for already: see `run_with`.)
    if std::env::var_os("ZFOLIO_TEST_FAULTS").is_some() {
        return;
    }
    let (Some(z), Some(program)) = (support::by_messages(), compiled("many")) else {
        return;
    };
    let guard = ["--faults", "guard"];
    let program = program.to_str().expect("a path");
    let options = [&["--high", "9M"], &guard[..]].concat();
    let first = z.run_with(&options, &[program, "1", "1", "12"], "");
    if managed(&first) == 0 {
        support::skip(&format!("--faults guard: {}", first.stderr));
        return;
    }
    thousands(&guard, 2000);
}

/// The named group of a run that has one.
fn the_group(output: &Output) -> &serde_json::Value {
    &output.stats["groups"][0]
}

fn event(output: &Output, name: &str) -> u64 {
    let count = &the_group(output)["events"][name];
    count.as_u64().expect("a number")
}

#[test]
fn a_group_says_what_it_has_and_what_happened_in_it() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("plain") else {
        return;
    };
    let run = |limits: &[&str]| {
        let options = [&["--high", "32M", "--group", "one"], limits].concat();
        let program = program.display().to_string();
        let output = z.run_with(&options, &[&program, "64", "300"], "");
        output.succeeded();
        output
    };
    let free = run(&[]);
    let group = the_group(&free);
    assert!(
        group["swap.current"].as_u64().expect("a number") > 8 << 20,
        "{group}"
    );
    assert!(
        group["zswap.current"].as_u64().expect("a number") > 0,
        "{group}"
    );
    assert_eq!(
        (&group["swap.max"], &group["zswap.writeback"]),
        (&serde_json::Value::Null, &1.into())
    );
    for name in ["swap_high", "swap_max", "swap_fail", "max"] {
        assert_eq!(event(&free, name), 0, "{name}: {group}");
    }
    // Each fault waits once more is out than that, where messages tell of it.
    let by_messages = std::env::var("ZFOLIO_TEST_FAULTS").map_or(true, |way| way == "message");
    if by_messages {
        let slowed = run(&["--swap-high", "16M"]);
        assert_eq!(the_group(&slowed)["swap.high"], 16 << 20);
        assert!(event(&slowed, "swap_high") > 0, "{}", the_group(&slowed));
        assert_eq!(event(&slowed, "swap_max"), 0);
    }
    // Nothing more goes out.
    let full = run(&["--swap-max", "8M"]);
    let (max, fail) = (event(&full, "swap_max"), event(&full, "swap_fail"));
    assert!(max > 0 && max == fail, "{}", the_group(&full));
}

#[test]
fn a_pool_without_a_backing_has_a_maximum() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("plain") else {
        return;
    };
    let program = program.display().to_string();
    let options = [
        "--high",
        "32M",
        "--max-pool",
        "2",
        "--accept-threshold",
        "80",
    ];
    let run = || Some(z.run_with(&options, &[&program, "64", "300"], ""));
    support::until(run, |output| {
        output.succeeded();
        assert_eq!(output.stats["config"]["max_pool_percent"], 2);
        assert_eq!(output.stats["config"]["accept_threshold_percent"], 80);
        // (A folio each of several threads more than its 655 KiB.)
        let peak = output.counter("pool_peak_bytes") >> 10;
        support::check(peak < 2048 && output.counter("pool_limit_hit") > 0, || {
            format!("{peak} KiB: {}", output.stats["total"]["counters"])
        })
    });
}

#[test]
fn a_max_of_a_group_is_kept_by_it_alone() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("atmax") else {
        return;
    };
    // Within a run without one: the group's program is ended, the other goes on.
    let script = format!(
        "{1} run --group small --high 16M --max 24M -- {0} 32 32; echo $?; {0} 32 32; echo $?",
        program.display(),
        z.exe().display()
    );
    let run = || Some(z.run_with(&["--high", "48M"], &["bash", "-c", &script], ""));
    support::until(run, |output| {
        let ends: Vec<&str> = output.stdout.lines().collect();
        support::check(ends == ["70", "0"], || {
            format!("{ends:?} {}", output.stderr)
        })?;
        assert_eq!(the_group(output)["max_bytes"], 24 << 20);
        assert!(event(output, "max") > 0, "{}", the_group(output));
        Ok(())
    });
}

/// `zfolio set` in a run that has no maximum at all: members read it again.
#[test]
fn a_max_of_a_group_given_later_is_kept_by_it_alone() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("atmax") else {
        return;
    };
    // (What happens at `max` is the run's, and needs messages here.)
    if std::env::var("ZFOLIO_TEST_FAULTS").is_ok_and(|way| way != "message") {
        return;
    }
    // The first goes on growing when it is given one. (On a busy machine its group may not be
    // there at once.)
    let script = format!(
        "ZFOLIO_GROUP=small {0} 16 300 & sleep 0.5; for try in {{1..50}}; do \
         {1} set $PPID --group small --max 24M && break; sleep 0.1; done; \
         wait $!; echo $?; ZFOLIO_GROUP=large {0} 32 32; echo $?",
        program.display(),
        z.exe().display()
    );
    let run = || Some(z.run_with(&["--high", "48M"], &["bash", "-c", &script], ""));
    support::until(run, |output| {
        let ends: Vec<&str> = output.stdout.lines().collect();
        let expected = ["max: none, now 24M", "70", "0"];
        support::check(ends == expected, || format!("{ends:?} {}", output.stderr))?;
        let groups = output.stats["groups"].as_array().expect("groups");
        let max = |name: &str| {
            let mut groups = groups.iter();
            &groups.find(|group| group["name"] == name).expect(name)["max_bytes"]
        };
        assert_eq!(max("small"), 24 << 20);
        assert!(max("large").is_null());
        assert!(output.stats["config"]["max_bytes"].is_null());
        Ok(())
    });
}
