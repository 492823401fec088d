//! Where a page was before events.

use crate::events::event::Event;
use crate::page::{Vpn, pages_within};
use zfolio_mm::PAGE_SHIFT;

/// Where a parked world finds a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resolved {
    /// Under this page's word.
    At(Vpn),
    /// Nowhere: the program discarded it.
    Discarded,
}

/// Which word page `vpn` had before `events`.
pub(crate) fn resolve<'a>(
    events: impl DoubleEndedIterator<Item = &'a Event>,
    vpn: Vpn,
) -> Resolved {
    let mut vpn = vpn;
    for event in events.rev() {
        match *event {
            Event::Remove { start, end } | Event::Unmap { start, end } => {
                if pages_within(start, end).contains(&vpn) {
                    return Resolved::Discarded;
                }
            }
            Event::Remap { from, to, len } => {
                if pages_within(to, to + len).contains(&vpn) {
                    vpn = vpn - (to >> PAGE_SHIFT) + (from >> PAGE_SHIFT);
                } else if pages_within(from, from + len).contains(&vpn) {
                    return Resolved::Discarded;
                }
            }
            Event::Fork { .. } => {}
        }
    }
    Resolved::At(vpn)
}
