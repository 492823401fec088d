//! A reserve of one huge page, so that a huge page that was stored can come back as one.
//!
//! Free frames are rarely contiguous and never one huge page for long. The reserve is filled when a
//! sequential reader of huge pages has asked for it (a *wish*): from the frame of a huge page that was
//! just stored, or by the kernel, which is made to fault a new one in at addresses of ours (the
//! *nursery*) from where it is moved into the arena. Taking the reserve requests a refill.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use zfolio_mm::{Order, Pfn};
use zfolio_sys::arena::prefer_huge_pages;

/// Turns of reclaim without another try after the kernel had no huge page.
const TURNS_BEFORE_ASKING_AGAIN: u32 = 1024;
/// Turns of reclaim above the limit after which one that nobody took is free.
const UNUSED: u32 = 16;

/// The huge page that is ready, or the wish for one.
pub(crate) struct HugeFrames {
    /// 2 MiB of addresses that are not registered.
    nursery: usize,
    /// Slot of the one that is ready, plus one; 0: none.
    ready: AtomicU32,
    wanted: AtomicBool,
    /// Turns until the kernel is asked again.
    refused: AtomicU32,
    /// Turns above the limit since one was made ready or taken.
    unused: AtomicU32,
}

impl HugeFrames {
    pub(crate) fn new(nursery: usize) -> Self {
        prefer_huge_pages(nursery, Order::HUGE.bytes());
        Self {
            nursery,
            ready: AtomicU32::new(0),
            wanted: AtomicBool::new(false),
            refused: AtomicU32::new(0),
            unused: AtomicU32::new(0),
        }
    }

    /// The one that is ready, which is a wish for the next.
    pub(crate) fn take(&self) -> Option<Pfn> {
        self.wanted.store(true, Ordering::Relaxed);
        self.remove()
    }

    fn remove(&self) -> Option<Pfn> {
        let ready = self.ready.swap(0, Ordering::AcqRel);
        ready.checked_sub(1).map(Pfn)
    }

    /// Whether one is ready; if not it is wished for.
    pub(crate) fn is_ready(&self) -> bool {
        let ready = self.ready.load(Ordering::Acquire) != 0;
        if !ready {
            self.wanted.store(true, Ordering::Relaxed);
        }
        ready
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) && self.ready.load(Ordering::Acquire) == 0
    }

    /// Makes `at` the one that is ready; false if there is one.
    pub(crate) fn fulfil(&self, at: Pfn) -> bool {
        let done = self
            .ready
            .compare_exchange(0, at.0 + 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if done {
            self.wanted.store(false, Ordering::Relaxed);
            self.unused.store(0, Ordering::Relaxed);
        }
        done
    }

    /// Whether the kernel may be asked for one now.
    pub(crate) fn may_ask(&self) -> bool {
        let wait = self.refused.load(Ordering::Relaxed);
        self.refused
            .store(wait.saturating_sub(1), Ordering::Relaxed);
        wait == 0
    }

    /// The kernel had none.
    pub(crate) fn was_refused(&self) {
        self.refused
            .store(TURNS_BEFORE_ASKING_AGAIN, Ordering::Relaxed);
    }

    /// A turn above the limit: the one that nobody has taken for long, and the wish with it.
    pub(crate) fn give_up(&self) -> Option<Pfn> {
        if self.unused.fetch_add(1, Ordering::Relaxed) < UNUSED {
            return None;
        }
        self.wanted.store(false, Ordering::Relaxed);
        self.remove()
    }

    /// 2 MiB of addresses to have the kernel make one at.
    pub(crate) fn nursery(&self) -> usize {
        self.nursery
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> HugeFrames {
        HugeFrames {
            nursery: 0,
            ready: AtomicU32::new(0),
            wanted: AtomicBool::new(false),
            refused: AtomicU32::new(0),
            unused: AtomicU32::new(0),
        }
    }

    #[test]
    fn nothing_is_kept_that_nobody_wished_for() {
        let frames = frames();
        assert!(!frames.is_wanted());
        assert!(!frames.is_ready(), "which is a wish");
        assert!(frames.is_wanted());
    }

    #[test]
    fn one_is_kept_and_taken_once() {
        let frames = frames();
        frames.is_ready();
        assert!(frames.fulfil(Pfn(0)), "slot 0 is a slot like others");
        assert!(!frames.is_wanted());
        assert!(!frames.fulfil(Pfn(512)), "one is enough");
        assert_eq!(frames.take(), Some(Pfn(0)));
        assert!(frames.is_wanted(), "the taker's wish for the next");
        assert_eq!(frames.take(), None);
    }

    #[test]
    fn the_kernel_is_not_asked_again_at_once() {
        let frames = frames();
        assert!(frames.may_ask());
        frames.refused.store(2, Ordering::Relaxed);
        assert!(!frames.may_ask());
        assert!(!frames.may_ask());
        assert!(frames.may_ask());
    }
}
