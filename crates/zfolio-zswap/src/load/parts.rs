//! Where pages lie in the backing, for who reads them before it takes a lock.

use crate::arena::Arena;
use crate::backing::clusters::{IO, Position};
use crate::backing::encryption::TAG;
use crate::entry::held::Held;
use crate::pool::zswap::Zswap;
use crate::slot::Slot;

/// Most parts of the backing that are read at a time.
pub const MOST_PARTS: usize = 8;
/// Pages that are looked for at a time, at most.
const MOST_PAGES: usize = 64;

/// A part of the backing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
    /// Of the cluster that it lies in; each is begun under another number.
    number: u64,
}

/// Some parts of the backing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    all: [Part; MOST_PARTS],
    count: usize,
}

impl Parts {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Part> {
        self.all[..self.count].iter()
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.iter().map(|part| part.len).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a record, which lies behind all that there are; false if there is no room.
    fn add(&mut self, of: Part, is_same: bool) -> bool {
        if is_same && let Some(last) = self.all[..self.count].last_mut() {
            let len = end(&of) - last.offset;
            if let Some(len) = usize::try_from(len).ok().filter(|len| *len <= IO) {
                last.len = len;
                return true;
            }
        }
        let Some(next) = self.all.get_mut(self.count) else {
            return false;
        };
        *next = of;
        self.count += 1;
        true
    }

    fn covers(&self, of: &Part) -> bool {
        self.iter().any(|part| {
            part.number == of.number && part.offset <= of.offset && end(of) <= end(part)
        })
    }
}

const fn end(part: &Part) -> u64 {
    part.offset + part.len as u64
}

impl<A: Arena> Zswap<A> {
    /// The parts of the backing in which pages lie that are there: what lies close together is
    /// one. `None` if they are too many.
    ///
    /// # Panics
    /// With more than 64 slots.
    pub fn parts_behind(&self, slots: &[Slot]) -> Option<Parts> {
        let mut records = [None; MOST_PAGES];
        let records = &mut records[..slots.len()];
        self.records(slots, records);
        records.sort_unstable_by_key(|record| record.map(|(at, _)| at));
        let mut parts = Parts::default();
        let mut last = None;
        for (at, part) in records.iter().flatten() {
            if !parts.add(*part, last == Some(at.cluster())) {
                return None;
            }
            last = Some(at.cluster());
        }
        Some(parts)
    }

    /// Whether all pages of `slots` that are in the backing lie in `parts`, which have been read.
    ///
    /// # Panics
    /// With more than 64 slots.
    pub fn is_covered(&self, slots: &[Slot], parts: &Parts) -> bool {
        let mut records = [None; MOST_PAGES];
        let records = &mut records[..slots.len()];
        self.records(slots, records);
        let mut records = records.iter().flatten();
        records.all(|(_, part)| parts.covers(part))
    }

    /// Has what is in the backing of these pages on its way, which will be loaded next: first of
    /// `now`, then of `later`. Waits for nothing.
    ///
    /// # Panics
    /// With more than 64 slots in one of them.
    pub fn will_load(&self, now: &[Slot], later: &[Slot]) {
        if let Some(door) = self.door().filter(|door| door.backing.reads_ahead()) {
            let parts = [now, later].map(|slots| self.parts_behind(slots));
            let parts = parts.iter().flatten().flat_map(Parts::iter);
            let mut parts = parts.map(|part| (part.offset, part.len));
            door.backing.will_read(&mut parts);
        }
    }

    fn records(&self, slots: &[Slot], into: &mut [Option<(Position, Part)>]) {
        if !self.is_backed() {
            return;
        }
        let pool = self.pool.lock();
        let Some(behind) = &pool.behind else { return };
        for (slot, into) in slots.iter().zip(into) {
            if *slot == Slot::ZERO {
                continue;
            }
            if let Some(Held::Backed(record)) = pool.entries.get(*slot) {
                let part = Part {
                    offset: record.at.offset(),
                    len: usize::from(record.len) + TAG,
                    number: behind.clusters.nonce(record.at).number,
                };
                *into = Some((record.at, part));
            }
        }
    }
}
