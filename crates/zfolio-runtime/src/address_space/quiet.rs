//! Words that a thread which waits for a moment without an event in flight shares with the thread
//! that makes one.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use zfolio_mm::PAGE_SIZE;

/// Pages gone over in a hold at most.
pub(crate) const MOST: usize = (64 << 20) / PAGE_SIZE;

/// What whoever waits for a quiet moment and whoever makes it share.
#[derive(Default)]
pub(crate) struct Quiet {
    /// Until when it is `active`, monotonic ns.
    pub(crate) until_ns: AtomicU64,
    /// Quiet moments are rare: it is looked for one before anything is done that would fail
    /// without, and asked for at once.
    pub(crate) active: AtomicBool,
    /// The address space can be held.
    pub(crate) works: AtomicBool,
    /// A hold is under way, or begins.
    pub(crate) held: AtomicBool,
    /// Times that somebody found a quiet moment while it was active.
    pub(crate) found: AtomicU32,
    /// The thread that last waited for itself: it will again, page after page.
    pub(crate) freed: AtomicU32,
    /// The page that it waited for; 0: it is registered again.
    pub(crate) left: AtomicUsize,
    /// When a thread is asked next, monotonic ns.
    pub(crate) next_ns: AtomicU64,
    /// Where the range lies that the address space is held with; 0: there is none yet.
    pub(crate) range: AtomicUsize,
    /// 1 while somebody waits for a hold; the thread that holds sleeps on it.
    pub(crate) asked: AtomicU32,
}

impl Quiet {
    /// In the child of a fork: nobody has asked, nobody holds.
    pub(crate) fn restart(&self) {
        self.until_ns.store(0, Ordering::Relaxed);
        self.active.store(false, Ordering::Relaxed);
        self.works.store(false, Ordering::Relaxed);
        self.held.store(false, Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
        self.range.store(0, Ordering::Relaxed);
        self.freed.store(0, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
    }

    /// Where the range lies that the address space is held with. (Nothing but the zero page
    /// is there, and no list of what is ours has it.)
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.range.load(Ordering::Relaxed);
        start..start + MOST * PAGE_SIZE
    }
}
