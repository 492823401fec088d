//! Frames for a fault: free ones, or from the system.

use crate::transfer::Transfer;
use alloc::vec::Vec;
use zfolio_mm::Pfn;

impl Transfer {
    /// Frames for a fault, into `frames`: as many as asked or, when they are short, down
    /// to a quarter: free ones above the reserve; from the system while usage is below
    /// `high`; none otherwise. Returns how many.
    pub(crate) fn take_for_fault(
        &self,
        pages: usize,
        urgent: bool,
        frames: &mut Vec<Pfn>,
    ) -> usize {
        frames.clear();
        let free = self.arena().free_frames();
        let spare = free.saturating_sub(self.watermarks().free_reserve);
        if self.scope.counts_frames() {
            self.wake_control_at(self.usage() + pages);
        } else if free < pages + self.watermarks().free_low {
            self.wakeups.wake_control();
        }
        // A region's usage is no question to the system: memory comes from there
        // as long as there is some.
        let plenty = self.scope.counts_frames() && self.usage() + pages < self.watermarks().start;
        if plenty && spare < pages {
            return self.populate(pages, frames);
        }
        let grant = pages.min(spare);
        if grant >= pages.div_ceil(4) {
            let got = self.arena().take_scattered(grant, frames);
            if got > 0 {
                return got;
            }
        }
        let after = self.usage() + pages;
        let below = after < self.watermarks().limit + self.overdraft();
        if below && !self.exceeds_max(after) {
            let got = self.populate(pages, frames);
            if got > 0 {
                return got;
            }
        }
        if urgent && self.may_go_beyond(1) {
            return self.populate(1, frames);
        }
        0
    }

    /// A run of frames, from the system if there is none; how many. Fewer where the arena's
    /// addresses are cut up, or memory is short.
    fn populate(&self, pages: usize, frames: &mut Vec<Pfn>) -> usize {
        let fewer = |pages: &usize| (*pages > 1).then_some(pages / 2);
        let run = core::iter::successors(Some(pages), fewer)
            .find_map(|pages| Some((self.arena().take_or_populate(pages)?, pages)));
        let slots = run
            .iter()
            .flat_map(|(at, pages)| (0..*pages).map(|slot| at.offset(slot)));
        frames.extend(slots);
        frames.len()
    }
}
