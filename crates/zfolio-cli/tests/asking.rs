//! What is asked of a run while it lasts: `zfolio set` and `zfolio compact`.

mod memory;
#[path = "support/nobody.rs"]
mod nobody;
#[path = "support/started.rs"]
mod started;
mod support;

use memory::compiled;
use nobody::Nobody;
use started::{MIB, PATIENCE, Started, is_refused, set, zfolio};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::Guard;

#[test]
fn high_changes_while_a_program_runs() {
    let (Some(z), Some(program)) = (support::by_messages(), compiled("plain")) else {
        return;
    };
    let program = [program.to_str().expect("a path"), "120", "2000"];
    let run = Started::start(z, &["--high", "200M"], &program);
    run.until_resident("all of it", |now| now > 118 * MIB);
    assert_eq!(set(z, &run, &["--high", "48M"]), "high: 200M, now 48M\n");
    run.until_resident("48", |now| now < 56 * MIB);
    let pid = run.pid().to_string();
    let told = zfolio(z, &["stat", &pid]).stdout;
    assert!(told.contains("(high 48 MiB, shared"), "{told}");
    // More than it began with.
    let told = set(z, &run, &["--high", "400M", "--max", "1G"]);
    assert_eq!(told, "high: 48M, now 400M\nmax: none, now 1G\n");
    run.until_resident("all of it again", |now| now > 110 * MIB);
    is_refused(
        &zfolio(z, &["set", &pid, "--high", "801M"]),
        2,
        "more than 4 times",
    );
    let (status, told, stats) = run.end();
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("(high 400M)"), "{told}");
    assert_eq!(stats["config"]["high_bytes"], 400 * MIB);
    assert_eq!(stats["config"]["max_bytes"], 1024 * MIB);
}

#[test]
fn engines_change_how_they_are_used_while_they_work() {
    let (Some(z), Some(program)) = (support::real(), compiled("plain")) else {
        return;
    };
    let program = [program.to_str().expect("a path"), "120", "3000"];
    let options = ["--high", "200M", "--engines", "1,decompress=off"];
    let run = Started::start(z, &options, &program);
    run.until_resident("all of it", |now| now > 118 * MIB);
    assert_eq!(
        set(z, &run, &["--engines", "sync_mode=sync,retries=3"]),
        "sync_mode: assist, now sync\nretries: 1, now 3\n"
    );
    set(z, &run, &["--high", "48M"]);
    run.until_resident("48", |now| now < 56 * MIB);
    // Under work: each mode is waited for as it was submitted.
    for mode in [
        "async",
        "async_irq",
        "assist",
        "sync",
        "async_irq",
        "assist",
    ] {
        set(z, &run, &["--engines", &format!("sync_mode={mode}")]);
        set(z, &run, &["--high", "44M"]);
        set(z, &run, &["--high", "48M"]);
    }
    let pid = run.pid().to_string();
    is_refused(
        &zfolio(z, &["set", &pid, "--engines", "descriptors=4"]),
        2,
        "descriptors is what queues are made by",
    );
    let (status, told, stats) = run.end();
    assert_eq!(status, Some(0), "{told}");
    let attributes = &stats["config"]["engine_attributes"];
    assert_eq!(
        (&attributes["sync_mode"], &attributes["retries"]),
        (&"assist".into(), &3.into())
    );
    let counters = &stats["total"]["counters"];
    assert!(
        counters["engine_completed"].as_u64() > Some(0),
        "{counters}"
    );
}

#[test]
fn high_of_each_process_changes_as_well() {
    let (Some(z), Some(program)) = (support::by_messages(), compiled("plain")) else {
        return;
    };
    let program = [program.to_str().expect("a path"), "120", "1000"];
    let run = Started::start(z, &["--high", "200M", "--per-process"], &program);
    run.until_resident("all of it", |now| now > 118 * MIB);
    set(z, &run, &["--high", "40M"]);
    run.until_resident("40", |now| now < 50 * MIB);
    let pid = run.pid().to_string();
    let refused = zfolio(z, &["set", &pid, "--swap-max", "1G"]);
    is_refused(&refused, 2, "the run is --per-process");
    assert_eq!(run.end().0, Some(0));
}

#[test]
fn high_changes_without_privilege() {
    let (Some(z), Some(program)) = (support::real(), compiled("plain")) else {
        return;
    };
    for way in support::ways_without_privilege(z) {
        let program = [program.to_str().expect("a path"), "160", "400"];
        let run = Started::start(z, &["--high", "100M", "--faults", way], &program);
        run.until_resident("most of 100", |now| now > 85 * MIB);
        set(z, &run, &["--high", "40M"]);
        run.until_resident("40", |now| now < 50 * MIB);
        set(z, &run, &["--high", "300M"]);
        run.until_resident("all of it", |now| now > 140 * MIB);
        let pid = run.pid().to_string();
        for words in [["--swap-high", "1G"], ["--engines", "retries=3"]] {
            let refused = zfolio(z, &["set", &pid, words[0], words[1]]);
            is_refused(&refused, 2, "works with --faults message only");
        }
        assert_eq!(run.end().0, Some(0), "{way}");
    }
}

/// A program that has all it works on makes no fault: its calls follow a `high` that sinks, also
/// where nothing was ever out.
#[test]
fn a_high_that_sinks_is_followed_by_calls() {
    let (Some(z), Some(program)) = (support::real(), compiled("slowdown")) else {
        return;
    };
    for way in support::ways_without_privilege(z) {
        // A tenth of 80 MiB is read, and after each round a call waits for nothing.
        let path = program.to_str().expect("a path");
        let program = [path, "serve", "80", "6", "seconds"];
        // (The pool takes 26 of them by zstd, however busy the machine is.)
        let options = ["--high", "200M", "--faults", way, "--compressor", "zstd"];
        let run = Started::start(z, &options, &program);
        run.until_resident("all of it", |now| now > 80 * MIB);
        set(z, &run, &["--high", "32M"]);
        run.until_resident("32", |now| now < 38 * MIB);
        let (status, told, stats) = run.end();
        assert_eq!(status, Some(0), "{way}: {told}");
        let faults = stats["total"]["counters"]["pages_out"].as_u64();
        assert!(faults.is_some_and(|of| of > 14_000), "{way}: {stats}");
    }
}

/// A program that makes neither calls nor faults is stopped as it runs: alone, with threads, with
/// signals of its own, and while it forks.
#[test]
fn a_high_that_sinks_is_followed_by_who_computes() {
    let (Some(z), Some(program)) = (support::real(), compiled("sinks")) else {
        return;
    };
    let path = program.to_str().expect("a path");
    for way in support::ways_without_privilege(z) {
        for kind in ["alone", "threads", "alarms", "forks"] {
            let options = ["--high", "200M", "--faults", way];
            let mut run = Started::start(z, &options, &[path, kind, "64"]);
            run.until_told("full\n");
            run.until_resident("all of it", |now| now > 60 * MIB);
            set(z, &run, &["--high", "24M"]);
            run.until_resident("24", |now| now < 32 * MIB);
            let pid = run.program();
            // (All of it is verified then.)
            support::kill(pid, rustix::process::Signal::USR1);
            let (status, told, stats) = run.end();
            assert_eq!(status, Some(0), "{way}, {kind}: {told}");
            // (The child of a fork may be the first that has memory out, and the wait for it is a
            // call that may come before a tick.)
            if kind == "forks" {
                continue;
            }
            // (Once it has begun the faults of what comes back go on with it.)
            let processes = stats["processes"].as_array().expect("processes");
            let own = processes.iter().find(|of| of["pid"] == pid);
            let ticks = own.and_then(|of| of["counters"]["high_ticks"].as_u64());
            assert!(ticks >= Some(1), "{way}, {kind}: {stats}");
        }
    }
}

#[test]
fn a_maximum_given_later_holds() {
    let (Some(z), Some(program)) = (support::by_messages(), compiled("atmax")) else {
        return;
    };
    // (What does not compress: 240 MiB of it, so that there is time.)
    let program = [program.to_str().expect("a path"), "40", "200"];
    let run = Started::start(z, &["--high", "48M"], &program);
    run.until_resident("some", |now| now > 30 * MIB);
    let pid = run.pid().to_string();
    let told = set(z, &run, &["--max", "64M", "--on-max", "kill"]);
    assert_eq!(told, "max: none, now 64M\non-max: kill, now kill\n");
    let refused = zfolio(z, &["set", &pid, "--high", "65M"]);
    is_refused(&refused, 2, "--max, 64 MiB, would be below --high, 65M");
    let (status, told, _) = run.end();
    assert_eq!(status, Some(70), "{told}");
    assert!(told.contains("its memory reached --max (64 MiB"), "{told}");
}

/// What the kernel has as parameters of zswap and as a file of a group that may be written at any time.
#[test]
fn swap_high_and_parameters_of_the_pool_change() {
    let (Some(z), Some(program)) = (support::by_messages(), compiled("plain")) else {
        return;
    };
    let program = [program.to_str().expect("a path"), "100", "300"];
    let options = ["--high", "40M", "--group", "one", "--faults", "message"];
    let run = Started::start(z, &options, &program);
    run.until_resident("some", |now| now > 30 * MIB);
    let told = set(z, &run, &["--group", "one", "--swap-high", "8M"]);
    assert_eq!(told, "swap.high: none, now 8M\n");
    let pid = run.pid().to_string();
    let waited = || {
        let told = zfolio(z, &["stat", "--json", &pid])
            .succeeded()
            .stdout
            .clone();
        let json: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        json["groups"][0]["events"]["swap_high"].as_u64()
    };
    let began = Instant::now();
    while waited() < Some(1) {
        assert!(began.elapsed() < PATIENCE, "no fault waited at swap.high");
        sleep(Duration::from_millis(5));
    }
    let told = set(z, &run, &["--group", "one", "--swap-high", "none"]);
    assert_eq!(told, "swap.high: 8M, now none\n");
    let words = [
        "--accept-threshold",
        "70",
        "--shrinker",
        "no",
        "--max-pool",
        "50",
    ];
    assert_eq!(
        set(z, &run, &words),
        "max-pool: none, now 50%\naccept-threshold: 90%, now 70%\nshrinker: yes, now no\n"
    );
    let shown = zfolio(z, &["stat", &pid, "--json"]).stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let of = |name: &str| shown["config"][name].as_u64();
    assert_eq!(
        [
            of("max_pool_percent"),
            of("accept_threshold_percent"),
            of("shrinker_enabled")
        ],
        [Some(50), Some(70), Some(0)]
    );
    let refused = zfolio(z, &["set", &pid, "--no-shrinker"]);
    is_refused(&refused, 2, "what does is --shrinker; give --shrinker no");
    let (status, told, stats) = run.end();
    assert_eq!(status, Some(0), "{told}");
    let config = &stats["config"];
    assert_eq!(
        (
            &config["accept_threshold_percent"],
            &config["shrinker_enabled"]
        ),
        (&70.into(), &0.into())
    );
}

#[test]
fn only_its_own_user_and_root_may_ask() {
    let (Some(z), Some(nobody)) = (support::real(), Nobody::new()) else {
        return;
    };
    let mut run = Started::start(z, &["--high", "64M"], &["sleep", "60"]);
    let control = control_of(&run);
    let control = control.to_str().expect("a path");
    let other = nobody.zfolio(&["set", control, "--high", "32M"]);
    is_refused(&other, 70, "Permission denied");
    // Whoever has the socket open is told apart by the kernel.
    let socket = Path::new(control).with_extension("socket");
    fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .expect("changed");
    let other = nobody.zfolio(&["set", control, "--high", "32M"]);
    is_refused(&other, 70, "");
    let told = zfolio(z, &["stat", control]).stdout;
    assert!(told.contains("(high 64 MiB"), "{told}");
    // Root may ask others' runs, and does so by the path: they see their own only.
    set(z, &run, &["--high", "32M"]);
    assert!(!run.has_ended());
    drop(run);
    let mut theirs = nobody.command(nobody.exe());
    theirs.args(["run", "--high", "64M", "--", "sleep", "60"]);
    theirs.stderr(Stdio::null());
    let theirs = Started {
        guard: Guard(theirs.spawn().expect("zfolio starts")),
        stats: PathBuf::new(),
        _dir: support::tempdir(),
    };
    let control = control_of(&theirs);
    let control = control.to_str().expect("a path");
    let output = zfolio(z, &["set", control, "--high", "32M"]);
    assert_eq!(output.succeeded().stdout, "high: 64M, now 32M\n");
}

/// The segment of a run, once its socket is there.
#[track_caller]
fn control_of(run: &Started) -> PathBuf {
    let path = PathBuf::from(format!("/dev/shm/zfolio-{}-0.control", run.pid()));
    let began = Instant::now();
    while !path.with_extension("socket").exists() {
        assert!(began.elapsed() < PATIENCE, "no {}", path.display());
        sleep(Duration::from_millis(5));
    }
    path
}

#[test]
fn a_socket_goes_with_its_run() {
    let z = support::zfolio();
    let mut run = Started::start(z, &["--high", "64M", "--allow-unmanaged"], &["cat"]);
    let path = control_of(&run).with_extension("socket");
    drop(run.guard.0.stdin.take());
    assert_eq!(run.end().0, Some(0));
    assert!(!path.exists());
    let nobody = zfolio(z, &["set", "4294967295", "--high", "1G"]);
    is_refused(&nobody, 127, "process 4294967295 is not under zfolio run");
    let nothing = zfolio(z, &["set", "1"]);
    is_refused(&nothing, 2, "nothing to change is given");
}

#[test]
fn pools_are_compacted_on_request() {
    let (Some(z), Some(program)) = (support::by_messages(), compiled("holes")) else {
        return;
    };
    let moved = |line: &str| -> u64 {
        let (before, _) = line.split_once(" objects moved").expect("a line of counts");
        let number = before.rsplit(' ').next().expect("a number");
        number.parse().expect("a number")
    };
    let once = || {
        let program = [program.to_str().expect("a path")];
        let mut run = Started::start(z, &["--high", "40M"], &program);
        run.until_told("ready\n");
        // Until the discards are known, and nothing is reclaimed any more.
        sleep(Duration::from_secs(1));
        let pid = run.pid().to_string();
        let compact = || {
            let told = zfolio(z, &["compact", &pid]).succeeded().stdout.clone();
            assert_eq!(told.lines().count(), 1, "{told}");
            assert!(
                told.contains(" holes: ") && told.contains(" pages of the pool freed, "),
                "{told}"
            );
            told
        };
        let (first, second) = (compact(), compact());
        let (status, told, stats) = run.end();
        assert_eq!(status, Some(0), "{told}");
        let all = stats["total"]["counters"]["objs_moved"].as_u64();
        assert!(
            all >= Some(moved(&first) + moved(&second)),
            "{first}{second}"
        );
        Some((first, second))
    };
    // What is dense already is not moved once more.
    support::until(once, |(first, second)| {
        let (once, again) = (moved(first), moved(second));
        support::check(once > 0 && again < once, || format!("{first}{second}"))
    });
}
