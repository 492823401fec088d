//! Limits, folios and the backing in the ways in which the thread that faults serves itself, as
//! a user without any privilege. (`ZFOLIO_TEST_FAULTS` runs `groups` and `backing` in these ways
//! as well.)

mod memory;
mod nobody;
mod support;

use memory::compiled;
use nobody::Nobody;
use serde_json::Value;
use std::fs;
use support::Output;

/// One that moves pages away and one that closes them in place.
const TWO: [&str; 2] = ["in-thread", "guard"];

/// Runs a program of `tests/programs` in a way, to whatever end; `checked` sees the way and what came of it.
#[track_caller]
fn in_one(
    way: &str,
    (program, args): (&str, &[&str]),
    options: &[&str],
    checked: impl Fn(&str, &Output) -> Result<(), String>,
) {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled(program)) else {
        return;
    };
    let program = nobody.program(&program);
    let command = [&[program.to_str().expect("a plain path")], args].concat();
    support::until(
        || nobody.run_with(way, options, &command),
        |output| checked(way, output),
    );
}

/// The same in both ways.
#[track_caller]
fn in_both(
    program: &str,
    args: &[&str],
    options: &[&str],
    checked: impl Fn(&str, &Output) -> Result<(), String>,
) {
    for way in TWO {
        in_one(way, (program, args), options, &checked);
    }
}

/// It ended well, managed in this way to its end.
#[track_caller]
fn lived(way: &str, output: &Output) {
    output.succeeded();
    for process in output.stats["processes"].as_array().expect("processes") {
        assert_eq!(process["state"], "managing", "{process}");
        assert_eq!(process["faults_told_by"], way, "{process}");
    }
}

fn counters(output: &Output) -> String {
    output.stats["total"]["counters"].to_string()
}

/// A counter of folios of one size.
fn folio(output: &Output, size: &str, name: &str) -> u64 {
    let value = &output.stats["total"]["folios"][format!("hugepages-{size}kB")][name];
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn what_may_not_go_out_stays() {
    let options = ["--high", "24M", "--swap-max", "16M"];
    in_both("plain", &["48", "50"], &options, |way, output| {
        lived(way, output);
        let peak = output.counter("resident_peak_bytes") >> 20;
        let of = |name| folio(output, "64", name);
        assert_eq!(of("split") + of("split_failed"), of("swpout_fallback"));
        support::check((30..48).contains(&peak) && of("split") > 0, || {
            format!("{peak} MiB: of 48, 16 may be out; {}", counters(output))
        })
    });
}

/// What stays is made denser before calls that wait, and children have it all. (Both ways at once: it sleeps.)
#[test]
fn a_second_tier_works_while_the_program_waits() {
    let options = ["--high", "64M", "--tier", "auto"];
    let checked = |way: &str, output: &Output| {
        lived(way, output);
        let names = [
            "recompressed_pages",
            "recompress_saved_bytes",
            "recompress_cpu_ns",
            "units_made",
            "dictionary_installed",
        ];
        let figures = names.map(|name| output.counter(name));
        let forked = output.counter("forks") >= 4;
        let met = figures.iter().all(|figure| *figure > 0) && forked;
        support::check(met, || counters(output))
    };
    let one = |way| move || in_one(way, ("idle", &["phrases"]), &options, checked);
    std::thread::scope(|scope| drop(TWO.map(|way| scope.spawn(one(way)))));
}

#[test]
fn read_ahead_is_fixed_where_that_is_asked_for() {
    for (cluster, most) in [("0", 0), ("3", 7), ("6", 63)] {
        let options = ["--high", "32M", "--page-cluster", cluster];
        in_both("reads", &[], &options, |way, output| {
            lived(way, output);
            let (ahead, faults) = (output.counter("swap_ra"), output.counter("pgmajfault"));
            assert!(ahead <= most * faults, "{ahead} of {faults}");
            assert_eq!(ahead > 0, most > 0, "{}", output.stats);
            Ok(())
        });
    }
}

/// Half of the pages are present when all are read in order, here one and there one: what is out of a
/// window comes at one fault all the same. (Nearly all faults are the reads at random. By guard pages
/// leave in rows.)
#[test]
fn who_reads_past_present_pages_has_the_rest_at_once() {
    in_both("reads", &["20000"], &["--high", "64M"], |way, output| {
        lived(way, output);
        let faults = output.counter("pgmajfault");
        support::check(faults < 17_000, || counters(output))
    });
}

/// A column of a matrix, or from the end to the beginning: what is at the next distances comes as well. (Some 36,000 pages
/// are read, two thirds of which are out.)
#[test]
fn who_reads_at_equal_distances_has_the_next_at_once() {
    for (step, threads) in [("16", "1"), ("-3", "1"), ("-1", "2"), ("16", "2")] {
        in_both(
            "strides",
            &[step, threads],
            &["--high", "24M"],
            |way, output| {
                lived(way, output);
                let (faults, came) = (output.counter("pgmajfault"), output.counter("swap_ra"));
                support::check(came > 15_000 && faults * 4 < came, || counters(output))
            },
        );
    }
}

/// With its group of 16 each it would be more than twice as many.
#[test]
fn a_page_at_random_comes_from_behind_alone() {
    let Some(nobody) = Nobody::new() else { return };
    let backing = format!("file:{},size=1G", nobody.directory().display());
    let options = ["--high", "24M", "--max-pool", "20", "--backing", &backing];
    in_both("reads", &["12000"], &options, |way, output| {
        lived(way, output);
        let [from, came, faults] =
            ["pswpin", "pages_in", "pgmajfault"].map(|name| output.counter(name));
        // (24,576 pages come in order behind it.)
        let right = from > 20_000 && came < 60_000 && faults < 20_000;
        support::check(right, || counters(output))
    });
}

#[test]
fn the_pool_holds_no_more_than_it_may() {
    // (Some 5 MiB of compressed bytes without the limit.)
    let options = ["--high", "24M", "--zswap-max", "1M"];
    in_both("plain", &["64", "50"], &options, |way, output| {
        lived(way, output);
        let [pool, peak] =
            ["pool_peak_bytes", "resident_peak_bytes"].map(|name| output.counter(name) >> 10);
        assert!(
            output.counter("reject_reclaim_fail") > 0,
            "{}",
            counters(output)
        );
        // (The check is made before a run is stored; and zspages are not full.)
        support::check(pool < 2048 && peak > 30 << 10, || {
            format!("{pool} KiB in the pool, {peak} resident")
        })
    });
}

#[test]
fn a_group_within_has_limits_of_its_own() {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("plain")) else {
        return;
    };
    let program = nobody.program(&program);
    let script = format!(
        "{} run --group small --swap-max 8M -- {program} 32 50 & {program} 32 50 && wait $!",
        nobody.exe().display(),
        program = program.display(),
    );
    for way in TWO {
        let options = ["--high", "32M"];
        let run = || nobody.run_with(way, &options, &["sh", "-c", &script]);
        support::until(run, |output| {
            lived(way, output);
            let groups = output.stats["groups"].as_array().expect("a list");
            let small = groups.iter().find(|group| group["name"] == "small");
            let peak = small.expect("it is there")["resident_peak_bytes"].as_u64();
            // All but 8 MiB of its 32 stays.
            support::check(peak > Some(20 << 20), || format!("{groups:?}"))
        });
    }
}

/// `atmax` with 72 MiB at most.
#[track_caller]
fn at_max(on_max: &str, args: &[&str], checked: impl Fn(&str, &Output) -> Result<(), String>) {
    let options = ["--high", "48M", "--max", "72M", "--on-max", on_max];
    in_both("atmax", args, &options, checked);
}

#[test]
fn at_max_the_process_is_ended() {
    at_max("kill", &["64", "96"], |_, output| {
        assert_eq!(output.status.code(), Some(70), "{}", output.stderr);
        let line = "its memory reached --max (72 MiB, of which it may have 72) and no more of it \
                    can be moved out";
        assert!(output.stderr.contains(line), "{}", output.stderr);
        assert!(output.counter("max") > 0);
        let process = &output.stats["processes"][0];
        assert_eq!(process["state"], "failed", "{process}");
        Ok(())
    });
}

#[test]
fn at_max_it_goes_on_if_that_is_allowed() {
    at_max("allow", &["64", "32"], |way, output| {
        lived(way, output);
        let peak = output.counter("resident_peak_bytes") >> 20;
        assert!(peak > 76 && output.counter("max") > 0, "{peak} MiB");
        Ok(())
    });
}

#[test]
fn at_max_it_waits_until_there_is_room() {
    at_max("wait", &["64", "64", "free"], |way, output| {
        lived(way, output);
        let peak = output.counter("resident_peak_bytes") >> 20;
        assert!(output.counter("max") > 0);
        support::check(peak < 80, || format!("{peak} MiB, of 128 that it wanted"))
    });
}

#[test]
fn who_waits_at_max_is_ended_by_a_signal() {
    // (It would wait for ever: what it holds is not freed.)
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("atmax")) else {
        return;
    };
    let program = nobody.program(&program);
    let program = program.to_str().expect("a plain path");
    let options = ["--high", "16M", "--max", "24M", "--on-max", "wait"];
    for way in TWO {
        let command = [
            "timeout", "-s", "TERM", "-k", "60", "2", program, "32", "16",
        ];
        let Some(output) = nobody.run_with(way, &options, &command) else {
            return;
        };
        assert_eq!(output.status.code(), Some(124), "{}", output.stderr);
        assert!(output.counter("max") > 0, "it did not wait");
    }
}

#[test]
fn at_a_shared_max_one_of_two_is_ended() {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("atmax")) else {
        return;
    };
    let program = nobody.program(&program);
    let script = format!(
        "{0} 32 32 & one=$!; {0} 32 32 & other=$!; wait $one; echo $?; wait $other; echo $?",
        program.display()
    );
    let options = ["--high", "48M", "--max", "96M", "--on-max", "kill"];
    // (Three seconds pass before one is ended for what the other has.)
    let run = || nobody.run_with("guard", &options, &["bash", "-c", &script]);
    support::until(run, |output| {
        let mut ends: Vec<&str> = output.stdout.lines().collect();
        ends.sort_unstable();
        support::check(ends == ["0", "70"], || {
            format!("{ends:?} {}", output.stderr)
        })
    });
}

#[test]
fn folios_are_as_large_as_they_are_asked_for() {
    for (size, largest) in [("4K", "4"), ("256K", "256")] {
        // (Who makes room beside others takes as much as is wanted, and cuts folios by that.)
        let alone = ["--background-reclaim", "off"];
        let options = [&["--high", "24M", "--folio", size], &alone[..]].concat();
        in_both("plain", &["48", "1"], &options, |way, output| {
            lived(way, output);
            let all = output.stats["total"]["folios"].as_object().expect("sizes");
            let stored = |of: &Value| of["zswpout"].as_u64().expect("a number");
            let larger = all.iter().filter(|(name, of)| {
                let kib = name.trim_start_matches("hugepages-").trim_end_matches("kB");
                kib.parse::<u64>().ok() > largest.parse().ok() && stored(of) > 0
            });
            assert_eq!(larger.count(), 0, "{all:?}");
            assert!(folio(output, largest, "zswpout") > 30, "{all:?}");
            Ok(())
        });
    }
}

/// Threads that make room at once, and runs of every length: what leaves together fits the place
/// that it is moved to.
#[test]
fn large_folios_of_several_threads_leave_together() {
    let (Some(nobody), Some(program)) = (Nobody::new(), compiled("stress")) else {
        return;
    };
    let program = nobody.program(&program);
    let program = program.to_str().expect("a plain path");
    let options = ["--high", "24M", "--folio", "256K"];
    for way in ["in-thread", "protect"] {
        for seed in ["2", "3"] {
            let command = [program, "2", seed, "3"];
            if let Some(output) = nobody.run_with(way, &options, &command) {
                lived(way, &output);
            }
        }
    }
}

/// A backing that a program must use.
#[track_caller]
fn backed(program: &str, args: &[&str], high: &str) {
    let Some(nobody) = Nobody::new() else { return };
    let Some(program) = compiled(program) else {
        return;
    };
    let program = nobody.program(&program);
    let command = [&[program.to_str().expect("a plain path")], args].concat();
    let dir = nobody.directory();
    let backing = format!("file:{},size=1G", dir.display());
    let options = ["--high", high, "--backing", &backing, "--max-pool", "20"];
    for way in TWO {
        let run = || nobody.run_with(way, &options, &command);
        support::until(run, |output| {
            lived(way, output);
            assert_eq!(output.counter("pswpout"), output.counter("zswpwb"));
            for name in [
                "backing_refused",
                "backing_write_fail",
                "backing_read_fail",
                "decompress_fail",
            ] {
                assert_eq!(output.counter(name), 0, "{name}");
            }
            let [out, back] = ["pswpout", "pswpin"].map(|name| output.counter(name));
            support::check(out > 500 && back > 500, || counters(output))
        });
    }
    let left = fs::read_dir(dir).expect("it is there").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["stats.json"], "files have no names");
}

#[test]
fn what_is_written_back_comes_back() {
    backed("plain", &["80", "1"], "16M");
}

#[test]
fn children_of_forks_have_what_was_written_back() {
    for case in ["libc", "raw"] {
        backed("forks", &[case], "40M");
    }
}

#[test]
fn the_file_behind_the_pool_is_not_there_for_the_program() {
    const SCRIPT: &str = "
import hashlib, os, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, 16 << 20))
blocks = [bytes([i % 251]) * 2000 + os.urandom(2000) for i in range(20000)]
want = [hashlib.md5(b).digest() for b in blocks]
for fd in range(3, 1100):
    try:
        os.close(fd)
    except OSError:
        pass
null = os.open('/dev/null', os.O_RDWR)
for fd in range(480, 620):
    os.dup2(null, fd)
os.closerange(3, 1100)
for _ in range(2):
    assert all(hashlib.md5(b).digest() == w for b, w in zip(blocks, want))
print('right')
";
    let Some(nobody) = Nobody::new() else { return };
    let backing = format!("file:{},size=1G", nobody.directory().display());
    let options = ["--high", "24M", "--backing", &backing, "--max-pool", "20"];
    for way in TWO {
        let run = || nobody.run_with(way, &options, &["python3", "-c", SCRIPT]);
        support::until(run, |output| {
            lived(way, output);
            assert_eq!(output.stdout, "right\n");
            assert_eq!(output.counter("backing_read_fail"), 0);
            // The limit of files is the process's: beyond it nothing is written.
            let of = ["pswpout", "backing_write_fail"].map(|name| output.counter(name));
            support::check(of[0] > 1000 && of[1] > 0, || counters(output))
        });
    }
}
