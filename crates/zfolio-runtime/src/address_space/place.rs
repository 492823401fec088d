//! One word per page: where its bytes are.

use zfolio_mm::Pfn;
use zfolio_zswap::Slot;

const TAG_SHIFT: u32 = 28;
const PAYLOAD: u32 = (1 << TAG_SHIFT) - 1;

/// Where a page's bytes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// With the program, or nowhere yet: not ours.
    Present,
    /// Moved out whole into this slot; not compressed.
    Standby(Pfn),
    /// As standby, and a thread is compressing it.
    Storing(Pfn),
    /// In the pool.
    Stored(Slot),
    /// In the pool, and a thread is bringing it back.
    Loading(Slot),
    /// With the program, write-protected, and in the pool too.
    Clean(Slot),
    /// Discarded by the program: whatever is present there now is about to
    /// vanish, and must not be moved out before we have filled it again.
    Gone,
}

/// A [`Place`] in 32 bits; 0 is `Present`, so fresh memory needs no set-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PackedPlace(u32);

impl PackedPlace {
    /// [`Place::Present`].
    pub(crate) const PRESENT: Self = Self(0);

    pub(crate) fn new(place: Place) -> Self {
        let (tag, payload) = match place {
            Place::Present => (0, 0),
            Place::Standby(pfn) => (1, pfn.0),
            Place::Storing(pfn) => (2, pfn.0),
            Place::Stored(slot) => (3, slot.as_u32()),
            Place::Loading(slot) => (4, slot.as_u32()),
            Place::Gone => (5, 0),
            Place::Clean(slot) => (6, slot.as_u32()),
        };
        debug_assert!(payload <= PAYLOAD, "slot and pfn numbers stay below 2^28");
        Self(tag << TAG_SHIFT | payload)
    }

    pub(crate) fn place(self) -> Place {
        let payload = self.0 & PAYLOAD;
        match self.0 >> TAG_SHIFT {
            0 => Place::Present,
            1 => Place::Standby(Pfn(payload)),
            2 => Place::Storing(Pfn(payload)),
            3 => Place::Stored(Slot::from_u32(payload)),
            4 => Place::Loading(Slot::from_u32(payload)),
            5 => Place::Gone,
            6 => Place::Clean(Slot::from_u32(payload)),
            tag => unreachable!("page word with tag {tag}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_survives_packing() {
        assert_eq!(PackedPlace::default().place(), Place::Present);
        for payload in [0, 1, PAYLOAD] {
            for place in [
                Place::Standby(Pfn(payload)),
                Place::Storing(Pfn(payload)),
                Place::Stored(Slot::from_u32(payload)),
                Place::Loading(Slot::from_u32(payload)),
                Place::Clean(Slot::from_u32(payload)),
                Place::Gone,
            ] {
                assert_eq!(PackedPlace::new(place).place(), place);
            }
        }
    }
}
