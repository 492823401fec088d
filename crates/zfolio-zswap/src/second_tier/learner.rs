//! What the thread that recompresses remembers about making dictionaries.

use alloc::boxed::Box;
use core::fmt;
use zfolio_compress::dictionary::train::{SAMPLE_PAGES, Trainer};
use zfolio_compress::dictionary::{Candidate, Dictionaries};

/// When dictionaries are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learning {
    /// Pages of a sample, of which a dictionary is made.
    pub sample: usize,
    /// Pages that are looked at for it, where a round of the hand has as many.
    pub shown: u64,
    /// Compressed bytes in the pool below which none is made; below a quarter of them
    /// none is kept.
    pub least_bytes: u64,
    /// Fewer units than this are compressed again to be rid of a version.
    pub few: u64,
    /// Rounds of rest after one that did not pay, twice as many after the next.
    pub rest: u32,
    /// Units of several pages are made as well, while no dictionary is.
    pub units: bool,
}

impl Default for Learning {
    /// Of 16 MiB the least gain is twice what a dictionary takes.
    fn default() -> Self {
        Self {
            sample: SAMPLE_PAGES,
            shown: 4096,
            least_bytes: 16 << 20,
            few: 2048,
            rest: 8,
            units: true,
        }
    }
}

/// Most rounds of rest.
const LONGEST_REST: u32 = 1024;
/// What who recompresses remembers of it.
pub(crate) struct Learner {
    pub(super) learning: Learning,
    pub(super) state: State,
    /// Rounds of rest after the next failure.
    pub(super) rest: u32,
    /// Versions that are drained, a bit for each.
    pub(super) draining: u16,
    /// Retired dictionaries that were counted.
    pub(super) retired: u64,
    /// The hand has been round since the sample was begun.
    ended: bool,
}

pub(super) enum State {
    /// For so many rounds, and until there is enough in the pool.
    Resting(u32),
    Sampling(Trainer),
    Training(Trainer, Box<[u8]>),
    /// How many pages were tried.
    Judging(Trainer, Candidate, usize),
}

impl Learner {
    pub(crate) fn new(learning: Learning, dictionaries: Option<&Dictionaries>) -> Self {
        Self {
            learning,
            state: State::Resting(0),
            rest: learning.rest,
            draining: 0,
            retired: dictionaries.map_or(0, Dictionaries::retired),
            ended: false,
        }
    }

    /// Shows a page.
    pub(crate) fn show(&mut self, page: &[u8]) {
        if let State::Sampling(trainer) = &mut self.state {
            trainer.show(page);
        }
    }

    /// Whether units are made now: what a dictionary gains shall be theirs as well.
    pub(crate) fn makes_units(&self) -> bool {
        self.learning.units && matches!(self.state, State::Resting(_))
    }

    /// Versions to be rid of, a bit for each.
    pub(crate) fn draining(&self) -> u16 {
        self.draining
    }

    /// Whether there is a sample of enough pages, or of all that there are.
    pub(super) fn has_sample(&self, trainer: &Trainer) -> bool {
        trainer.is_ready() && (self.ended || trainer.shown() >= self.learning.shown)
    }

    /// It came to nothing: units are made then, of what was tried meanwhile as well.
    pub(super) fn fail(&mut self) -> State {
        let rounds = self.rest;
        self.rest = (rounds * 2).min(LONGEST_REST);
        State::Resting(rounds)
    }

    /// Begins a sample if it is time for one.
    pub(super) fn begin(&mut self, dictionaries: &Dictionaries, bytes: u64) {
        match &mut self.state {
            State::Resting(0) => {}
            State::Resting(rounds) => {
                *rounds -= 1;
                return;
            }
            State::Sampling(_) | State::Training(..) | State::Judging(..) => {
                self.ended = true;
                return;
            }
        }
        let wanted = dictionaries.current() == 0 && dictionaries.has_place();
        if wanted && bytes >= self.learning.least_bytes.max(1) {
            self.ended = false;
            self.state = match Trainer::with_pages(bytes, self.learning.sample) {
                Ok(trainer) => State::Sampling(trainer),
                Err(_) => self.fail(),
            };
        }
    }
}

impl fmt::Debug for Learner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Learner")
            .field("learning", &self.learning)
            .finish_non_exhaustive()
    }
}
