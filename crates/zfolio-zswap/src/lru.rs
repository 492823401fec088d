//! In which order entries are written back: one list a group, oldest first.
//!
//! Two words an entry, in chunks like the entries' own, and only where there
//! is a backing. An entry that has no links (no memory was to be had for them)
//! is not written back, nothing else.
//!
//! # Invariants
//! A slot is in one list at most; a list's length is the number of its slots.

use crate::groups::GroupId;
use crate::slot::Slot;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Of a slot in no list.
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

#[derive(Clone, Copy, Default, Debug)]
struct List {
    oldest: u32,
    newest: u32,
    len: usize,
}

/// The lists of all groups.
#[derive(Debug, Default)]
pub(crate) struct Lru {
    links: Vec<Box<[Link]>>,
    lists: Vec<List>,
}

impl Lru {
    /// Slots in a group's list.
    pub(crate) fn len(&self, group: GroupId) -> usize {
        self.lists.get(group.index()).map_or(0, |list| list.len)
    }

    /// The oldest of a group.
    pub(crate) fn oldest(&self, group: GroupId) -> Option<Slot> {
        let oldest = self.lists.get(group.index())?.oldest;
        (oldest != 0).then(|| Slot::from_u32(oldest))
    }

    /// Adds a slot as the newest; false if there is no memory for it.
    pub(crate) fn push_newest(&mut self, group: GroupId, slot: Slot) -> bool {
        if !self.make_room(group, slot) {
            return false;
        }
        let newest = self.lists[group.index()].newest;
        self.insert(group, slot, newest, 0);
        true
    }

    /// Puts a slot back as the oldest.
    pub(crate) fn push_oldest(&mut self, group: GroupId, slot: Slot) -> bool {
        if !self.make_room(group, slot) {
            return false;
        }
        let oldest = self.lists[group.index()].oldest;
        self.insert(group, slot, 0, oldest);
        true
    }

    /// Takes a slot out of its group's list; nothing if it is in none.
    pub(crate) fn remove(&mut self, group: GroupId, slot: Slot) {
        let Some(link) = self.link(slot.as_u32()).copied() else {
            return;
        };
        if link.before == NOWHERE {
            return;
        }
        self.set(slot.as_u32(), |own| *own = LOOSE);
        self.set(link.before, |before| before.after = link.after);
        self.set(link.after, |after| after.before = link.before);
        let list = &mut self.lists[group.index()];
        if link.before == 0 {
            list.oldest = link.after;
        }
        if link.after == 0 {
            list.newest = link.before;
        }
        list.len -= 1;
    }

    /// Checks the invariants; calls `each` for every slot with its group.
    pub(crate) fn validate(&self, mut each: impl FnMut(GroupId, Slot)) -> Result<(), String> {
        let groups = (0..=u8::MAX).map(GroupId);
        let mut listed = 0;
        for (group, list) in groups.zip(&self.lists) {
            let (mut at, mut before, mut len) = (list.oldest, 0, 0);
            while at != 0 {
                let link = self.link(at).copied().unwrap_or(LOOSE);
                if link.before != before || len > list.len {
                    return Err(format!(
                        "slot {at:#x} of {group:?} is wrongly linked: {link:?}"
                    ));
                }
                each(group, Slot::from_u32(at));
                (before, at, len) = (at, link.after, len + 1);
            }
            if before != list.newest || len != list.len {
                return Err(format!("{group:?} has {len} slots: {list:?}"));
            }
            listed += len;
        }
        let linked = self.links.iter().flatten();
        let linked = linked.filter(|link| link.before != NOWHERE).count();
        if linked == listed {
            Ok(())
        } else {
            Err(format!("{linked} slots are linked, {listed} listed"))
        }
    }

    fn insert(&mut self, group: GroupId, slot: Slot, before: u32, after: u32) {
        let at = slot.as_u32();
        self.set(at, |own| *own = Link { before, after });
        self.set(before, |link| link.after = at);
        self.set(after, |link| link.before = at);
        let list = &mut self.lists[group.index()];
        if before == 0 {
            list.oldest = at;
        }
        if after == 0 {
            list.newest = at;
        }
        list.len += 1;
    }

    /// Whether there are links for a slot that is in no list.
    fn make_room(&mut self, group: GroupId, slot: Slot) -> bool {
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
        let wanted = group.index() + 1;
        if self.lists.len() < wanted {
            if self.lists.try_reserve(wanted - self.lists.len()).is_err() {
                return false;
            }
            self.lists.resize(wanted, List::default());
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
        fn behaves_like_queues(ops in prop::collection::vec((0_u8..4, 0_u8..3, 1_u32..9000), 1..300)) {
            let mut lru = Lru::default();
            let mut model = [const { VecDeque::new() }; 3];
            for (kind, group, slot) in ops {
                let (id, of) = (GroupId(group), usize::from(group));
                let held = model.iter().position(|list: &VecDeque<u32>| list.contains(&slot));
                match kind {
                    0 | 1 => {
                        let slot_of = Slot::from_u32(slot);
                        let pushed = if kind == 0 { lru.push_newest(id, slot_of) } else { lru.push_oldest(id, slot_of) };
                        prop_assert_eq!(pushed, held.is_none());
                        if held.is_none() {
                            if kind == 0 { model[of].push_back(slot) } else { model[of].push_front(slot) }
                        }
                    }
                    2 => {
                        if let Some(held) = held {
                            lru.remove(GroupId(u8::try_from(held).unwrap()), Slot::from_u32(slot));
                            model[held].retain(|other| *other != slot);
                        } else {
                            lru.remove(id, Slot::from_u32(slot));
                        }
                    }
                    _ => {
                        let oldest = lru.oldest(id);
                        prop_assert_eq!(oldest.map(Slot::as_u32), model[of].front().copied());
                        if let Some(oldest) = oldest {
                            lru.remove(id, oldest);
                            model[of].pop_front();
                        }
                    }
                }
                let mut seen = [const { Vec::new() }; 3];
                lru.validate(|group, slot| seen[group.index()].push(slot.as_u32())).unwrap();
                for (index, list) in model.iter().enumerate() {
                    prop_assert_eq!(&seen[index], &list.iter().copied().collect::<Vec<_>>());
                    prop_assert_eq!(lru.len(GroupId(u8::try_from(index).unwrap())), list.len());
                }
            }
        }
    }
}
