//! What the kernel's series measured with usemem: which columns, and under which options.

use clap::ValueEnum;
use zfolio_mm::Order;

/// A series.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum KernelSeries {
    /// Large folios stored whole, 40 of 70 GiB: against split ones
    V5,
    /// The same, half of the memory: split to pages, whole on a swap file, whole in zswap
    V8,
    /// Compressed in batches, half of the memory: one page at a time, and batches
    V9,
}

impl KernelSeries {
    /// As the command line has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V5 => "v5",
            Self::V8 => "v8",
            Self::V9 => "v9",
        }
    }

    /// Sizes of folio.
    #[must_use]
    pub const fn folios(self) -> &'static [Order] {
        match self {
            Self::V5 | Self::V9 => &[Order::K64, Order::HUGE],
            Self::V8 => &[Order::PAGE, Order::K64, Order::HUGE],
        }
    }

    /// Columns, that which the others are set against first.
    #[must_use]
    pub const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::V5 => &[
                "run-zstd-split",
                "run-zstd",
                "run-deflate-iaa-split",
                "run-deflate-iaa",
            ],
            Self::V8 => &[
                "run-zstd-split",
                "run-zstd",
                "run-deflate-iaa-split",
                "run-deflate-iaa",
                "file",
            ],
            Self::V9 => &[
                "run-zstd-sequential",
                "run-zstd-engines",
                "run-deflate-iaa-sequential",
                "run-deflate-iaa-engines",
            ],
        }
    }

    /// The kernel's `page-cluster`, where the series says it.
    #[must_use]
    pub const fn page_cluster(self) -> Option<u8> {
        match self {
            Self::V5 => None,
            Self::V8 => Some(2),
            Self::V9 => Some(0),
        }
    }

    /// What all processes may keep together, of what they write.
    #[must_use]
    pub const fn kept(self) -> (u64, u64) {
        match self {
            Self::V5 => (4, 7),
            Self::V8 | Self::V9 => (1, 2),
        }
    }
}
