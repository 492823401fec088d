//! Groups: regions that share a `high`. What a group is made of is in [`registry`](crate::registry).

use crate::error::Error;
pub use crate::registry::Group;
use crate::registry::{Inner, Kind};
use crate::table::Engine;
use crate::{options, process, statistics};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use zfolio_mm::PAGE_SHIFT;
use zfolio_runtime::options::{Codec, Options};
use zfolio_runtime::pager::RegionEngine;
use zfolio_runtime::regions::engine_for;
use zfolio_runtime::scope::Serving;
use zfolio_runtime::segment::Counter;
use zfolio_sys::region::{SignalsBlocked, own_descriptors_with};

/// Part of the machine's memory that the process's group has if nobody says.
const DEFAULT_SHARE: usize = 2;
/// Least `high`, bytes.
const LEAST: usize = 4 << 20;

/// How a group is to be.
#[derive(Clone, Copy, Debug)]
pub struct GroupBuilder {
    high: usize,
    options: Options,
    serving: Serving,
}

impl GroupBuilder {
    /// How stored pages are compressed; [`Codec::Auto`] if not said.
    #[must_use]
    pub fn codec(mut self, codec: Codec) -> Self {
        self.options.codec = codec;
        self
    }

    /// Sets an option of `zfolio run` for the group, by its name there and with a value as it
    /// is written there: `compressor`, `folio`, `engines`, `tier`, `backing` (with a size),
    /// `max`, `on-max`, `max-pool`, `accept-threshold`, `no-shrinker`, `split-huge-pages`,
    /// `huge-page-assembly`, `page-cluster`. A group that is
    /// [`Serving::Protected`] has only the first and those of the pool.
    ///
    /// # Errors
    /// [`Error::UnknownOption`]; [`Error::BadOption`] where it has no such value.
    pub fn option(mut self, name: &str, value: &str) -> Result<Self, Error> {
        options::set(&mut self.options, name, value)?;
        Ok(self)
    }

    /// Who serves faults; [`Serving::InThread`] if not said, which is
    /// [`Serving::Protected`] where userfaultfd is refused, or where the
    /// environment says `ZFOLIO_REGIONS=protect`.
    #[must_use]
    pub fn serving(mut self, serving: Serving) -> Self {
        self.serving = serving;
        self
    }

    /// Makes the group.
    ///
    /// # Errors
    /// [`Error::BadLimit`]; [`Error::BadOption`] where options do not go together or with
    /// `high`; [`Error::Unavailable`] where the system does not
    /// allow it; [`Error::Forked`].
    pub fn build(mut self) -> Result<Group, Error> {
        if !is_limit(self.high) {
            return Err(Error::BadLimit);
        }
        options::check(&mut self.options, self.high)?;
        let kind = Kind {
            options: Options {
                high: 0,
                ..self.options
            },
            serving: match self.serving {
                Serving::InThread if process::is_protecting() => Serving::Protected,
                serving => serving,
            },
        };
        make(kind, self.high)
    }
}

impl Group {
    /// A group with a target of `high` bytes for all that its regions use:
    /// pages that are present, and what is kept of those that are not.
    ///
    /// # Errors
    /// See [`GroupBuilder::build`].
    pub fn new(high: usize) -> Result<Self, Error> {
        Self::builder(high).build()
    }

    /// A group in other than the usual ways.
    #[must_use]
    pub fn builder(high: usize) -> GroupBuilder {
        GroupBuilder {
            high,
            options: Options::for_regions(0, Codec::Auto),
            serving: Serving::InThread,
        }
    }

    /// The group of regions that name none. Made with half of the machine's
    /// memory if [`limit`] was not called before.
    ///
    /// # Errors
    /// See [`GroupBuilder::build`].
    pub fn process() -> Result<Self, Error> {
        if let Some(group) = &process::lock()?.process {
            return Ok(group.clone());
        }
        let group = Self::new(machine_bytes() / DEFAULT_SHARE)?;
        let mut groups = process::lock()?;
        if let Some(other) = &groups.process {
            let other = other.clone();
            drop(groups); // `group` takes the lock as it goes
            return Ok(other);
        }
        groups.process = Some(group.clone());
        Ok(group)
    }

    /// The target, bytes.
    #[must_use]
    pub fn high(&self) -> usize {
        self.0.high.load(Ordering::Relaxed)
    }

    /// Changes the target; what is too much then goes out soon. A target many
    /// times the first one may need more than was reserved.
    ///
    /// # Errors
    /// [`Error::BadLimit`], also above the group's `max`; [`Error::LimitIsSet`] if it would need
    /// more.
    pub fn set_high(&self, high: usize) -> Result<(), Error> {
        let max = self.0.kind.options.at_max.max;
        if !is_limit(high) || max.is_some_and(|max| high >> PAGE_SHIFT > max) {
            return Err(Error::BadLimit);
        }
        if let Some(engine) = self.0.engine {
            let _blocked = SignalsBlocked::new();
            if self.is_here() && !engine.set_high_bytes(high) {
                return Err(Error::LimitIsSet);
            }
        }
        self.0.high.store(high, Ordering::Relaxed);
        Ok(())
    }

    /// Who serves its faults; `None` inside `zfolio run`.
    #[must_use]
    pub fn serving(&self) -> Option<Serving> {
        self.0.engine.map(|engine| engine.serving())
    }

    /// Whether it has a region, or another handle.
    #[must_use]
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether it is this process's, and not that of one it was forked from.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.0.generation == process::generation() && process::is_original()
    }

    /// What it uses and has done. All zero inside `zfolio run`, whose report
    /// has it.
    #[must_use]
    pub fn stats(&self) -> Stats {
        // (Of a parent's group a child cannot know more: its locks may be held.)
        let Some(engine) = self.0.engine.filter(|_| self.is_here()) else {
            return Stats {
                high: self.high() as u64,
                ..Stats::default()
            };
        };
        let _blocked = SignalsBlocked::new();
        engine.refresh_statistics();
        let count = |which| engine.counter(which);
        Stats {
            high: self.high() as u64,
            used: engine.usage_bytes() as u64,
            pool: count(Counter::PoolBytes),
            stored_pages: count(Counter::StoredPages),
            compressed_bytes: count(Counter::CompressedBytes),
            pages_out: count(Counter::PagesOut),
            pages_out_clean: count(Counter::SwpoutClean),
            pages_in: count(Counter::PagesIn),
            faults: count(Counter::FaultsServed),
            stall_ns: count(Counter::StallNs),
        }
    }

    /// All that it has counted, as JSON: an object as `zfolio run --stats` has for a process,
    /// with `counters`, `folios`, `mm_stat`, `classes` and `engine_queues`, by the same names.
    /// `{}` inside `zfolio run`, and of a parent's group.
    #[must_use]
    pub fn statistics(&self) -> String {
        let Some(engine) = self.0.engine.filter(|_| self.is_here()) else {
            return "{}".into();
        };
        let _blocked = SignalsBlocked::new();
        engine.refresh_statistics();
        statistics::json(engine.statistics())
    }

    /// Compacts the pool's zspages now, in this thread, as long as that frees any: what the
    /// kernel does for a write to zram's `compact`.
    #[must_use]
    pub fn compact(&self) -> Compacted {
        let Some(engine) = self.0.engine.filter(|_| self.is_here()) else {
            return Compacted::default();
        };
        let _blocked = SignalsBlocked::new();
        let (objs_moved, pages_compacted) = engine.compact_zspages();
        Compacted {
            objs_moved,
            pages_compacted,
        }
    }

    /// Checks the engine's invariants. For tests, while nothing else of the
    /// group is under way.
    ///
    /// # Errors
    /// Which does not hold.
    #[doc(hidden)]
    pub fn validate(&self) -> Result<(), String> {
        let _blocked = SignalsBlocked::new();
        self.0.engine.map_or(Ok(()), |engine| engine.validate())
    }
}

/// What [`Group::compact`] did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Compacted {
    /// Objects that were moved.
    pub objs_moved: u64,
    /// Pages of the pool that came free.
    pub pages_compacted: u64,
}

/// Figures of a group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// The target, bytes.
    pub high: u64,
    /// Bytes of pages that are present, waiting or free, and of the pool.
    pub used: u64,
    /// Bytes of the pool.
    pub pool: u64,
    /// Pages compressed now.
    pub stored_pages: u64,
    /// Bytes they are compressed to.
    pub compressed_bytes: u64,
    /// Pages moved out since the start.
    pub pages_out: u64,
    /// Of these, pages that nobody had written to since they came: they were in the pool
    /// still.
    pub pages_out_clean: u64,
    /// Pages brought back since the start.
    pub pages_in: u64,
    /// Faults served.
    pub faults: u64,
    /// Nanoseconds faults waited for memory.
    pub stall_ns: u64,
}

/// Sets the target, bytes, of the group that regions share if they name none;
/// at any time.
///
/// # Errors
/// [`Error::LimitIsSet`] when that group has regions and the target is so far
/// above its first one that more would have to be reserved; besides see
/// [`GroupBuilder::build`].
pub fn limit(high: usize) -> Result<(), Error> {
    let group = process::lock()?.process.clone();
    if let Some(group) = group {
        let set = group.set_high(high);
        // (One for the process, one here.)
        if set != Err(Error::LimitIsSet) || Arc::strong_count(&group.0) > 2 {
            return set;
        }
    }
    let group = Group::new(high)?;
    let mut groups = process::lock()?;
    let old = groups.process.replace(group);
    drop(groups); // whoever is dropped takes the lock
    drop(old);
    Ok(())
}

/// Figures of the group that regions share if they name none.
///
/// # Errors
/// As [`Group::process`].
pub fn stats() -> Result<Stats, Error> {
    Group::process().map(|group| group.stats())
}

const fn is_limit(high: usize) -> bool {
    high >= LEAST && high <= 1 << 46
}

fn make(kind: Kind, high: usize) -> Result<Group, Error> {
    // A handler that touches a region may need the heap that this is in the middle of.
    let _blocked = SignalsBlocked::new();
    if !is_limit(high) {
        return Err(Error::BadLimit);
    }
    let generation = process::generation();
    let group = |engine| {
        Group(Arc::new(Inner {
            engine,
            high: AtomicUsize::new(high),
            kind,
            generation,
        }))
    };
    if process::is_managed()? {
        return Ok(group(None));
    }
    {
        let mut groups = process::lock()?;
        let fits = |(idle, engine): &(Kind, Engine)| *idle == kind && engine.set_high_bytes(high);
        if let Some(index) = groups.idle.iter().position(fits) {
            let (_, engine) = groups.idle.swap_remove(index);
            drop(groups);
            return Ok(group(Some(engine)));
        }
    }
    let options = Options {
        high: high >> PAGE_SHIFT,
        ..kind.options
    };
    let engine = engine_for(
        process::segment()?,
        options,
        kind.serving,
        crate::signals::keep_installed,
    )?;
    start_threads(engine)?;
    Ok(group(Some(Box::leak(Box::new(engine)))))
}

/// Threads of the standard library: what they run uses the program's heap.
fn start_threads(engine: &'static dyn RegionEngine) -> Result<(), Error> {
    // They inherit the mask: the program's signals are not for them.
    let _blocked = SignalsBlocked::new();
    let serving = engine.serving_threads();
    for index in 0..=serving + engine.engines() {
        std::thread::Builder::new()
            .name("zfolio".into())
            .spawn(move || {
                let mut kept = engine.descriptors();
                if own_descriptors_with(&mut kept).is_err() {
                    // Before Linux 5.9: they stay the program's.
                }
                match index {
                    0 => engine.control_regions(),
                    index if index <= serving => engine.serve_regions(index),
                    index => engine.engine_thread(index - serving - 1),
                }
            })
            .map_err(|error| Error::Unavailable {
                what: "starting a thread",
                errno: error.raw_os_error().unwrap_or(0),
            })?;
    }
    Ok(())
}

fn machine_bytes() -> usize {
    // SAFETY: takes a number.
    let [pages, size] =
        [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| unsafe { libc::sysconf(name) });
    let bytes = pages.checked_mul(size).unwrap_or(0);
    usize::try_from(bytes).unwrap_or(0).max(1 << 30)
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(engine) = self.engine else { return };
        let Ok(mut groups) = process::lock() else {
            return;
        };
        if self.generation == process::generation() {
            groups.idle.push((self.kind, engine));
        }
    }
}
