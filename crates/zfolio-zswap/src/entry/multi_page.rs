//! Units: objects of the pool that hold several pages, each with an entry of its own.
//!
//! The entry of a page in a unit, a *member*, names the unit and its place there; the
//! unit names the object. Its pages lay side by side in the table of entries when it was
//! made, so the entries of those still there are told from the unit, too.
//!
//! A member that is dropped leaves at once, whoever reads the unit; the unit goes with the
//! last of them, or with the last pin if somebody reads it then. A unit that has lost all
//! its members takes no new ones.
//!
//! # Invariants
//! `live` has a bit for each entry that names the unit and its place, and no other.

use crate::entry::held::{Member, Object};
use crate::slot::Slot;
use alloc::boxed::Box;
use alloc::vec::Vec;
use zfolio_compress::dense::PAGES;

/// With so many members or fewer a unit is taken apart.
pub(crate) const THIN: u32 = 2;

/// An object and its pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub(crate) object: Object,
    /// Index of the entry of its first page.
    pub(crate) base: u32,
    /// Places whose pages are still there, a bit for each.
    pub(crate) live: u8,
}

impl Unit {
    pub(crate) fn is_thin(&self) -> bool {
        self.live.count_ones() <= THIN
    }

    /// The slots of the pages that are still there.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        let Self { base, live, .. } = *self;
        let places = (0_u32..).take(PAGES);
        let there = places.filter(move |place| live & 1 << place != 0);
        there.filter_map(move |place| Slot::of_index(base + place))
    }
}

#[derive(Clone, Copy, Debug)]
enum Cell {
    /// The next free one, and one more; 0: none.
    Free(u32),
    Used(Unit),
}

/// Units per chunk: 24 KiB.
const CHUNK: usize = 1024;

/// The table of units, in chunks that never move.
#[derive(Debug, Default)]
pub(crate) struct Units {
    chunks: Vec<Box<[Cell]>>,
    /// The first free one, and one more; 0: none.
    free: u32,
    used: usize,
}

impl Units {
    /// Units there are.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Puts a unit in; `None` without memory.
    pub(crate) fn insert(&mut self, unit: Unit) -> Option<u32> {
        if self.free == 0 {
            let made = u32::try_from(self.chunks.len() * CHUNK).ok()?;
            let mut chunk = Vec::new();
            self.chunks.try_reserve(1).ok()?;
            chunk.try_reserve_exact(CHUNK).ok()?;
            chunk.extend((made + 2..).map(Cell::Free).take(CHUNK - 1));
            chunk.push(Cell::Free(0));
            self.chunks.push(chunk.into_boxed_slice());
            self.free = made + 1;
        }
        let id = self.free - 1;
        let cell = self.cell_mut(id)?;
        let Cell::Free(next) = *cell else {
            return None;
        };
        *cell = Cell::Used(unit);
        self.free = next;
        self.used += 1;
        Some(id)
    }

    pub(crate) fn get(&self, id: u32) -> Option<Unit> {
        let at = id as usize;
        match self.chunks.get(at / CHUNK)?.get(at % CHUNK)? {
            Cell::Used(unit) => Some(*unit),
            Cell::Free(_) => None,
        }
    }

    /// Takes a page out; the unit as it is then.
    pub(crate) fn leave(&mut self, member: Member) -> Option<Unit> {
        match self.cell_mut(member.unit)? {
            Cell::Used(unit) => {
                unit.live &= !(1 << member.place);
                Some(*unit)
            }
            Cell::Free(_) => None,
        }
    }

    pub(crate) fn remove(&mut self, id: u32) {
        let next = self.free;
        if let Some(cell @ Cell::Used(_)) = self.cell_mut(id) {
            *cell = Cell::Free(next);
            self.free = id + 1;
            self.used -= 1;
        }
    }

    /// All there are, with their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Unit)> {
        let cells = (0..).zip(self.chunks.iter().flatten());
        cells.filter_map(|(id, cell)| match cell {
            Cell::Used(unit) => Some((id, *unit)),
            Cell::Free(_) => None,
        })
    }

    fn cell_mut(&mut self, id: u32) -> Option<&mut Cell> {
        let at = id as usize;
        self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_zsmalloc::Handle;

    #[test]
    fn units_come_and_go() {
        let object = Object {
            handle: Handle::from_u32(9).unwrap(),
            len: 5000,
            checksum: 3,
            raw: false,
            version: 0,
        };
        let unit = Unit {
            object,
            base: 8,
            live: 15,
        };
        let mut units = Units::default();
        let ids: Vec<u32> = (0..CHUNK + 3)
            .map(|_| units.insert(unit).unwrap())
            .collect();
        assert!(ids.iter().copied().eq(0..1027));
        let left = units.leave(Member { unit: 5, place: 1 }).unwrap();
        assert!(!left.is_thin());
        let left = units.leave(Member { unit: 5, place: 3 }).unwrap();
        assert!(left.is_thin() && left.live == 5);
        let slots: Vec<Option<u32>> = left.slots().map(Slot::index).collect();
        assert_eq!(slots, [Some(8), Some(10)]);
        units.remove(5);
        units.remove(5);
        units.remove(1026);
        assert!(units.get(5).is_none() && units.get(9999).is_none());
        assert_eq!((units.used(), units.iter().count()), (1025, 1025));
        assert_eq!(units.insert(unit), Some(1026));
        assert_eq!(units.insert(unit), Some(5));
        assert_eq!(units.insert(unit), Some(1027));
    }
}
