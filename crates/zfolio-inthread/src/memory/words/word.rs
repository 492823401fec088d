//! What is known of a page: where it is.

use zfolio_zswap::Slot;

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// Where the kernel has it; passed over by reclaim so many times. Of memory that is not
    /// managed too.
    Open { heat: u8 },
    /// Open, and in the pool too: until it is written to it may leave as it came.
    Clean(Slot),
    /// Open, and never to be closed.
    Kept,
    /// Closed, by a call for a whole run; nothing is stored.
    Untouched,
    /// Closed page by page; zeros.
    Zero,
    /// Closed; in the pool.
    Stored(Slot),
    /// Closed, its bytes in place.
    Standby,
    /// On its way in or out: whoever has the stage of this number says what it is next
    /// ([`transit`](crate::memory::transit)). It counts as closed, and may be present.
    Transit(u32),
}

impl Word {
    pub(crate) const OPEN: Self = Self::Open { heat: 0 };

    pub(super) const fn bits(self) -> u32 {
        match self {
            Self::Open { heat } => (heat as u32) << 4,
            Self::Kept => 1,
            Self::Untouched => 2,
            Self::Zero => 3,
            Self::Standby => 4,
            Self::Clean(slot) => slot.as_u32() << 3 | 5,
            Self::Transit(stage) => stage << 3 | 6,
            Self::Stored(slot) => slot.as_u32() << 3 | 7,
        }
    }

    pub(super) const fn of(bits: u32) -> Self {
        match bits & 7 {
            0 => Self::Open {
                heat: (bits >> 4 & 3) as u8,
            },
            1 => Self::Kept,
            2 => Self::Untouched,
            3 => Self::Zero,
            4 => Self::Standby,
            5 => Self::Clean(Slot::from_u32(bits >> 3)),
            6 => Self::Transit(bits >> 3),
            _ => Self::Stored(Slot::from_u32(bits >> 3)),
        }
    }

    pub(crate) const fn is_closed(self) -> bool {
        !matches!(self, Self::Open { .. } | Self::Clean(_) | Self::Kept)
    }

    /// Whether the kernel may read and write there for a call: open, and not write-protected.
    pub(crate) const fn is_ready(self) -> bool {
        matches!(self, Self::Open { .. } | Self::Kept)
    }

    /// What the pool has of it.
    pub(crate) const fn slot(self) -> Option<Slot> {
        match self {
            Self::Stored(slot) | Self::Clean(slot) => Some(slot),
            _ => None,
        }
    }

    pub(super) const fn is_transit(self) -> bool {
        matches!(self, Self::Transit(_))
    }

    pub(super) const fn is_clean(self) -> bool {
        matches!(self, Self::Clean(_))
    }

    /// Whether the page is in memory, and may leave it.
    pub(super) const fn may_leave(self) -> bool {
        matches!(self, Self::Open { .. } | Self::Standby)
    }
}
