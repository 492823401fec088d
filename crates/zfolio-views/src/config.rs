//! What a run was asked for, as its control segment has it.

use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::Ordering::Relaxed;
use zfolio_host::compressor::Compressor;
use zfolio_host::group_state::high_now;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::options::codec_of;
use zfolio_runtime::segment::{Segment, faults, on_max};

/// The part of `config` of `--stats` that shows while a run lasts, by the same names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct Config {
    /// What `high` is now. Bytes.
    pub high_bytes: u64,
    /// It is the whole tree's.
    pub high_is_shared: bool,
    /// How faults are told; `None` where no way works.
    pub faults: Option<&'static str>,
    /// The codec as the command line takes it.
    pub compressor: String,
    folio_bytes: u64,
    folio_order: u32,
    split_huge_pages: bool,
    huge_page_assembly: bool,
    /// `None`: read-ahead is judged.
    page_cluster: Option<u32>,
    /// Threads that compress for reclaim.
    pub engines: u32,
    engines_auto: bool,
    /// `off` or `auto`.
    pub tier: &'static str,
    folio_compaction: bool,
    max_bytes: Option<u64>,
    on_max: Option<&'static str>,
}

impl Config {
    /// Copies it. (Whatever stands there, it is shown: a number that means nothing as `unknown`.)
    pub fn read(segment: &Segment) -> Self {
        let config = segment.config();
        let codec = codec_of(
            config.codec.load(Relaxed),
            config.level.load(Relaxed).cast_signed(),
        );
        let order = config.folio_order.load(Relaxed).min(9);
        let max = config.max.load(Relaxed);
        let way = faults::NAMES.get(config.faults.load(Relaxed) as usize);
        let at_max = match config.on_max.load(Relaxed) {
            on_max::KILL => "kill",
            on_max::WAIT => "wait",
            on_max::ALLOW => "allow",
            _ => "unknown",
        };
        Self {
            high_bytes: high_now(segment),
            high_is_shared: config.shared.load(Relaxed) != 0,
            faults: way.copied().filter(|way| *way != "auto"),
            compressor: codec.map_or("unknown".into(), |codec| Compressor(codec).name()),
            folio_bytes: (PAGE_SIZE as u64) << order,
            folio_order: order,
            split_huge_pages: config.split_huge_pages.load(Relaxed) != 0,
            huge_page_assembly: config.no_huge_page_assembly.load(Relaxed) == 0,
            page_cluster: config.page_cluster.load(Relaxed).checked_sub(1),
            engines: config.engines.load(Relaxed),
            engines_auto: config.engines_auto.load(Relaxed) != 0,
            tier: if config.tier.load(Relaxed) == 0 {
                "off"
            } else {
                "auto"
            },
            folio_compaction: config.no_folio_compaction.load(Relaxed) == 0,
            max_bytes: (max > 0).then_some(max),
            on_max: (max > 0).then_some(at_max),
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
        config.high.store(64 << 20, Relaxed);
        config.codec.store(codec::ZSTD, Relaxed);
        config.level.store((-3_i32).cast_unsigned(), Relaxed);
        config.folio_order.store(4, Relaxed);
        config.shared.store(1, Relaxed);
        let seen = Config::read(&segment);
        assert_eq!((seen.high_bytes, seen.folio_bytes), (64 << 20, 64 << 10));
        assert_eq!((seen.compressor.as_str(), seen.faults), ("zstd:-3", None));
        config.faults.store(faults::GUARD, Relaxed);
        assert_eq!(Config::read(&segment).faults, Some("guard"));
        assert!(seen.high_is_shared && seen.folio_compaction);
        assert_eq!((seen.max_bytes, seen.on_max), (None, None));
        config.max.store(1 << 30, Relaxed);
        config.codec.store(99, Relaxed);
        config.faults.store(99, Relaxed);
        let seen = Config::read(&segment);
        assert_eq!(seen.on_max, Some("kill"));
        assert_eq!((seen.compressor.as_str(), seen.faults), ("unknown", None));
    }
}
