//! A file behind the pool: pages go there and come back byte for byte, also when
//! the device does not do what it should, and nothing of them can be read there.

mod memory;
mod support;

use memory::{Case, compiled};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Guard, Output};

/// Options for a backing in `dir` and a pool of a fifth of `high`.
fn option(dir: &Path) -> String {
    format!("file:{},size=1G", dir.display())
}

/// Runs a program of `tests/programs` with a backing that it must use.
fn backed(program: &str, args: &[&str], high: &str) -> Option<Output> {
    let dir = support::tempdir();
    let backing = option(dir.path());
    let options = ["--backing", &backing, "--max-pool", "20"];
    let limit = Duration::from_secs(240);
    let case = Case {
        high,
        options: &options,
        limit,
        ..Case::new(program, args)
    };
    let output = case.run_until(|output| {
        support::check(output.counter("pswpout") > 500, || {
            output.stats["total"]["counters"].to_string()
        })
    })?;
    assert_eq!(output.counter("pswpout"), output.counter("zswpwb"));
    for name in [
        "backing_refused",
        "backing_write_fail",
        "backing_read_fail",
        "decompress_fail",
    ] {
        assert_eq!(output.counter(name), 0, "{name}");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("it is there").count(), 0);
    Some(output)
}

#[test]
fn what_is_written_back_comes_back() {
    if let Some(output) = backed("plain", &["96", "1"], "16M") {
        assert!(output.counter("pswpin") > 2000, "{}", output.stats);
        assert!(
            output.counter("pool_limit_hit") > 0 || output.counter("pool_peak_bytes") < 8 << 20
        );
    }
}

/// With its group of 16 each it would be more than twice as many. (24,576 come in order behind it.)
#[test]
fn a_page_at_random_comes_back_alone() {
    if let Some(output) = backed("reads", &["12000"], "24M") {
        let [from, came] = ["pswpin", "pages_in"].map(|name| output.counter(name));
        assert!(from > 20_000 && came < 60_000, "{}", output.stats);
    }
}

#[test]
fn children_of_forks_have_what_was_written_back() {
    for case in ["libc", "deep", "daemons", "raw", "threads"] {
        backed("forks", &[case], "40M");
    }
}

#[test]
fn random_operations_with_a_backing() {
    backed("stress", &["6", "11", "4"], "24M");
}

/// `plain 80 1` with a backing that makes trouble: right to the last byte.
#[track_caller]
fn troubled(z: &support::Zfolio, program: &Path, backing: &str) {
    let options = ["--high", "16M", "--backing", backing, "--max-pool", "20"];
    let command = [program.to_str().expect("a path"), "80", "1"];
    let run = || Some(z.run_with(&options, &command, ""));
    support::until(run, |output| {
        output.succeeded();
        let failed = output.counter("backing_write_fail") + output.counter("backing_full");
        support::check(failed > 0 && output.counter("pswpout") > 0, || {
            output.stats["total"]["counters"].to_string()
        })
    });
}

/// A file system that is taken away again, whatever becomes of the test.
struct Mounted<'a>(&'a std::path::Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_file_system_loses_nothing() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("plain") else {
        return;
    };
    let dir = support::tempdir();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=5m", "zfolio-test"])
        .arg(dir.path())
        .output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        return support::skip("a file system of a few MiB cannot be mounted here");
    }
    let mounted = Mounted(dir.path());
    troubled(z, &program, &option(dir.path()));
    drop(mounted);
}

#[test]
fn a_backing_that_is_too_small_loses_nothing() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("plain") else {
        return;
    };
    let dir = support::tempdir();
    let backing = format!("file:{},size=4M", dir.path().display());
    troubled(z, &program, &backing);
}

/// Descriptors of any thread of `pid` that are files in `dir`, opened.
fn files_of(pid: u32, dir: &Path) -> Vec<File> {
    let dir = fs::canonicalize(dir).expect("a directory");
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let fds = tasks.flat_map(|task| fs::read_dir(task.path().join("fd")).into_iter().flatten());
    fds.flatten()
        .filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(&dir)))
        .filter_map(|fd| File::open(fd.path()).ok())
        .collect()
}

/// The children of `pid`.
fn child_of(pid: u32) -> Option<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    list.split_whitespace().next()?.parse().ok()
}

#[test]
fn nothing_readable_is_left_when_it_is_killed() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("secret") else {
        return;
    };
    let dir = support::tempdir();
    // Not compressed: without encryption the text would be there as it is.
    let mut command = z.command(["run", "--quiet", "--high", "16M", "--compressor", "none"]);
    command.args(support::in_another_way(&[]));
    command.args(["--backing", &option(dir.path()), "--max-pool", "20", "--"]);
    command
        .arg(program)
        .arg("64")
        .stdout(Stdio::piped())
        .process_group(0);
    let mut run = Guard(command.spawn().expect("zfolio starts"));
    let mut line = String::new();
    let output = run.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let pid = child_of(run.0.id()).expect("the program");
    let mut files = files_of(pid, dir.path());
    assert!(!files.is_empty(), "its backing is open");
    support::kill(pid, rustix::process::Signal::KILL);
    let begin = Instant::now();
    while Path::new(&format!("/proc/{pid}/task")).exists() && begin.elapsed() < support::LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(
        fs::read_dir(dir.path()).expect("it is there").count(),
        0,
        "no name is left"
    );
    let file = &mut files[0];
    assert!(
        file.metadata().expect("it is open").blocks() > 1024,
        "pages were written"
    );
    file.rewind().expect("a file");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("it can be read");
    for piece in [&b"treasure"[..], b"buried", b"the oak"] {
        assert!(!bytes.windows(piece.len()).any(|window| window == piece));
    }
}

#[test]
fn what_cannot_be_a_backing_is_refused_at_the_start() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let status = |options: &[&str]| {
        let output = z.run_with(options, &["true"], "");
        (output.status.code(), output.stderr)
    };
    let (code, told) = status(&["--high", "64M", "--backing", "file:/proc"]);
    assert_eq!(code, Some(73), "{told}");
    assert!(told.contains("--backing"), "{told}");
    assert_eq!(status(&["--backing", "tape:/dev/st0"]).0, Some(2));
    assert_eq!(status(&["--high", "64M", "--max", "32M"]).0, Some(2));
    assert_eq!(status(&["--on-max", "wait"]).0, Some(2));
}

fn at_max(on_max: &str, args: &[&str]) -> Option<Output> {
    let z = support::by_messages()?;
    let program = compiled("atmax")?;
    let mut command = vec![program.to_str().expect("a path")];
    command.extend(args);
    let options = ["--high", "48M", "--max", "72M", "--on-max", on_max];
    Some(z.run_with(&options, &command, ""))
}

#[test]
fn at_max_the_process_is_ended() {
    let Some(output) = at_max("kill", &["64", "96"]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(70), "{}", output.stderr);
    assert!(output.stderr.contains("reached --max"), "{}", output.stderr);
}

#[test]
fn at_max_it_goes_on_if_that_is_allowed() {
    let Some(output) = at_max("allow", &["64", "96"]) else {
        return;
    };
    output.succeeded();
    assert!(output.counter("max") > 0);
}

#[test]
fn at_max_it_waits_until_there_is_room() {
    let run = || at_max("wait", &["64", "64", "free"]);
    support::until(run, |output| {
        output.succeeded();
        let peak = output.counter("resident_peak_bytes") >> 20;
        support::check(peak < 100, || format!("{peak} MiB, of 128 that it wanted"))
    });
}

/// A small ext4 file system on a loop device, gone with the value.
struct Disk {
    mounted: tempfile::TempDir,
    _image: tempfile::TempDir,
}

impl Drop for Disk {
    fn drop(&mut self) {
        // (Where a program that had it stand still was ended.)
        let thaw = Command::new("fsfreeze")
            .arg("-u")
            .arg(self.mounted.path())
            .stderr(Stdio::null())
            .status();
        let _ = thaw;
        drop(Mounted(self.mounted.path()));
    }
}

impl Disk {
    /// Says loudly why there is none.
    fn new() -> Option<Self> {
        let (mounted, image) = (support::tempdir(), support::tempdir());
        let file = image.path().join("image");
        let made = File::create(&file).and_then(|file| file.set_len(64 << 20));
        made.expect("a sparse file");
        let ran = |command: &mut Command| match command.output() {
            Ok(ran) if ran.status.success() => Ok(()),
            Ok(ran) => Err(String::from_utf8_lossy(&ran.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        };
        let mut make = Command::new("mkfs.ext4");
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop"]);
        let done = ran(make.args(["-q", "-F"]).arg(&file))
            .and_then(|()| ran(mount.arg(&file).arg(mounted.path())));
        if let Err(why) = done {
            support::skip(&format!("an ext4 file system on a loop device: {why}"));
            return None;
        }
        Some(Self {
            mounted,
            _image: image,
        })
    }
}

/// `lostdisk`: a disk that is lost (EIO from every read and write) once `before`
/// MiB of 80 are filled and the backing on it is open.
fn on_a_lost_disk(before: &str) -> Option<Output> {
    let z = support::by_messages()?;
    let program = compiled("lostdisk")?;
    let disk = Disk::new()?;
    let dir = disk.mounted.path();
    let stats = support::tempdir();
    let file = stats.path().join("stats.json");
    let mut command = z.command(["run", "--high", "16M", "--max-pool", "20", "--stats"]);
    command.arg(&file).args(support::in_another_way(&[]));
    command.args(["--backing", &option(dir), "--"]);
    command.arg(program).arg(dir).args([before, "80"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut run = Guard(command.spawn().expect("zfolio starts"));
    let mut line = String::new();
    let output = run.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    let pid = child_of(run.0.id()).expect("the program");
    let begin = Instant::now();
    while files_of(pid, dir).is_empty() {
        assert!(begin.elapsed() < support::LIMIT, "no backing is opened");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut word = run.0.stdin.take().expect("a pipe");
    word.write_all(b"go\n").expect("it reads");
    let mut status = None;
    while status.is_none() {
        assert!(begin.elapsed() < support::LIMIT, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
        status = run.0.try_wait().expect("it can be waited for");
    }
    let status = status.expect("it ended");
    let mut stderr = String::new();
    let mut said = run.0.stderr.take().expect("a pipe");
    said.read_to_string(&mut stderr).expect("text");
    let text = fs::read_to_string(&file).expect("--stats was written");
    Some(Output {
        status,
        stdout: line,
        stderr,
        stats: serde_json::from_str(&text).expect("JSON"),
        watched: zfolio_host::process_tree::Watched::default(),
        wall: begin.elapsed(),
    })
}

#[test]
fn writes_that_fail_with_eio_lose_nothing() {
    let run = || on_a_lost_disk("12");
    support::until(run, |output| {
        output.succeeded();
        assert_eq!(output.counter("backing_read_fail"), 0, "{}", output.stats);
        assert_eq!(output.counter("decompress_fail"), 0, "{}", output.stats);
        // If pages were out before it was lost, this was the other case.
        let (failed, out) = (
            output.counter("backing_write_fail"),
            output.counter("pswpout"),
        );
        support::check(failed > 0 && out == 0, || {
            format!("{failed} failed, {out} out")
        })
    });
}

#[test]
fn a_read_that_fails_with_eio_ends_the_program_with_a_line() {
    let Some(output) = on_a_lost_disk("80") else {
        return;
    };
    assert_eq!(output.status.code(), Some(70), "{}", output.stderr);
    assert!(output.counter("pswpout") > 500, "{}", output.stats);
    assert!(output.counter("backing_read_fail") > 0, "{}", output.stats);
    let told = output.stderr.lines().filter(|l| l.starts_with("zfolio: "));
    assert!(told.count() > 0, "{}", output.stderr);
    assert!(
        !output.stderr.contains("memory beside"),
        "{}",
        output.stderr
    );
}

/// Longer than the watchdog waits for anything else.
const STALL: &str = "40";

#[test]
fn a_disk_that_stands_still_is_waited_for() {
    let Some(z) = support::by_messages() else {
        return;
    };
    let Some(program) = compiled("stalled") else {
        return;
    };
    let Some(disk) = Disk::new() else { return };
    let dir = disk.mounted.path();
    let backing = option(dir);
    let options = ["--high", "24M", "--backing", &backing, "--max-pool", "20"];
    let [program, dir] = [program.as_path(), dir].map(|path| path.to_str().expect("a path"));
    let output = z.run_with(&options, &[program, dir, STALL, "64"], "");
    output.succeeded();
    assert!(output.counter("pswpout") > 500, "{}", output.stats);
}
