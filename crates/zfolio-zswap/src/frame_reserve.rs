//! Frames for the pool, fetched and given back outside its lock.
//!
//! zsmalloc asks for a run of frames while the pool lock is held, when no
//! zspage has room. Getting frames may take an arena's locks and system calls,
//! so here the question is only written down: the malloc fails, the store
//! drops the lock, gets the run, and asks again.

use zfolio_mm::Pfn;
use zfolio_zsmalloc::FrameSource;

/// Objects freed per lock round; each frees one zspage at most.
pub(crate) const ROUND: usize = 64;

/// Runs on their way to or from the pool, `(first frame, pages)`.
#[derive(Debug)]
pub(crate) struct Reserve {
    /// The run at hand.
    pub(crate) spare: Option<(Pfn, usize)>,
    /// Pages last asked for that were not at hand; 0 when none.
    pub(crate) wanted: usize,
    freed: [(Pfn, usize); ROUND],
    count: usize,
}

impl Reserve {
    /// Nothing at hand.
    pub(crate) fn new() -> Self {
        Self {
            spare: None,
            wanted: 0,
            freed: [(Pfn(0), 0); ROUND],
            count: 0,
        }
    }

    /// Runs the pool gave back, and the one it did not need. The caller gives
    /// them to the arena.
    pub(crate) fn leftovers(self) -> impl Iterator<Item = (Pfn, usize)> {
        self.freed.into_iter().take(self.count).chain(self.spare)
    }
}

impl FrameSource for Reserve {
    fn alloc(&mut self, pages: usize) -> Option<Pfn> {
        match self.spare {
            Some((at, len)) if len == pages => {
                self.spare = None;
                Some(at)
            }
            _ => {
                self.wanted = pages;
                None
            }
        }
    }

    /// # Panics
    /// After [`ROUND`] runs: the callers free no more objects than that.
    fn free(&mut self, at: Pfn, pages: usize) {
        self.freed[self.count] = (at, pages);
        self.count += 1;
    }
}
