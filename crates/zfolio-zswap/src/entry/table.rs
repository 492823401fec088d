//! The table of entries: what a [`Slot`] means.
//!
//! Entries (`entry`) are in chunks that never move, so that growing under the
//! pool lock costs one small allocation. Free entries form a list, the last
//! freed is used first.
//!
//! # Invariants
//! `used + length of the free list = entries ever made`.

use crate::entry::held::Member;
use crate::entry::held::{
    DOOMED, Entry, FREE, Form, Held, IDLE, Kind, Object, REFERENCED, TRIED, held, packed,
};
use crate::slot::Slot;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Entries per chunk: 48 KiB.
const CHUNK: usize = 4096;

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    chunks: Vec<Box<[Entry]>>,
    /// Entries ever made.
    made: u32,
    used: usize,
    /// Slot value of the first free entry, 0 for none.
    free: u32,
    /// Index of the entry that the tier's hand comes to next.
    hand: u32,
    /// Entries yet to be passed by the hand of which those are tried once more whose
    /// version is among `renewed`, a bit for each.
    renewing: u32,
    renewed: u16,
}

/// What the tier's hand has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// An object that it passed before and that has not been tried.
    Object(Slot, Object),
    /// The same of a page in a unit.
    Member(Slot, Member),
    /// As many entries as it was to look at.
    NoneYet,
    /// The end of the table; the next look begins at the start.
    Ended,
}

impl Entries {
    /// Entries in use, doomed ones included.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Makes sure [`Self::insert`] succeeds once; `false` when memory or slot
    /// numbers have run out.
    pub(crate) fn reserve(&mut self) -> bool {
        if self.free != 0 {
            return true;
        }
        let Some(slot) = Slot::of_index(self.made) else {
            return false;
        };
        if self.made as usize == self.chunks.len() * CHUNK {
            let mut chunk = Vec::new();
            if self.chunks.try_reserve(1).is_err() || chunk.try_reserve_exact(CHUNK).is_err() {
                return false;
            }
            chunk.resize(CHUNK, FREE);
            self.chunks.push(chunk.into_boxed_slice());
        }
        self.made += 1;
        self.free = slot.as_u32();
        true
    }

    /// Takes an entry; `None` when none was reserved.
    pub(crate) fn insert(&mut self, held: Held) -> Option<Slot> {
        let slot = Slot::from_u32(self.free);
        let entry = self.entry_mut(slot)?;
        let next = entry.low;
        *entry = packed(held);
        self.free = next;
        self.used += 1;
        Some(slot)
    }

    /// What a slot holds; `None` when it was invalidated.
    pub(crate) fn get(&self, slot: Slot) -> Option<Held> {
        let entry = self.entry(slot)?;
        if entry.bits & DOOMED != 0 {
            None
        } else {
            held(entry)
        }
    }

    /// Makes a slot hold something else; it must hold something.
    pub(crate) fn replace(&mut self, slot: Slot, held: Held) {
        if let Some(entry) = self.entry_mut(slot) {
            *entry = packed(held);
        }
    }

    /// Gives an entry its second chance.
    pub(crate) fn set_referenced(&mut self, slot: Slot) {
        if let Some(entry) = self.entry_mut(slot) {
            entry.bits |= REFERENCED;
        }
    }

    /// Whether it had one, which it has not any more.
    pub(crate) fn take_referenced(&mut self, slot: Slot) -> bool {
        self.entry_mut(slot).is_some_and(|entry| {
            let referenced = entry.bits & REFERENCED != 0;
            entry.bits &= !REFERENCED;
            referenced
        })
    }

    /// Moves the tier's hand on, over `looks` entries at most, which are counted down.
    /// What it finds for the first time it only marks.
    pub(crate) fn next_due(&mut self, looks: &mut usize) -> Due {
        while *looks > 0 {
            let Some(slot) = Slot::of_index(self.hand).filter(|_| self.hand < self.made) else {
                self.hand = 0;
                return Due::Ended;
            };
            self.hand += 1;
            *looks -= 1;
            let renewed = if self.renewing > 0 { self.renewed } else { 0 };
            self.renewing = self.renewing.saturating_sub(1);
            let Some(entry) = self.entry_mut(slot) else {
                continue;
            };
            if renewed & 1 << entry.form.version() != 0 {
                entry.bits &= !TRIED;
            }
            let object = matches!(entry.form.kind(), Kind::Packed | Kind::Raw | Kind::Member);
            if !object || entry.bits & (DOOMED | TRIED) != 0 {
                continue;
            }
            if entry.bits & IDLE == 0 {
                entry.bits |= IDLE;
            } else {
                match held(entry) {
                    Some(Held::Object(object)) => return Due::Object(slot, object),
                    Some(Held::Member(member)) => return Due::Member(slot, member),
                    _ => {}
                }
            }
        }
        Due::NoneYet
    }

    /// Index of the entry that the tier's hand comes to next.
    pub(crate) fn hand(&self) -> u32 {
        self.hand
    }

    /// An entry is tried once more.
    pub(crate) fn take_tried(&mut self, slot: Slot) {
        if let Some(entry) = self.entry_mut(slot) {
            entry.bits &= !TRIED;
        }
    }

    /// What was tried is tried once more, if its version is among `versions` (a bit for
    /// each, the lowest for none): in the course of a round.
    pub(crate) fn renew(&mut self, versions: u16) {
        let before = if self.renewing > 0 { self.renewed } else { 0 };
        self.renewed = before | versions;
        self.renewing = self.made;
    }

    /// The tier's hand passes an entry over from now on.
    pub(crate) fn set_tried(&mut self, slot: Slot) {
        if let Some(entry) = self.entry_mut(slot) {
            entry.bits |= TRIED;
        }
    }

    /// Whether a slot is only kept for the pins on its object.
    pub(crate) fn is_doomed(&self, slot: Slot) -> bool {
        self.entry(slot)
            .is_some_and(|entry| entry.bits & DOOMED != 0)
    }

    /// Makes a slot name nothing while its entry stays in use.
    pub(crate) fn doom(&mut self, slot: Slot) {
        if let Some(entry) = self.entry_mut(slot)
            && entry.form.kind() != Kind::Free
        {
            entry.bits |= DOOMED;
        }
    }

    /// Everything in the backing becomes [`Held::Lost`].
    pub(crate) fn lose_backed(&mut self) {
        let all = self.chunks.iter_mut().flatten();
        let backed = |of: &Entry| matches!(of.form.kind(), Kind::BackedPacked | Kind::BackedRaw);
        for entry in all.filter(|of| backed(of)) {
            entry.form = Form::of(Kind::Lost, 0);
        }
    }

    /// Frees an entry, doomed or not; returns what it held.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<Held> {
        let next = self.free;
        let entry = self.entry_mut(slot)?;
        let held = held(entry)?;
        *entry = Entry { low: next, ..FREE };
        self.free = slot.as_u32();
        self.used -= 1;
        Some(held)
    }

    /// Everything held, doomed entries included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Held> {
        self.chunks
            .iter()
            .flatten()
            .take(self.made as usize)
            .filter_map(held)
    }

    /// Checks the invariants.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let used = self.iter().count();
        if used != self.used {
            return Err(format!("{used} entries in use, {} counted", self.used));
        }
        let mut free = 0;
        let mut next = self.free;
        while next != 0 {
            match self.entry(Slot::from_u32(next)) {
                Some(Entry {
                    form: Form::FREE,
                    low,
                    ..
                }) if free < self.made as usize => next = *low,
                other => return Err(format!("free list reaches slot {next:#x}: {other:?}")),
            }
            free += 1;
        }
        if used + free != self.made as usize {
            return Err(format!(
                "{used} entries in use + {free} free, {} made",
                self.made
            ));
        }
        Ok(())
    }

    fn entry(&self, slot: Slot) -> Option<&Entry> {
        let index = slot.index().filter(|index| *index < self.made)? as usize;
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    fn entry_mut(&mut self, slot: Slot) -> Option<&mut Entry> {
        let index = slot.index().filter(|index| *index < self.made)? as usize;
        self.chunks.get_mut(index / CHUNK)?.get_mut(index % CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::clusters::Position;
    use crate::entry::held::Record;
    use zfolio_zsmalloc::Handle;

    #[test]
    fn entries_hold_what_was_put_in() {
        let mut entries = Entries::default();
        assert!(entries.reserve());
        let word = 0x0123_4567_89ab_cdef;
        let same = entries.insert(Held::Same(word)).unwrap();
        assert!(entries.reserve());
        let object = Object {
            handle: Handle::from_u32((1 << 28) - 1).unwrap(),
            len: 4096,
            checksum: u32::MAX,
            raw: true,
            version: 4,
        };
        let raw = entries.insert(Held::Object(object)).unwrap();
        assert_eq!(entries.get(same), Some(Held::Same(word)));
        assert_eq!(entries.get(raw), Some(Held::Object(object)));
        assert_eq!(entries.get(Slot::ZERO), None);
        assert_eq!(entries.get(Slot::from_u32(3)), None);
        assert_eq!(entries.get(Slot::from_u32(u32::MAX)), None);

        entries.set_referenced(raw);
        assert_eq!(entries.get(raw), Some(Held::Object(object)));
        assert!(entries.take_referenced(raw) && !entries.take_referenced(raw));
        let record = Record {
            at: Position(u32::MAX),
            len: 4096,
            checksum: 5,
            raw: false,
            version: 3,
        };
        entries.replace(same, Held::Backed(record));
        assert_eq!(entries.get(same), Some(Held::Backed(record)));
        entries.lose_backed();
        assert_eq!(entries.get(same), Some(Held::Lost));
        let member = Member {
            unit: u32::MAX,
            place: 3,
        };
        entries.replace(same, Held::Member(member));
        assert_eq!(entries.get(same), Some(Held::Member(member)));

        entries.doom(raw);
        assert_eq!(entries.get(raw), None);
        assert!(entries.is_doomed(raw));
        entries.validate().unwrap();
        assert_eq!(entries.remove(raw), Some(Held::Object(object)));
        assert_eq!(entries.remove(raw), None);
        assert!(!entries.is_doomed(raw));
        entries.doom(raw);
        assert!(!entries.is_doomed(raw));
        entries.validate().unwrap();
        assert!(entries.reserve());
        assert_eq!(entries.insert(Held::Same(1)), Some(raw));
        assert_eq!(entries.used(), 2);
    }

    #[test]
    fn the_hand_marks_at_first_and_finds_then_until_it_was_tried() {
        let mut entries = Entries::default();
        let mut object = Object {
            handle: Handle::from_u32(1).unwrap(),
            len: 1,
            checksum: 2,
            raw: false,
            version: 0,
        };
        let mut insert = |held| {
            assert!(entries.reserve());
            entries.insert(held).unwrap()
        };
        insert(Held::Same(1));
        let first = insert(Held::Object(object));
        object.len = 4096;
        let second = insert(Held::Object(object));
        assert_eq!(entries.next_due(&mut 2), Due::NoneYet);
        assert_eq!(entries.next_due(&mut 9), Due::Ended);
        let mut looks = 2;
        let due = entries.next_due(&mut looks);
        assert!(matches!(due, Due::Object(slot, of) if slot == first && of.len == 1));
        assert_eq!(
            (looks, entries.next_due(&mut 1)),
            (0, Due::Object(second, object))
        );
        assert_eq!(entries.next_due(&mut 1), Due::Ended);
        entries.set_tried(first);
        entries.doom(second);
        assert_eq!(entries.next_due(&mut 9), Due::Ended);
        assert_eq!(entries.get(first).map(|_| ()), Some(()));
        // What is put in anew begins anew.
        entries.replace(first, Held::Object(object));
        assert_eq!(entries.next_due(&mut 9), Due::Ended);
        assert_eq!(entries.next_due(&mut 9), Due::Object(first, object));
    }

    #[test]
    fn what_was_tried_is_tried_once_more_by_its_version() {
        let mut entries = Entries::default();
        let mut made = Vec::new();
        for version in [0, 1, 2, 1] {
            assert!(entries.reserve());
            let object = Object {
                handle: Handle::from_u32(1 + u32::from(version)).unwrap(),
                len: 100,
                checksum: 2,
                raw: false,
                version,
            };
            let slot = entries.insert(Held::Object(object)).unwrap();
            entries.set_tried(slot);
            made.push(slot);
        }
        assert_eq!(entries.next_due(&mut 2), Due::NoneYet);
        entries.renew(1 << 1);
        let mut due = Vec::new();
        // (What is due for the first time is marked then, and due the round after.)
        for _ in 0..8 {
            while let Due::Object(slot, _) = entries.next_due(&mut 9) {
                entries.set_tried(slot);
                due.push(slot);
            }
        }
        due.sort_unstable_by_key(|slot| slot.as_u32());
        assert_eq!(due, [made[1], made[3]]);
        entries.renew(1 << 1);
        entries.renew(1 << 2);
        let mut due = 0;
        for _ in 0..8 {
            while let Due::Object(slot, _) = entries.next_due(&mut 9) {
                entries.set_tried(slot);
                due += 1;
            }
        }
        assert_eq!(due, 3);
    }

    #[test]
    fn insert_needs_a_reservation() {
        let mut entries = Entries::default();
        assert_eq!(entries.insert(Held::Same(1)), None);
    }

    #[test]
    fn grows_past_a_chunk() {
        let mut entries = Entries::default();
        for word in 0..2 * CHUNK as u64 + 1 {
            assert!(entries.reserve());
            let slot = entries.insert(Held::Same(word)).unwrap();
            assert_eq!(u64::from(slot.as_u32()), word + 1);
        }
        entries.validate().unwrap();
        let last = Slot::from_u32(2 * 4096 + 1);
        assert_eq!(entries.get(last), Some(Held::Same(2 * CHUNK as u64)));
    }
}
