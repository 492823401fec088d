//! One huge page kept ready, so that a huge page that was stored can come
//! back as one.
//!
//! Free frames are rarely contiguous and never one huge page for long. So a
//! sequential reader that comes to a huge page asks (*wants*) for a fresh one;
//! the control thread has the kernel fault one in, in the nursery, and moves
//! it into the arena. It costs 2 MiB of the system's memory, for which as many
//! free frames are given back when usage is near `high`.

use crate::manager::Manager;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use zfolio_mm::{Order, Pfn};
use zfolio_sys::arena::{discard, make_own, prefer_huge_pages};

/// Wishes ignored after the kernel had no huge page to give.
const PATIENCE: u32 = 64;

/// The huge page that is ready, or the wish for one.
pub(crate) struct HugeFrames {
    /// 2 MiB of addresses that are not registered.
    nursery: usize,
    /// Slot of the one that is ready, plus one; 0: none.
    ready: AtomicU32,
    wanted: AtomicBool,
    /// Wishes still to ignore.
    refused: AtomicU32,
}

impl HugeFrames {
    pub(crate) fn new(nursery: usize) -> Self {
        prefer_huge_pages(nursery, Order::HUGE.bytes());
        Self {
            nursery,
            ready: AtomicU32::new(0),
            wanted: AtomicBool::new(false),
            refused: AtomicU32::new(0),
        }
    }

    /// The one that is ready.
    pub(crate) fn take(&self) -> Option<Pfn> {
        self.ready.swap(0, Ordering::AcqRel).checked_sub(1).map(Pfn)
    }

    /// Whether one is ready; if not it is wished for.
    pub(crate) fn is_ready(&self) -> bool {
        let ready = self.ready.load(Ordering::Acquire) != 0;
        if !ready {
            self.wanted.store(true, Ordering::Relaxed);
        }
        ready
    }

    /// Whether one should be made now.
    fn is_missed(&self) -> bool {
        let missed =
            self.wanted.swap(false, Ordering::Relaxed) && self.ready.load(Ordering::Acquire) == 0;
        if !missed {
            return false;
        }
        let refused = self.refused.load(Ordering::Relaxed);
        self.refused
            .store(refused.saturating_sub(1), Ordering::Relaxed);
        refused == 0
    }
}

impl Manager {
    /// Makes a huge page ready if one was missed. The control thread's.
    pub(crate) fn make_huge_frame(&self) {
        if !self.huge_frames.is_missed() {
            return;
        }
        let pages = Order::HUGE.pages();
        if self.usage() + pages >= self.watermarks.huge_limit {
            if self.arena().free_frames() < pages + self.watermarks.free_reserve {
                return;
            }
            self.arena().release(pages);
        }
        match self.fresh_huge_page() {
            Some(at) => self.huge_frames.ready.store(at.0 + 1, Ordering::Release),
            None => self.huge_frames.refused.store(PATIENCE, Ordering::Relaxed),
        }
    }

    fn fresh_huge_page(&self) -> Option<Pfn> {
        let (nursery, bytes) = (self.huge_frames.nursery, Order::HUGE.bytes());
        make_own(nursery, bytes);
        let at = self
            .is_huge(nursery)
            .then(|| self.arena().adopt_huge_page(nursery))
            .flatten();
        if at.is_none() {
            let _ = discard(nursery, bytes);
        }
        at
    }

    /// Usage is above the limit: what is ready is as good as free.
    pub(crate) fn give_up_huge_frame(&self) {
        if let Some(at) = self.huge_frames.take() {
            self.arena().give_frames(at, Order::HUGE.pages());
        }
    }
}
