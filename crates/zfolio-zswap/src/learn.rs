//! Dictionaries for the second tier: when one is made, and when it goes.
//!
//! ```text
//! pages of the tier -> sample -> train -> judge -> install: all is tried once more
//!                        ^                  | does not pay
//!                        +------ rest ------+
//! ```
//!
//! All of it is done by who recompresses, in steps of some 100 us: pages are looked at
//! when the tier has decompressed them anyway; training and judging take no lock. One is
//! made when the pool holds enough for it to pay for its own memory, and only while
//! none is current: what pays stays, what does not any more is retired by its trials
//! (`zfolio_compress::dictionary`), and so is one for which too little is left.
//!
//! A version that is not current goes with its last unit. Those that few units need are
//! *drained*: the units are compressed again without it, and may become longer.
//!
//! Who names a version is told by the entry, not by the arena: counts are exact whatever
//! is overwritten. They change under the pool lock, with the entry. A version is needed
//! besides by objects on their way through a step, and by loads from the backing, whose
//! entries may go meanwhile; a load from the pool pins the object, and its entry stays.

use crate::arena::Arena;
use crate::context::room;
use crate::entry::Held;
use crate::stats::{add, sub};
use crate::tier::TierContext;
use crate::zswap::{Pool, Zswap};
use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use zfolio_compress::dictionary::train::{MAX_DICTIONARY, SAMPLE_PAGES, Trainer};
use zfolio_compress::dictionary::{Candidate, Dictionaries, VERSIONS, version_of};

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
/// Pages judged in a step.
const JUDGED: usize = 4;

/// What who recompresses remembers of it.
pub(crate) struct Learner {
    learning: Learning,
    state: State,
    /// Rounds of rest after the next failure.
    rest: u32,
    /// Versions that are drained, a bit for each.
    draining: u16,
    /// Retired dictionaries that were counted.
    retired: u64,
    /// The hand has been round since the sample was begun.
    ended: bool,
}

enum State {
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
    fn has_sample(&self, trainer: &Trainer) -> bool {
        trainer.is_ready() && (self.ended || trainer.shown() >= self.learning.shown)
    }

    /// It came to nothing: units are made then, of what was tried meanwhile as well.
    fn fail(&mut self) -> State {
        let rounds = self.rest;
        self.rest = (rounds * 2).min(LONGEST_REST);
        State::Resting(rounds)
    }

    /// Begins a sample if it is time for one.
    fn begin(&mut self, dictionaries: &Dictionaries, bytes: u64) {
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

impl<A: Arena> Zswap<A> {
    /// Whether [`Self::dictionary_step`] has anything to do now.
    pub fn makes_dictionary(&self, context: &TierContext) -> bool {
        match &context.learner.state {
            State::Training(..) | State::Judging(..) => true,
            State::Sampling(trainer) => context.learner.has_sample(trainer),
            State::Resting(_) => false,
        }
    }

    /// A step of making a dictionary, if one is being made: some 100 us; whether there was
    /// anything to do. Makes allocations.
    pub fn dictionary_step(&self, context: &mut TierContext) -> bool {
        let Some(dictionaries) = &self.dictionaries else {
            return false;
        };
        let learner = &mut context.learner;
        learner.state = match core::mem::replace(&mut learner.state, State::Resting(0)) {
            State::Sampling(trainer) if learner.has_sample(&trainer) => {
                match room(MAX_DICTIONARY) {
                    Ok(content) => State::Training(trainer, content),
                    Err(_) => learner.fail(),
                }
            }
            State::Training(mut trainer, mut content) => match trainer.train_step(&mut content) {
                None => State::Training(trainer, content),
                Some(len) => {
                    add(&self.stats.dictionary_trainings, 1);
                    match dictionaries.candidate(&content[..len]) {
                        Ok(candidate) if len > 0 => State::Judging(trainer, candidate, 0),
                        _ => learner.fail(),
                    }
                }
            },
            State::Judging(trainer, mut candidate, done) => {
                let pages = trainer.held_out().skip(done).take(JUDGED);
                let judged = pages.filter(|page| candidate.judge(page).is_ok()).count();
                if judged == JUDGED {
                    State::Judging(trainer, candidate, done + JUDGED)
                } else if let Ok(version) = dictionaries.install(candidate) {
                    learner.draining &= !(1 << version);
                    add(&self.stats.dictionary_installed, 1);
                    self.note_dictionaries(dictionaries);
                    // Those made with another one as well.
                    self.pool.lock().entries.renew(u16::MAX);
                    learner.rest = learner.learning.rest;
                    State::Resting(learner.rest)
                } else {
                    learner.fail()
                }
            }
            idle @ (State::Resting(_) | State::Sampling(_)) => {
                learner.state = idle;
                return false;
            }
        };
        if matches!(learner.state, State::Resting(_)) && learner.learning.units {
            // (Those of this round without one.)
            self.pool.lock().entries.renew(1);
        }
        true
    }

    /// After a step of the tier: counts what was found out, and where the hand has been
    /// round looks which dictionaries are still needed.
    pub(crate) fn note_learned(&self, learner: &mut Learner, ended: bool) {
        let Some(dictionaries) = &self.dictionaries else {
            return;
        };
        add(
            &self.stats.dictionary_saved_bytes,
            dictionaries.take_saved(),
        );
        if !ended {
            return;
        }
        let bytes = self.stats.compressed_bytes.load(Relaxed);
        if bytes < learner.learning.least_bytes / 4 {
            dictionaries.retire_current();
        }
        let retired = dictionaries.retired();
        add(&self.stats.dictionary_retired, retired - learner.retired);
        learner.retired = retired;
        if dictionaries.collect() > 0 {
            self.note_dictionaries(dictionaries);
        }
        let current = dictionaries.current();
        let few = (1_u8..).take(VERSIONS).filter(|version| {
            let units = dictionaries.units(*version);
            units.is_some_and(|units| units < learner.learning.few) && current != (*version).into()
        });
        let draining = few.fold(0, |all, version| all | 1 << version);
        let more = draining & !learner.draining;
        if more != 0 {
            self.pool.lock().entries.renew(more);
        }
        learner.draining = draining;
        learner.begin(dictionaries, bytes);
    }

    fn note_dictionaries(&self, dictionaries: &Dictionaries) {
        let bytes = dictionaries.bytes() as u64;
        self.stats.dictionary_bytes.store(bytes, Relaxed);
    }

    /// The version that a unit says it was made with; 0: none.
    pub(crate) fn version_of(&self, unit: &[u8]) -> u8 {
        self.dictionaries.as_ref().map_or(0, |_| version_of(unit))
    }

    /// An entry names a version from now on that a unit under way was made with.
    pub(crate) fn keep_version(&self, version: u8) {
        if let Some(dictionaries) = self.of_version(version) {
            dictionaries.keep(version);
            add(&self.stats.dictionary_units, 1);
        }
    }

    /// An entry does not name a version any more.
    pub(crate) fn release_version(&self, version: u8) {
        if let Some(dictionaries) = self.of_version(version) {
            dictionaries.release(version);
            sub(&self.stats.dictionary_units, 1);
        }
    }

    /// What names a version is about to be read, and may be dropped meanwhile.
    pub(crate) fn hold_version(&self, version: u8) {
        if let Some(dictionaries) = self.of_version(version) {
            dictionaries.hold(version);
        }
    }

    /// A unit was not kept, or what was held has been read.
    pub(crate) fn let_go_version(&self, version: u8) {
        if let Some(dictionaries) = self.of_version(version) {
            dictionaries.let_go(version);
        }
    }

    /// In the child of a fork: what its own entries name, and nothing under way.
    pub(crate) fn restart_versions(&self, pool: &Pool) {
        let Some(dictionaries) = &self.dictionaries else {
            return;
        };
        let mut kept = [0; VERSIONS];
        for held in pool.entries.iter() {
            if let Some(units) = version_in(&held).and_then(|at| kept.get_mut(at)) {
                *units += 1;
            }
        }
        for (_, unit) in pool.units.iter() {
            let version = usize::from(unit.object.version);
            if let Some(units) = version.checked_sub(1).and_then(|at| kept.get_mut(at)) {
                *units += 1;
            }
        }
        dictionaries.reset_in_fork_child(kept);
        let units = kept.iter().sum();
        self.stats.dictionary_units.store(units, Relaxed);
    }

    fn of_version(&self, version: u8) -> Option<&Dictionaries> {
        self.dictionaries.as_deref().filter(|_| version != 0)
    }
}

/// The place, counted from 0, of the dictionary that something was made with.
pub(crate) fn version_in(held: &Held) -> Option<usize> {
    let version = match held {
        Held::Object(object) => object.version,
        Held::Backed(record) => record.version,
        Held::Same(_) | Held::Member(_) | Held::Lost => 0,
    };
    usize::from(version).checked_sub(1)
}

impl fmt::Debug for Learner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Learner")
            .field("learning", &self.learning)
            .finish_non_exhaustive()
    }
}
