//! What a step of the second tier is about, and what came of it.

use crate::MIN_BATCH;
use crate::entry::held::{Member, Object};
use crate::slot::Slot;
use crate::spans::Span;

/// Pages of a step, at most.
pub const STEP: usize = MIN_BATCH;
/// A page has to lose this part of its length, one in so many bytes: for less it is
/// not worth a slower load.
pub(super) const LEAST_SAVED: usize = 16;

/// What a step, or several, came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recompressed {
    /// Entries the hand passed.
    pub scanned: usize,
    /// Pages compressed again that take less room now.
    pub recompressed: usize,
    /// Pages that would not have become shorter by enough.
    pub poor: usize,
    /// Bytes by which objects became shorter.
    pub bytes_saved: usize,
    /// Pages compressed again to be rid of a dictionary.
    pub drained: usize,
    /// Bytes by which some of them became longer.
    pub bytes_lost: usize,
    /// Pages taken out of units of which few pages were left.
    pub split: usize,
    /// Bytes that they take now.
    pub split_lost: usize,
    /// Bytes of the units that went with the last of them.
    pub split_saved: usize,
    /// The hand has been round: the next step begins a new round.
    pub ended: bool,
}

/// An entry on its way through a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trying {
    pub(super) slot: Slot,
    /// Pinned; the unit's if it is a page of one.
    pub(super) object: Object,
    /// Which.
    pub(super) member: Option<Member>,
    pub(super) span: Span,
    /// Anything else will do: its dictionary is to go, or its unit.
    pub(super) drained: bool,
    pub(super) outcome: Outcome,
}

/// What the codec made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Its bytes are not what was stored: who loads it finds out.
    Bad,
    /// Nothing shorter by enough.
    Poor,
    /// With others, as a unit.
    InUnit,
    /// The first `len` bytes of its part of the buffer.
    Packed {
        len: u16,
        checksum: u32,
        version: u8,
    },
}

pub(super) type List = [Option<Trying>; STEP];

/// What became of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Settled {
    /// The lengths before and after.
    Replaced(u16, u16),
    Poor,
    /// A page is no part of a unit any more.
    Split,
    /// It stays as it is, and may be tried again where that makes sense.
    Kept,
}
