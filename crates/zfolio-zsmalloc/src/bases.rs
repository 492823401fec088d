//! Which zspage starts at a given frame.
//!
//! Relocation names a zspage by its base frame, so the pool needs the way from
//! a frame to a record. A two-level table, 512 frames (2 MiB of arena) a leaf:
//! a lookup is two loads, nothing is ever rehashed or copied under the pool's
//! lock, and a leaf exists only where zspages are. A hash table would need more
//! bytes per entry and rehash in one go; a table over the whole arena would
//! have to know its size.
//!
//! Cost: 4 bytes per frame of a 2 MiB block that has held a zspage (0.1 %),
//! 8 bytes per block below the highest one.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use zfolio_mm::Pfn;

use crate::zspage_id::ZspageId;

/// Frames per leaf.
const LEAF: usize = 512;

/// Base frame -> zspage.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    leaves: Vec<Option<Box<[Option<ZspageId>]>>>,
    len: usize,
}

impl Bases {
    /// Zspages in the table.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The zspage that starts at `at`.
    pub(crate) fn get(&self, at: Pfn) -> Option<ZspageId> {
        self.leaves.get(at.index() / LEAF)?.as_ref()?[at.index() % LEAF]
    }

    /// Notes that `id` starts at `at`, where no zspage started before.
    pub(crate) fn insert(&mut self, at: Pfn, id: ZspageId) {
        let leaf = at.index() / LEAF;
        if leaf >= self.leaves.len() {
            self.leaves.resize_with(leaf + 1, || None);
        }
        let leaf = self.leaves[leaf].get_or_insert_with(|| vec![None; LEAF].into_boxed_slice());
        let before = leaf[at.index() % LEAF].replace(id);
        debug_assert!(before.is_none(), "two zspages start at one frame");
        self.len += 1;
    }

    /// Forgets the zspage that starts at `at`.
    pub(crate) fn remove(&mut self, at: Pfn) -> Option<ZspageId> {
        let leaf = self.leaves.get_mut(at.index() / LEAF)?.as_mut()?;
        let id = leaf[at.index() % LEAF].take()?;
        self.len -= 1;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_inserted_and_nothing_else() {
        let id = |value| ZspageId::new(value).expect("not 0");
        let mut bases = Bases::default();
        assert_eq!(bases.get(Pfn(0)), None);
        for (n, slot) in [(1, 0), (2, 511), (3, 512), (4, 1 << 20)] {
            bases.insert(Pfn(slot), id(n));
        }
        assert_eq!(bases.len(), 4);
        assert_eq!(bases.get(Pfn(511)), Some(id(2)));
        assert_eq!(bases.get(Pfn(512)), Some(id(3)));
        assert_eq!(bases.get(Pfn(513)), None);
        // In a leaf that does not exist, below and above the highest.
        assert_eq!(bases.get(Pfn(5000)), None);
        assert_eq!(bases.get(Pfn(1 << 27)), None);
        assert_eq!(bases.remove(Pfn(1 << 27)), None);
        assert_eq!(bases.remove(Pfn(1 << 20)), Some(id(4)));
        assert_eq!(bases.remove(Pfn(1 << 20)), None);
        assert_eq!(bases.len(), 3);
    }
}
