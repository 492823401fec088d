//! What of the program's memory cannot leave, and why: counted while usage is above
//! `high`, for whoever asks why it was not kept.
//!
//! Read from the list of mappings and the page table, never noted by faults or
//! reclaim. A look takes as long as both are large, so there are few.

use crate::address_space::mappings::Vmas;
use crate::address_space::unmanaged::Why;
use crate::kernel::Pagemap;
use crate::swapout::hand::ClockHand;
use crate::upkeep::Upkeep;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::procfs::PresentRun;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns};

/// Between two looks, ns: and this many times what the last one took.
const LOOK_NS: u64 = 250_000_000;
const LOOK_SHARE: u64 = 100;
/// Addresses a look goes through, of all mappings and of each: reservations of terabytes
/// are not looked at to their end.
const LOOK_BYTES: usize = 64 << 30;
const MAPPING_BYTES: usize = 8 << 30;
/// Addresses looked at in one call: whoever maps memory waits for no more.
const CALL_BYTES: usize = 256 << 20;

/// Present pages of mappings that are not managed, by reason. (Managed ones may have pages
/// that are locked or pinned besides: a move refuses those, `Counter::Unmovable`.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Staying([usize; Why::COUNTERS.len()]);

impl Staying {
    fn all(&self) -> usize {
        self.0.iter().sum()
    }

    /// `own`: not the program's, though nothing else says so.
    fn look(vmas: &mut Vmas, pagemap: Pagemap, own: &Range<usize>) -> Result<Self, Errno> {
        let mut staying = Self::default();
        let mut budget = LOOK_BYTES;
        vmas.left_alone(|range, why| {
            if own.contains(&range.start) {
                return;
            }
            let part = range.start
                ..range
                    .end
                    .min(range.start.saturating_add(budget.min(MAPPING_BYTES)));
            budget -= part.len();
            staying.0[why as usize] += present(pagemap, part);
        })?;
        Ok(staying)
    }
}

/// Present pages of a range.
fn present(pagemap: Pagemap, range: Range<usize>) -> usize {
    let mut runs = [PresentRun::default(); 64];
    let (mut at, mut pages) = (range.start, 0);
    while at < range.end {
        let end = range.end.min(at.saturating_add(CALL_BYTES));
        let Ok((count, reached)) = pagemap.present(at, end, &mut runs) else {
            return pages;
        };
        let found = runs[..count].iter();
        pages += found
            .map(|run| (run.end() - run.start()) / PAGE_SIZE)
            .sum::<usize>();
        if reached <= at {
            return pages;
        }
        at = reached;
    }
    pages
}

impl Upkeep {
    /// Counts what cannot leave if `usage`, in pages, is above `high` and a look is due; what
    /// is told is of the look that found most. The control thread's.
    pub(crate) fn count_what_stays(&self, hand: &mut ClockHand, usage: usize) {
        let begin = now_ns(Clock::Monotonic);
        if !self.scope.is_whole()
            || usage <= self.watermarks().high
            || begin < self.stays_count_ns.load(Ordering::Relaxed)
        {
            return;
        }
        let found = Staying::look(&mut hand.vmas, self.fds.pagemap(), &self.range_of_holds());
        let end = now_ns(Clock::Monotonic);
        let wait = LOOK_NS.max((end - begin).saturating_mul(LOOK_SHARE));
        self.stays_count_ns.store(end + wait, Ordering::Relaxed);
        let Ok(found) = found else { return };
        let stats = self.stats();
        let told = Why::COUNTERS.map(|(_, which)| stats.counter(which).load(Ordering::Relaxed));
        if (found.all() * PAGE_SIZE) as u64 > told.iter().sum::<u64>() {
            stats.update(|| {
                for (why, which) in Why::COUNTERS {
                    stats.set(which, (found.0[why as usize] * PAGE_SIZE) as u64);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_fake_kernel::program;

    #[test]
    fn present_pages_are_counted() {
        let range = program::map(200);
        let there = range.start..range.start + 150 * PAGE_SIZE;
        for page in there.step_by(PAGE_SIZE).filter(|page| page % 3 != 0) {
            program::read(page).expect("memory of the kernel's");
        }
        let pagemap = Pagemap::open().expect("a page map");
        assert_eq!(present(pagemap, range), 100);
    }
}
