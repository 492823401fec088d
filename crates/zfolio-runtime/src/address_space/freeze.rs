//! The part of the core that a fork under way needs: what may not change, and what changed all the same.

use crate::page::Vpn;
use alloc::vec::Vec;

/// Whether words must stay, and what was done beside them meanwhile.
pub(crate) struct Freeze {
    /// A fork is under way: words must stay what they are.
    frozen: bool,
    /// The memory may be being copied for a child: nothing may use the heap.
    being_copied: bool,
    /// Pages whose word still says where their bytes are, for a child's sake,
    /// though a copy is with the program: the words are dropped at the thaw.
    /// As many fit as the arena has slots. (Pages of zeros need none and may be
    /// more: then some stay as they are, present and never moved again.)
    pub(super) superseded: Vec<Vpn>,
    /// A child came without handlers and must be filled.
    raw_fork: bool,
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

    /// Whether words must stay.
    pub(crate) const fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether nothing may use the heap.
    pub(super) const fn is_being_copied(&self) -> bool {
        self.being_copied
    }

    /// Whether a child must be filled.
    pub(crate) const fn is_raw_fork(&self) -> bool {
        self.raw_fork
    }

    /// A fork by libc is under way: from here on nothing changes, nor the heap.
    pub(crate) fn begin(&mut self) {
        self.frozen = true;
        self.being_copied = true;
    }

    /// A child has come by a raw fork, unasked.
    pub(super) fn begin_raw(&mut self) {
        self.frozen = true;
        self.raw_fork = true;
    }

    /// The memory has been copied.
    pub(crate) fn note_copied(&mut self) {
        self.being_copied = false;
    }

    /// No child is left to answer for.
    pub(crate) fn thaw(&mut self) {
        self.raw_fork = false;
        self.frozen = false;
    }

    /// In the child of a fork: nothing is frozen.
    pub(crate) fn end(&mut self) {
        self.thaw();
        self.note_copied();
    }
}
