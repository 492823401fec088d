//! What a run was asked for, as its control segment has it.

use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_host::compressor::Compressor;
use zfolio_host::engine_attributes::{AttributeShown, shown};
use zfolio_host::group_state::high_now;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::options::{Attributes, PoolOptions, codec_of};
use zfolio_runtime::segment::{Segment, background_reclaim, faults, io_uring, on_max};

/// The part of `config` of `--stats` that shows while a run lasts, by the same names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Config {
    /// What `high` is now. Bytes.
    high_bytes: u64,
    /// It is the whole tree's.
    high_is_shared: bool,
    /// How faults are told; `None` where no way works.
    faults: Option<&'static str>,
    /// The codec as the command line takes it.
    compressor: String,
    folio_bytes: u64,
    folio_order: u32,
    split_huge_pages: bool,
    huge_page_assembly: bool,
    /// `None`: read-ahead is judged.
    page_cluster: Option<u32>,
    /// Threads that compress for reclaim.
    engines: u32,
    engines_auto: bool,
    /// `off` or `auto`.
    tier: &'static str,
    /// Whether a thread of ours reclaims beside the program's: `auto` or `off`.
    background_reclaim: &'static str,
    /// What becomes of a program that uses io_uring, not by messages: `refuse` or `unmanaged`.
    io_uring: &'static str,
    /// By name; `None` without engines.
    engine_attributes: Option<BTreeMap<&'static str, AttributeShown>>,
    folio_compaction: bool,
    max_bytes: Option<u64>,
    on_max: Option<&'static str>,
    /// What a pool may take of `high`; `None`: that is not limited.
    max_pool_percent: Option<u32>,
    /// A pool that was at its maximum takes pages again at so much of that.
    accept_threshold_percent: u32,
    /// 1: the pool is written back because memory is short, too.
    shrinker_enabled: u8,
}

impl Config {
    /// What `high` is now. Bytes.
    pub const fn high_bytes(&self) -> u64 {
        self.high_bytes
    }

    /// Whether that is the whole tree's.
    pub const fn high_is_shared(&self) -> bool {
        self.high_is_shared
    }

    /// Whether there is a second tier: `off` or `auto`.
    pub const fn tier(&self) -> &'static str {
        self.tier
    }

    /// How faults are told; `None` where no way works.
    pub const fn faults(&self) -> Option<&'static str> {
        self.faults
    }

    /// The codec as the command line takes it.
    pub fn compressor(&self) -> &str {
        &self.compressor
    }

    /// What limits pools, and the attributes of engines: for people; empty where there is nothing to
    /// be said.
    pub(crate) fn lines(&self) -> String {
        let mut text = String::new();
        if let Some(most) = self.max_pool_percent {
            let accepts = self.accept_threshold_percent;
            let shrinker = match self.shrinker_enabled {
                0 => "off",
                _ => "on",
            };
            text += &format!(
                "pool: {most}% of high at most, takes pages again at {accepts}% of that, shrinker {shrinker}\n"
            );
        }
        if let Some(attributes) = &self.engine_attributes {
            let each = attributes
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            let each: Vec<String> = each.collect();
            text += &format!("engines: {}, {}\n", self.engines, each.join(","));
        }
        text
    }

    /// Copies it. (Whatever stands there, it is shown: a number that means nothing as `unknown`.)
    pub fn read(segment: &Segment) -> Self {
        let config = segment.config();
        let codec = codec_of(
            config.compression.codec.load(Relaxed),
            config.compression.level.load(Relaxed).cast_signed(),
        );
        let order = config.folios.order.load(Relaxed).min(9);
        let max = config.limits.max.load(Relaxed);
        let way = faults::NAMES.get(config.faults_found.load(Relaxed) as usize);
        let at_max = match config.limits.on_max.load(Relaxed) {
            on_max::KILL => "kill",
            on_max::WAIT => "wait",
            on_max::ALLOW => "allow",
            _ => "unknown",
        };
        let engines = config.engines.count.load(Relaxed);
        let numbers = config.engines.attributes.each_ref();
        let numbers = numbers.map(|word| word.load(Relaxed));
        let attributes = Attributes::from_numbers(&numbers).ok();
        let pool = PoolOptions::of(config);
        Self {
            high_bytes: high_now(segment),
            high_is_shared: config.limits.shared.load(Relaxed) != 0,
            faults: way.copied().filter(|way| *way != "auto"),
            compressor: codec.map_or("unknown".into(), |codec| Compressor(codec).name()),
            folio_bytes: (PAGE_SIZE as u64) << order,
            folio_order: order,
            split_huge_pages: config.folios.split_huge_pages.load(Relaxed) != 0,
            huge_page_assembly: config.folios.huge_page_assembly.load(Relaxed) != 0,
            page_cluster: config.folios.page_cluster.load(Relaxed).checked_sub(1),
            engines,
            engines_auto: config.engines.auto.load(Relaxed) != 0,
            tier: if config.compression.tier.load(Relaxed) == 0 {
                "off"
            } else {
                "auto"
            },
            background_reclaim: match config.background_reclaim.load(Relaxed) {
                background_reclaim::OFF => "off",
                background_reclaim::EAGER => "eager",
                _ => "auto",
            },
            io_uring: io_uring::NAMES
                [usize::from(config.io_uring.load(Relaxed) == io_uring::UNMANAGED)],
            engine_attributes: attributes.filter(|_| engines > 0).as_ref().map(shown),
            folio_compaction: config.folios.no_compaction.load(Relaxed) == 0,
            max_bytes: (max > 0).then_some(max),
            on_max: (max > 0).then_some(at_max),
            max_pool_percent: pool.percent,
            accept_threshold_percent: pool.accept_percent,
            shrinker_enabled: pool.shrinker.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_runtime::segment::codec;

    #[test]
    fn what_was_asked_for_is_shown() {
        let segment = crate::example::example();
        let config = segment.config();
        config.limits.high.store(64 << 20, Relaxed);
        config.compression.codec.store(codec::ZSTD, Relaxed);
        config
            .compression
            .level
            .store((-3_i32).cast_unsigned(), Relaxed);
        config.folios.order.store(4, Relaxed);
        config.limits.shared.store(1, Relaxed);
        let seen = Config::read(&segment);
        assert_eq!((seen.high_bytes, seen.folio_bytes), (64 << 20, 64 << 10));
        assert_eq!((seen.compressor.as_str(), seen.faults), ("zstd:-3", None));
        config.faults_found.store(faults::GUARD, Relaxed);
        assert_eq!(Config::read(&segment).faults, Some("guard"));
        assert!(seen.high_is_shared && seen.folio_compaction);
        assert_eq!((seen.max_bytes, seen.on_max), (None, None));
        assert_eq!((seen.max_pool_percent, seen.lines()), (None, String::new()));
        config.pool.percent.store(30, Relaxed);
        config.pool.no_shrinker.store(1, Relaxed);
        config.engines.count.store(2, Relaxed);
        let numbers = Attributes::for_engines(2).numbers();
        for (word, number) in config.engines.attributes.iter().zip(numbers) {
            word.store(number, Relaxed);
        }
        let lines = Config::read(&segment).lines();
        for words in [
            "pool: 30% of high",
            "at 90% of that, shrinker off",
            "engines: 2, ",
            "sync_mode=",
        ] {
            assert!(lines.contains(words), "{lines}");
        }
        config.limits.max.store(1 << 30, Relaxed);
        config.compression.codec.store(99, Relaxed);
        config.faults_found.store(99, Relaxed);
        let seen = Config::read(&segment);
        assert_eq!(seen.on_max, Some("kill"));
        assert_eq!((seen.compressor.as_str(), seen.faults), ("unknown", None));
    }
}
