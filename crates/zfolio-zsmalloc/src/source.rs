//! Where a pool's frames come from.

use zfolio_mm::{Frames, Kind, Pfn};

/// Gives and takes back contiguous runs of backed frames.
///
/// The pool asks for one zspage at a time, 1 ..= 16 pages, and gives it back with the same length when its last object is
/// freed. A run may have been relocated in between.
pub trait FrameSource {
    /// A contiguous run of `pages` backed frames, whatever their contents.
    fn alloc(&mut self, pages: usize) -> Option<Pfn>;

    /// Takes a run back.
    fn free(&mut self, at: Pfn, pages: usize);
}

/// The free backed frames of an arena, and no others: a source that may also
/// populate holes wraps this one.
impl FrameSource for Frames {
    fn alloc(&mut self, pages: usize) -> Option<Pfn> {
        self.alloc_exact(Kind::Backed, pages)
    }

    fn free(&mut self, at: Pfn, pages: usize) {
        self.free_range(Kind::Backed, at, pages);
    }
}
