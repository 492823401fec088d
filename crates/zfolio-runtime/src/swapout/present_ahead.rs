//! What is present ahead of the clock hand, as the page table had it a moment ago.
//!
//! A program may have thousands of small mappings (stacks of coroutines, a heap that grew a
//! little at a time), of each of which a page or two is present. To ask for each by itself
//! would take longer than to move what is found. So where mappings are small, one call looks at
//! many of them, and the hand takes from that what lies in each as it comes to it.
//!
//! Nobody relies on what is seen: words say which pages may go, and a page that left meanwhile
//! is a hole for whoever moves it.

use crate::address_space::mappings::Vmas;
use crate::kernel::Pagemap;
use crate::page::EXTENT_PAGES;
use alloc::vec::Vec;
use core::ops::Range;
use zfolio_mm::Order;
use zfolio_sys::procfs::PresentRun;
use zfolio_sys::syscall::Errno;

/// Addresses looked at together at most, bytes.
const REACH: usize = 16 * Order::HUGE.bytes();

/// Runs of present pages, from where the hand is.
pub(crate) struct PresentAhead {
    runs: Vec<PresentRun>,
    /// Those that the last look found, and the first that ends above the hand.
    count: usize,
    next: usize,
    /// Addresses that they tell of.
    seen: Range<usize>,
}

impl PresentAhead {
    pub(crate) fn new() -> Self {
        Self {
            runs: alloc::vec![PresentRun::default(); EXTENT_PAGES],
            count: 0,
            next: 0,
            seen: 0..0,
        }
    }

    /// What was seen is old.
    pub(crate) fn forget(&mut self) {
        self.seen = 0..0;
        (self.count, self.next) = (0, 0);
    }

    /// The runs that are present of `part`, of one extent; the first and the last may reach
    /// beyond it. The hand goes forward, or [`Self::forget`] is called.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn of(
        &mut self,
        pagemap: Pagemap,
        vmas: &Vmas,
        part: &Range<usize>,
    ) -> Result<&[PresentRun], Errno> {
        if part.start < self.seen.start || self.seen.end < part.end {
            self.forget();
            let end = vmas.end_of_small(part, REACH);
            // (As many runs as an extent has pages: the walk comes to the end of `part`.)
            let (count, seen) = pagemap.present(part.start, end, &mut self.runs)?;
            self.count = count;
            self.seen = part.start..seen.max(part.end);
        }
        self.seen.start = part.end;
        self.pass(part.start);
        let rest = &self.runs[self.next..self.count];
        let within = rest.partition_point(|run| run.start() < part.end);
        Ok(&rest[..within])
    }

    /// The first address at or after `from`, where the hand goes on, that is present; `Err`:
    /// none that was seen, and from where on nothing is known.
    pub(crate) fn next_from(&mut self, from: usize) -> Result<usize, usize> {
        self.pass(from);
        match self.runs[self.next..self.count].first() {
            Some(run) => Ok(run.start().max(from)),
            None => Err(self.seen.end.max(from)),
        }
    }

    /// Runs below `address` are behind the hand.
    fn pass(&mut self, address: usize) {
        let rest = &self.runs[self.next..self.count];
        self.next += rest.partition_point(|run| run.end() <= address);
    }
}
