//! Where pages are, and which of them are ours to move: a part of the core.

use crate::address_space::clean_queue::CleanPages;
use crate::address_space::extent::Extents;
use crate::address_space::pins::Pins;
use crate::address_space::standby::Standby;
use crate::address_space::vanishing::Vanishing;
use crate::events::ranges::Ranges;
use alloc::vec::Vec;
use core::ops::Range;

/// Words, what is registered and pinned, and the queues of pages that may leave.
pub(crate) struct Pages {
    pub(crate) extents: Extents,
    /// Addresses known to be registered with the program's descriptor.
    pub(crate) registered: Ranges,
    /// Ranges that must stay where they are.
    pub(crate) pins: Pins,
    pub(crate) standby: Standby,
    pub(crate) clean: CleanPages,
    pub(crate) vanishing: Vanishing,
}

impl Pages {
    pub(crate) fn new(clean: CleanPages) -> Self {
        Self {
            extents: Extents::default(),
            registered: Ranges::default(),
            pins: Pins::default(),
            standby: Standby::default(),
            clean,
            vanishing: Vanishing::new(),
        }
    }

    /// The addresses registered, for the hand.
    pub(crate) fn list_registered(&self, into: &mut Vec<Range<usize>>) {
        into.clear();
        into.extend(self.registered.iter());
    }
}
