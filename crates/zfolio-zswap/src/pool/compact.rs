//! Zspage compaction of the pool, a step at a time; zspages moved whole.
//!
//! The algorithm is zsmalloc's; here it gets the pool lock for each step and
//! gives it back after, so that stores and loads wait for the copying of one
//! zspage at most. What is being loaded or stored is pinned and stays.

use crate::arena::Arena;
use crate::frame_reserve::Reserve;
use crate::pool::zswap::Zswap;
use crate::stats::add;
use zfolio_mm::Pfn;
use zfolio_mm::compaction::Refused;
use zfolio_zsmalloc::{Compaction, CompactionStep, ZsError};

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
    pub fn compaction_step(&self, run: &Compaction) -> Option<CompactionStep> {
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

    /// The zspage that starts at `at`: its pages, and whether it is pinned now.
    pub fn zspage_at(&self, at: Pfn) -> Option<(usize, bool)> {
        self.pool.lock().zs.zspage_at(at)
    }

    /// Moves the zspage of `pages` pages at `from` to `to`, which the caller holds.
    /// `carry` moves its frames or copies its bytes; it runs under the pool lock,
    /// where nobody else reads or writes them: what is being loaded or stored is
    /// pinned. Afterwards `from` is the caller's.
    ///
    /// # Errors
    /// Why it was not moved; nothing has changed then, `carry` saying no included.
    pub fn relocate(
        &self,
        from: Pfn,
        to: Pfn,
        pages: usize,
        carry: impl FnOnce() -> bool,
    ) -> Result<(), Refused> {
        let mut pool = self.pool.lock();
        match pool.zs.move_zspage(from, to, pages, carry) {
            Ok(()) => Ok(()),
            Err(ZsError::BadFrame) => Err(Refused::Gone),
            Err(_) => Err(Refused::Busy),
        }
    }
}
