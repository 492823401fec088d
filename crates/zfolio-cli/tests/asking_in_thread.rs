//! What is asked of a run while it lasts, where the program's own threads do it: `zfolio set` of limits, and
//! `zfolio compact`.

mod memory;
#[path = "support/started.rs"]
mod started;
mod support;

use memory::compiled;
use serde_json::Value;
use started::{MIB, PATIENCE, Started, set, zfolio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::{Zfolio, kill};

/// Calls `run` with each way and a program of `tests/programs`.
#[track_caller]
fn in_each(program: &str, run: impl Fn(&'static Zfolio, &str, &str)) {
    let (Some(z), Some(program)) = (support::real(), compiled(program)) else {
        return;
    };
    let program = program.to_str().expect("a path");
    for way in support::ways_without_privilege(z) {
        run(z, way, program);
    }
}

fn start(z: &Zfolio, way: &str, options: &[&str], program: &[&str]) -> Started {
    Started::start(z, &[&["--faults", way], options].concat(), program)
}

#[track_caller]
fn is_ended_at_max(way: &str, run: Started, line: &str) {
    let (status, told, stats) = run.end();
    assert_eq!(status, Some(70), "{way}: {told}");
    assert!(told.contains(line), "{way}: {told}");
    assert_eq!(stats["processes"][0]["state"], "failed", "{way}: {stats}");
}

/// Two threads, one of which wants more, where there was no limit as they began.
#[test]
fn a_maximum_that_comes_later_holds() {
    in_each("atmax", |z, way, program| {
        // (What does not compress: 240 MiB of it, so that there is time.)
        let run = start(z, way, &["--high", "48M"], &[program, "40", "200"]);
        run.until_resident("some", |now| now > 30 * MIB);
        let told = set(z, &run, &["--max", "64M", "--on-max", "kill"]);
        assert_eq!(told, "max: none, now 64M\non-max: kill, now kill\n");
        is_ended_at_max(way, run, "its memory reached --max (64 MiB");
    });
}

/// Of a program that wants nothing more it is noticed all the same: it is stopped as it runs.
#[test]
fn a_maximum_below_what_a_program_has_ends_it() {
    in_each("sinks", |z, way, program| {
        let kind = if way == "guard" { "alone" } else { "threads" };
        let mut run = start(z, way, &["--high", "200M"], &[program, kind, "64"]);
        run.until_told("full\n");
        // (Nothing may leave: all of it stays.)
        let words = ["--high", "24M", "--max", "32M", "--swap-max", "4K"];
        set(z, &run, &words);
        is_ended_at_max(way, run, "its memory reached --max (32 MiB");
    });
}

#[test]
fn who_waits_at_a_maximum_goes_on_once_it_is_gone() {
    in_each("atmax", |z, way, program| {
        let options = ["--high", "16M", "--max", "24M", "--on-max", "wait"];
        let mut run = start(z, way, &options, &[program, "32", "16"]);
        until_counted(z, &run, "max", 20);
        sleep(Duration::from_millis(300));
        assert!(!run.has_ended(), "{way}: it waits");
        set(z, &run, &["--max", "none"]);
        let (status, told, _) = run.end();
        assert_eq!(status, Some(0), "{way}: {told}");
    });
}

/// (Each limit in one of the ways: what they do with it is the same.)
#[test]
fn what_may_not_go_out_from_now_on_stays() {
    in_each("plain", |z, way, program| {
        let (limit, some, none) = match way {
            "guard" => ("--zswap-max", "1M", "none"),
            "protect" => ("--max-pool", "5", "90"),
            _ => ("--swap-max", "16M", "none"),
        };
        let run = start(z, way, &["--high", "40M"], &[program, "100", "600"]);
        run.until_resident("some", |now| now > 30 * MIB);
        set(z, &run, &[limit, some]);
        // (With 16 MiB of 100 out, or what takes 2 MiB of the pool.)
        run.until_resident(&format!("{way}, {limit}: most"), |now| now > 70 * MIB);
        set(z, &run, &[limit, none]);
        run.until_resident(&format!("{way}: 40 again"), |now| now < 50 * MIB);
        let (status, told, _) = run.end();
        assert_eq!(status, Some(0), "{way}, {limit}: {told}");
    });
}

/// Threads that make room beside one another do so alone from one moment on, and beside one another
/// again: no byte is wrong, and none hangs.
#[test]
fn limits_come_and_go_while_threads_fault() {
    in_each("stress", |z, way, program| {
        let mut run = start(z, way, &["--high", "24M"], &[program, "4", "7", "4"]);
        let pid = run.pid().to_string();
        let limits = [
            ["--swap-max", "8M"],
            ["--swap-max", "none"],
            ["--max", "2G"],
            ["--max", "none"],
        ];
        let mut changes = 0;
        while !run.has_ended() {
            for limit in limits {
                let output = zfolio(z, &[&["set", &pid], &limit[..]].concat());
                changes += u32::from(output.status.success());
                sleep(Duration::from_millis(50));
            }
            // (Who has ended meanwhile has not answered.)
            let _ = zfolio(z, &["compact", &pid]);
        }
        let (status, told, _) = run.end();
        assert_eq!(status, Some(0), "{way}: {told}");
        assert!(changes >= 4, "{way}: {changes}");
    });
}

/// A pool that has become too large is written back by a program that stores nothing.
#[test]
fn a_pool_is_written_back_as_its_maximum_sinks() {
    let backing = support::tempdir();
    let backing = format!("file:{},size=1G", backing.path().display());
    in_each("sinks", |z, way, program| {
        let options = ["--high", "24M", "--backing", &backing];
        let mut run = start(z, way, &options, &[program, "alone", "64"]);
        run.until_told("full\n");
        let words = [
            "--max-pool",
            "5",
            "--accept-threshold",
            "70",
            "--shrinker",
            "no",
        ];
        let told = "max-pool: 40%, now 5%\naccept-threshold: 90%, now 70%\nshrinker: yes, now no\n";
        assert_eq!(set(z, &run, &words), told);
        until_counted(z, &run, "pswpout", 5000);
        kill(run.program(), rustix::process::Signal::USR1);
        let (status, told, stats) = run.end();
        assert_eq!(status, Some(0), "{way}: {told}");
        assert_eq!(stats["config"]["shrinker_enabled"], 0, "{way}");
    });
}

/// Waits until the program has counted so much.
#[track_caller]
fn until_counted(z: &Zfolio, run: &Started, name: &str, least: u64) {
    let began = Instant::now();
    let pid = run.pid().to_string();
    loop {
        let told = zfolio(z, &["stat", "--json", &pid]).stdout;
        let json: Value = serde_json::from_str(&told).unwrap_or_default();
        let counted = json["total"]["counters"][name].as_u64();
        if counted >= Some(least) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{name} is {counted:?}: {told}");
        sleep(Duration::from_millis(10));
    }
}

/// `zfolio compact` of a run; what it says.
#[track_caller]
fn compact(z: &Zfolio, run: &Started) -> String {
    let pid = run.pid().to_string();
    zfolio(z, &["compact", &pid]).succeeded().stdout.clone()
}

/// Objects moved, as a line says it.
fn moved(line: &str) -> u64 {
    let (before, _) = line.split_once(" objects moved").expect("a line of counts");
    let number = before.rsplit(' ').next().expect("a number");
    number.parse().expect("a number")
}

/// Objects moved because somebody asked, in all.
fn on_request(stats: &Value) -> u64 {
    let moved = &stats["total"]["counters"]["objs_moved_request"];
    moved.as_u64().expect("a number")
}

#[test]
fn pools_are_compacted_on_request() {
    in_each("holes", |z, way, program| {
        for how in ["polls", "computes"] {
            let once = || {
                let mut run = start(z, way, &["--high", "40M"], &[program, how]);
                run.until_told("ready\n");
                let (first, second) = (compact(z, &run), compact(z, &run));
                for line in [&first, &second] {
                    assert!(line.contains(" holes: "), "{line}");
                    assert!(line.ends_with(" pages of the pool freed\n"), "{line}");
                    assert_eq!(line.lines().count(), 1, "{line}");
                }
                let (status, told, stats) = run.end();
                assert_eq!(status, Some(0), "{way}, {how}: {told}");
                Some((moved(&first), moved(&second), on_request(&stats)))
            };
            // What is dense already is not moved once more. (Of who computes pages go on leaving and coming.)
            support::until(once, |of @ (first, second, asked)| {
                let is_dense = second < first || how == "computes";
                let met = *first > 0 && is_dense && *asked > 0;
                support::check(met, || format!("{way}, {how}: {of:?}"))
            });
        }
    });
}

/// Each child finds the pool whole.
#[test]
fn a_pool_is_compacted_while_its_process_forks() {
    in_each("holes", |z, way, program| {
        let once = || {
            let mut run = start(z, way, &["--high", "40M"], &[program, "forks"]);
            run.until_told("ready\n");
            for _ in 0..5 {
                compact(z, &run);
            }
            let (status, told, stats) = run.end();
            assert_eq!(status, Some(0), "{way}: {told}");
            Some(on_request(&stats))
        };
        support::until(once, |asked| {
            support::check(*asked > 0, || format!("{way}: nothing was moved"))
        });
    });
}

/// One that sleeps is not waited for. It compacts once it runs.
#[test]
fn who_sleeps_is_named_and_compacts_later() {
    in_each("holes", |z, way, program| {
        let once = || {
            let mut run = start(z, way, &["--high", "40M"], &[program]);
            run.until_told("ready\n");
            let began = Instant::now();
            let told = compact(z, &run);
            assert!(began.elapsed() < PATIENCE, "{way}: it was waited for");
            let line = " holes: sleeps in all its threads; it compacts as soon as it runs\n";
            assert!(told.ends_with(line), "{way}: {told}");
            let (status, told, stats) = run.end();
            assert_eq!(status, Some(0), "{way}: {told}");
            Some(on_request(&stats))
        };
        support::until(once, |asked| {
            support::check(*asked > 0, || format!("{way}: it did nothing later"))
        });
    });
}
