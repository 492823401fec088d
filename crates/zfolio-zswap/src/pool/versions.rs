//! Which dictionary each object was made with, and who still needs it.
//!
//! A dictionary is one of up to [`VERSIONS`]. Which version an object was made with is noted in
//! its entry, not read from its bytes in the arena: so the counts are exact even if those were
//! overwritten, and they change under the pool lock, with the entry. Two others need a version:
//! objects on their way through a step of the second tier, and loads from the backing, whose
//! entries may go meanwhile. (A load from the pool pins the object, so its entry stays.)

use crate::arena::Arena;
use crate::entry::held::Held;
use crate::pool::state::Pool;
use crate::pool::zswap::Zswap;
use crate::stats::{add, sub};
use core::sync::atomic::Ordering::Relaxed;
use zfolio_compress::dictionary::{Dictionaries, VERSIONS, version_of};

impl<A: Arena> Zswap<A> {
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
