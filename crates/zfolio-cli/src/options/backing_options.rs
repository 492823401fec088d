//! The options about what is behind the pool, and about `max`.

use clap::{Args, ValueEnum, value_parser};
use serde_json::{Value, json};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::{Size, human, short};
use zfolio_runtime::segment::{Config, on_max};
use zfolio_sys::disk::DiskFile;

/// Least of a backing, bytes: some clusters.
const MIN_BACKING: u64 = 4 << 20;

/// The pool's maximum with a backing, percent of `high`.
const MAX_POOL: u32 = 40;

/// Options of `zfolio run`.
#[derive(Args, Debug, Default)]
pub(crate) struct Behind {
    /// Write pages that stay long in the pool to a file: compressed, encrypted
    /// with a key that only the process has, and gone with it. DIR is where;
    /// every managed process has a file of its own there, all together of at
    /// most SIZE (default: half of what is free; --per-process: each)
    #[arg(long, value_name = "file:DIR[,size=SIZE]", value_parser = Backing::parse)]
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

/// A backing on the command line.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Backing {
    dir: PathBuf,
    size: Option<Size>,
}

impl Backing {
    fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "write file:DIR or file:DIR,size=SIZE";
        let rest = text.strip_prefix("file:").ok_or(FORM)?;
        let (dir, size) = match rest.rsplit_once(",size=") {
            Some((dir, size)) => {
                let size = Size::parse(size).map_err(|error| error.to_string())?;
                (dir, Some(size))
            }
            None => (rest, None),
        };
        if dir.is_empty() {
            return Err(FORM.into());
        }
        Ok(Self {
            dir: dir.into(),
            size,
        })
    }
}

/// The same, checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Checked {
    /// Absolute path and bytes.
    backing: Option<(PathBuf, u64)>,
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

fn check_backing(backing: &Backing) -> Result<(PathBuf, u64), Failure> {
    let what = format!("--backing file:{}", backing.dir.display());
    let cannot = |why: &dyn std::fmt::Display| {
        let mend = "name a directory on a disk that you may write";
        Failure::new(Status::CannotCreate, &what, why, mend)
    };
    let dir = std::fs::canonicalize(&backing.dir).map_err(|error| cannot(&error))?;
    let path = CString::new(dir.as_os_str().as_bytes()).map_err(|error| cannot(&error))?;
    DiskFile::anonymous(&path)
        .map_err(|errno| cannot(&std::io::Error::from_raw_os_error(errno.0)))?;
    let space = rustix::fs::statvfs(&dir).map_err(|error| cannot(&error))?;
    let size = match backing.size {
        Some(size) => size.bytes(machine::mem_total()),
        None => space.f_bavail.saturating_mul(space.f_frsize) / 2,
    };
    if size < MIN_BACKING {
        return Err(cannot(&format!("{} is too little", human(size))));
    }
    Ok((dir, size))
}

impl Checked {
    /// Writes it where the preload library reads it; false if the path is too
    /// long for that.
    pub(crate) fn store(&self, config: &Config) -> bool {
        config.max.store(self.max.unwrap_or(0), Relaxed);
        let on_max = match self.on_max {
            OnMax::Kill => on_max::KILL,
            OnMax::Wait => on_max::WAIT,
            OnMax::Allow => on_max::ALLOW,
        };
        config.on_max.store(on_max, Relaxed);
        config
            .pool_percent
            .store(self.max_pool.unwrap_or(0), Relaxed);
        let accept = self.accept_threshold;
        config.accept_percent.store(accept, Relaxed);
        config.no_shrinker.store(self.no_shrinker.into(), Relaxed);
        let Some((dir, size)) = &self.backing else {
            return true;
        };
        config.backing_size.store(*size, Relaxed);
        config.set_backing_dir(dir.as_os_str().as_bytes())
    }

    /// Whether there is a backing.
    pub(crate) fn has_backing(&self) -> bool {
        self.backing.is_some()
    }

    /// For the JSON: `max` and the backing.
    pub(crate) fn json(&self) -> [(&'static str, Value); 6] {
        let on_max = self.on_max.to_possible_value();
        let on_max = on_max.as_ref().map(|value| value.get_name().to_owned());
        let backing = self.backing.as_ref().map(|(dir, size)| {
            json!({
                "directory": dir.to_string_lossy(),
                "size_bytes": size,
                "max_pool_percent": self.max_pool,
            })
        });
        let shrinker = u8::from(!self.no_shrinker);
        [
            ("max_bytes", self.max.into()),
            ("on_max", self.max.and(on_max).into()),
            ("backing", backing.into()),
            ("max_pool_percent", self.max_pool.into()),
            ("accept_threshold_percent", self.accept_threshold.into()),
            ("shrinker_enabled", shrinker.into()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backings_parse() {
        let parse = |text| Backing::parse(text).map(|of| (of.dir, of.size));
        assert_eq!(parse("file:/tmp"), Ok(("/tmp".into(), None)));
        let size = Some(Size::Bytes(1 << 30));
        assert_eq!(parse("file:/a,b,size=1G"), Ok(("/a,b".into(), size)));
        for text in [
            "",
            "/tmp",
            "file:",
            "file:,size=1G",
            "disk:/tmp",
            "file:/tmp,size=x",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    fn behind(dir: &std::path::Path, max: Option<u64>) -> Behind {
        Behind {
            backing: Some(Backing {
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
        let stored = config.with_backing_dir(|path| Ok(path.to_bytes().to_vec()));
        let path = std::fs::canonicalize(dir.path()).unwrap();
        assert_eq!(stored, Ok(path.as_os_str().as_bytes().to_vec()));
        assert_eq!(config.backing_size.load(Relaxed), 64 << 20);
        assert_eq!(config.pool_percent.load(Relaxed), MAX_POOL);
        assert_eq!(config.accept_percent.load(Relaxed), 80);
        assert_eq!(config.no_shrinker.load(Relaxed), 1);
        assert_eq!(config.max.load(Relaxed), 1 << 30);
        assert_eq!(config.on_max.load(Relaxed), on_max::WAIT);
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
        small.backing.as_mut().unwrap().size = Some(Size::Bytes(4096));
        assert_eq!(status(small), Err(Status::CannotCreate));
        assert!(status(Behind::default()).is_ok());
    }
}
