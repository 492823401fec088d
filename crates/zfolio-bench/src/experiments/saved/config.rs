//! The configurations: what holds a program's memory down, and how it is compressed.

use crate::rig::Side;

/// What holds memory down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Held {
    /// `zfolio run --high`, which is searched.
    High,
    /// `zfolio run --slowdown`, which finds it by itself.
    Slowdown,
    /// The limit of a control group, which is searched, before a zram device with this algorithm.
    Zram(&'static str),
    /// The same before zswap with this compressor.
    Zswap(&'static str),
}

/// A configuration.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) name: &'static str,
    pub(super) held: Held,
    /// Of `zfolio run`.
    pub(super) options: &'static [&'static str],
}

impl Config {
    const fn ours(name: &'static str, options: &'static [&'static str]) -> Self {
        let held = Held::High;
        Self {
            name,
            held,
            options,
        }
    }

    const fn kernel(name: &'static str, held: Held) -> Self {
        let options = &[];
        Self {
            name,
            held,
            options,
        }
    }

    /// Where it runs.
    pub(super) fn side(&self) -> Side {
        match self.held {
            Held::High | Held::Slowdown => Side::Run,
            Held::Zram(algorithm) => Side::Zram(algorithm.to_owned()),
            Held::Zswap(compressor) => Side::Zswap(compressor.to_owned()),
        }
    }

    /// Whether it is the kernel's own, which needs root and control groups.
    pub(super) fn is_kernel(&self) -> bool {
        matches!(self.held, Held::Zram(_) | Held::Zswap(_))
    }
}

/// The first so many are tried where none is named.
pub(super) const USUAL: usize = 5;

pub(super) const CONFIGS: [Config; 15] = [
    Config::ours("lz4", &["--compressor", "lz4"]),
    Config::ours("zstd", &["--compressor", "zstd:1"]),
    Config::ours("auto", &["--compressor", "auto"]),
    Config::ours("auto-tier", &["--compressor", "auto", "--tier", "auto"]),
    Config {
        name: "slowdown",
        held: Held::Slowdown,
        options: &[],
    },
    Config::ours("deflate-iaa", &["--compressor", "deflate-iaa"]),
    Config::ours("lz4-engines", &["--compressor", "lz4", "--engines", "auto"]),
    Config::ours(
        "zstd-engines",
        &["--compressor", "zstd:1", "--engines", "auto"],
    ),
    Config::ours(
        "deflate-iaa-engines",
        &["--compressor", "deflate-iaa", "--engines", "auto"],
    ),
    Config::kernel("zram-lz4", Held::Zram("lz4")),
    Config::kernel("zram-zstd", Held::Zram("zstd")),
    Config::kernel("zram-lzo-rle", Held::Zram("lzo-rle")),
    Config::kernel("zswap-zstd", Held::Zswap("zstd")),
    Config::kernel("zswap-lzo", Held::Zswap("lzo")),
    Config::kernel("zswap-deflate", Held::Zswap("deflate")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_kernel_rows_are_called_as_their_sides() {
        let mut names: Vec<&str> = CONFIGS.iter().map(|config| config.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CONFIGS.len());
        for config in CONFIGS.iter().filter(|config| config.is_kernel()) {
            assert_eq!(config.side().name(), config.name);
        }
        assert!(CONFIGS[..USUAL].iter().all(|config| !config.is_kernel()));
    }
}
