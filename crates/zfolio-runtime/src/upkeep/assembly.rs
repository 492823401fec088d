//! Huge pages that came back in pieces are made one again.
//!
//! A huge page of which one piece after the other was touched lies in scattered frames once all
//! of it is back. The kernel copies it into a huge page again (`MADV_COLLAPSE`): the copy is
//! what it costs, in time that is a small part of the control thread's. While it copies, the
//! kernel lets nobody touch the 2 MiB; what leaves meanwhile makes it give up.
//!
//! Not assembled are pages that are shared with the child of a fork, which would become this
//! process's own twice; pinned and write-protected ones, which the kernel refuses; and any
//! while there is no room below `high` for 2 MiB more, which the copy takes until it is done.

use crate::address_space::core::Core;
use crate::kernel::collapse;
use crate::page::{EXTENT_PAGES, Vpn, address_of};
use crate::segment::Counter;
use crate::upkeep::Upkeep;
use core::sync::atomic::Ordering;
use zfolio_mm::Order;
use zfolio_sys::procfs::PresentRun;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns};

/// Time spent on it in one turn, ns: then faults and forks are looked at again.
const TURN_NS: u64 = 1_000_000;
/// Between two turns, times the CPU time that the last one took.
const SHARE: u64 = 64;
/// Until the next turn after the kernel had no huge page, ns.
const NO_HUGE_PAGE_NS: u64 = 1_000_000_000;

impl Upkeep {
    /// Makes huge pages of some that are there in pieces, if that is due. The control
    /// thread's.
    pub(crate) fn assemble_huge_pages(&self) {
        if self.options.folios.huge_page_assembly
            && now_ns(Clock::Monotonic) >= self.assembly_ns.load(Ordering::Relaxed)
            && self.core.lock().history.has_complete()
        {
            self.assemble_some(self.usage());
        }
    }

    /// The same, of a process that uses so many pages.
    fn assemble_some(&self, usage: usize) {
        if usage + EXTENT_PAGES > self.watermarks().high + self.overdraft() {
            return;
        }
        let (begin, spent) = (now_ns(Clock::Monotonic), now_ns(Clock::ThreadCpu));
        let mut now = begin;
        let mut wait = 0;
        while now - begin < TURN_NS
            && !self.should_yield()
            && let Some(first) = self.next_complete()
        {
            let assembled = self.while_open(|| self.assemble(first));
            if matches!(assembled, Some(Err(Errno::NOMEM))) {
                wait = NO_HUGE_PAGE_NS;
                break;
            }
            now = now_ns(Clock::Monotonic);
        }
        if now > begin || wait > 0 {
            let spent = now_ns(Clock::ThreadCpu).saturating_sub(spent);
            let wait = wait.max(spent.saturating_mul(SHARE));
            self.assembly_ns.store(now + wait, Ordering::Relaxed);
        }
    }

    fn next_complete(&self) -> Option<Vpn> {
        self.core.lock().history.take_complete()
    }

    /// Makes one of the 2 MiB from page `first` on, where nothing speaks against it.
    fn assemble(&self, first: Vpn) -> Result<(), Errno> {
        let (start, end) = (address_of(first), address_of(first + EXTENT_PAGES));
        let may = may_assemble(&self.core.lock(), first);
        if !may || !self.is_in_pieces(start, end) {
            return Ok(());
        }
        let made = collapse(start, Order::HUGE.bytes());
        match made {
            Ok(()) => self.count(Counter::ThpCollapseAlloc, 1),
            Err(errno) => {
                self.count(Counter::ThpCollapseAllocFailed, 1);
                // No huge page may be here any more.
                if errno == Errno::INVAL
                    && let Some(extent) = self.core.lock().pages.extents.get_mut(first)
                {
                    extent.set_huge(false);
                }
            }
        }
        made
    }

    /// Whether all of it is there, this process's alone, and not one huge page.
    fn is_in_pieces(&self, start: usize, end: usize) -> bool {
        let pagemap = self.fds.pagemap();
        let mut run = [PresentRun::default()];
        let present = pagemap.present(start, end, &mut run);
        matches!(present, Ok((1, _)))
            && !run[0].is_huge()
            && (run[0].start(), run[0].end()) == (start, end)
            && pagemap.is_own(start, end) == Ok(true)
    }
}

/// Whether what was a huge page at `first` is all in place, ours to move, and held by nobody.
fn may_assemble(core: &Core, first: Vpn) -> bool {
    let range = address_of(first)..address_of(first + EXTENT_PAGES);
    let extent = core.pages.extents.get(first);
    extent.is_some_and(|extent| extent.is_huge() && extent.away() == 0)
        && core.pages.registered.contains(&range)
        && !core.pages.pins.overlaps(&range)
}

#[cfg(test)]
mod tests;
