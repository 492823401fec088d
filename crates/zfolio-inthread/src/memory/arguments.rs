//! What the arguments of calls about the address space mean.

use crate::raw::PAGE;
use core::ops::Range;

pub(super) const PROT_READ: usize = 1;
pub(super) const PROT_READ_WRITE: usize = 3;
/// Readable, writable and executable.
pub(super) const PROT_ALL: usize = 7;
pub(super) const MAP_PRIVATE: usize = 2;
pub(super) const MAP_TYPE: usize = 15;
pub(super) const MAP_FIXED: usize = 0x10;
pub(super) const MAP_ANONYMOUS: usize = 0x20;

/// A length in whole pages; as it is where that is more than a number holds.
pub(super) fn up(len: usize) -> usize {
    len.checked_add(PAGE - 1)
        .map_or(len, |len| len & !(PAGE - 1))
}

/// The pages of a call's range; empty where its numbers make no sense.
pub(super) fn range_of(start: usize, len: usize) -> Range<usize> {
    match start.checked_add(up(len)) {
        Some(end) if start.is_multiple_of(PAGE) && end <= 1 << 47 => start..end,
        _ => 0..0,
    }
}
