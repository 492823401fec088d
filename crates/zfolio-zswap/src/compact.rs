//! Zspage compaction of the pool, a step at a time.
//!
//! The algorithm is zsmalloc's; here it gets the pool lock for each step and
//! gives it back after, so that stores and loads wait for the copying of one
//! zspage at most. What is being loaded or stored is pinned and stays.

use crate::arena::Arena;
use crate::reserve::Reserve;
use crate::stats::add;
use crate::zswap::Zswap;
use zfolio_zsmalloc::{Compaction, Step};

impl<A: Arena> Zswap<A> {
    /// Pages that compaction would free (the kernel's `can_compact`, over all
    /// classes).
    pub fn freeable_pages(&self) -> usize {
        self.pool.lock().zs.freeable_pages()
    }

    /// Begins a compaction, to be driven by [`Self::compaction_step`]; `None`
    /// while one is under way.
    pub fn begin_compaction(&self) -> Option<Compaction> {
        self.pool.lock().zs.begin_compaction()
    }

    /// Moves the objects of one zspage, or some of them, and gives its frames
    /// to the arena if it ran empty. `None` when nothing is left to do, which
    /// ends the compaction.
    pub fn compaction_step(&self, run: &Compaction) -> Option<Step> {
        let mut frames = Reserve::new();
        let mut pool = self.pool.lock();
        let step = pool.zs.compaction_step(run, &self.arena, &mut frames);
        if let Some(step) = step {
            add(&self.stats.objs_moved, step.objs_moved as u64);
            add(&self.stats.pages_compacted, step.pages_freed as u64);
            self.note_pool(&pool);
        }
        drop(pool);
        self.give_back(frames);
        step
    }
}
