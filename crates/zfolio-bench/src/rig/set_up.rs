//! A run: what it needs is set up, it is measured, and all is undone.

use super::counters;
use super::group::{Group, Groups};
use super::halves::Half;
use super::job::{Job, Ran, Side};
use super::program::{ENDED, LOOK, ended};
use crate::keeper::{Keeper, Kept, Zram};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use zfolio_host::machine;

/// Runs programs.
#[derive(Debug)]
pub(crate) struct Rig {
    keeper: Option<Keeper>,
    groups: Option<Groups>,
    exe: PathBuf,
    scratch: PathBuf,
    /// The sides there are here.
    pub(crate) sides: Vec<Side>,
    /// Why the others are not.
    pub(crate) left_out: Vec<String>,
}

/// Times that a run is tried again.
const AGAIN: usize = 3;
const ZSWAP: &str = "/sys/module/zswap/parameters";
/// What zswap may be able to compress with.
const ZSWAP_COMPRESSORS: [&str; 6] = ["lz4", "zstd", "lzo", "lzo-rle", "deflate", "842"];

impl Rig {
    /// Finds out what there is here.
    ///
    /// # Errors
    /// When not even our side can be measured.
    pub(crate) fn new() -> Result<Self, String> {
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
    pub(crate) fn own() -> Result<Self, String> {
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
    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Whether what a run uses can be measured by a control group.
    pub(super) fn has_groups(&self) -> bool {
        self.groups.is_some()
    }

    /// This program.
    pub(crate) fn exe(&self) -> &Path {
        &self.exe
    }

    /// Which version of control groups holds memory; 0 for none.
    pub(crate) fn group_version(&self) -> u8 {
        self.groups.as_ref().map_or(0, Groups::version)
    }

    /// Whether the pool of `side` is charged to nobody's group.
    pub(crate) fn pool_is_outside(&self, side: &Side) -> bool {
        match side {
            Side::Zram(_) => true,
            // Version 2 charges compressed pages to the group they are of.
            Side::Zswap(_) => self.group_version() < 2,
            _ => false,
        }
    }

    /// Runs `job` to its end; again, if a program fails in a group of version 1, which
    /// refuses the kernel's own memory at its limit (so that a server loses a connection).
    ///
    /// # Errors
    /// What could not be set up, or how the program failed, in a sentence.
    pub(crate) fn run(&mut self, side: &Side, job: &Job<'_>) -> Result<Ran, String> {
        for _ in 0..self.again(side) {
            match self.run_once(side, job) {
                Err(why) if !why.starts_with(ENDED) => {
                    eprintln!("zfolio: bench: {}: {why}; tried again", side.name());
                }
                ran => return ran,
            }
        }
        self.run_once(side, job)
    }

    /// How often a run by `side` that fails is made again.
    pub(super) fn again(&self, side: &Side) -> usize {
        let may_be_refused = side.is_kernel() && self.keeper.is_some() && self.group_version() < 2;
        if may_be_refused { AGAIN } else { 0 }
    }

    fn run_once(&mut self, side: &Side, job: &Job<'_>) -> Result<Ran, String> {
        self.with_set_up([(side, job)], |rig, [mut place]| {
            rig.measure(&mut place, None)
        })
    }

    /// Sets up for all of `jobs`, which run at once, and undoes it after `run`.
    pub(super) fn with_set_up<'a, T, const N: usize>(
        &mut self,
        jobs: [(&'a Side, &'a Job<'a>); N],
        run: impl FnOnce(&Self, [Place<'a>; N]) -> Result<T, String>,
    ) -> Result<T, String> {
        let mut kept = Vec::new();
        let places: Result<Vec<Place<'a>>, String> = jobs
            .into_iter()
            .map(|(side, job)| self.set_up(side, job, &mut kept))
            .collect();
        let ran = places.and_then(|places| {
            let places = places.try_into();
            run(self, places.map_err(|_| "a place for each".to_owned())?)
        });
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

    fn set_up<'a>(
        &mut self,
        side: &'a Side,
        job: &'a Job<'a>,
        kept: &mut Vec<Kept>,
    ) -> Result<Place<'a>, String> {
        let (mut zram, mut group) = (None, None);
        let Some(keeper) = &mut self.keeper else {
            return if side.is_kernel() {
                Err("there is no keeper".to_owned())
            } else {
                Ok(Place {
                    side,
                    job,
                    zram,
                    group,
                })
            };
        };
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
                    // Before 6.18 its pool may be zbud, which keeps two pages in one at most.
                    let pool = Path::new(ZSWAP).join("zpool");
                    if pool.exists() {
                        kept.extend(change(keeper, &pool, "zsmalloc")?);
                    }
                }
                let (file, path) = keeper.swap_file(job.swap)?;
                kept.push(file);
                kept.push(keeper.swap_on(&path)?);
            }
        }
        if let Some(groups) = &self.groups {
            let limit = side.is_kernel().then_some(job.limit);
            let (keeping, made) = groups.create(keeper, limit)?;
            kept.push(keeping);
            group = Some(made);
        }
        Ok(Place {
            side,
            job,
            zram,
            group,
        })
    }

    /// The command that enters a group and becomes another.
    pub(super) fn child(&self) -> Command {
        let mut command = Command::new(&self.exe);
        command
            .env(zfolio_host::PLAIN.0, zfolio_host::PLAIN.1)
            .args(["bench-child", "--parent"])
            .arg(std::process::id().to_string());
        command
    }

    /// Runs what is set up to its end; on `half` of the processors, if another goes on beside it.
    pub(super) fn measure(
        &self,
        place: &mut Place<'_>,
        mut half: Option<Half<'_>>,
    ) -> Result<Ran, String> {
        let Place {
            side,
            job,
            zram,
            group,
        } = place;
        let stats = self.scratch.join("stats.json");
        let mut command = self.child();
        if let Some(group) = &group {
            command.arg("--group").arg(group.procs());
        }
        command.arg("--");
        if **side == Side::Run {
            let _ = fs::remove_file(&stats);
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
        if **side == Side::Region {
            command.arg("--region").arg(job.limit.to_string());
        }
        let outside = self.pool_is_outside(side);
        let mut pool = 0;
        let before = counters::snapshot();
        let watched = job.watched || **side == Side::Native;
        let mut ran = ended(&mut command, job.timeout, watched, |pid| {
            if outside && matches!(side, Side::Zswap(_)) {
                pool = pool.max(counters::zswap_pool());
            }
            if let Some(group) = group.as_mut() {
                group.ease();
            }
            half.as_mut().map_or(Some(LOOK), |half| half.look(pid))
        })?;
        ran.kernel = counters::since(&before);
        ran.pool = zram.as_ref().map_or(Ok(pool), ZramStat::most)?;
        if let Some(group) = group {
            ran.charged = group.peak();
            ran.kernel.extend(group.events());
        }
        if **side == Side::Run
            && let Ok(text) = fs::read_to_string(&stats)
        {
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

/// A run that is set up.
#[derive(Debug)]
pub(super) struct Place<'a> {
    side: &'a Side,
    job: &'a Job<'a>,
    zram: Option<ZramStat>,
    group: Option<Group>,
}

/// Where a device's mm_stat is, when the device itself is kept elsewhere.
#[derive(Debug)]
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
