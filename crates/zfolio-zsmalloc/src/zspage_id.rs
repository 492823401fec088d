//! The number of a zspage record.

use core::num::NonZeroU32;

/// Number of a zspage record, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ZspageId(NonZeroU32);

impl ZspageId {
    /// The id of a value, `None` for 0.
    pub(crate) const fn new(value: u32) -> Option<Self> {
        match NonZeroU32::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// The value, from 1.
    pub(crate) const fn get(self) -> u32 {
        self.0.get()
    }

    /// The record's index.
    pub(crate) const fn record(self) -> u32 {
        self.0.get() - 1
    }
}
