//! What of the program's memory cannot leave, and why: counted while usage is above
//! `high`, for whoever asks why it was not kept.
//!
//! Read from the list of mappings and the page table, never noted by faults or
//! reclaim. A look takes as long as both are large, so there are few.

use crate::segment::Staying;
use crate::swapout::hand::ClockHand;
use crate::upkeep::Upkeep;
use zfolio_sys::thread::{Clock, now_ns};

impl Upkeep {
    /// Counts what cannot leave if `usage`, in pages, is above `high` and a look is due; what
    /// is told is of the look that found most. The control thread's.
    pub(crate) fn count_what_stays(&self, hand: &mut ClockHand, usage: usize) {
        let begun = now_ns(Clock::Monotonic);
        if !self.scope.is_whole()
            || usage <= self.watermarks().high
            || !self.looks_at_what_stays.begins(begun)
        {
            return;
        }
        let (mut found, pagemap) = (Staying::default(), self.fds.pagemap());
        // (Not the program's, though nothing else says so.)
        let own = self.range_of_holds();
        let read = hand.vmas.left_alone(|range, why| {
            if !own.contains(&range.start) {
                found.look(pagemap, range, why);
            }
        });
        self.looks_at_what_stays
            .ends(begun, now_ns(Clock::Monotonic));
        if read.is_ok() {
            found.tell(self.stats());
        }
    }
}
