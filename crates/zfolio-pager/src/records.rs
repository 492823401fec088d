//! Which values there are: by member, number and where the copies are.
//!
//! In this process's memory (some 30 bytes a value), from what it has put itself; a pager that
//! takes over from one that ended reads the keys of the run from the store.

use crate::key::Salts;
use std::collections::BTreeMap;
use std::sync::Mutex;
use zfolio_sys::exchange::MEMBERS;

/// All members' values.
pub(crate) struct Records(Vec<Mutex<BTreeMap<u64, Salts>>>);

impl Records {
    pub(crate) fn new() -> Self {
        Self((0..MEMBERS).map(|_| Mutex::default()).collect())
    }

    fn of<R>(&self, member: usize, with: impl FnOnce(&mut BTreeMap<u64, Salts>) -> R) -> R {
        let mut values = self.0[member]
            .lock()
            .unwrap_or_else(|held| held.into_inner());
        with(&mut values)
    }

    pub(crate) fn put(&self, member: usize, id: u64, salts: Salts) {
        self.of(member, |values| values.insert(id, salts));
    }

    pub(crate) fn forget(&self, member: usize, id: u64) {
        self.of(member, |values| values.remove(&id));
    }

    /// Forgets a value if these are its copies.
    pub(crate) fn forget_these(&self, member: usize, id: u64, salts: Salts) {
        self.of(member, |values| {
            if values.get(&id) == Some(&salts) {
                values.remove(&id);
            }
        });
    }

    /// Adds a copy that was found in the store.
    pub(crate) fn found(&self, member: usize, id: u64, salt: u8) {
        self.of(member, |values| {
            let known = values.entry(id).or_default();
            let mut all: Vec<u8> = known.each().collect();
            if !all.contains(&salt) {
                all.push(salt);
                *known = Salts::of(&all);
            }
        });
    }

    /// Up to `most` values of a member from number `from` on.
    pub(crate) fn some(&self, member: usize, from: u64, most: usize) -> Vec<(u64, Salts)> {
        self.of(member, |values| {
            let range = values.range(from..).take(most);
            range.map(|(id, salts)| (*id, *salts)).collect()
        })
    }
}
