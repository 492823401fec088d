//! Where the clock hand is, and what it has found so far.

use crate::address_space::mappings::Vmas;
use crate::swapout::candidates::CandidateRuns;
use crate::swapout::present_ahead::PresentAhead;

/// The hand and what it walks over.
pub(crate) struct ClockHand {
    pub(crate) vmas: Vmas,
    /// Next address to look at.
    pub(super) at: usize,
    pub(super) present: PresentAhead,
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
            present: PresentAhead::new(),
            gathered: CandidateRuns::default(),
            since: 0,
        }
    }

    /// Pages found cold and not moved yet.
    pub(crate) fn gathered(&self) -> usize {
        self.gathered.pages()
    }

    /// Begins, or begins again after a while: what the hand saw is old.
    pub(crate) fn wake(&mut self) {
        self.present.forget();
    }

    /// Goes back to the start.
    pub(super) fn come_round(&mut self) {
        self.at = 0;
        self.present.forget();
    }

    /// Leaves what was gathered for another time.
    pub(crate) fn scatter(&mut self) {
        if self.gathered.pages() > 0 {
            self.at = self.since;
        }
        self.present.forget();
        self.gathered = CandidateRuns::default();
    }
}
