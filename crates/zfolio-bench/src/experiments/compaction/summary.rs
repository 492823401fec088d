//! Means and deviations of what was measured.

use super::grid::Row;
use super::measure::Cell;

/// A figure of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Metric {
    /// Blocks obtained, in percent of what the free memory is worth.
    Success,
    /// Pages copied for each block that compaction made.
    Copies,
    /// Microseconds of processor time in compaction for each such block.
    Micros,
    /// Mebibytes of blocks that compaction made, for each second of processor time in it.
    Throughput,
}

impl Metric {
    pub(super) const ALL: [Self; 4] = [Self::Success, Self::Copies, Self::Micros, Self::Throughput];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Success => "blocks obtained, % of what the free memory is worth",
            Self::Copies => "pages copied per block made by compaction",
            Self::Micros => "microseconds of CPU time per block made by compaction",
            Self::Throughput => "throughput: MiB of blocks made per second of CPU time",
        }
    }

    /// The figure; `None` where no block was made.
    pub(super) fn of(self, cell: &Cell) -> Option<f64> {
        let ratio = |a: f64, b: usize| (b > 0).then(|| a / b as f64);
        match self {
            Self::Success => ratio(100.0 * cell.got as f64, cell.wanted),
            Self::Copies => ratio(cell.copied as f64, cell.made),
            Self::Micros => ratio(cell.took.as_secs_f64() * 1e6, cell.made),
            Self::Throughput => {
                let seconds = cell.took.as_secs_f64();
                let made = (cell.made * cell.block) as f64 / f64::from(1 << 20);
                (seconds > 0.0).then(|| made / seconds)
            }
        }
    }
}

/// Mean and standard deviation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Summary {
    pub(super) mean: f64,
    /// In percent of the mean.
    pub(super) deviation: f64,
}

impl Summary {
    /// Of some figures, `None` when there are none. The deviation is the sample's
    /// (n - 1), 0 for one figure.
    pub(super) fn of(figures: &[f64]) -> Option<Self> {
        if figures.is_empty() {
            return None;
        }
        let count = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / count;
        let squares: f64 = figures.iter().map(|x| (x - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
        let percent = if mean == 0.0 {
            0.0
        } else {
            100.0 * deviation / mean
        };
        Some(Self {
            mean,
            deviation: percent,
        })
    }

    /// Of one row's runs.
    pub(super) fn of_row(row: &Row, metric: Metric) -> Option<Self> {
        let figures: Vec<f64> = row.cells.iter().filter_map(|c| metric.of(c)).collect();
        Self::of(&figures)
    }
}

/// The runs of all workloads, at one fill level, order and variant: blocks added up
/// before dividing, so that a workload that needs no compaction weighs nothing.
pub(super) fn total(rows: &[Row], fill: usize, order: u8, variant: &str) -> Cell {
    let mut sum = Cell::default();
    let chosen = rows
        .iter()
        .filter(|row| (row.fill, row.order, row.variant) == (fill, order, variant));
    for cell in chosen.flat_map(|row| &row.cells) {
        sum.block = cell.block;
        sum.wanted += cell.wanted;
        sum.got += cell.got;
        sum.made += cell.made;
        sum.copied += cell.copied;
        sum.split += cell.split;
        sum.ends.success += cell.ends.success;
        sum.ends.met += cell.ends.met;
        sum.ends.no_free_page += cell.ends.no_free_page;
        sum.ends.early += cell.ends.early;
        sum.took += cell.took;
    }
    sum
}
