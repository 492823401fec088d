//! The airlocks: two ranges of addresses that every page passes on its way out of the program.

use core::ops::Range;
use zfolio_mm::Order;

/// Two windows registered with the program's descriptor.
///
/// A page leaves the program by a MOVE to the airlock on the descriptor *with*
/// events, and from there to the arena on the one without: the first move
/// fails with EAGAIN while an event is in flight, so a page that did move was
/// where our words say it was. (The arena itself cannot be on that descriptor:
/// releasing a frame would wait for its own event.)
#[derive(Clone, Debug)]
pub(crate) struct Airlocks {
    /// For up to 512 small pages.
    pub(crate) small: usize,
    /// For one huge page; never holds small ones, so that its page table
    /// stays empty and a huge page moves whole.
    pub(crate) huge: usize,
}

impl Airlocks {
    /// What to register.
    pub(crate) fn ranges(&self) -> [Range<usize>; 2] {
        [self.small, self.huge].map(|start| start..start + Order::HUGE.bytes())
    }
}
