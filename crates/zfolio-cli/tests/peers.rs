//! The experiments that stand beside the kernel, as commands: what is refused,
//! what they print, and that nothing of the kernel's stays changed, also when
//! they are killed. What needs root or zram says so and is passed over.

mod support;

use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use support::{Guard, finish, kill, tempdir, zfolio};

/// Where the keeper writes down what it set up.
const STATE: &str = "/var/lib/zfolio-bench";
/// The kernel's swap is one experiment's at a time.
static SWAP: Mutex<()> = Mutex::new(());

/// Whether the kernel's rows can be measured here, asked of the experiment itself;
/// says why not. `SWAP` must be held.
fn kernel_rows() -> bool {
    static WHY: OnceLock<Option<String>> = OnceLock::new();
    let why = WHY.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return Some("not root".to_owned());
        }
        let dir = tempdir();
        let json = dir.path().join("probe.json");
        let mut command = zfolio().command([
            "bench",
            "peers",
            "--quick",
            "--size",
            "64M",
            "--workload",
            "fill",
            "--only",
            "zram-lz4",
        ]);
        let ran = finish(command.arg("--json").arg(&json), "");
        let text = fs::read_to_string(&json).unwrap_or_default();
        let found: Value = serde_json::from_str(&text).unwrap_or_default();
        let row = &found["workloads"][0]["rows"][0];
        let missing = row["phases"][0]["figures"][0].is_null();
        missing.then(|| format!("{} {}", row["failed"], ran.stderr.trim()))
    });
    if let Some(why) = why {
        support::skip(&format!("kernel rows: {why}"));
    }
    why.is_none()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(120), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Journals of keepers, alive or not.
fn journals() -> BTreeSet<PathBuf> {
    let files = fs::read_dir(STATE).into_iter().flatten().flatten();
    files
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "journal"))
        .collect()
}

/// What a journal says is set up, by kind and name.
fn entries(journal: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(journal).unwrap_or_default();
    let begun = text.lines().filter_map(|line| {
        let entry = line.strip_prefix("+ ")?.split_once(' ')?.1;
        let (kind, rest) = entry.split_once('\t')?;
        Some((kind.to_owned(), rest.to_owned()))
    });
    begun.collect()
}

/// What of `entries` is still there.
fn left(entries: &[(String, String)]) -> Vec<String> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let is_left = |(kind, name): &&(String, String)| match kind.as_str() {
        "zram" => Path::new(&format!("/sys/block/zram{name}")).exists(),
        "swap" => swaps
            .lines()
            .any(|line| line.split_whitespace().next() == Some(name)),
        "setting" => name.split_once('\t').is_none_or(|(path, before)| {
            fs::read_to_string(path).is_ok_and(|now| {
                let now = now.trim();
                now != before && !now.contains(&format!("[{before}]"))
            })
        }),
        _ => Path::new(name).exists(),
    };
    let left = entries.iter().filter(is_left);
    left.map(|(kind, name)| format!("{kind} {name}")).collect()
}

/// The keeper of an experiment: its only child of that name.
fn keeper_of(experiment: u32) -> Option<u32> {
    let children = format!("/proc/{experiment}/task/{experiment}/children");
    let children = fs::read_to_string(children).ok()?;
    children.split_whitespace().find_map(|pid| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let is_keeper = command
            .split(|byte| *byte == 0)
            .any(|w| w == b"bench-keeper");
        is_keeper.then(|| pid.parse().ok())?
    })
}

/// Starts an experiment on zram and waits until its device is swapped to.
/// Returns it, its keeper, and the keeper's journal.
fn swapping() -> (Guard, u32, PathBuf) {
    let mut command = zfolio().command([
        "bench",
        "peers",
        "--quick",
        "--workload",
        "rand",
        "--only",
        "zram-lz4,zram-lzo",
        "--runs",
        "100",
    ]);
    command.stdout(std::process::Stdio::null());
    let child = Guard(command.spawn().expect("zfolio starts"));
    let mut keeper = None;
    wait_until("no keeper", || {
        keeper = keeper_of(child.0.id());
        keeper.is_some()
    });
    let keeper = keeper.expect("a keeper");
    let journal = Path::new(STATE).join(format!("{keeper}.journal"));
    wait_until("nothing is swapped to", || {
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        let ours = entries(&journal);
        let mut ours = ours.iter().filter(|(kind, _)| kind == "swap");
        ours.any(|(_, name)| {
            swaps
                .lines()
                .any(|line| line.split_whitespace().next() == Some(name))
        })
    });
    (child, keeper, journal)
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn killed_it_leaves_nothing() {
    let _swap = SWAP.lock();
    if !kernel_rows() {
        return;
    }
    let (mut child, keeper, journal) = swapping();
    let set_up = entries(&journal);
    assert!(set_up.iter().any(|(kind, _)| kind == "zram"), "{set_up:?}");
    kill(child.0.id(), Signal::KILL);
    let _ = child.0.wait();
    // What it set up in its last moments is in the journal that goes last.
    let mut last = set_up;
    wait_until("the keeper does not end", || {
        let more = entries(&journal);
        if more.len() > last.len() {
            last = more;
        }
        !is_alive(keeper)
    });
    assert!(!journal.exists());
    assert_eq!(left(&last), Vec::<String>::new());
}

#[test]
fn what_a_killed_keeper_left_is_undone_by_the_next() {
    let _swap = SWAP.lock();
    if !kernel_rows() {
        return;
    }
    let (mut child, keeper, journal) = swapping();
    kill(keeper, Signal::KILL);
    kill(child.0.id(), Signal::KILL);
    let _ = child.0.wait();
    wait_until("the keeper does not end", || !is_alive(keeper));
    let set_up = entries(&journal);
    assert!(journal.exists());
    let cleaned = finish(&mut zfolio().command(["bench", "cleanup"]), "");
    cleaned.succeeded();
    assert!(cleaned.stdout.starts_with("undone: "), "{}", cleaned.stdout);
    assert!(!journal.exists());
    assert_eq!(left(&set_up), Vec::<String>::new());
}

fn json_of(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("--json was written");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn pools_hold_the_same_pages() {
    let _swap = SWAP.lock();
    let dir = tempdir();
    let (json, plot) = (dir.path().join("out.json"), dir.path().join("out.svg"));
    let before = journals();
    let mut command = zfolio().command(["bench", "pool", "--pages", "1200", "--runs", "1"]);
    command.arg("--json").arg(&json).arg("--plot").arg(&plot);
    let output = finish(&mut command, "");
    output.succeeded();
    let found = json_of(&json);
    let sides = found["sides"].as_array().expect("sides");
    assert!(
        output.stdout.contains("75 % freed, compacted"),
        "{}",
        output.stdout
    );
    assert!(fs::read_to_string(&plot).expect("drawn").contains("zfolio"));
    if kernel_rows() {
        assert_eq!(sides.len(), 3, "{found}");
        // Both lz4s make about the same of the same pages.
        let packed = |side: &Value| side["runs"][0][0]["compr_data_size"].as_f64();
        let ratio = packed(&sides[0]).unwrap_or(0.0) / packed(&sides[2]).unwrap_or(1.0);
        assert!((0.9..1.1).contains(&ratio), "{found}");
    } else {
        assert!(
            output.stdout.contains("Our side alone: "),
            "{}",
            output.stdout
        );
    }
    // Those of other experiments are theirs.
    let own = |path: &&PathBuf| !before.contains(*path) && !is_alive_journal(path);
    assert_eq!(journals().iter().filter(own).count(), 0);
}

fn is_alive_journal(path: &Path) -> bool {
    let pid = path.file_stem().and_then(|stem| stem.to_str());
    pid.and_then(|pid| pid.parse().ok()).is_some_and(is_alive)
}

#[test]
fn rows_stand_side_by_side() {
    let _swap = SWAP.lock();
    let Some(z) = support::managed() else { return };
    let dir = tempdir();
    let json = dir.path().join("out.json");
    let rows = if kernel_rows() {
        "native,run,zram-lz4"
    } else {
        "native,run"
    };
    let mut command = z.command([
        "bench",
        "peers",
        "--quick",
        "--size",
        "64M",
        "--workload",
        "seq,python",
        "--only",
        rows,
    ]);
    let output = finish(command.arg("--json").arg(&json), "");
    output.succeeded();
    let found = json_of(&json);
    let measured = found["workloads"][0]["rows"].as_array().expect("rows");
    assert_eq!(measured.len(), rows.split(',').count(), "{found}");
    for row in measured {
        // What the kernel's pool comes to is not ours to promise.
        if row["name"] == "zram-lz4" && !row["failed"].is_null() {
            support::skip(&format!("zram-lz4: {}", row["failed"]));
            continue;
        }
        let figure = &row["phases"][1]["figures"][0];
        assert!(figure.as_f64().is_some_and(|f| f > 0.0), "{row}");
    }
    assert!(output.stdout.contains("seq: needs "), "{}", output.stdout);
}

#[test]
fn a_program_of_ones_own_is_timed() {
    let _swap = SWAP.lock();
    let Some(z) = support::managed() else { return };
    let dir = tempdir();
    let json = dir.path().join("out.json");
    let mut command = z.command([
        "bench",
        "peers",
        "--quick",
        "--only",
        "native,run",
        "--json",
    ]);
    command.arg(&json).args(["--", "python3", "-c"]);
    command.arg(
        "a = [bytes([i % 251]) * 9000 for i in range(5000)]\n\
         print('{\"check\":\"%d\"}' % sum(map(sum, a)))\n\
         print('{\"phase\":\"p\",\"value\":1.5,\"unit\":\"s\"}')",
    );
    let output = finish(&mut command, "");
    output.succeeded();
    assert!(output.stdout.contains("python3 -c"), "{}", output.stdout);
    let found = json_of(&json);
    let measured = found["workloads"][0]["rows"].as_array().expect("rows");
    assert_eq!(measured.len(), 2, "{found}");
    for row in measured {
        assert_eq!(row["phases"][0]["figures"][0], 1.5, "{row}");
        assert_eq!(row["phases"][1]["phase"], "elapsed", "{row}");
        assert_eq!(row["phases"][1]["figures"][0], row["elapsed_s"][0], "{row}");
    }
}

#[test]
fn usemem_stands_alone_and_checks_itself() {
    let usemem = |args: &[&str]| {
        let all = [&["usemem"], args].concat();
        finish(&mut zfolio().command(&all), "")
    };
    let ran = usemem(&[
        "--init-time",
        "-w",
        "-O",
        "-r",
        "2",
        "-b",
        "1",
        "-n",
        "3",
        "2m",
    ]);
    ran.succeeded();
    let throughputs = ran.stdout.lines().filter(|line| line.ends_with(" KB/s"));
    let bytes = format!("{} bytes / ", 2 * (2 << 20));
    assert_eq!(
        throughputs.filter(|line| line.starts_with(&bytes)).count(),
        3,
        "{}",
        ran.stdout
    );
    usemem(&["-R", "1m"]).succeeded();
    for wrong in [&["-n", "0", "1m"][..], &["lots"], &[]] {
        assert_eq!(usemem(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_small_usemem_comparison() {
    let _swap = SWAP.lock();
    let Some(z) = support::managed() else { return };
    let dir = tempdir();
    let json = dir.path().join("out.json");
    let columns = if kernel_rows() {
        "run-lz4,zram-lz4"
    } else {
        "run-lz4"
    };
    let mut command = z.command([
        "bench",
        "usemem",
        "--quick",
        "--size",
        "24M",
        "--processes",
        "2",
        "--folio",
        "64K",
        "--only",
        columns,
    ]);
    let output = finish(command.arg("--json").arg(&json), "");
    output.succeeded();
    for row in ["Total throughput (KB/s)", "ZSWPOUT-64kB", "one by one KB/s"] {
        assert!(output.stdout.contains(row), "{row} in {}", output.stdout);
    }
    let found = json_of(&json);
    let measured = found["folios"][0]["columns"].as_array().expect("columns");
    assert_eq!(measured.len(), columns.split(',').count(), "{found}");
}

#[test]
fn mistakes_are_told_before_the_work_begins() {
    for (args, status, told) in [
        (&["peers", "--workload", "sort"][..], 2, "sort"),
        (&["peers", "--only", "disk"], 2, "disk"),
        (&["peers", "--size", "1M"], 2, "--size"),
        (&["peers", "--size", "90%"], 2, "--size"),
        (&["peers", "--share", "4"], 2, "--share"),
        (&["peers", "--runs", "0"], 2, "--runs"),
        (&["peers", "--json", "/no/such/x.json"], 73, "--json"),
        (&["peers", "--", "no-such-program"], 127, "no-such-program"),
        (&["peers", "--size", "64M", "--", "true"], 2, "--size"),
        (
            &["peers", "--workload", "fill", "--", "true"],
            2,
            "--workload",
        ),
        (&["peers", "--only", "native", "--", "false"], 2, "false"),
        (&["usemem", "--folio", "8K"], 2, "8K"),
        (&["usemem", "--size", "1M"], 2, "--size"),
        (&["usemem", "--processes", "65"], 2, "--processes"),
        (&["usemem", "--plot", "/no/such/x.svg"], 73, "--plot"),
        (&["pool", "--pages", "10"], 2, "--pages"),
        (&["pool", "--corpus", "/no/such/file"], 73, "/no/such/file"),
        (&["pool", "--json", "/no/such/x.json"], 73, "--json"),
    ] {
        let all = [&["bench"], args].concat();
        let output = finish(&mut zfolio().command(&all), "");
        assert_eq!(
            output.status.code(),
            Some(status),
            "{all:?}: {}",
            output.stderr
        );
        assert_eq!(output.stdout, "", "{all:?}");
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert!(output.stderr.starts_with("zfolio: "), "{}", output.stderr);
        assert!(output.stderr.contains(told), "{}", output.stderr);
    }
}
