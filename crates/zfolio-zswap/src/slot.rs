//! The swap entry.

/// Names a stored page: 4 bytes, below 2^28, opaque.
///
/// Got from a store, good until it is invalidated. After that it may come to
/// name another page: the caller, who keeps one slot per page, must not use it
/// again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot(u32);

impl Slot {
    /// A page of zeros. It takes no entry and no memory, any number of pages
    /// may share it, and invalidating it does nothing.
    pub const ZERO: Self = Self(0);

    /// Bits a slot's value fits in.
    pub const BITS: u32 = 28;

    /// The value, to be packed into a caller's own word.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self.0
    }

    /// The slot of a value from [`Self::as_u32`]. Any other value names no
    /// page, or a wrong one.
    #[must_use]
    pub const fn from_u32(value: u32) -> Self {
        Self(value)
    }

    /// The slot of an entry; `None` past the last that fits.
    pub(crate) const fn of_index(index: u32) -> Option<Self> {
        if index < (1 << Self::BITS) - 1 {
            Some(Self(index + 1))
        } else {
            None
        }
    }

    /// The entry of a slot; `None` for zero pages.
    pub(crate) const fn index(self) -> Option<u32> {
        self.0.checked_sub(1)
    }
}
