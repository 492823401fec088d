//! One run of a program in a given memory: bare, under `zfolio run`, or in a
//! control group whose cold pages go to the kernel's zram, zswap or swap file.
//!
//! Everything the kernel needs for a run is set up before it and undone after,
//! by the [`Keeper`], so that no run sees another's pool.
//!
//! | module | concept |
//! |---|---|
//! | `group` | memory control groups, version 1 and 2 |
//! | `counters` | what the kernel counted meanwhile |

mod counters;
mod group;

use super::args::BenchChild;
use super::keeper::{Keeper, Kept, Zram, wait_until};
use crate::exit::{Failure, Status};
use crate::machine;
use crate::watch::Watch;
use group::{Group, Groups};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Where the cold pages of a run go.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Side {
    /// Nowhere: no limit.
    Native,
    /// Into our pool.
    Run,
    /// Into our pool, by a region that the program asks for.
    Region,
    /// Into a zram device with this algorithm.
    Zram(String),
    /// Into zswap with this compressor, before a swap file.
    Zswap(String),
    /// Into a swap file.
    SwapFile,
}

impl Side {
    /// As tables and `--only` spell it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Native => "native".to_owned(),
            Self::Run => "run".to_owned(),
            Self::Region => "region".to_owned(),
            Self::Zram(algorithm) => format!("zram-{algorithm}"),
            Self::Zswap(compressor) => format!("zswap-{compressor}"),
            Self::SwapFile => "file".to_owned(),
        }
    }

    /// Whether it is the kernel's.
    pub(super) fn is_kernel(&self) -> bool {
        matches!(self, Self::Zram(_) | Self::Zswap(_) | Self::SwapFile)
    }
}

/// A program, and how it is to be run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) command: &'a [OsString],
    /// Bytes it may keep resident: `--high`, or the group's limit.
    pub(super) limit: u64,
    /// Bytes of swap.
    pub(super) swap: u64,
    /// More options of `zfolio run`.
    pub(super) options: &'a [&'a str],
    /// Settings of the kernel's while it runs.
    pub(super) settings: &'a [(PathBuf, String)],
    pub(super) timeout: Duration,
    /// Look at its memory from outside, limit or not.
    pub(super) watched: bool,
}

/// How it went.
#[derive(Clone, Debug, Default)]
pub(super) struct Ran {
    pub(super) stdout: String,
    /// Seconds.
    pub(super) wall: f64,
    pub(super) sys: f64,
    /// Most memory charged to its group, bytes.
    pub(super) charged: Option<u64>,
    /// Most memory resident in one of its processes, as far as was seen; only of
    /// a run without a limit, or one that was watched.
    pub(super) resident: u64,
    /// The same by the kernel's high-water marks: nothing between looks is missed.
    pub(super) high_water: u64,
    /// Of the process that was started alone: of our side `zfolio run` itself.
    pub(super) first: u64,
    /// Most memory of the kernel's pool that is charged to nobody, bytes.
    pub(super) pool: u64,
    /// What the kernel counted, the machine over.
    pub(super) kernel: BTreeMap<String, u64>,
    /// What `zfolio run --stats` wrote.
    pub(super) stats: Value,
}

impl Ran {
    /// Memory used at most, as far as it is known.
    pub(super) fn used(&self) -> Option<u64> {
        self.charged.map(|charged| charged + self.pool)
    }
}

/// Runs programs.
#[derive(Debug)]
pub(super) struct Rig {
    keeper: Option<Keeper>,
    groups: Option<Groups>,
    exe: PathBuf,
    scratch: PathBuf,
    /// The sides there are here.
    pub(super) sides: Vec<Side>,
    /// Why the others are not.
    pub(super) left_out: Vec<String>,
}

/// How far from the total a searched limit and its pool may be, percent.
const TOLERANCE: u64 = 3;
/// What a row may use of the total at most, percent.
const FITS: u64 = 110;
/// Runs of a search.
const TRIES: usize = 6;

/// How a run that lasted too long is told.
pub(super) const ENDED: &str = "it was ended after";

const ZSWAP: &str = "/sys/module/zswap/parameters";
/// What zswap may be able to compress with.
const ZSWAP_COMPRESSORS: [&str; 6] = ["lz4", "zstd", "lzo", "lzo-rle", "deflate", "842"];

impl Rig {
    /// Finds out what there is here.
    ///
    /// # Errors
    /// When not even our side can be measured.
    pub(super) fn new() -> Result<Self, String> {
        let mut rig = Self::bare()?;
        if let Err(why) = rig.find_kernel() {
            rig.left_out.push(format!("kernel rows: {why}"));
        }
        rig.with_scratch()
    }

    /// Our sides alone, which need nothing of the system.
    ///
    /// # Errors
    /// When there is no place for files.
    pub(super) fn own() -> Result<Self, String> {
        Self::bare()?.with_scratch()
    }

    fn bare() -> Result<Self, String> {
        let exe = std::env::current_exe().map_err(|error| error.to_string())?;
        Ok(Self {
            keeper: None,
            groups: None,
            exe,
            scratch: std::env::temp_dir().join(format!("zfolio-bench-{}", std::process::id())),
            sides: vec![Side::Native, Side::Run, Side::Region],
            left_out: Vec::new(),
        })
    }

    /// With a directory of its own, unless the keeper has one for it.
    fn with_scratch(self) -> Result<Self, String> {
        if self.keeper.is_none() {
            fs::create_dir(&self.scratch)
                .map_err(|error| format!("{}: {error}", self.scratch.display()))?;
        }
        Ok(self)
    }

    fn find_kernel(&mut self) -> Result<(), String> {
        let mut keeper = Keeper::start()?;
        self.scratch = keeper.scratch()?;
        let keeper = self.keeper.insert(keeper);
        let mut groups = Groups::find()?;
        groups.prepare(keeper)?;
        self.groups = Some(groups);
        keeper.lock_swap()?;
        match keeper.zram_algorithms() {
            Ok(mut names) => {
                // What the others are compared with comes first.
                names.sort_by_key(|name| name != "lz4");
                self.sides.extend(names.into_iter().map(Side::Zram));
            }
            Err(why) => self.left_out.push(format!("zram: {why}")),
        }
        match zswap_compressors(keeper) {
            Ok(names) => self.sides.extend(names.into_iter().map(Side::Zswap)),
            Err(why) => self.left_out.push(format!("zswap: {why}")),
        }
        self.sides.push(Side::SwapFile);
        Ok(())
    }

    /// A directory for files of workloads, gone in the end.
    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// This program.
    pub(super) fn exe(&self) -> &Path {
        &self.exe
    }

    /// Which version of control groups holds memory; 0 for none.
    pub(super) fn group_version(&self) -> u8 {
        self.groups.as_ref().map_or(0, Groups::version)
    }

    /// Whether the pool of `side` is charged to nobody's group.
    pub(super) fn pool_is_outside(&self, side: &Side) -> bool {
        match side {
            Side::Zram(_) => true,
            // Version 2 charges compressed pages to the group they are of.
            Side::Zswap(_) => self.group_version() < 2,
            _ => false,
        }
    }

    /// Runs `job` to its end.
    ///
    /// # Errors
    /// What could not be set up, or how the program failed, in a sentence.
    pub(super) fn run(&mut self, side: &Side, job: &Job<'_>) -> Result<Ran, String> {
        let mut kept = Vec::new();
        let ran = self
            .set_up(side, job, &mut kept)
            .and_then(|(zram, mut group)| self.measure(side, job, zram.as_ref(), group.as_mut()));
        // The group before the swap that its processes are in.
        let mut undone = Ok(());
        for kept in kept.into_iter().rev() {
            if let Some(keeper) = &mut self.keeper {
                undone = undone.and(keeper.undo(kept));
            }
        }
        let ran = ran?;
        undone?;
        Ok(ran)
    }

    /// The group's limit with which limit and pool come to `total`, for a program
    /// that needs `need` without one; bytes.
    ///
    /// # Errors
    /// When it does not fit, or the program fails.
    pub(super) fn search(
        &mut self,
        side: &Side,
        job: &Job<'_>,
        total: u64,
        need: u64,
    ) -> Result<u64, String> {
        let mut tried: Vec<(u64, u64)> = Vec::new();
        // The one whose use came nearest: how near, limit, use.
        let mut nearest: Option<(u64, u64, u64)> = None;
        while tried.len() < TRIES {
            let Some(limit) = next_limit(total, need, &tried) else {
                break;
            };
            let ran = self
                .run(side, &Job { limit, ..*job })
                .map_err(|why| format!("in {} MiB and a pool: {why}", limit >> 20))?;
            let used = ran.used().unwrap_or(0).max(limit + ran.pool);
            tried.push((limit, used - limit));
            let off = used.abs_diff(total);
            if nearest.is_none_or(|(nearer, ..)| off < nearer) {
                nearest = Some((off, limit, used));
            }
            if off <= total * TOLERANCE / 100 {
                break;
            }
        }
        match nearest {
            Some((_, limit, used)) if used <= total * FITS / 100 => Ok(limit),
            Some((_, limit, used)) => Err(format!(
                "it does not fit: with a limit of {} MiB it uses {} MiB",
                limit >> 20,
                used >> 20
            )),
            None => Err("no limit was tried".to_owned()),
        }
    }

    fn set_up(
        &mut self,
        side: &Side,
        job: &Job<'_>,
        kept: &mut Vec<Kept>,
    ) -> Result<(Option<ZramStat>, Option<Group>), String> {
        let Some(keeper) = &mut self.keeper else {
            return if side.is_kernel() {
                Err("there is no keeper".to_owned())
            } else {
                Ok((None, None))
            };
        };
        let mut zram = None;
        if side.is_kernel() {
            for (path, value) in job.settings {
                if let Some(keeping) = change(keeper, path, value)? {
                    kept.push(keeping);
                }
            }
            let zswap = Path::new(ZSWAP).join("enabled");
            let wanted = if matches!(side, Side::Zswap(_)) {
                "Y"
            } else {
                "N"
            };
            if zswap.exists() {
                kept.extend(change(keeper, &zswap, wanted)?);
            }
        }
        match side {
            Side::Native | Side::Run | Side::Region => {}
            Side::Zram(algorithm) => {
                let device = keeper.zram(algorithm, job.swap)?;
                let (path, stat) = (device.device(), ZramStat::of(&device));
                kept.push(device.kept);
                kept.push(keeper.swap_on(&path)?);
                zram = Some(stat);
            }
            Side::Zswap(_) | Side::SwapFile => {
                if let Side::Zswap(compressor) = side {
                    let setting = Path::new(ZSWAP).join("compressor");
                    kept.extend(change(keeper, &setting, compressor)?);
                }
                let (file, path) = keeper.swap_file(job.swap)?;
                kept.push(file);
                kept.push(keeper.swap_on(&path)?);
            }
        }
        let group = match &self.groups {
            None => None,
            Some(groups) => {
                let limit = side.is_kernel().then_some(job.limit);
                let (keeping, group) = groups.create(keeper, limit)?;
                kept.push(keeping);
                Some(group)
            }
        };
        Ok((zram, group))
    }

    fn measure(
        &self,
        side: &Side,
        job: &Job<'_>,
        zram: Option<&ZramStat>,
        mut group: Option<&mut Group>,
    ) -> Result<Ran, String> {
        let stats = self.scratch.join("stats.json");
        let _ = fs::remove_file(&stats);
        let mut command = Command::new(&self.exe);
        command
            .args(["bench-child", "--parent"])
            .arg(std::process::id().to_string());
        if let Some(group) = &group {
            command.arg("--group").arg(group.procs());
        }
        command.arg("--");
        if *side == Side::Run {
            command
                .arg(&self.exe)
                .args(["run", "--quiet", "--high"])
                .arg(job.limit.to_string())
                .args(job.options)
                .arg("--stats")
                .arg(&stats)
                .arg("--");
        }
        command.args(job.command);
        if *side == Side::Region {
            command.arg("--region").arg(job.limit.to_string());
        }
        let outside = self.pool_is_outside(side);
        let mut pool = 0;
        let before = counters::snapshot();
        let watched = job.watched || *side == Side::Native;
        let mut ran = ended(&mut command, job.timeout, watched, || {
            if outside && matches!(side, Side::Zswap(_)) {
                pool = pool.max(counters::zswap_pool());
            }
            if let Some(group) = &mut group {
                group.ease();
            }
        })?;
        ran.kernel = counters::since(&before);
        ran.pool = zram.map_or(Ok(pool), ZramStat::most)?;
        if let Some(group) = group {
            ran.charged = group.peak();
            ran.kernel.extend(group.events());
        }
        if let Ok(text) = fs::read_to_string(&stats) {
            ran.stats = serde_json::from_str(&text).unwrap_or_default();
        }
        Ok(ran)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.keeper.is_none() {
            let _ = fs::remove_dir_all(&self.scratch);
        }
    }
}

/// What zswap compresses with here. It only refuses what it cannot once it has
/// been switched on, so that is done for the moment.
fn zswap_compressors(keeper: &mut Keeper) -> Result<Vec<String>, String> {
    let setting = Path::new(ZSWAP).join("compressor");
    let before = machine::line_of(&setting.to_string_lossy()).ok_or("this kernel has none")?;
    let on = change(keeper, &Path::new(ZSWAP).join("enabled"), "Y")?;
    let mut names = Vec::new();
    for name in ZSWAP_COMPRESSORS {
        if let Ok(kept) = keeper.set(&setting, name, &before) {
            keeper.undo(kept)?;
            names.push(name.to_owned());
        }
    }
    on.map_or(Ok(()), |kept| keeper.undo(kept))?;
    Ok(names)
}

/// Writes `value` to a setting that has another; nothing to undo if it has it.
fn change(keeper: &mut Keeper, path: &Path, value: &str) -> Result<Option<Kept>, String> {
    let text = machine::line_of(&path.to_string_lossy())
        .ok_or_else(|| format!("{} cannot be read", path.display()))?;
    // Of several, the kernel marks the one chosen.
    let chosen = text.split_whitespace().find_map(|word| {
        word.strip_prefix('[')
            .and_then(|word| word.strip_suffix(']'))
    });
    let before = chosen.unwrap_or(&text);
    if before == value {
        return Ok(None);
    }
    keeper.set(path, value, before).map(Some)
}

/// Where a device's mm_stat is, when the device itself is kept elsewhere.
struct ZramStat(PathBuf);

impl ZramStat {
    fn of(device: &Zram) -> Self {
        Self(device.file("mm_stat"))
    }

    fn most(&self) -> Result<u64, String> {
        let text = fs::read_to_string(&self.0);
        let text = text.map_err(|error| format!("{}: {error}", self.0.display()))?;
        text.split_whitespace()
            .nth(4)
            .and_then(|field| field.parse().ok())
            .ok_or_else(|| format!("{} has {text:?}", self.0.display()))
    }
}

/// Starts `command` and waits for its end, looking every few milliseconds.
pub(super) fn ended(
    command: &mut Command,
    timeout: Duration,
    watched: bool,
    mut look: impl FnMut(),
) -> Result<Ran, String> {
    let before = usage();
    let begin = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("starting it: {error}"))?;
    let pid = child.id();
    let watch = watched.then(|| Watch::start(pid, true));
    let out = child.stdout.take().map(|pipe| thread::spawn(|| text(pipe)));
    let err = child.stderr.take().map(|pipe| thread::spawn(|| text(pipe)));
    let (sender, receiver) = channel();
    let waiter = thread::spawn(move || wait(child, &sender));
    let mut killed = false;
    let ended = loop {
        match receiver.recv_timeout(Duration::from_millis(20)) {
            Ok(ended) => break Ok(ended),
            Err(RecvTimeoutError::Disconnected) => break Err("waiting for it failed".to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        look();
        if begin.elapsed() > timeout && !killed {
            killed = true;
            end(pid);
        }
    };
    let _ = waiter.join();
    let watched = watch.map(Watch::stop).unwrap_or_default();
    let (status, at) = ended?;
    let joined = |handle: Option<thread::JoinHandle<String>>| {
        handle
            .and_then(|handle| handle.join().ok())
            .unwrap_or_default()
    };
    let (stdout, stderr) = (joined(out), joined(err));
    if killed {
        return Err(format!("{ENDED} {} s", timeout.as_secs()));
    }
    if !status.success() {
        let said = stderr.lines().chain(stdout.lines()).next_back();
        return Err(format!("{status}: {}", said.unwrap_or("it said nothing")));
    }
    Ok(Ran {
        stdout,
        wall: (at - begin).as_secs_f64(),
        sys: usage() - before,
        resident: watched.peak(),
        high_water: watched.high_water,
        first: watched.root,
        ..Ran::default()
    })
}

type Ended = (std::process::ExitStatus, Instant);

fn wait(mut child: Child, to: &std::sync::mpsc::Sender<Ended>) {
    if let Ok(status) = child.wait() {
        let _ = to.send((status, Instant::now()));
    }
}

fn text(mut pipe: impl Read) -> String {
    let mut text = Vec::new();
    let _ = pipe.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Ends a program and all it has started: what was started by one that has
/// ended is the group's to end, when the run is undone.
pub(super) fn end(pid: u32) {
    for pid in crate::watch::descendants(pid).into_iter().chain([pid]) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Seconds in the kernel of all children that were waited for.
fn usage() -> f64 {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN);
    used.map_or(0.0, |used| {
        used.system_time().num_microseconds() as f64 / 1e6
    })
}

/// `zfolio bench-child`: enters the group and becomes the program.
///
/// # Errors
/// When it cannot.
pub(crate) fn child(args: &BenchChild) -> Result<ExitCode, Failure> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(Status::Internal, what, error, "report this")
    };
    // A manager is told to end its program; a program ends.
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| failed("bench-child", &error))?;
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if parent != Some(args.parent) {
        return Err(failed("bench-child", &"the experiment has ended"));
    }
    if let Some(group) = &args.group {
        fs::write(group, "0").map_err(|error| failed(&group.display().to_string(), &error))?;
    }
    let mut command = Command::new(&args.command[0]);
    let error = command.args(&args.command[1..]).exec();
    Err(failed(&args.command[0].to_string_lossy(), &error))
}

/// Whether a program of this name can be started.
pub(super) fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(OsStr::new(name)).is_file())
}

/// The limit to try next so that it and the pool outside it come to `total`,
/// all bytes: what was tried, and how large the pool was. `None` when no limit
/// is small enough; below [`least`] a program does little but swap.
///
/// The pool shrinks by less than the limit grows, so that the sum grows with the
/// limit: the secant through the last two, else a pool of 2.5 to 1.
fn next_limit(total: u64, need: u64, tried: &[(u64, u64)]) -> Option<u64> {
    let least = least(total);
    let (total, need) = (total as f64, need as f64);
    let sum = |(limit, pool): (u64, u64)| limit as f64 + pool as f64 - total;
    let next = match *tried {
        [] => ((total - need / 2.5) / 0.6).max(total * 0.4),
        [only] => only.0 as f64 - sum(only) / 0.6,
        [.., before, last] => {
            let rise = (sum(last) - sum(before)) / (last.0 as f64 - before.0 as f64);
            // Noise must not throw it far.
            last.0 as f64 - sum(last) / rise.clamp(0.3, 1.2)
        }
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between the least and the total"
    )]
    let next = (next.clamp(least as f64, total) / 4096.0) as u64 * 4096;
    // Tried before: nothing new would come of it.
    (!tried.iter().any(|(limit, _)| *limit == next)).then_some(next)
}

/// The least limit tried, bytes.
fn least(total: u64) -> u64 {
    (total / 8).max(6 << 20) / 4096 * 4096
}

/// Waits a moment for what the last run left to be freed.
pub(super) fn settle() {
    wait_until(Duration::from_millis(100), || false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_run_that_fails_or_lasts_is_told() {
        let shell = |script: &str, millis| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            ended(&mut command, Duration::from_millis(millis), false, || ())
        };
        assert_eq!(
            shell("echo yes", 60_000).map(|ran| ran.stdout),
            Ok("yes\n".to_owned())
        );
        let told = shell("echo no >&2; exit 3", 60_000).map(drop);
        assert!(
            told.as_ref().is_err_and(|told| told.contains("no")),
            "{told:?}"
        );
        let told = shell("exec sleep 1000", 1).map(drop);
        assert!(
            told.as_ref()
                .is_err_and(|told| told.contains("ended after")),
            "{told:?}"
        );
    }

    proptest! {
        /// A pool that holds what is above the limit at a constant ratio.
        #[test]
        fn the_search_comes_to_the_total(
            need in 100_u64..4000, share in 30_u64..95, ratio in 1.2..8.0_f64,
        ) {
            let (need, total) = (need << 20, (need << 20) * share / 100);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a model")]
            let pool = |limit: u64| (need.saturating_sub(limit) as f64 / ratio) as u64;
            let mut tried = Vec::new();
            while let Some(limit) = next_limit(total, need, &tried) {
                tried.push((limit, pool(limit)));
                let sum = limit + pool(limit);
                if sum.abs_diff(total) <= total / 50 {
                    return Ok(());
                }
                prop_assert!(tried.len() < 12, "{tried:?} for {total}");
            }
            // Then it does not fit, whatever the limit.
            let least = least(total);
            prop_assert!(pool(least) + least > total, "{tried:?} for {total}");
        }
    }
}
