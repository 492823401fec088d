//! The options about what is behind the pool, and about `max`.

use crate::options::backings::{Backings, Files, FilesThenStore, Store};
use crate::options::shown::{BackingShown, BehindShown};
use clap::{Args, ValueEnum, value_parser};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::{Size, human, short};
use zfolio_pager::spec::Spec;
use zfolio_runtime::options::PoolOptions;
use zfolio_runtime::segment::{Config, on_max};

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
    /// together of at most SIZE (default: half of what is free; --per-process: each).
    /// Twice, first a file and then a store: to the file while it has room
    #[arg(long, value_name = "file:DIR|redis://HOST",
          value_parser = Backings::parse)]
    pub(crate) backing: Vec<Backings>,
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

/// The same, checked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Checked {
    backing: FilesThenStore,
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
        let backing = FilesThenStore::check(&self.backing)?;
        Ok(Checked {
            max_pool: self
                .max_pool
                .or_else(|| backing.is_any().then_some(MAX_POOL)),
            backing,
            accept_threshold: self.accept_threshold,
            no_shrinker: self.no_shrinker,
            max,
            on_max: self.on_max,
        })
    }
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
        let FilesThenStore { files, store } = &self.backing;
        let mut fits = true;
        if let Some(Files { dir, size }) = files {
            config.backing.size.near.store(*size, Relaxed);
            fits &= config.backing.path.near.set(dir.as_os_str().as_bytes());
        }
        if let Some(store) = store {
            let deadline = match store.spec.wait_for_ever {
                true => 0,
                false => store.spec.deadline.as_nanos(),
            };
            let ns = u64::try_from(deadline).unwrap_or(u64::MAX);
            config.backing.deadline_ns.store(ns, Relaxed);
            config.backing.size.far.store(store.size, Relaxed);
            let path = store.exchange.as_os_str().as_bytes();
            fits &= config.backing.path.far.set(path);
        }
        fits
    }

    /// The store that is asked for, if one is.
    pub(crate) fn store_asked_for(&self) -> Option<&Spec> {
        self.backing.store.as_ref().map(|store| &store.spec)
    }

    /// The store's pager is met there.
    pub(crate) fn meet_at(&mut self, exchange: &Path) {
        if let Some(store) = &mut self.backing.store {
            exchange.clone_into(&mut store.exchange);
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
        self.backing.is_any()
    }

    /// Whether there are two.
    pub(crate) fn has_both(&self) -> bool {
        self.backing.files.is_some() && self.backing.store.is_some()
    }

    /// For the JSON: `max` and the backing.
    pub(crate) fn shown(&self) -> BehindShown {
        let on_max = self.on_max.to_possible_value();
        let on_max = on_max.as_ref().map(|value| value.get_name().to_owned());
        let files = self.backing.files.as_ref().map(|files| BackingShown::File {
            directory: files.dir.to_string_lossy().into_owned(),
            size_bytes: files.size,
            max_pool_percent: self.max_pool,
        });
        let store = self.backing.store.as_ref();
        let store = store.map(|Store { spec, size, .. }| BackingShown::Store {
            store: spec.shown(),
            copies: spec.copies,
            wait: spec.wait,
            bandwidth_bytes_per_second: spec.bandwidth,
            ttl_s: spec.ttl.as_secs(),
            deadline_s: (!spec.wait_for_ever).then_some(spec.deadline.as_secs()),
            size_bytes: *size,
            max_pool_percent: self.max_pool,
        });
        let backing = match (files, store) {
            (Some(files), Some(store)) => Some(BackingShown::InOrder {
                in_order: vec![files, store],
            }),
            (files, store) => files.or(store),
        };
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
    use crate::options::backings::Backing;

    fn files(dir: &std::path::Path, bytes: u64) -> Vec<Backings> {
        let size = Some(Size::Bytes(bytes));
        let dir = dir.into();
        vec![Backings(vec![Backing::File { dir, size }])]
    }

    fn behind(dir: &std::path::Path, max: Option<u64>) -> Behind {
        Behind {
            backing: files(dir, 64 << 20),
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
        let stored = config
            .backing
            .path
            .near
            .with(|path| Ok(path.to_bytes().to_vec()));
        let path = std::fs::canonicalize(dir.path()).unwrap();
        assert_eq!(stored, Ok(path.as_os_str().as_bytes().to_vec()));
        assert_eq!(config.backing.size.near.load(Relaxed), 64 << 20);
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
        small.backing = files(dir.path(), 4096);
        assert_eq!(status(small), Err(Status::CannotCreate));
        assert!(status(Behind::default()).is_ok());
    }
}
