//! What the runtime was asked for, and the watermarks that follow.

use crate::control::{Config, codec};
use core::sync::atomic::Ordering;
pub use zfolio_compress::Codec;
use zfolio_mm::{Order, PAGE_SHIFT};

/// How one process is to be managed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Target for the memory of the process, pages.
    pub high: usize,
    /// Codec of the pool.
    pub codec: Codec,
    /// Order moved out where the program has no huge page.
    pub folio: Order,
}

impl Options {
    /// Reads the configuration of a control segment.
    ///
    /// # Errors
    /// A sentence, if the segment asks for something this build cannot do.
    pub fn from_config(config: &Config) -> Result<Self, &'static str> {
        let high = usize::try_from(config.high.load(Ordering::Relaxed) >> PAGE_SHIFT)
            .map_err(|_| "`high` is out of range")?;
        let number = config.level.load(Ordering::Relaxed).cast_signed();
        let codec = codec_of(config.codec.load(Ordering::Relaxed), number)?;
        let folio = u8::try_from(config.folio_order.load(Ordering::Relaxed))
            .ok()
            .and_then(Order::new)
            .ok_or("folio order above 9")?;
        if high < 1024 {
            return Err("`high` is below 4 MiB");
        }
        Ok(Self { high, codec, folio })
    }
}

fn codec_of(name: u32, number: i32) -> Result<Codec, &'static str> {
    Ok(match name {
        codec::LZ4 => Codec::Lz4 {
            acceleration: number,
        },
        codec::ZSTD => Codec::Zstd { level: number },
        codec::AUTO => Codec::Auto,
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
        Codec::Noop => (codec::NONE, 0),
    }
}

/// When reclaim starts and stops, pages.
///
/// Usage is what /proc shows as resident: program, pool, standby and free
/// frames together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watermarks {
    /// Management begins: descriptors, arena, threads.
    pub(crate) activate: usize,
    /// Reclaim works while usage is above this ...
    pub(crate) start: usize,
    /// ... until it is below this.
    pub(crate) stop: usize,
    /// Faults wait for reclaim rather than take memory from the system above this.
    pub(crate) limit: usize,
    /// A huge page may be kept ready below this.
    pub(crate) huge_limit: usize,
    /// Free frames kept at hand.
    pub(crate) free_target: usize,
    /// Reclaim starts when fewer are free.
    pub(crate) free_low: usize,
    /// Frames that only reclaim itself may take.
    pub(crate) free_reserve: usize,
    /// What all the others are parts of.
    pub(crate) high: usize,
    /// Pool pages from which room is worth more than time (`auto`) ...
    pub(crate) dense_on: usize,
    /// ... and below which it is not any more.
    pub(crate) dense_off: usize,
}

impl Watermarks {
    pub(crate) fn of(high: usize) -> Self {
        let gap = (high / 64).clamp(64, 8192);
        let free_target = (high / 64).clamp(64, 4096);
        Self {
            activate: high / 2,
            start: high - 2 * gap,
            stop: high - 3 * gap,
            limit: high - gap,
            huge_limit: high - gap * 3 / 4,
            free_target,
            free_low: free_target / 2,
            free_reserve: free_target / 8,
            high,
            dense_on: high * 35 / 100,
            dense_off: high * 25 / 100,
        }
    }

    /// Pages kept in standby before the coldest are stored, with a pool of
    /// `pool` pages: a part of what is left for the program, so that memory
    /// that is short is not spent on waiting. Never none at all: only what went
    /// to standby can be stored.
    pub(crate) const fn standby(&self, pool: usize) -> usize {
        let part = self.high.saturating_sub(pool) / 10;
        if part > self.free_low {
            part
        } else {
            self.free_low
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_survive_the_control_segment() {
        for choice in ["lz4", "lz4:4", "zstd", "zstd:-3", "auto", "none"] {
            let choice = Codec::parse(choice).unwrap();
            let (name, number) = codec_words(choice);
            assert_eq!(codec_of(name, number), Ok(choice));
        }
    }

    #[test]
    fn something_may_stand_by_however_large_the_pool() {
        for high in [2048, 51_200, 1 << 22] {
            let w = Watermarks::of(high);
            assert_eq!(w.standby(0), high / 10);
            assert!(w.standby(2 * high) > 0);
        }
    }

    #[test]
    fn watermarks_are_in_order_at_every_size() {
        for high in [1024, 2048, 51_200, 131_072, 1 << 22] {
            let w = Watermarks::of(high);
            assert!(w.activate < w.stop && w.stop < w.start, "{high}: {w:?}");
            assert!(w.start < w.limit, "{high}: {w:?}");
            assert!(
                w.limit <= w.huge_limit && w.huge_limit < high,
                "{high}: {w:?}"
            );
            assert!(
                w.free_reserve < w.free_low && w.free_low < w.free_target,
                "{high}: {w:?}"
            );
        }
    }
}
