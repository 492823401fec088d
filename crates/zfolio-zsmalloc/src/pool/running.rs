//! A compaction under way: how far it is, and what its steps say.

use crate::zspage_id::ZspageId;

/// The right to drive the compaction under way; see
/// [`ZsPool::begin_compaction`](super::ZsPool::begin_compaction).
#[derive(Debug)]
#[must_use = "a compaction is driven by its steps, and others are refused until it has ended"]
pub struct Compaction {
    pub(super) ticket: u64,
}

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CompactionStep {
    /// Objects copied.
    pub objs_moved: usize,
    /// Pages given back.
    pub pages_freed: usize,
}

/// The compaction under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) ticket: u64,
    /// Position of the class at work, going down; the ones from here to `end`
    /// are done.
    pub(super) class: usize,
    /// The first position that is compacted, and the last visited.
    pub(super) first: usize,
    /// Steps it may still spend at `class`.
    pub(super) steps: usize,
    /// Steps it may still spend on lodging what is left at `class`.
    pub(super) lodgings: u8,
    /// The destination kept.
    pub(super) kept: Option<ZspageId>,
}

impl Running {
    /// The class at work and the zspage kept.
    pub(super) fn kept(&self) -> Option<(usize, ZspageId)> {
        self.kept.map(|id| (self.class, id))
    }

    /// Forgets a zspage that is given up.
    pub(super) fn forget(&mut self, id: ZspageId) {
        self.kept = self.kept.filter(|kept| *kept != id);
    }
}

/// Why the objects of a source stopped moving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// The source is empty.
    SourceEmpty,
    /// The destination is full.
    DestinationFull,
    /// The source has objects left that no header names.
    SourceDamaged,
    /// The destination's list of free slots was overwritten.
    DestinationDamaged,
}
