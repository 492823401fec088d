//! Moving pages into the program.

use crate::page::{Vpn, address_of};
use crate::transfer::Transfer;
use zfolio_mm::{PAGE_SHIFT, PAGE_SIZE, Pfn};
use zfolio_sys::procfs::PresentRun;
use zfolio_sys::syscall::Errno;

/// Most pages of a run that are copied in; more are moved by one call.
pub(crate) const COPIED: usize = 2;

/// The same where the run is a part of a larger load, whose window pages that are present already
/// cut into such runs.
pub(crate) const COPIED_RUN: usize = 16;

/// What became of one page that was to be moved in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placed {
    /// It is with the program; its slot is a hole now.
    Moved,
    /// It was copied instead; its frame stays ours.
    Copied,
    /// The program has a page there already, which is the newer one; the
    /// frame stays ours.
    AlreadyThere,
    /// Not now (an event is in flight) or not there (nothing is mapped); the
    /// frame stays ours.
    Refused(Errno),
}

impl Transfer {
    /// Moves slots `at ..` to pages `vpn ..`, and says page by page what
    /// happened. Waiters are woken wherever a page is in place afterwards.
    ///
    /// The first `copies` pages are copied where they cannot be moved; the first behind them that
    /// cannot be moved is refused, with all that follow. A copy goes over a guard of the program's
    /// (MADV_GUARD_INSTALL), which a move respects. So it is for pages that somebody waits for, or
    /// whose bytes are with us: there is no guard on those.
    ///
    /// The core lock must be held: see [`Core`](crate::address_space::core::Core).
    pub(crate) fn move_in(
        &self,
        vpn: Vpn,
        at: Pfn,
        pages: usize,
        copies: usize,
        mut each: impl FnMut(usize, Placed),
    ) {
        let moves = self.fds.moves();
        let mut next = 0;
        // After EINVAL for a run (it crosses mappings): page by page.
        let mut singly = false;
        while next < pages {
            let want = if singly { 1 } else { pages - next };
            let (to, from) = (address_of(vpn + next), self.address(at.offset(next)));
            let progress = moves.out_of_held(to, from, want * PAGE_SIZE);
            let moved = progress.done >> PAGE_SHIFT;
            (next..next + moved).for_each(|index| each(index, Placed::Moved));
            next += moved;
            let Some(errno) = progress.stopped else {
                continue;
            };
            if moved > 0 {
                continue; // the reason comes again for the page it is about
            }
            let landed = match errno {
                Errno::AGAIN => {
                    (next..pages).for_each(|index| each(index, Placed::Refused(errno)));
                    return;
                }
                Errno::EXIST => self.there_already(vpn + next),
                Errno::INVAL if want > 1 => {
                    singly = true;
                    continue;
                }
                Errno::BUSY | Errno::INVAL if next >= copies => {
                    (next..pages).for_each(|index| each(index, Placed::Refused(errno)));
                    return;
                }
                // Shared with a child of a fork, or other access bits now.
                Errno::BUSY | Errno::INVAL => self.copy_in(vpn + next, from),
                other => Placed::Refused(other),
            };
            each(next, landed);
            next += 1;
        }
    }

    /// As [`Self::move_in`], but `few` pages, and fewer, are copied. The
    /// system is owed a frame for each that was.
    pub(crate) fn move_or_copy_in(
        &self,
        vpn: Vpn,
        at: Pfn,
        pages: usize,
        few: usize,
        mut each: impl FnMut(usize, Placed),
    ) {
        if pages > few || !self.may_take_of_the_system(pages) {
            return self.move_in(vpn, at, pages, pages, each);
        }
        let run = self.copy_run_in(vpn, self.address(at), pages);
        (0..run).for_each(|index| each(index, Placed::Copied));
        let mut copied = run;
        for index in run..pages {
            let landed = self.copy_in(vpn + index, self.address(at.offset(index)));
            copied += usize::from(landed == Placed::Copied);
            each(index, landed);
        }
        self.borrow_frames(copied);
    }

    /// The kernel says that something is at `vpn` already. Its word is taken
    /// only if the page table says so too (see `zfolio_sys::moves`): else the
    /// page would be lost.
    fn there_already(&self, vpn: Vpn) -> Placed {
        let (start, mut run) = (address_of(vpn), [PresentRun::default()]);
        let found = self
            .fds
            .pagemap()
            .occupied(start, start + PAGE_SIZE, &mut run);
        if !matches!(found, Ok((1, _))) {
            return Placed::Refused(Errno::AGAIN);
        }
        self.fds.program().wake(start, PAGE_SIZE);
        Placed::AlreadyThere
    }

    /// Copies pages in that lie together; how many, from the front.
    pub(crate) fn copy_run_in(&self, vpn: Vpn, from: usize, pages: usize) -> usize {
        let program = self.fds.program();
        let progress = program.copy_pages(address_of(vpn), from, pages * PAGE_SIZE);
        let done = progress.done >> PAGE_SHIFT;
        self.charge(done);
        done
    }

    /// Copies one page in where it cannot be moved.
    pub(crate) fn copy_in(&self, vpn: Vpn, from: usize) -> Placed {
        let program = self.fds.program();
        let progress = program.copy_pages(address_of(vpn), from, PAGE_SIZE);
        match progress.stopped {
            None => {
                self.charge(1);
                Placed::Copied
            }
            Some(Errno::EXIST) => self.there_already(vpn),
            Some(errno) => Placed::Refused(errno),
        }
    }
}

#[cfg(test)]
mod tests;
