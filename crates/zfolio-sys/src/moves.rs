//! Moving pages between addresses, and what a move really moved.
//!
//! What `UFFDIO_MOVE` reports when it stops is not the truth. With Linux 6.18
//! a move that meets another move out of the same huge folio may move its
//! pages and report EEXIST, with nothing done (`tests/moves.rs` shows it). So
//! whenever a move stops, the page table is asked about the side that nobody
//! else can change: pages gone from there, or come there, have been moved.

use crate::procfs::PagemapOf;
use crate::syscall::{Errno, Kernel, Linux};
use crate::uffd::{Progress, UffdOf};
use core::ops::Range;

/// A descriptor that pages are moved with, and the page table to ask.
#[derive(Clone, Copy, Debug)]
pub struct MovesOf<K> {
    /// The target's descriptor.
    pub uffd: UffdOf<K>,
    /// This process's page map.
    pub pagemap: PagemapOf<K>,
}

/// Those of the kernel that this process runs on.
pub type Moves = MovesOf<Linux>;

impl<K: Kernel> MovesOf<K> {
    /// Moves `len` bytes of pages that the caller holds: present, and out of
    /// everybody else's reach. Waiters at `to` are woken.
    ///
    /// # Panics
    /// When the page table cannot be read.
    #[must_use]
    pub fn out_of_held(self, to: usize, from: usize, len: usize) -> Progress {
        self.checked(to, from, len, |done| {
            self.occupied_from(from + done, from + len)
                .map_or(len, |occupied| occupied.start - from)
        })
    }

    /// Moves `len` bytes of pages that others may touch or discard meanwhile
    /// to where the caller holds `len` bytes of nothing.
    ///
    /// # Panics
    /// When the page table cannot be read.
    #[must_use]
    pub fn into_held(self, to: usize, from: usize, len: usize) -> Progress {
        self.checked(to, from, len, |done| {
            self.occupied_from(to + done, to + len)
                .filter(|occupied| occupied.start == to + done)
                .map_or(done, |occupied| occupied.end - to)
        })
    }

    /// Moves, and when that stops has `really` say how much is done.
    fn checked(
        self,
        to: usize,
        from: usize,
        len: usize,
        really: impl FnOnce(usize) -> usize,
    ) -> Progress {
        let progress = self.uffd.move_pages(to, from, len);
        if progress.stopped.is_none() {
            return progress;
        }
        let done = really(progress.done);
        if done == progress.done {
            return progress;
        }
        // The kernel wakes only for what it reports, and its reason was about
        // a page that it moved.
        self.uffd.wake(to + progress.done, done - progress.done);
        Progress {
            done,
            stopped: (done < len).then_some(Errno::AGAIN),
        }
    }

    /// The first run of occupied pages in `start .. end`.
    fn occupied_from(self, start: usize, end: usize) -> Option<Range<usize>> {
        let mut run = [Default::default()];
        let found = self.pagemap.occupied(start, end, &mut run);
        let (count, _) = found.expect("the page table can be read");
        (count > 0).then(|| run[0].start()..run[0].end())
    }
}
