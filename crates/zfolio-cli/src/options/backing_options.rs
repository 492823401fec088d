//! The options about what is behind the pool, and about `max`.

use crate::options::shown::{BackingShown, BehindShown};
use clap::{Args, ValueEnum, value_parser};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::{Size, human, short};
use zfolio_pager::probe;
use zfolio_pager::spec::Spec;
use zfolio_runtime::options::PoolOptions;
use zfolio_runtime::segment::{Config, backing, on_max};
use zfolio_sys::disk::DiskFile;

/// Least of a backing, bytes: some clusters.
const MIN_BACKING: u64 = 4 << 20;
/// Size of a store that has no limit of its own and for which none is given, bytes: what
/// one process can name.
const UNLIMITED: u64 = 256 << 30;

/// In place of --backing: for what has a password in it.
pub(crate) const ENV_BACKING: &str = "ZFOLIO_BACKING";

/// The pool's maximum with a backing, percent of `high`.
const MAX_POOL: u32 = 40;

/// Options of `zfolio run`.
#[derive(Args, Debug, Default)]
pub(crate) struct Behind {
    /// Write pages that stay long in the pool to a file (file:DIR[,size=SIZE]) or to a
    /// Redis or Valkey store (redis://HOST:PORT,...[,copies=N][,size=SIZE]...):
    /// compressed, encrypted with a key that only the process has, and gone with it.
    /// DIR is where; every managed process has a file of its own there, all
    /// together of at most SIZE (default: half of what is free; --per-process: each)
    #[arg(long, value_name = "file:DIR|redis://HOST",
          value_parser = Backing::parse)]
    pub(crate) backing: Option<Backing>,
    /// Most that the pool may take of --high, percent: then it is written back; without a
    /// backing nothing more goes into it. Default: 40 with --backing, else no limit
    #[arg(long, value_name = "PERCENT", value_parser = value_parser!(u32).range(1..=90))]
    pub(crate) max_pool: Option<u32>,
    /// A pool that was at --max-pool takes pages again once it is down to so much of that,
    /// percent
    #[arg(long, value_name = "PERCENT", default_value_t = 90,
          value_parser = value_parser!(u32).range(1..=100))]
    pub(crate) accept_threshold: u32,
    /// Nothing is written to the backing because memory is short: only at --max-pool or
    /// --zswap-max
    #[arg(long)]
    pub(crate) no_shrinker: bool,
    /// Memory that all together (--per-process: each) must not exceed for long,
    /// when moving out does not help any more; --high at least
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    pub(crate) max: Option<Size>,
    /// What happens at --max
    #[arg(long, value_name = "WHAT", requires = "max", value_enum, default_value_t = OnMax::Kill)]
    pub(crate) on_max: OnMax,
}

/// What happens at `--max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum OnMax {
    /// The process is ended, with a line and status 70
    #[default]
    Kill,
    /// Whoever wants memory waits until some is freed, for ever if need be
    Wait,
    /// It is counted, and goes on
    Allow,
}

impl OnMax {
    /// As the control segment has it.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Kill => on_max::KILL,
            Self::Wait => on_max::WAIT,
            Self::Allow => on_max::ALLOW,
        }
    }

    /// The opposite.
    const fn from_number(number: u32) -> Self {
        match number {
            on_max::WAIT => Self::Wait,
            on_max::ALLOW => Self::Allow,
            _ => Self::Kill,
        }
    }
}

/// A backing on the command line.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Backing {
    /// Files in a directory.
    File { dir: PathBuf, size: Option<Size> },
    /// A store of other machines.
    Store { spec: Spec, size: Option<Size> },
}

impl Backing {
    /// Reads one.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("redis") {
            return Self::parse_store(text);
        }
        const FORM: &str = "write file:DIR, file:DIR,size=SIZE or redis://HOST:PORT,...";
        let rest = text.strip_prefix("file:").ok_or(FORM)?;
        let (dir, size) = match rest.rsplit_once(",size=") {
            Some((dir, size)) => (dir, Some(parse_size(size)?)),
            None => (rest, None),
        };
        if dir.is_empty() {
            return Err(FORM.into());
        }
        Ok(Self::File {
            dir: dir.into(),
            size,
        })
    }

    fn parse_store(text: &str) -> Result<Self, String> {
        // (A password may have commas in it; what comes behind the hosts may not.)
        let hosts = text.rfind('@').unwrap_or(0);
        let (head, choices) = text.split_at(hosts);
        let mut size = None;
        let mut rest = Vec::new();
        for part in choices.split(',') {
            match part.strip_prefix("size=") {
                Some(given) => size = Some(parse_size(given)?),
                None => rest.push(part),
            }
        }
        let spec = Spec::parse(&format!("{head}{}", rest.join(",")))?;
        Ok(Self::Store { spec, size })
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    Size::parse(text).map_err(|error| error.to_string())
}

/// Where pages go that stay long in the pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Absolute path and bytes.
    File(PathBuf, u64),
    /// A store, bytes, and where its pager is met, once that is known.
    Store(Spec, u64, PathBuf),
}

/// The same, checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Checked {
    backing: Option<Place>,
    max_pool: Option<u32>,
    accept_threshold: u32,
    no_shrinker: bool,
    max: Option<u64>,
    on_max: OnMax,
}

impl Behind {
    /// Checks all that can be known before the program starts: that a file can
    /// be made there, that `max` is no less than `high`.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub(crate) fn check(&self, high: u64) -> Result<Checked, Failure> {
        let max = self.max.map(|max| max.bytes(machine::mem_total()));
        if let Some(max) = max.filter(|max| *max < high) {
            let why = format!("{} is below --high, {}", human(max), short(high));
            return Err(Failure::new(Status::Usage, "--max", why, "give it more"));
        }
        Ok(Checked {
            backing: self.backing.as_ref().map(check_backing).transpose()?,
            max_pool: self
                .max_pool
                .or_else(|| self.backing.is_some().then_some(MAX_POOL)),
            accept_threshold: self.accept_threshold,
            no_shrinker: self.no_shrinker,
            max,
            on_max: self.on_max,
        })
    }
}

fn check_backing(backing: &Backing) -> Result<Place, Failure> {
    match backing {
        Backing::File { dir, size } => check_file(dir, *size),
        Backing::Store { spec, size } => check_store(spec, *size),
    }
}

/// Asks the store what it is, and refuses one that would lose pages.
fn check_store(spec: &Spec, size: Option<Size>) -> Result<Place, Failure> {
    let what = format!("--backing {}", spec.shown());
    let cannot = |why: &str, mend: &str| Failure::new(Status::CannotCreate, &what, why, mend);
    let look = format!("zfolio doctor --backing {} says more", spec.shown());
    let facts = probe::facts(spec).map_err(|why| cannot(&why, &look))?;
    if let Some((why, mend)) = facts.unfit(spec) {
        return Err(cannot(&why, &mend));
    }
    let size = match size {
        Some(size) => size.bytes(machine::mem_total()),
        None => facts
            .headroom(spec.copies)
            .map_or(UNLIMITED, |headroom| headroom / 4 * 3),
    };
    if size < MIN_BACKING {
        let why = format!("{} is too little", human(size));
        return Err(cannot(&why, "give it more, or the store more memory"));
    }
    Ok(Place::Store(spec.clone(), size, PathBuf::new()))
}

fn check_file(dir: &Path, size: Option<Size>) -> Result<Place, Failure> {
    let what = format!("--backing file:{}", dir.display());
    let cannot = |why: &dyn std::fmt::Display| {
        let mend = "name a directory on a disk that you may write";
        Failure::new(Status::CannotCreate, &what, why, mend)
    };
    let dir = std::fs::canonicalize(dir).map_err(|error| cannot(&error))?;
    let path = CString::new(dir.as_os_str().as_bytes()).map_err(|error| cannot(&error))?;
    DiskFile::anonymous(&path)
        .map_err(|errno| cannot(&std::io::Error::from_raw_os_error(errno.0)))?;
    let space = rustix::fs::statvfs(&dir).map_err(|error| cannot(&error))?;
    let size = match size {
        Some(size) => size.bytes(machine::mem_total()),
        None => space.f_bavail.saturating_mul(space.f_frsize) / 2,
    };
    if size < MIN_BACKING {
        return Err(cannot(&format!("{} is too little", human(size))));
    }
    Ok(Place::File(dir, size))
}

impl Checked {
    /// Writes it where the preload library reads it; false if the path is too
    /// long for that.
    pub(crate) fn store(&self, config: &Config) -> bool {
        config.limits.max.store(self.max.unwrap_or(0), Relaxed);
        config.limits.on_max.store(self.on_max.number(), Relaxed);
        config
            .pool
            .percent
            .store(self.max_pool.unwrap_or(0), Relaxed);
        let accept = self.accept_threshold;
        config.pool.accept_percent.store(accept, Relaxed);
        config
            .pool
            .no_shrinker
            .store(self.no_shrinker.into(), Relaxed);
        let (path, size, kind, deadline) = match &self.backing {
            None => return true,
            Some(Place::File(dir, size)) => (dir, size, backing::FILE, Duration::ZERO),
            Some(Place::Store(spec, size, path)) => {
                let deadline = if spec.wait_for_ever {
                    Duration::ZERO
                } else {
                    spec.deadline
                };
                (path, size, backing::STORE, deadline)
            }
        };
        let ns = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        config.backing.kind.store(kind, Relaxed);
        config.backing.deadline_ns.store(ns, Relaxed);
        config.backing.size.store(*size, Relaxed);
        config.backing.set_dir(path.as_os_str().as_bytes())
    }

    /// The store that is asked for, if one is.
    pub(crate) fn store_asked_for(&self) -> Option<&Spec> {
        match &self.backing {
            Some(Place::Store(spec, ..)) => Some(spec),
            _ => None,
        }
    }

    /// The store's pager is met there.
    pub(crate) fn meet_at(&mut self, exchange: &Path) {
        if let Some(Place::Store(_, _, path)) = &mut self.backing {
            exchange.clone_into(path);
        }
    }

    /// Takes over what was changed while the run lasted.
    pub(crate) fn reread(&mut self, config: &Config) {
        self.max = Some(config.limits.max.load(Relaxed)).filter(|max| *max > 0);
        self.on_max = OnMax::from_number(config.limits.on_max.load(Relaxed));
        let pool = PoolOptions::of(config);
        self.max_pool = pool.percent;
        self.accept_threshold = pool.accept_percent;
        self.no_shrinker = !pool.shrinker;
    }

    /// Whether there is a backing.
    pub(crate) fn has_backing(&self) -> bool {
        self.backing.is_some()
    }

    /// For the JSON: `max` and the backing.
    pub(crate) fn shown(&self) -> BehindShown {
        let on_max = self.on_max.to_possible_value();
        let on_max = on_max.as_ref().map(|value| value.get_name().to_owned());
        let backing = self.backing.as_ref().map(|place| match place {
            Place::File(dir, size) => BackingShown::File {
                directory: dir.to_string_lossy().into_owned(),
                size_bytes: *size,
                max_pool_percent: self.max_pool,
            },
            Place::Store(spec, size, _) => BackingShown::Store {
                store: spec.shown(),
                copies: spec.copies,
                wait: spec.wait,
                bandwidth_bytes_per_second: spec.bandwidth,
                ttl_s: spec.ttl.as_secs(),
                deadline_s: (!spec.wait_for_ever).then_some(spec.deadline.as_secs()),
                size_bytes: *size,
                max_pool_percent: self.max_pool,
            },
        });
        BehindShown {
            max_bytes: self.max,
            on_max: self.max.and(on_max),
            backing,
            max_pool_percent: self.max_pool,
            accept_threshold_percent: self.accept_threshold,
            shrinker_enabled: u8::from(!self.no_shrinker),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backings_parse() {
        let file = |dir: &str, size| {
            let dir = dir.into();
            Ok(Backing::File { dir, size })
        };
        let parse = Backing::parse;
        assert_eq!(parse("file:/tmp"), file("/tmp", None));
        let size = Some(Size::Bytes(1 << 30));
        assert_eq!(parse("file:/a,b,size=1G"), file("/a,b", size));
        let text = "redis://u:a,size=3@h:1,i:2,size=1G,copies=2";
        let spec = Spec::parse("redis://u:a,size=3@h:1,i:2,copies=2").unwrap();
        assert_eq!(parse(text), Ok(Backing::Store { spec, size }));
        for text in [
            "",
            "/tmp",
            "file:",
            "file:,size=1G",
            "disk:/tmp",
            "file:/tmp,size=x",
            "redis:/h",
            "redis://h,size=x",
            "redis://h,copies=0",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    fn behind(dir: &std::path::Path, max: Option<u64>) -> Behind {
        Behind {
            backing: Some(Backing::File {
                dir: dir.into(),
                size: Some(Size::Bytes(64 << 20)),
            }),
            max_pool: None,
            accept_threshold: 80,
            no_shrinker: true,
            max: max.map(Size::Bytes),
            on_max: OnMax::Wait,
        }
    }

    #[test]
    fn what_is_checked_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let checked = behind(dir.path(), Some(1 << 30)).check(1 << 29).unwrap();
        let segment = zfolio_host::segment_file::OwnSegment::create(|segment| {
            assert!(checked.store(segment.config()));
        })
        .unwrap();
        let config = segment.config();
        let stored = config.backing.with_dir(|path| Ok(path.to_bytes().to_vec()));
        let path = std::fs::canonicalize(dir.path()).unwrap();
        assert_eq!(stored, Ok(path.as_os_str().as_bytes().to_vec()));
        assert_eq!(config.backing.size.load(Relaxed), 64 << 20);
        assert_eq!(config.pool.percent.load(Relaxed), MAX_POOL);
        assert_eq!(config.pool.accept_percent.load(Relaxed), 80);
        assert_eq!(config.pool.no_shrinker.load(Relaxed), 1);
        assert_eq!(config.limits.max.load(Relaxed), 1 << 30);
        assert_eq!(config.limits.on_max.load(Relaxed), on_max::WAIT);
        let mut again = checked.clone();
        again.reread(config);
        assert_eq!(again, checked);
        config.limits.max.store(0, Relaxed);
        config.pool.percent.store(50, Relaxed);
        again.reread(config);
        assert_eq!((again.max, again.max_pool), (None, Some(50)));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_work_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let status = |behind: Behind| behind.check(1 << 29).map_err(|failure| failure.status);
        let nowhere = dir.path().join("nowhere");
        assert_eq!(status(behind(&nowhere, None)), Err(Status::CannotCreate));
        assert_eq!(
            status(behind(dir.path(), Some(1 << 20))),
            Err(Status::Usage)
        );
        let mut small = behind(dir.path(), None);
        small.backing = Some(Backing::File {
            dir: dir.path().into(),
            size: Some(Size::Bytes(4096)),
        });
        assert_eq!(status(small), Err(Status::CannotCreate));
        assert!(status(Behind::default()).is_ok());
    }
}
