//! What the runtime was asked for.

use crate::segment::{Config, PATH, background_reclaim, codec, on_max};
use core::array::from_fn;
use core::ffi::CStr;
use core::ops::Range;
use core::sync::atomic::Ordering;
pub use zfolio_compress::Codec;
use zfolio_compress::deflate::Tables;
use zfolio_compress::engine::attributes::MAX_ENGINES;
pub use zfolio_compress::engine::{Attributes, SyncMode};
use zfolio_mm::{Order, PAGE_SHIFT};
pub use zfolio_zswap::ByDistance;
use zfolio_zswap::Limits;

/// Most engines that may be asked for.
pub const MOST_ENGINES: usize = MAX_ENGINES;

/// The kernel's `accept_threshold_percent`.
pub const ACCEPT: u32 = 90;

/// Bytes of a manager thread's stack.
pub(crate) const STACK: usize = 256 << 10;

/// Fewest and most threads that are served at a time in the thread that
/// touches; others wait for one of them.
pub(crate) const IN_THREAD: Range<usize> = 4..32;

/// How one process is to be managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Target for the memory of the process, pages.
    pub high: usize,
    /// Codec of the pool.
    pub codec: Codec,
    /// Order moved out where the program has no huge page.
    pub folio: Order,
    /// How huge pages leave, and what comes back together.
    pub folios: FolioOptions,
    /// Threads that compress for reclaim.
    pub engines: usize,
    /// Their settings.
    pub engine_attributes: Attributes,
    /// What stays in the pool is compressed again, denser.
    pub tier: bool,
    /// `high` of the run follows the program, far below what it began with.
    pub follows: bool,
    /// Folio compaction runs; off for experiments alone.
    pub folio_compaction: bool,
    /// Of regions: memory that they must not exceed.
    pub at_max: MaxOptions,
    /// A file, a store or both behind the pool.
    pub backing: Option<BackingOptions>,
    /// How large the pool may be.
    pub pool: PoolOptions,
}

/// How huge pages leave, and what comes back together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FolioOptions {
    /// Huge pages are split when they leave, and go in folios of the order of all others.
    pub split_huge_pages: bool,
    /// Huge pages that came back in pieces are made one again once all of them is there.
    pub huge_page_assembly: bool,
    /// Order of the aligned pages of which a fault brings what is stored; `None`: what it
    /// brings is judged.
    pub page_cluster: Option<Order>,
}

/// Of regions: memory that they must not exceed. (A run's is in the control segment, where it
/// may change: see `budget::hard_limit`.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MaxOptions {
    /// Pages; `None`: there is no such limit.
    pub max: Option<usize>,
    /// What happens there.
    pub on_max: OnMax,
}

/// How large the pool may be. (Of a run all of it may change: [`PoolOptions::of`].)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolOptions {
    /// Its maximum, percent of `high`; `None`: none.
    pub percent: Option<u32>,
    /// A pool that was full takes pages again at this percentage of its maximum.
    pub accept_percent: u32,
    /// The pool is written back where memory is short, and not at its maximum alone.
    pub shrinker: bool,
}

/// What happens at `max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnMax {
    /// The process is ended, with a line.
    Kill,
    /// Whoever wants memory waits until there is some.
    Wait,
    /// It is counted, and goes on.
    Allow,
}

/// Whether a thread of ours reclaims beside the program's, where those serve their faults
/// themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackgroundReclaim {
    /// While memory runs short.
    Auto,
    /// Never.
    Off,
    /// From the first page that leaves. For tests.
    Eager,
}

impl BackgroundReclaim {
    /// By its number in a control segment (`segment::background_reclaim`).
    #[must_use]
    pub const fn of_number(number: u32) -> Self {
        match number {
            background_reclaim::OFF => Self::Off,
            background_reclaim::EAGER => Self::Eager,
            _ => Self::Auto,
        }
    }

    /// The opposite.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Auto => background_reclaim::AUTO,
            Self::Off => background_reclaim::OFF,
            Self::Eager => background_reclaim::EAGER,
        }
    }
}

impl MaxOptions {
    /// There is none.
    pub const NONE: Self = Self {
        max: None,
        on_max: OnMax::Kill,
    };
}

impl OnMax {
    /// By its number in a control segment (`segment::on_max`).
    #[must_use]
    pub const fn of_number(number: u32) -> Self {
        match number {
            on_max::WAIT => Self::Wait,
            on_max::ALLOW => Self::Allow,
            _ => Self::Kill,
        }
    }

    /// The opposite.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Kill => on_max::KILL,
            Self::Wait => on_max::WAIT,
            Self::Allow => on_max::ALLOW,
        }
    }
}

/// The file, the store or both behind the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackingOptions {
    /// Most bytes of the file, and of the store behind a pager; 0: there is none.
    pub size: ByDistance<u64>,
    /// Where the file is; `None`: where the control segment says.
    pub directory: Option<Directory>,
    /// Of a store: how long a read may take, ns; `None`: for ever.
    pub deadline_ns: Option<u64>,
}

/// A directory's path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Directory([u8; PATH]);

impl Directory {
    /// Of a path of less than [`PATH`] bytes without NUL.
    #[must_use]
    pub fn new(path: &[u8]) -> Option<Self> {
        let mut bytes = [0; PATH];
        let fits = path.len() < PATH && !path.is_empty() && !path.contains(&0);
        fits.then(|| {
            bytes[..path.len()].copy_from_slice(path);
            Self(bytes)
        })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c".")
    }
}

impl BackingOptions {
    /// Whether there is a store.
    #[must_use]
    pub const fn has_store(&self) -> bool {
        self.size.far > 0
    }
}

impl Options {
    /// How regions are managed that may use `high` bytes.
    #[must_use]
    pub fn for_regions(high: usize, codec: Codec) -> Self {
        Self {
            high: high >> PAGE_SHIFT,
            codec,
            folio: Order::K64,
            folios: FolioOptions::default(),
            engines: 0,
            engine_attributes: Attributes::for_engines(0),
            tier: false,
            follows: false,
            folio_compaction: true,
            at_max: MaxOptions::NONE,
            backing: None,
            pool: PoolOptions {
                percent: None,
                accept_percent: ACCEPT,
                shrinker: true,
            },
        }
    }

    /// Reads the configuration of a control segment.
    ///
    /// # Errors
    /// A sentence, if the segment asks for something this build cannot do.
    pub fn from_config(config: &Config) -> Result<Self, &'static str> {
        let high = usize::try_from(config.limits.high.load(Ordering::Relaxed) >> PAGE_SHIFT)
            .map_err(|_| "`high` is out of range")?;
        let number = config
            .compression
            .level
            .load(Ordering::Relaxed)
            .cast_signed();
        let codec = codec_of(config.compression.codec.load(Ordering::Relaxed), number)?;
        let folio = u8::try_from(config.folios.order.load(Ordering::Relaxed))
            .ok()
            .and_then(Order::new)
            .ok_or("folio order above 9")?;
        let cluster = config
            .folios
            .page_cluster
            .load(Ordering::Relaxed)
            .checked_sub(1);
        let page_cluster = match cluster {
            None => None,
            Some(order) => {
                let order = u8::try_from(order).ok().and_then(Order::new);
                Some(order.ok_or("page cluster above 9")?)
            }
        };
        if high < 1024 {
            return Err("`high` is below 4 MiB");
        }
        let size = config.backing.sizes();
        let engines = config.engines.count.load(Ordering::Relaxed) as usize;
        let numbers = from_fn(|at| config.engines.attributes[at].load(Ordering::Relaxed));
        let engine_attributes = match engines {
            0 => Attributes::for_engines(0),
            _ => Attributes::from_numbers(&numbers)
                .map_err(|_| "an attribute of the engines is out of its range")?,
        };
        Ok(Self {
            high,
            codec,
            folio,
            folios: FolioOptions {
                split_huge_pages: config.folios.split_huge_pages.load(Ordering::Relaxed) != 0,
                huge_page_assembly: config.folios.huge_page_assembly.load(Ordering::Relaxed) != 0,
                page_cluster,
            },
            folio_compaction: config.folios.no_compaction.load(Ordering::Relaxed) == 0,
            backing: (size.sum() > 0).then_some(BackingOptions {
                size,
                directory: None,
                deadline_ns: match config.backing.deadline_ns.load(Ordering::Relaxed) {
                    0 => None,
                    deadline => Some(deadline),
                },
            }),
            at_max: MaxOptions::NONE,
            pool: PoolOptions::of(config),
            engines: engines.min(MOST_ENGINES),
            engine_attributes,
            tier: config.compression.tier.load(Ordering::Relaxed) != 0,
            follows: config.limits.slowdown.load(Ordering::Relaxed) != 0,
        })
    }
}

impl PoolOptions {
    /// What the pools of a run may take now.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let some = |percent: u32| (percent > 0).then_some(percent);
        let accept = config.pool.accept_percent.load(Ordering::Relaxed);
        Self {
            percent: some(config.pool.percent.load(Ordering::Relaxed)),
            accept_percent: some(accept).unwrap_or(ACCEPT),
            shrinker: config.pool.no_shrinker.load(Ordering::Relaxed) == 0,
        }
    }

    /// The limits of a pool that may take its part of `high` pages.
    #[must_use]
    pub fn limits(&self, high: usize) -> Limits {
        let limits = match self.percent {
            Some(percent) => Limits::of_percent(percent, high),
            None => Limits::default(),
        };
        Limits {
            accept_threshold_percent: self.accept_percent,
            ..limits
        }
    }
}

/// The codec that [`Config`] holds as these words.
///
/// # Errors
/// When they are those of none.
pub fn codec_of(name: u32, number: i32) -> Result<Codec, &'static str> {
    Ok(match name {
        codec::LZ4 => Codec::Lz4 {
            acceleration: number,
        },
        codec::ZSTD => Codec::Zstd { level: number },
        codec::AUTO => Codec::Auto,
        codec::DEFLATE => {
            let tables = usize::try_from(number).ok();
            let tables = tables.and_then(|at| Tables::NAMES.get(at));
            let (_, tables) = tables.ok_or("unknown tables of deflate-iaa")?;
            Codec::Deflate { tables: *tables }
        }
        codec::NONE => Codec::Noop,
        _ => return Err("unknown compressor"),
    })
}

/// A codec as [`Config`] holds it: one of [`codec`], and its level or
/// acceleration.
#[must_use]
pub fn codec_words(choice: Codec) -> (u32, i32) {
    match choice {
        Codec::Lz4 { acceleration } => (codec::LZ4, acceleration),
        Codec::Zstd { level } => (codec::ZSTD, level),
        Codec::Auto => (codec::AUTO, 0),
        Codec::Deflate { tables } => {
            let at = Tables::NAMES.iter().position(|(_, known)| *known == tables);
            (
                codec::DEFLATE,
                at.and_then(|at| i32::try_from(at).ok()).unwrap_or(0),
            )
        }
        Codec::Noop => (codec::NONE, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_survive_the_control_segment() {
        for choice in [
            "lz4",
            "lz4:4",
            "zstd",
            "zstd:-3",
            "auto",
            "none",
            "deflate-iaa",
            "deflate-iaa:dynamic",
            "deflate-iaa:canned",
        ] {
            let choice = Codec::parse(choice).unwrap();
            let (name, number) = codec_words(choice);
            assert_eq!(codec_of(name, number), Ok(choice));
        }
    }
}
