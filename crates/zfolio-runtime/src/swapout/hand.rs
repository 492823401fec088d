//! Where the clock hand is, and what it has found so far.

use crate::address_space::mappings::Vmas;
use crate::page::EXTENT_PAGES;
use crate::swapout::candidates::CandidateRuns;
use zfolio_sys::procfs::PresentRun;

/// The hand and what it walks over.
pub(crate) struct ClockHand {
    pub(crate) vmas: Vmas,
    /// Next address to look at.
    pub(super) at: usize,
    pub(super) runs: alloc::vec::Vec<PresentRun>,
    /// What the hand found cold and has not moved yet, small folios all.
    pub(super) gathered: CandidateRuns,
    /// Where the hand was when it found the first of them.
    pub(super) since: usize,
}

impl ClockHand {
    pub(crate) fn new(vmas: Vmas) -> Self {
        Self {
            vmas,
            at: 0,
            runs: alloc::vec![PresentRun::default(); EXTENT_PAGES],
            gathered: CandidateRuns::default(),
            since: 0,
        }
    }

    /// Pages found cold and not moved yet.
    pub(crate) fn gathered(&self) -> usize {
        self.gathered.pages()
    }

    /// Leaves what was gathered for another time.
    pub(crate) fn scatter(&mut self) {
        if self.gathered.pages() > 0 {
            self.at = self.since;
        }
        self.gathered = CandidateRuns::default();
    }
}
