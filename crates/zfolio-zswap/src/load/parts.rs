//! Where pages lie in a store, for who reads them before it takes a lock.

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

/// Some parts of the backing, and the records in them that were there when they were looked up. A
/// part may have gaps: what comes to lie there later has not been read with it.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    all: [Part; MOST_PARTS],
    count: usize,
    /// Where those records begin, in order.
    records: [Position; MOST_PAGES],
    records_count: usize,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            all: [Part::default(); MOST_PARTS],
            count: 0,
            records: [Position(0); MOST_PAGES],
            records_count: 0,
        }
    }
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

    /// Adds a record, which lies behind all that there are; false if there is no room. `is_same`:
    /// in the cluster that the last lies in.
    fn add(&mut self, at: Position, of: Part, is_same: bool) -> bool {
        let Some(record) = self.records.get_mut(self.records_count) else {
            return false;
        };
        *record = at;
        self.records_count += 1;
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

    fn covers(&self, at: Position, of: &Part) -> bool {
        let records = &self.records[..self.records_count];
        records.binary_search(&at).is_ok()
            && self.iter().any(|part| {
                part.number == of.number && part.offset <= of.offset && end(of) <= end(part)
            })
    }
}

const fn end(part: &Part) -> u64 {
    part.offset + part.len as u64
}

impl<A: Arena> Zswap<A> {
    /// The parts of a store in which pages lie that are there: what lies close together is
    /// one. `None` if they are too many. (What is near is read when it is loaded.)
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
            if !parts.add(*at, *part, last == Some(at.cluster())) {
                return None;
            }
            last = Some(at.cluster());
        }
        Some(parts)
    }

    /// Whether all pages of `slots` that are in a store were there when `parts`, which have
    /// been read, were looked up, and have not been written anew since.
    ///
    /// # Panics
    /// With more than 64 slots.
    pub fn is_covered(&self, slots: &[Slot], parts: &Parts) -> bool {
        let mut records = [None; MOST_PAGES];
        let records = &mut records[..slots.len()];
        self.records(slots, records);
        let mut records = records.iter().flatten();
        records.all(|(at, part)| parts.covers(*at, part))
    }

    /// Has what is in a store of these pages on its way, which will be loaded next: first of
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
            if let Some(Held::Backed(record)) = pool.entries.get(*slot)
                && behind.logs.is_far(record.at)
            {
                let part = Part {
                    offset: record.at.offset(),
                    len: usize::from(record.len) + TAG,
                    number: behind.logs.nonce(record.at).number,
                };
                *into = Some((record.at, part));
            }
        }
    }
}
