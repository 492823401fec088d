//! Objects in slots of a larger class than their own.
//!
//! A class that needs a zspage for one more object pays all its pages at once,
//! and until they fill up most of them are in vain: half a zspage for each class
//! on average, however few objects the pool has. If a slightly larger class has
//! a free slot the object takes that: a *guest*. It costs the difference of the
//! two sizes for as long as it lives, so guests are bounded by what they save.
//!
//! A class's *lodging* is the sum of these differences over its guests. A guest
//! is taken only while lodging stays within half a zspage of its own class. So
//! with a large pool guests cost at most what they save, and with a small one
//! nearly all of the half-empty zspages go.
//!
//! Compaction makes guests, too: of the objects of a zspage that is left half empty
//! when its class is compacted, where larger classes have room for all of them, it
//! costs no more than said above, and there are few enough of them.
//!
//! # Invariants
//! A guest is 1 ..= [`MAX_DISTANCE`] classes above its own, as its handle's cell
//! says; moving it within its class leaves that as it is.

use zfolio_mm::{Memory, PAGE_SIZE};

use super::compact::LOOKED_AT;
use super::running::CompactionStep;
use super::zs_pool::{ZsPool, objs, take_slot};
use crate::grouping::Grouping;
use crate::handle::MAX_DISTANCE;
use crate::slot::Header;
use crate::source::FrameSource;
use crate::zspage::Zspage;
use crate::zspage_id::ZspageId;

/// Copies that compaction makes for a page at most when it lodges objects.
const COPIES: usize = 8;

impl<G: Grouping> ZsPool<G> {
    /// A zspage with a free slot for an object of the class at `own`, and the
    /// position of its class: the class's own, else a host's.
    pub(super) fn vacancy(&self, own: usize) -> Option<(ZspageId, usize)> {
        if let Some(id) = self.lists[own].fullest_with_room() {
            return Some((id, own));
        }
        let class = &self.table.classes()[own];
        // A class of one object a zspage has none half empty.
        if !self.guests || class.is_huge() {
            return None;
        }
        for host in self.hosts(own) {
            if !self.may_lodge(own, self.beyond(own, host)) {
                return None;
            }
            if let Some(id) = self.lists[host].fullest_with_room() {
                return Some((id, host));
            }
        }
        None
    }

    /// The classes that may have guests of the class at `own`, nearest first.
    fn hosts(&self, own: usize) -> core::ops::Range<usize> {
        own + 1..self.lists.len().min(own + 1 + usize::from(MAX_DISTANCE))
    }

    /// Whether the guests of a class may take so many bytes more.
    fn may_lodge(&self, own: usize, bytes: usize) -> bool {
        let allowed = self.table.classes()[own].pages * PAGE_SIZE / 2;
        self.lodging[own] + bytes <= allowed
    }

    /// A zspage of a class that can be emptied into larger classes, and one of
    /// theirs with room.
    pub(super) fn choose_lodging(&self, own: usize) -> Option<(ZspageId, ZspageId)> {
        let class = &self.table.classes()[own];
        if !self.guests || class.is_huge() {
            return None;
        }
        let mut partial = self.lists[own]
            .emptiest_first(&self.zspages)
            .take(LOOKED_AT);
        let (source, zspage) = partial.find(|(_, zspage)| zspage.pinned == 0)?;
        let mut left = usize::from(zspage.inuse);
        if left > COPIES * class.pages {
            return None;
        }
        let (mut bytes, mut first) = (0, None);
        for host in self.hosts(own) {
            let Some(vacancy) = self.lists[host].fullest_with_room() else {
                continue;
            };
            first = first.or(Some(vacancy));
            let guests = left.min(self.free_slots(host));
            bytes += guests * self.beyond(own, host);
            left -= guests;
            if left == 0 {
                let first = first.filter(|_| self.may_lodge(own, bytes))?;
                return Some((source, first));
            }
        }
        None
    }

    /// Moves objects of `source` into free slots of `host`, of a larger class, until
    /// one of the two is done or one may not go; both are on their lists.
    pub(super) fn lodge_objects(
        &mut self,
        source: ZspageId,
        host: ZspageId,
        memory: &impl Memory,
        frames: &mut impl FrameSource,
    ) -> CompactionStep {
        let from = usize::from(self.zspages.get(source).class);
        let to = usize::from(self.zspages.get(host).class);
        let (class, larger) = (self.table.classes()[from], self.table.classes()[to]);
        let further = u16::try_from(to - from).unwrap_or(MAX_DISTANCE);
        let Zspage { base, fresh, .. } = *self.zspages.get(source);
        let mut moved = 0;
        for index in 0..fresh {
            let offset = usize::from(index) * class.size;
            let Header::Owned(handle) = Header::read(memory, base, offset) else {
                continue;
            };
            let place = self.handles.get(handle);
            let place = place.filter(|place| place.zspage == source && place.index == index);
            let Some(place) = place else {
                continue;
            };
            let own = from - usize::from(place.distance);
            let distance = place.distance + further;
            if distance > MAX_DISTANCE || !self.may_lodge(own, self.beyond(from, to)) {
                break;
            }
            let target = self.zspages.get_mut(host);
            if target.inuse >= objs(&larger) {
                break;
            }
            let Some(slot) = take_slot(target, &larger, memory) else {
                self.set_aside(host);
                break;
            };
            target.inuse += 1;
            let at = target.base;
            memory.with(base, offset, class.size, |object| {
                let into = usize::from(slot) * larger.size;
                memory.with_mut(at, into, class.size, |slot| slot.copy_from_slice(object));
            });
            self.handles.set_place(handle, host, slot, distance);
            self.lodging[own] += self.beyond(from, to);
            self.used[from] -= 1;
            self.used[to] += 1;
            let zspage = self.zspages.get_mut(source);
            Header::Free(zspage.free).write(memory, base, offset);
            zspage.free = index;
            zspage.inuse -= 1;
            moved += 1;
        }
        self.objs_moved += moved as u64;
        self.regroup(host, &larger);
        let mut pages_freed = 0;
        if self.zspages.get(source).inuse == 0 {
            self.lists[from].remove(&mut self.zspages, source);
            self.release_compacted(source, frames);
            pages_freed = class.pages;
        } else {
            self.regroup(source, &class);
        }
        CompactionStep {
            objs_moved: moved,
            pages_freed,
        }
    }

    /// Notes an object of the class at `own` in a slot of the class at `host`;
    /// the distance between them.
    pub(super) fn lodge(&mut self, own: usize, host: usize) -> u16 {
        self.lodging[own] += self.beyond(own, host);
        u16::try_from(host - own).unwrap_or(MAX_DISTANCE)
    }

    /// Notes that an object in a slot of the class at `host` is gone.
    pub(super) fn leave(&mut self, host: usize, distance: u16) {
        let own = host - usize::from(distance);
        self.lodging[own] -= self.beyond(own, host);
    }

    /// Bytes that a slot of `host` has more than one of `own`.
    pub(super) fn beyond(&self, own: usize, host: usize) -> usize {
        self.table.classes()[host].size - self.table.classes()[own].size
    }

    /// Objects that are guests, and the bytes they take beyond slots of their own
    /// class. Takes time in proportion to the objects.
    #[must_use]
    pub fn guests(&self) -> (usize, usize) {
        let guests = self.handles.iter().filter(|(_, place)| place.distance != 0);
        (guests.count(), self.lodging.iter().sum())
    }
}
