//! What is measured, and the rows it gives.

use super::measure::Cell;

/// Pageblocks of the arena: 128 MiB.
pub(super) const BLOCKS: usize = 64;
/// Percent of the frames in use.
pub(super) const FILLS: [usize; 4] = [25, 50, 75, 90];
/// Orders asked for: 64 KiB, 256 KiB, 2 MiB.
pub(super) const ORDERS: [u8; 3] = [4, 6, 9];

/// What is measured: everything, or less in tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Experiment {
    pub(super) seed: u64,
    pub(super) runs: u64,
    pub(super) blocks: usize,
}

/// The runs of one workload, fill level, order and variant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) workload: &'static str,
    pub(super) fill: usize,
    pub(super) order: u8,
    pub(super) variant: &'static str,
    pub(super) cells: Vec<Cell>,
}
