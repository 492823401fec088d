//! How many threads serve faults: as many as a slot has words for.

/// Fewest fault threads: one may sleep on the descriptor while faults that
/// somebody else read wait for another.
pub(crate) const MIN_FAULT_THREADS: usize = 2;

/// Most fault threads.
pub(crate) const MAX_FAULT_THREADS: usize = 4;

/// Most threads of a manager: the watchdog, those that serve faults, the control
/// thread.
pub const THREADS: usize = 2 + MAX_FAULT_THREADS;
