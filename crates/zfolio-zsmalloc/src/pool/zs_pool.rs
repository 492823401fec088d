//! What a pool is made of, malloc and free.

use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

use zfolio_mm::Memory;

use crate::bases::Bases;
use crate::class::{ClassTable, Layout, SizeClass};
use crate::grouping::{Grouping, Tenths};
use crate::handle::{Handle, Handles};
use crate::lists::Lists;
use crate::slot::{Header, NO_SLOT};
use crate::source::FrameSource;
use crate::zspage::{DAMAGED, Zspage, Zspages};
use crate::zspage_id::ZspageId;

use super::error::ZsError;
use super::running::Running;

/// A pool of objects in frames of the arena, its zspages sorted by `G`.
#[derive(Debug)]
pub struct ZsPool<G = Tenths> {
    pub(super) table: ClassTable,
    /// Per class of the table.
    pub(super) lists: Vec<Lists>,
    /// Objects in slots of each class of the table.
    pub(super) used: Vec<usize>,
    /// Per class, bytes that its guests elsewhere take beyond slots of its own.
    pub(super) lodging: Vec<usize>,
    /// Whether there may be guests.
    pub(super) guests: bool,
    pub(super) zspages: Zspages,
    pub(super) handles: Handles,
    /// Objects with pins.
    pub(super) pinned: usize,
    pub(super) bases: Bases,
    /// Pages of all zspages.
    pub(super) pages_used: usize,
    /// Objects copied from slot to slot by zspage compaction.
    pub(super) objs_moved: u64,
    /// Pages freed by zspage compaction.
    pub(super) pages_compacted: u64,
    /// The compaction under way.
    pub(super) running: Option<Running>,
    /// Compactions begun, which is the ticket of the last.
    pub(super) tickets: u64,
    pub(super) grouping: PhantomData<G>,
}

impl Default for ZsPool {
    fn default() -> Self {
        Self::new()
    }
}

impl ZsPool {
    /// An empty pool laid out for the arena.
    #[must_use]
    pub fn new() -> Self {
        Self::with_layout(Layout::ARENA)
    }

    /// An empty pool as the kernel's, with zspages of up to `chain` pages. Longer
    /// zspages waste less and have fewer huge classes, shorter ones are easier to
    /// find room for.
    ///
    /// # Panics
    /// When `chain` is not in 1 ..= 16.
    #[must_use]
    pub fn with_chain(chain: usize) -> Self {
        Self::with_layout(Layout::kernel(chain))
    }
}

impl<G: Grouping> ZsPool<G> {
    /// As [`ZsPool::with_chain`], with another grouping than the default one.
    ///
    /// # Panics
    /// When `chain` is not in 1 ..= 16.
    #[must_use]
    pub fn with_grouping(chain: usize) -> Self {
        Self::with_layout(Layout::kernel(chain))
    }

    /// An empty pool with these classes.
    ///
    /// # Panics
    /// When `layout.chain` is not in 1 ..= 16.
    #[must_use]
    pub fn with_layout(layout: Layout) -> Self {
        let table = layout.table();
        let lists = table.classes().iter();
        let lists =
            lists.map(|class| Lists::new(G::groups(objs(class))).fuller_first(G::FULLER_FIRST));
        Self {
            lists: lists.collect(),
            used: vec![0; table.classes().len()],
            lodging: vec![0; table.classes().len()],
            guests: layout.guests,
            table,
            zspages: Zspages::new(),
            handles: Handles::new(),
            pinned: 0,
            bases: Bases::default(),
            pages_used: 0,
            objs_moved: 0,
            pages_compacted: 0,
            running: None,
            tickets: 0,
            grouping: PhantomData,
        }
    }

    /// The size classes.
    #[must_use]
    pub fn classes(&self) -> &ClassTable {
        &self.table
    }

    /// Pages of all zspages.
    #[must_use]
    pub fn pages_used(&self) -> usize {
        self.pages_used
    }

    /// Objects allocated.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.handles.live()
    }

    /// Allocates room for `size` bytes (1 ..= [`ClassTable::largest`]: a page, or
    /// 64 KiB with units). The payload's bytes are
    /// whatever was there; the caller writes them at [`Self::location`].
    ///
    /// # Errors
    /// [`ZsError::BadSize`]; [`ZsError::NoMemory`] when a zspage is needed and
    /// `frames` has none.
    pub fn malloc(
        &mut self,
        size: usize,
        memory: &impl Memory,
        frames: &mut impl FrameSource,
    ) -> Result<Handle, ZsError> {
        let own = self.table.lookup(size).ok_or(ZsError::BadSize)?;
        if !self.handles.reserve() {
            return Err(ZsError::NoMemory);
        }
        let (id, index, position) = loop {
            let (id, position) = match self.vacancy(own) {
                Some(found) => found,
                None => (self.grow(own, frames).ok_or(ZsError::NoMemory)?, own),
            };
            let class = &self.table.classes()[position];
            if let Some(index) = take_slot(self.zspages.get_mut(id), class, memory) {
                break (id, index, position);
            }
            // Its free list was overwritten. Each round takes one zspage out of
            // the way, so the loop ends.
            self.set_aside(id);
        };
        // Cannot fail after `reserve`.
        let distance = self.lodge(own, position);
        let handle = self.handles.insert(id, index, distance);
        let handle = handle.ok_or(ZsError::NoMemory)?;
        let class = self.table.classes()[position];
        let zspage = self.zspages.get_mut(id);
        if class.is_huge() {
            zspage.owner = Some(handle);
        } else {
            let offset = usize::from(index) * class.size;
            Header::Owned(handle).write(memory, zspage.base, offset);
        }
        zspage.inuse += 1;
        self.used[position] += 1;
        self.regroup(id, &class);
        Ok(handle)
    }

    /// Frees an object, and its zspage's frames with the last one in it.
    ///
    /// # Errors
    /// [`ZsError::BadHandle`] for a handle without an object (a stale handle is
    /// recognised until its cell is used again); [`ZsError::Pinned`]. Nothing
    /// has changed then.
    pub fn free(
        &mut self,
        handle: Handle,
        memory: &impl Memory,
        frames: &mut impl FrameSource,
    ) -> Result<(), ZsError> {
        let place = self.handles.get(handle).ok_or(ZsError::BadHandle)?;
        if place.pins != 0 {
            return Err(ZsError::Pinned);
        }
        let id = place.zspage;
        let zspage = self.zspages.get_mut(id);
        let position = usize::from(zspage.class);
        let class = self.table.classes()[position];
        zspage.inuse -= 1;
        self.handles.remove(handle);
        self.used[position] -= 1;
        self.leave(position, place.distance);
        let zspage = self.zspages.get_mut(id);
        if zspage.inuse == 0 {
            self.lists[position].remove(&mut self.zspages, id);
            self.release(id, frames);
            return Ok(());
        }
        let offset = usize::from(place.index) * class.size;
        Header::Free(zspage.free).write(memory, zspage.base, offset);
        zspage.free = place.index;
        self.regroup(id, &class);
        Ok(())
    }

    /// Per class: the class, its lists, its objects.
    pub(crate) fn class_usage(&self) -> impl Iterator<Item = (&SizeClass, &Lists, usize)> {
        let lists = self.lists.iter().zip(&self.used);
        self.table
            .classes()
            .iter()
            .zip(lists)
            .map(|(class, (lists, used))| (class, lists, *used))
    }

    /// Objects copied by zspage compaction since the pool was made.
    #[must_use]
    pub const fn objs_moved(&self) -> u64 {
        self.objs_moved
    }

    /// Pages freed by zspage compaction since the pool was made.
    #[must_use]
    pub const fn pages_compacted(&self) -> u64 {
        self.pages_compacted
    }

    /// Makes a new zspage for the class at `position`, on its empty list.
    pub(super) fn grow(
        &mut self,
        position: usize,
        frames: &mut impl FrameSource,
    ) -> Option<ZspageId> {
        let class = u16::try_from(position).ok()?;
        let pages = self.table.classes()[position].pages;
        let base = frames.alloc(pages)?;
        let Some(id) = self.zspages.insert(Zspage::new(base, class)) else {
            frames.free(base, pages);
            return None;
        };
        self.bases.insert(base, id);
        self.lists[position].push(&mut self.zspages, id, 0);
        self.pages_used += pages;
        Some(id)
    }

    /// Gives back the frames of a zspage without objects, on no list, and its
    /// record.
    pub(super) fn release(&mut self, id: ZspageId, frames: &mut impl FrameSource) {
        let zspage = self.zspages.get(id);
        let (base, pages) = (zspage.base, self.class_of(zspage).pages);
        // Before the record can be used for another zspage.
        if let Some(running) = &mut self.running {
            running.forget(id);
        }
        self.zspages.remove(id);
        self.bases.remove(base);
        self.pages_used -= pages;
        frames.free(base, pages);
    }

    /// The lists of the class at `position`, and the records they link.
    pub(crate) fn lists_of(&mut self, position: usize) -> (&mut Lists, &mut Zspages) {
        (&mut self.lists[position], &mut self.zspages)
    }

    /// Puts a zspage that is on no list on the one that fits how full it is, or
    /// with the damaged.
    pub(crate) fn put_back(&mut self, id: ZspageId, damaged: bool) {
        let zspage = self.zspages.get(id);
        let (position, class) = (usize::from(zspage.class), self.class_of(zspage));
        let group = if damaged {
            DAMAGED
        } else {
            zspage.group_for::<G>(objs(class))
        };
        self.lists[position].push(&mut self.zspages, id, group);
    }

    /// Puts a zspage whose headers were overwritten where nothing is taken
    /// from.
    pub(super) fn set_aside(&mut self, id: ZspageId) {
        let lists = &mut self.lists[usize::from(self.zspages.get(id).class)];
        lists.remove(&mut self.zspages, id);
        lists.push(&mut self.zspages, id, DAMAGED);
    }

    /// Moves a zspage to the head of the list that fits how full it is, unless
    /// it is on that list already.
    pub(super) fn regroup(&mut self, id: ZspageId, class: &SizeClass) {
        let zspage = self.zspages.get(id);
        let group = zspage.group_for::<G>(objs(class));
        if group != zspage.group {
            let lists = &mut self.lists[usize::from(zspage.class)];
            lists.remove(&mut self.zspages, id);
            lists.push(&mut self.zspages, id, group);
        }
    }
}

/// Takes a free slot: the one freed last, else the first never used. `None`
/// when the list of free slots was overwritten.
pub(super) fn take_slot(
    zspage: &mut Zspage,
    class: &SizeClass,
    memory: &impl Memory,
) -> Option<u16> {
    if zspage.free == NO_SLOT {
        let index = zspage.fresh;
        if index >= objs(class) {
            return None;
        }
        zspage.fresh += 1;
        return Some(index);
    }
    let index = zspage.free;
    let offset = usize::from(index) * class.size;
    match Header::read(memory, zspage.base, offset) {
        Header::Free(next) if next == NO_SLOT || next < zspage.fresh => {
            zspage.free = next;
            Some(index)
        }
        _ => None,
    }
}

/// Slots per zspage; at most 256: sizes are multiples of 16, and longer zspages
/// than `size / 16` pages leave no smaller rest.
pub(super) fn objs(class: &SizeClass) -> u16 {
    u16::try_from(class.objs).unwrap_or(u16::MAX)
}
