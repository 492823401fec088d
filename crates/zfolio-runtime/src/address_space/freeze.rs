//! The part of the core that a fork under way needs: what may not change, and what changed all the same.

use crate::page::Vpn;
use alloc::vec::Vec;

/// Whether words must stay, and what was done beside them meanwhile.
pub(crate) struct Freeze {
    /// A fork is under way: words must stay what they are.
    pub(crate) frozen: bool,
    /// The memory may be being copied for a child: nothing may use the heap.
    pub(crate) being_copied: bool,
    /// Pages whose word still says where their bytes are, for a child's sake,
    /// though a copy is with the program: the words are dropped at the thaw.
    /// As many fit as the arena has slots. (Pages of zeros need none and may be
    /// more: then some stay as they are, present and never moved again.)
    pub(crate) superseded: Vec<Vpn>,
    /// A child came without handlers and must be filled.
    pub(crate) raw_fork: bool,
}

impl Freeze {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            frozen: false,
            being_copied: false,
            superseded: Vec::with_capacity(slots),
            raw_fork: false,
        }
    }

    /// Nothing is frozen any more.
    pub(crate) fn end(&mut self) {
        self.frozen = false;
        self.being_copied = false;
        self.raw_fork = false;
    }
}
