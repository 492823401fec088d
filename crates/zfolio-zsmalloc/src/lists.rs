//! The lists of a class: its zspages by group, the newest member first.
//!
//! One list per group of the [`Grouping`](crate::grouping::Grouping) and one
//! more for *damaged* zspages, whose headers were overwritten: nothing is
//! allocated from them and no compaction touches them again; their objects stay
//! good. A bit per list finds the fullest or the emptiest in at most five
//! words.
//!
//! # Invariants
//!
//! Checked by `ZsPool::validate`: each list's count is its length, its bit is
//! set exactly when it has a member, and `total` is the sum of the counts.

use alloc::boxed::Box;
use alloc::vec;

use crate::grouping::MAX_GROUPS;
use crate::zspage::{DAMAGED, Zspage, Zspages};
use crate::zspage_id::ZspageId;

/// Words of the bitmap: a bit per group, and one for the damaged.
const WORDS: usize = (MAX_GROUPS + 1).div_ceil(64);

/// One list.
#[derive(Clone, Copy, Default, Debug)]
struct List {
    head: Option<ZspageId>,
    count: u32,
}

const _: () = assert!(size_of::<List>() == 8);

/// The lists of one class.
#[derive(Debug)]
pub(crate) struct Lists {
    /// By group, the damaged last.
    lists: Box<[List]>,
    /// Bit per list with a member.
    nonempty: [u64; WORDS],
    /// Zspages on all lists.
    total: u32,
    /// [`Grouping::FULLER_FIRST`](crate::grouping::Grouping::FULLER_FIRST).
    fuller_first: bool,
}

impl Lists {
    /// Lists for `groups` groups, all without members.
    pub(crate) fn new(groups: u16) -> Self {
        assert!(usize::from(groups) <= MAX_GROUPS, "too many groups");
        Self {
            lists: vec![List::default(); usize::from(groups) + 1].into_boxed_slice(),
            nonempty: [0; WORDS],
            total: 0,
            fuller_first: false,
        }
    }

    /// The same, in which a zspage never goes before a fuller head.
    pub(crate) fn fuller_first(self, fuller_first: bool) -> Self {
        Self {
            fuller_first,
            ..self
        }
    }

    /// Lists, that of the damaged included.
    pub(crate) fn len(&self) -> usize {
        self.lists.len()
    }

    /// The list of damaged zspages.
    fn damaged_list(&self) -> usize {
        self.lists.len() - 1
    }

    /// The list of full zspages.
    pub(crate) fn full_list(&self) -> usize {
        self.lists.len() - 2
    }

    /// The list of a record's `group`.
    pub(crate) fn list_of(&self, group: u16) -> usize {
        if group == DAMAGED {
            self.damaged_list()
        } else {
            usize::from(group)
        }
    }

    /// Zspages on list `list`.
    pub(crate) fn count(&self, list: usize) -> usize {
        self.lists[list].count as usize
    }

    /// Zspages nothing is allocated from any more.
    pub(crate) fn damaged(&self) -> usize {
        self.count(self.damaged_list())
    }

    /// Zspages that have both objects and room, and are not damaged.
    pub(crate) fn partial(&self) -> usize {
        let full = self.full_list();
        self.zspages() - self.damaged() - self.count(full) - self.count(0)
    }

    /// Zspages of the class.
    pub(crate) fn zspages(&self) -> usize {
        self.total as usize
    }

    /// Whether list `list` is marked as having a member.
    pub(crate) fn is_nonempty(&self, list: usize) -> bool {
        self.nonempty[list / 64] >> (list % 64) & 1 != 0
    }

    /// The head of the fullest list whose members have a free slot.
    pub(crate) fn fullest_with_room(&self) -> Option<ZspageId> {
        self.lists[self.fullest_list()?].head
    }

    /// The fullest list whose members have a free slot.
    pub(crate) fn fullest_list(&self) -> Option<usize> {
        let full = self.full_list();
        let mut word = full / 64;
        let mut bits = self.nonempty[word] & ((1 << (full % 64)) - 1);
        loop {
            if let Some(bit) = bits.checked_ilog2() {
                return Some(word * 64 + bit as usize);
            }
            word = word.checked_sub(1)?;
            bits = self.nonempty[word];
        }
    }

    /// The first list from `from` up to the one before the full, that has a
    /// member.
    fn emptiest_from(&self, from: usize) -> Option<usize> {
        let full = self.full_list();
        let mut word = from / 64;
        let mut bits = self.nonempty[word] & (u64::MAX << (from % 64));
        loop {
            if bits != 0 {
                let list = word * 64 + bits.trailing_zeros() as usize;
                return (list < full).then_some(list);
            }
            word += 1;
            bits = *self.nonempty.get(word)?;
        }
    }

    /// The zspages that have both objects and room, by list from the emptiest
    /// up, within a list the newest first.
    pub(crate) fn emptiest_first<'a>(
        &'a self,
        zspages: &'a Zspages,
    ) -> impl Iterator<Item = (ZspageId, &'a Zspage)> {
        let lists =
            core::iter::successors(self.emptiest_from(1), |list| self.emptiest_from(list + 1));
        lists.flat_map(|list| self.iter(zspages, list))
    }

    /// Puts a zspage first on the list of `group`, or second where the head has more in use
    /// and the fuller come first, and notes that in its record.
    pub(crate) fn push(&mut self, zspages: &mut Zspages, id: ZspageId, group: u16) {
        let at = self.list_of(group);
        let list = &mut self.lists[at];
        if let (true, Some(head)) = (self.fuller_first, list.head)
            && zspages.get(id).inuse < zspages.get(head).inuse
        {
            list.count += 1;
            self.total += 1;
            let second = zspages.get(head).next;
            zspages.get_mut(head).next = Some(id);
            if let Some(second) = second {
                zspages.get_mut(second).prev = Some(id);
            }
            let record = zspages.get_mut(id);
            record.next = second;
            record.prev = Some(head);
            record.group = group;
            return;
        }
        let head = list.head.replace(id);
        list.count += 1;
        self.nonempty[at / 64] |= 1 << (at % 64);
        self.total += 1;
        if let Some(head) = head {
            zspages.get_mut(head).prev = Some(id);
        }
        let record = zspages.get_mut(id);
        record.next = head;
        record.prev = None;
        record.group = group;
    }

    /// Takes a zspage off the list it is on.
    pub(crate) fn remove(&mut self, zspages: &mut Zspages, id: ZspageId) {
        let Zspage {
            next, prev, group, ..
        } = *zspages.get(id);
        let at = self.list_of(group);
        let list = &mut self.lists[at];
        match prev {
            Some(prev) => zspages.get_mut(prev).next = next,
            None => list.head = next,
        }
        if let Some(next) = next {
            zspages.get_mut(next).prev = prev;
        }
        list.count -= 1;
        if list.count == 0 {
            self.nonempty[at / 64] &= !(1 << (at % 64));
        }
        self.total -= 1;
    }

    /// The members of list `list`, newest first.
    pub(crate) fn iter<'a>(
        &self,
        zspages: &'a Zspages,
        list: usize,
    ) -> impl Iterator<Item = (ZspageId, &'a Zspage)> + use<'a> {
        let with_record = move |id: ZspageId| (id, zspages.get(id));
        let head = self.lists[list].head.map(with_record);
        core::iter::successors(head, move |(_, record)| record.next.map(with_record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_mm::Pfn;

    /// With members on some of 257 lists, both ends are found, across words.
    #[test]
    fn both_ends_are_found() {
        let mut zspages = Zspages::new();
        let mut lists = Lists::new(257);
        let mut ids = vec![];
        for group in [3, 64, 127, 200, 255, 256, DAMAGED] {
            let id = zspages.insert(Zspage::new(Pfn(0), 0)).expect("room");
            lists.push(&mut zspages, id, group);
            ids.push(id);
        }
        let order = |lists: &Lists, zspages: &Zspages| {
            let found: alloc::vec::Vec<_> =
                lists.emptiest_first(zspages).map(|(id, _)| id).collect();
            found
        };
        assert_eq!(order(&lists, &zspages), ids[..5]);
        assert_eq!(lists.fullest_with_room(), Some(ids[4]));
        assert_eq!(
            (lists.partial(), lists.damaged(), lists.zspages()),
            (5, 1, 7)
        );
        for n in (0..5).rev() {
            lists.remove(&mut zspages, ids[n]);
            assert_eq!(order(&lists, &zspages), ids[..n]);
            assert_eq!(lists.fullest_with_room(), n.checked_sub(1).map(|n| ids[n]));
        }
        assert_eq!((lists.partial(), lists.zspages()), (0, 2));
    }

    /// With the fuller first, one with less in use than the head goes second; the links hold.
    #[test]
    fn a_fuller_head_stays() {
        for (fuller_first, order) in [(false, [4, 1, 2, 3]), (true, [4, 3, 1, 2])] {
            let mut zspages = Zspages::new();
            let mut lists = Lists::new(4).fuller_first(fuller_first);
            let mut ids = vec![];
            for inuse in [3, 2, 1, 4] {
                let mut zspage = Zspage::new(Pfn(0), 0);
                zspage.inuse = inuse;
                let id = zspages.insert(zspage).expect("room");
                lists.push(&mut zspages, id, 1);
                ids.push(id);
            }
            let found = lists.iter(&zspages, 1).map(|(_, zspage)| zspage.inuse);
            assert_eq!(found.collect::<alloc::vec::Vec<_>>(), order);
            lists.remove(&mut zspages, ids[2]);
            lists.remove(&mut zspages, ids[3]);
            assert_eq!(lists.iter(&zspages, 1).count(), 2);
            assert_eq!((lists.count(1), lists.zspages()), (2, 2));
        }
    }
}
