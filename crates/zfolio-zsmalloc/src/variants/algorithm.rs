//! Ways of compacting a class.

use zfolio_mm::Memory;

use crate::grouping::Grouping;
use crate::pool::ZsPool;
use crate::source::FrameSource;

/// A way of compacting one class.
pub trait Algorithm {
    /// What the reports call it.
    const NAME: &'static str;

    /// Compacts the class at `position` of the table in one go. What it did is
    /// in the pool's counters.
    fn compact_class<G: Grouping>(
        pool: &mut ZsPool<G>,
        position: usize,
        memory: &impl Memory,
        frames: &mut impl FrameSource,
    );
}

/// The pool's own: a destination is kept until it is full.
#[derive(Clone, Copy, Debug)]
pub struct KeptDestination;

impl Algorithm for KeptDestination {
    const NAME: &'static str = "kept destination";

    fn compact_class<G: Grouping>(
        pool: &mut ZsPool<G>,
        position: usize,
        memory: &impl Memory,
        frames: &mut impl FrameSource,
    ) {
        if let Some(run) = pool.begin_compaction_of(position..position + 1) {
            while pool.compaction_step(&run, memory, frames).is_some() {}
        }
    }
}
