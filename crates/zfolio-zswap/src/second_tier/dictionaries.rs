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

use crate::arena::Arena;
use crate::pool::context::buffer_of;
use crate::pool::zswap::Zswap;
use crate::second_tier::context::TierContext;
use crate::second_tier::learner::{Learner, State};
use crate::stats::add;
use core::sync::atomic::Ordering::Relaxed;
use zfolio_compress::dictionary::train::MAX_DICTIONARY;
use zfolio_compress::dictionary::{Dictionaries, VERSIONS};

/// Pages judged in a step.
const JUDGED: usize = 4;

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
                match buffer_of(MAX_DICTIONARY) {
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
}
