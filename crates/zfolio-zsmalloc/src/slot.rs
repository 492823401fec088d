//! The 8 bytes in front of each object, read and written.
//!
//! Two little-endian words, the second the complement of the first. The first
//! is the owner's handle (1 .. 2^28) in a slot in use; in a free slot bit 31 is
//! set and the low 16 bits are the index of the next free slot. The arena is
//! ordinary memory of the program around us and may be scribbled over: the
//! complement tells a header that was not written here, so that a bad link
//! never becomes a wrong address. Object 0 of a page-sized class has no header.

use zfolio_mm::{Memory, Pfn};

use crate::class::ZS_HANDLE_SIZE;
use crate::handle::Handle;

/// Set in the first word of a free slot.
const FREE: u32 = 1 << 31;

/// Index that stands for "no slot".
pub(crate) const NO_SLOT: u16 = u16::MAX;

/// What a slot's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Header {
    /// In use, the object of this handle.
    Owned(Handle),
    /// Free; the next free slot or [`NO_SLOT`].
    Free(u16),
    /// Not written by this module.
    Damaged,
}

impl Header {
    /// Writes the header of the slot `offset` bytes behind `at`.
    pub(crate) fn write(self, memory: &impl Memory, at: Pfn, offset: usize) {
        let word = match self {
            Self::Owned(handle) => handle.as_u32(),
            Self::Free(next) => FREE | u32::from(next),
            Self::Damaged => 0,
        };
        let check = if self == Self::Damaged { 0 } else { !word };
        let both = u64::from(word) | u64::from(check) << 32;
        memory.with_mut(at, offset, ZS_HANDLE_SIZE, |bytes| {
            bytes.copy_from_slice(&both.to_le_bytes());
        });
    }

    /// Reads the header of the slot `offset` bytes behind `at`.
    pub(crate) fn read(memory: &impl Memory, at: Pfn, offset: usize) -> Self {
        let both = memory.with(at, offset, ZS_HANDLE_SIZE, |bytes| {
            bytes.try_into().map_or(0, u64::from_le_bytes)
        });
        let low = u32::try_from(both & u64::from(u32::MAX)).unwrap_or(0);
        if both >> 32 != u64::from(!low) {
            return Self::Damaged;
        }
        if let Some(handle) = Handle::from_u32(low) {
            return Self::Owned(handle);
        }
        match u16::try_from(low ^ FREE) {
            Ok(next) => Self::Free(next),
            Err(_) => Self::Damaged,
        }
    }
}
