//! What the experiment compares the pool with. Nothing of it is used by the
//! pool itself, which is generic where they differ and pays nothing for it.
//!
//! | what | here | the pool's own |
//! |---|---|---|
//! | grouping | [`Coarse`]: the kernel's old four groups; [`PlainTenths`]: its twelve; [`Exact`]: one per slot in use | [`Tenths`]: twelve, members compared |
//! | compaction of a class | [`FreshDestination`]: the kernel's old loop | [`KeptDestination`]: as [`ZsPool::compact`] |
//!
//! [`Tenths`]: crate::grouping::Tenths

mod coarse;
mod fine;
mod fresh;

use zfolio_mm::Memory;

pub use coarse::Coarse;
pub use fine::{Exact, PlainTenths};
pub use fresh::FreshDestination;

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
