//! When the reserve of one huge page is filled, and when it is given back.

use crate::kernel::{discard, make_own};
use crate::upkeep::Upkeep;
use zfolio_mm::{Order, Pfn};

impl Upkeep {
    /// Makes a huge page ready if one is wished for. The control thread's.
    pub(crate) fn make_huge_frame(&self, usage: usize) {
        if !self.huge_frames.is_wanted() || !self.huge_frames.may_ask() {
            return;
        }
        let pages = Order::HUGE.pages();
        if usage + pages >= self.watermarks().huge_limit + self.overdraft() {
            if self.arena().free_frames() < pages + self.watermarks().free_reserve {
                return;
            }
            self.arena().release(pages);
        }
        match self.fresh_huge_page() {
            Some(at) if self.huge_frames.fulfil(at) => {}
            Some(at) => self.arena().give_frames(at, pages),
            None => self.huge_frames.was_refused(),
        }
    }

    pub(crate) fn fresh_huge_page(&self) -> Option<Pfn> {
        let (nursery, bytes) = (self.huge_frames.nursery(), Order::HUGE.bytes());
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

    /// Usage is above the limit: what nobody takes is as good as free.
    pub(crate) fn give_up_huge_frame(&self) {
        if let Some(at) = self.huge_frames.give_up() {
            self.arena().give_frames(at, Order::HUGE.pages());
        }
    }
}
