//! Ranges that the program has discarded, and whose pages are still present: about to go.

use crate::page::Vpn;
use alloc::collections::VecDeque;
use core::ops::Range;

/// Discarded ranges remembered until their pages have vanished.
const VANISHING: usize = 32;

/// Discarded ranges of which pages were present when that was read, and are `Gone` since;
/// oldest first. The program may never touch them again: their words are looked at
/// once more when the range leaves this queue.
pub(crate) struct Vanishing(VecDeque<Range<Vpn>>);

impl Vanishing {
    pub(crate) fn new() -> Self {
        Self(VecDeque::with_capacity(VANISHING))
    }

    /// Adds a range; the one that has to leave for it.
    pub(crate) fn push(&mut self, range: Range<Vpn>) -> Option<Range<Vpn>> {
        if self.0.contains(&range) {
            return None;
        }
        let oldest = (self.0.len() == VANISHING).then(|| self.0.pop_front());
        self.0.push_back(range);
        oldest.flatten()
    }
}
