//! End-to-end harness: builds `zfolio` and the preload library once, runs
//! programs under them, and watches their memory from outside.
//!
//! A case that needs userfaultfd begins with
//!
//! ```ignore
//! let Some(z) = support::managed() else { return };
//! let ran = z.run("64M", &["python3", "-c", "..."]);
//! ```
//!
//! `managed` says `SKIPPED: ...` loudly where the machine cannot, and fails
//! instead when `ZFOLIO_TEST_REQUIRE=1` (as on machines known to be able).
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod processes;

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

use processes::Ended;
use zfolio_host::process_tree::{Watch, Watched};

/// A run that lasts longer hangs: its process group is killed, and the case fails.
pub const LIMIT: Duration = Duration::from_secs(600);

/// The built command and library.
#[derive(Debug)]
pub struct Zfolio {
    exe: PathBuf,
    library: PathBuf,
    /// A file with options of `run`, for those that a command does not give.
    configured: Option<PathBuf>,
    /// The library is the real one, not a stand-in.
    pub real: bool,
}

/// Everything about a run that has ended.
#[derive(Debug)]
pub struct Output {
    /// How `zfolio` ended.
    pub status: ExitStatus,
    /// The program's standard output.
    pub stdout: String,
    /// Standard error of the program and of `zfolio`.
    pub stderr: String,
    /// What `--stats` wrote; null when it wrote nothing.
    pub stats: Value,
    /// Resident memory of the largest descendant, every 5 ms.
    pub watched: Watched,
    /// Elapsed.
    pub wall: Duration,
}

impl Output {
    /// Of a run that began at `begin`.
    ///
    /// # Panics
    /// When it did not end in time.
    #[track_caller]
    pub fn of(ended: Result<Ended, String>, watched: Watched, begin: Instant) -> Self {
        let Ended {
            status,
            stdout,
            stderr,
        } = ended.unwrap_or_else(|told| panic!("{told}"));
        Self {
            status,
            stdout,
            stderr,
            stats: Value::Null,
            watched,
            wall: begin.elapsed(),
        }
    }

    /// Largest VmRSS sampled of any process under `zfolio`, bytes.
    pub fn peak_rss(&self) -> u64 {
        self.watched.peak()
    }

    /// A counter of the tree's total, by name.
    pub fn counter(&self, name: &str) -> u64 {
        let value = &self.stats["total"]["counters"][name];
        value
            .as_u64()
            .unwrap_or_else(|| panic!("no counter {name} in {}", self.stats))
    }

    /// Asserts that the program succeeded; what it printed otherwise.
    #[track_caller]
    pub fn succeeded(&self) -> &Self {
        assert!(
            self.status.success(),
            "{}\nstdout: {}\nstderr: {}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }
}

/// The command and a library, whatever the machine allows.
pub fn zfolio() -> &'static Zfolio {
    static BUILT: OnceLock<Zfolio> = OnceLock::new();
    BUILT.get_or_init(build)
}

/// As [`zfolio`], if programs can be run under it here; `None` after saying why not.
pub fn managed() -> Option<&'static Zfolio> {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let z = zfolio();
    let reason = REASON.get_or_init(|| {
        let doctor = z.command(["doctor"]).output().expect("zfolio doctor runs");
        let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
        let fails = || {
            told.lines()
                .filter(|line| line.starts_with("FAIL"))
                .collect::<Vec<_>>()
                .join("; ")
        };
        (!doctor.status.success()).then(fails)
    });
    match reason {
        None => Some(z),
        Some(why) => {
            skip(&format!("userfaultfd cannot be used here: {why}"));
            None
        }
    }
}

/// As [`managed`], with the real library.
pub fn real() -> Option<&'static Zfolio> {
    let z = managed()?;
    if z.real {
        return Some(z);
    }
    skip("the preload library is a stand-in");
    None
}

/// As [`real`], with runs by messages: for what only they have, or do in a way of their own.
pub fn by_messages() -> Option<&'static Zfolio> {
    static BY_MESSAGES: OnceLock<Option<Zfolio>> = OnceLock::new();
    let z = real()?;
    let found = BY_MESSAGES.get_or_init(|| {
        let doctor = finish(&mut z.command(["doctor"]), "").stdout;
        doctor.contains("--faults message works\n").then(|| Zfolio {
            exe: z.exe.clone(),
            library: z.library.clone(),
            configured: Some(
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("tests")
                    .join("support/messages.toml"),
            ),
            real: true,
        })
    });
    if found.is_none() {
        skip("messages are not permitted here");
    }
    found.as_ref()
}

/// Says loudly that a case did not run.
///
/// # Panics
/// With `ZFOLIO_TEST_REQUIRE=1`.
pub fn skip(why: &str) {
    let line = format!("SKIPPED: {why}");
    assert!(
        std::env::var_os("ZFOLIO_TEST_REQUIRE").is_none_or(|value| value != "1"),
        "{line}"
    );
    // Past the harness's capture.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

fn build() -> Zfolio {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/zfolio-cli");
    let exe = Path::new(env!("CARGO_BIN_EXE_zfolio"));
    let target = exe
        .ancestors()
        .nth(2)
        .expect("the executable lies in TARGET/PROFILE");
    if let Some(library) = std::env::var_os("ZFOLIO_TEST_PRELOAD") {
        return Zfolio {
            exe: exe.into(),
            library: library.into(),
            configured: None,
            real: false,
        };
    }
    if !root.join("crates/zfolio-preload").exists() {
        return Zfolio {
            exe: exe.into(),
            library: stand_in(),
            configured: None,
            real: false,
        };
    }
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--release", "-q", "-p", "zfolio-preload"])
        .args(["-p", "zfolio-cli", "--target-dir"])
        .arg(target)
        .current_dir(root)
        // As any build in the checkout: the library beside the command.
        .env_remove("ZFOLIO_EMBED");
    const OTHERS: [&str; 2] = ["CARGO_PRIMARY_PACKAGE", "OUT_DIR"];
    // What cargo tells a test of its package: build scripts that look at it (ring's) would run
    // again, and a minute and a half of building with them.
    let of_package = |name: &str| {
        let about = [
            "CARGO_PKG_",
            "CARGO_MANIFEST_",
            "CARGO_CRATE_",
            "CARGO_BIN_",
        ];
        about.iter().any(|about| name.starts_with(about))
    };
    let all = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in all.filter(|name| of_package(name) || OTHERS.contains(&&**name)) {
        build.env_remove(name);
    }
    let built = build.status().expect("cargo runs");
    assert!(
        built.success(),
        "zfolio and its preload library do not build"
    );
    let release = target.join("release");
    Zfolio {
        exe: release.join("zfolio"),
        library: release.join("libzfolio_preload.so"),
        configured: None,
        real: true,
    }
}

/// An empty shared object: enough for everything but memory.
fn stand_in() -> PathBuf {
    static KEPT: OnceLock<TempDir> = OnceLock::new();
    let dir = KEPT.get_or_init(tempdir);
    compile(
        dir.path(),
        "standin.so",
        "int zfolio_stand_in;",
        &["-shared", "-fPIC"],
    )
    .expect("cc makes an empty shared object")
}

/// A temporary directory, gone with the value.
pub fn tempdir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Compiles `source` (C) into `dir`; `None` when there is no compiler or it refuses.
pub fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let file = dir.join(format!("{name}.c"));
    fs::write(&file, source).expect("writing a source file");
    let out = dir.join(name);
    let done = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&out)
        .arg(&file)
        .args(flags)
        .output()
        .ok()?;
    if !done.status.success() {
        eprintln!("cc: {}", String::from_utf8_lossy(&done.stderr));
        return None;
    }
    Some(out)
}

/// Writes an executable file.
pub fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    executable(&path, text.as_bytes());
    path
}

/// Writes a file that is run as a program. Another process writes it: a descriptor of ours that may
/// write could be in a child that another thread starts at that moment, and as long as anybody can
/// write a file the kernel refuses to run it (ETXTBSY).
#[track_caller]
pub fn executable(path: &Path, bytes: &[u8]) {
    let mut writer = Command::new("sh")
        .args(["-c", "umask 022 && cat >\"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh starts");
    let mut input = writer.stdin.take().expect("a pipe");
    input.write_all(bytes).expect("an executable is written");
    drop(input);
    assert!(writer.wait().expect("sh ends").success(), "{path:?}");
}

/// A copy of a file that is run as a program, made by another process as in [`executable`].
#[track_caller]
pub fn copy_executable(from: &Path, to: &Path) {
    let made = Command::new("cp").arg(from).arg(to).status();
    assert!(made.expect("cp starts").success(), "{from:?} to {to:?}");
}

impl Zfolio {
    /// The command's executable.
    pub fn exe(&self) -> &Path {
        &self.exe
    }

    /// The library it preloads.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// `zfolio ARGS`, with the library named, in a process group of its own.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.exe);
        let configured = self.configured.as_deref();
        command
            .args(args)
            .env("ZFOLIO_PRELOAD", &self.library)
            // Whatever the user has configured.
            .env("ZFOLIO_CONFIG", configured.unwrap_or(Path::new("none")))
            .stdin(Stdio::null())
            .process_group(0);
        command
    }

    /// `zfolio run --high HIGH --stats FILE -- PROGRAM`, to its end.
    pub fn run(&self, high: &str, program: &[&str]) -> Output {
        self.run_with(&["--high", high], program, "")
    }

    /// As [`Self::run`], with other options and with standard input.
    pub fn run_with(&self, options: &[&str], program: &[&str], input: &str) -> Output {
        let dir = tempdir();
        let stats = dir.path().join("stats.json");
        let mut command = self.command(["run", "--stats"]);
        command.arg(&stats);
        command.args(in_another_way(options));
        command.arg("--").args(program);
        let mut output = finish(&mut command, input);
        if let Ok(text) = fs::read_to_string(&stats) {
            output.stats = serde_json::from_str(&text).expect("--stats writes JSON");
        }
        output
    }
}

/// Options of `zfolio run`, for a test that is run once more with another way of telling faults
/// (`ZFOLIO_TEST_FAULTS`); the folio of 2 MiB, which such a way refuses, is left out.
pub fn in_another_way(options: &[&str]) -> Vec<String> {
    let mut options: Vec<String> = options.iter().map(ToString::to_string).collect();
    let Ok(way) = std::env::var("ZFOLIO_TEST_FAULTS") else {
        return options;
    };
    let folio = options
        .windows(2)
        .position(|pair| pair[0] == "--folio" && pair[1] == "2M");
    if let Some(at) = folio.filter(|_| way != "message") {
        options.drain(at..at + 2);
    }
    options.extend(["--faults".into(), way]);
    options
}

/// Runs `run` until `met` says that the case was met, three times at most: how
/// pages move depends on which thread runs when, on machines that others use as
/// well. What must hold in every run, each byte first, `run` asserts itself.
///
/// # Panics
/// When no run met it.
#[track_caller]
pub fn until<T>(run: impl Fn() -> Option<T>, met: impl Fn(&T) -> Result<(), String>) -> Option<T> {
    let mut told = String::new();
    for _ in 0..3 {
        let output = run()?;
        match met(&output) {
            Ok(()) => return Some(output),
            Err(why) => {
                let _ = writeln!(std::io::stderr().lock(), "AGAIN: {why}");
                told = why;
            }
        }
    }
    panic!("three times: {told}");
}

/// An error that says what was not met, for [`until`].
pub fn check(met: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if met { Ok(()) } else { Err(why()) }
}

/// `zfolio run --high HIGH -- ARGS`, or `None` where the machine cannot.
pub fn zfolio_run(high: &str, args: &[&str]) -> Option<Output> {
    managed().map(|z| z.run(high, args))
}

/// Runs `command` to its end, feeding `input`, watching its descendants.
///
/// # Panics
/// When it outlives [`LIMIT`].
pub fn finish(command: &mut Command, input: &str) -> Output {
    let begin = Instant::now();
    let mut watch = None;
    let ended = processes::run_to_end(command, input, LIMIT, |pid| {
        watch = Some(Watch::start(pid, false));
    });
    let watched = watch.expect("it was started").stop();
    Output::of(ended, watched, begin)
}

/// The ways without privilege that work here; those that do not are told as skipped.
pub fn ways_without_privilege(z: &Zfolio) -> Vec<&'static str> {
    let doctor = finish(&mut z.command(["doctor"]), "").stdout;
    let works = |way: &&str| {
        let works = doctor.contains(&format!("--faults {way} works\n"));
        if !works {
            skip(&format!("--faults {way}: {doctor}"));
        }
        works
    };
    ["in-thread", "guard", "protect"]
        .into_iter()
        .filter(works)
        .collect()
}

/// Sends `signal` to a process.
pub fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .expect("a process id");
    rustix::process::kill_process(pid, signal).expect("the process is there");
}

/// Kills a process group started by [`Zfolio::command`].
pub fn kill_group(leader: u32) {
    if let Some(pid) = i32::try_from(leader)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

/// A process that is killed, with its group, if the case ends early.
#[derive(Debug)]
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        kill_group(self.0.id());
        let _ = self.0.wait();
    }
}
