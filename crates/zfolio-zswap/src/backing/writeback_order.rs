//! In which order entries are written back: a list, oldest first.
//!
//! Two words an entry, in chunks like the entries' own, and only where there
//! is a backing. An entry that has no links (no memory was to be had for them)
//! is not written back, nothing else.
//!
//! # Invariants
//! A slot is in the list once at most; its length is the number of its slots.

use crate::slot::Slot;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Of a slot that is not in the list.
const NOWHERE: u32 = u32::MAX;
const CHUNK: usize = 4096;

/// Slot values; 0 for none.
#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

const LOOSE: Link = Link {
    before: NOWHERE,
    after: NOWHERE,
};

/// The list.
#[derive(Debug, Default)]
pub(crate) struct Lru {
    links: Vec<Box<[Link]>>,
    oldest: u32,
    newest: u32,
    len: usize,
}

impl Lru {
    /// Slots in the list.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The oldest.
    pub(crate) fn oldest(&self) -> Option<Slot> {
        (self.oldest != 0).then(|| Slot::from_u32(self.oldest))
    }

    /// Adds a slot as the newest; false if there is no memory for it.
    pub(crate) fn push_newest(&mut self, slot: Slot) -> bool {
        if !self.make_room(slot) {
            return false;
        }
        self.insert(slot, self.newest, 0);
        true
    }

    /// Puts a slot back as the oldest.
    pub(crate) fn push_oldest(&mut self, slot: Slot) -> bool {
        if !self.make_room(slot) {
            return false;
        }
        self.insert(slot, 0, self.oldest);
        true
    }

    /// Takes a slot out of the list; nothing if it is not there.
    pub(crate) fn remove(&mut self, slot: Slot) {
        let Some(link) = self.link(slot.as_u32()).copied() else {
            return;
        };
        if link.before == NOWHERE {
            return;
        }
        self.set(slot.as_u32(), |own| *own = LOOSE);
        self.set(link.before, |before| before.after = link.after);
        self.set(link.after, |after| after.before = link.before);
        if link.before == 0 {
            self.oldest = link.after;
        }
        if link.after == 0 {
            self.newest = link.before;
        }
        self.len -= 1;
    }

    /// Checks the invariants; calls `each` for every slot.
    pub(crate) fn validate(&self, mut each: impl FnMut(Slot)) -> Result<(), String> {
        let (mut at, mut before, mut len) = (self.oldest, 0, 0);
        while at != 0 {
            let link = self.link(at).copied().unwrap_or(LOOSE);
            if link.before != before || len > self.len {
                return Err(format!("slot {at:#x} is wrongly linked: {link:?}"));
            }
            each(Slot::from_u32(at));
            (before, at, len) = (at, link.after, len + 1);
        }
        if before != self.newest || len != self.len {
            return Err(format!("{len} slots are listed, {} counted", self.len));
        }
        let linked = self.links.iter().flatten();
        let linked = linked.filter(|link| link.before != NOWHERE).count();
        if linked == len {
            Ok(())
        } else {
            Err(format!("{linked} slots are linked, {len} listed"))
        }
    }

    fn insert(&mut self, slot: Slot, before: u32, after: u32) {
        let at = slot.as_u32();
        self.set(at, |own| *own = Link { before, after });
        self.set(before, |link| link.after = at);
        self.set(after, |link| link.before = at);
        if before == 0 {
            self.oldest = at;
        }
        if after == 0 {
            self.newest = at;
        }
        self.len += 1;
    }

    /// Whether there are links for a slot that is not in the list.
    fn make_room(&mut self, slot: Slot) -> bool {
        let Some(index) = slot.index() else {
            return false;
        };
        let chunk = index as usize / CHUNK;
        while self.links.len() <= chunk {
            let mut links = Vec::new();
            if self.links.try_reserve(1).is_err() || links.try_reserve_exact(CHUNK).is_err() {
                return false;
            }
            links.resize(CHUNK, LOOSE);
            self.links.push(links.into_boxed_slice());
        }
        self.link(slot.as_u32())
            .is_some_and(|link| link.before == NOWHERE)
    }

    fn link(&self, value: u32) -> Option<&Link> {
        let index = value.checked_sub(1)? as usize;
        self.links.get(index / CHUNK)?.get(index % CHUNK)
    }

    /// Nothing for 0.
    fn set(&mut self, value: u32, change: impl FnOnce(&mut Link)) {
        let Some(index) = value.checked_sub(1).map(|index| index as usize) else {
            return;
        };
        let chunk = self.links.get_mut(index / CHUNK);
        if let Some(link) = chunk.and_then(|chunk| chunk.get_mut(index % CHUNK)) {
            change(link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn behaves_like_a_queue(ops in prop::collection::vec((0_u8..4, 1_u32..9000), 1..300)) {
            let mut lru = Lru::default();
            let mut model = VecDeque::new();
            for (kind, slot) in ops {
                let held = model.contains(&slot);
                match kind {
                    0 => {
                        prop_assert_eq!(lru.push_newest(Slot::from_u32(slot)), !held);
                        if !held { model.push_back(slot) }
                    }
                    1 => {
                        prop_assert_eq!(lru.push_oldest(Slot::from_u32(slot)), !held);
                        if !held { model.push_front(slot) }
                    }
                    2 => {
                        lru.remove(Slot::from_u32(slot));
                        model.retain(|other| *other != slot);
                    }
                    _ => {
                        let oldest = lru.oldest();
                        prop_assert_eq!(oldest.map(Slot::as_u32), model.front().copied());
                        if let Some(oldest) = oldest {
                            lru.remove(oldest);
                            model.pop_front();
                        }
                    }
                }
                let mut seen = Vec::new();
                lru.validate(|slot| seen.push(slot.as_u32())).unwrap();
                prop_assert_eq!(&seen, &model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(lru.len(), model.len());
            }
        }
    }
}
