//! Pages by number, and the units they are counted in.
//!
//! A page is 4 KiB, a group 16 pages, an extent 512: what a huge page covers.

use core::ops::Range;
use zfolio_mm::{Order, PAGE_SHIFT, PAGE_SIZE};

/// Pages in an extent.
pub(crate) const EXTENT_PAGES: usize = Order::HUGE.pages();

/// Pages in a group: the unit of second chance and of read-ahead (64 KiB).
pub(crate) const GROUP_PAGES: usize = Order::K64.pages();

/// A page of the program: its address >> 12.
pub(crate) type Vpn = usize;

/// Index of the group of page `vpn` within its extent.
pub(crate) const fn group_of(vpn: Vpn) -> usize {
    vpn % EXTENT_PAGES / GROUP_PAGES
}

/// Address of a page.
pub(crate) const fn address_of(vpn: Vpn) -> usize {
    vpn << PAGE_SHIFT
}

/// Pages that lie wholly in a range of addresses. Never rounds outwards: an
/// event must not touch what it did not name.
pub(crate) const fn pages_within(start: usize, end: usize) -> Range<Vpn> {
    let first = start.div_ceil(PAGE_SIZE);
    let last = end >> PAGE_SHIFT;
    first..if last > first { last } else { first }
}

/// Addresses of a range of pages.
pub(crate) const fn addresses_of(pages: &Range<Vpn>) -> Range<usize> {
    address_of(pages.start)..address_of(pages.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    #[test]
    fn ranges_are_never_rounded_outwards() {
        assert_eq!(pages_within(PAGE + 1, 3 * PAGE - 1), 2..2);
        assert_eq!(pages_within(PAGE, 3 * PAGE + 5), 1..3);
    }
}
