//! What the page table says of the program's addresses.

use crate::frames::Physical;
use crate::page::{Vpn, addresses_of, pages_within};
use core::ops::Range;
use zfolio_mm::Order;
use zfolio_sys::procfs::PresentRun;
use zfolio_sys::syscall::Errno;

impl Physical {
    /// Calls `each` with every run of present pages.
    pub(crate) fn each_present(&self, range: &Range<usize>, mut each: impl FnMut(&PresentRun)) {
        let mut runs = [PresentRun::default(); 64];
        let mut at = range.start;
        while at < range.end {
            let Ok((count, reached)) = self.fds.pagemap().occupied(at, range.end, &mut runs) else {
                return;
            };
            runs[..count].iter().for_each(&mut each);
            if reached <= at {
                return;
            }
            at = reached;
        }
    }

    /// Calls `each` with the runs of pages of a range that hold bytes, in order.
    pub(crate) fn for_each_occupied(
        &self,
        range: Range<usize>,
        mut each: impl FnMut(Range<Vpn>),
    ) -> Result<(), Errno> {
        let Range { start: mut at, end } = range;
        let mut runs = [PresentRun::default(); 32];
        while at < end {
            let (count, reached) = self.fds.pagemap().occupied(at, end, &mut runs)?;
            for run in &runs[..count] {
                each(pages_within(run.start(), run.end()));
            }
            if reached <= at {
                break;
            }
            at = reached;
        }
        Ok(())
    }

    /// Has the kernel write to those of `pages` that are present, as if the
    /// program had. The others may never have been touched: a write there is a
    /// fault, which another of our threads would have to serve.
    pub(crate) fn make_own(&self, pages: Range<Vpn>) {
        let Range { mut start, end } = addresses_of(&pages);
        let mut runs = [PresentRun::default(); 16];
        while start < end {
            let Ok((count, reached)) = self.fds.pagemap().present(start, end, &mut runs) else {
                return;
            };
            for run in &runs[..count] {
                crate::kernel::make_own(run.start(), run.end() - run.start());
            }
            if reached <= start {
                return;
            }
            start = reached;
        }
    }

    /// Whether the 2 MiB at `start` are one huge page.
    pub(crate) fn is_huge(&self, start: usize) -> bool {
        let mut run = [PresentRun::default()];
        let found = self
            .fds
            .pagemap()
            .present(start, start + Order::HUGE.bytes(), &mut run);
        matches!(found, Ok((1, _)))
            && run[0].is_huge()
            && run[0].end() - run[0].start() == Order::HUGE.bytes()
    }
}
