//! The pool: malloc, free, location, pin, relocate.
//!
//! An allocation takes a slot of the fullest zspage of its class that has one,
//! else of a new zspage; a free gives an emptied zspage's frames back at once.
//! Both are constant time: a class lookup, a bit scan, one list move when the
//! zspage's tenth changes, 8 bytes of the arena read or written.
//!
//! # Invariants
//!
//! Checked by [`ZsPool::validate`], besides those of `zspage`:
//! 1. each live handle names a slot in use, and that slot's header names the
//!    handle; no two handles name one slot;
//! 2. `objects = sum(inuse)`, `pages_used = sum(zspages * pages)`;
//! 3. each zspage is found by its base frame, and nothing else is;
//! 4. a zspage's `pinned` is the number of its objects with pins.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use zfolio_mm::{Memory, PAGE_SIZE, Pfn};

use crate::bases::Bases;
use crate::class::{ClassTable, DEFAULT_CHAIN, SizeClass};
use crate::handle::{Handle, Handles, Place};
use crate::slot::{Header, NO_SLOT};
use crate::source::FrameSource;
use crate::zspage::{DAMAGED, Lists, Zspage, ZspageId, Zspages};

mod check;

/// What a pool could not do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ZsError {
    /// An object of 0 bytes or of more than a page.
    BadSize,
    /// The source has no run of frames for a zspage, or handles ran out.
    NoMemory,
    /// The handle has no object: it was freed already or never given out.
    BadHandle,
    /// The object, or one in the zspage, is pinned.
    Pinned,
    /// No zspage starts at the frame to move from, or one does at the frame to
    /// move to.
    BadFrame,
}

impl fmt::Display for ZsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadSize => "object size out of range",
            Self::NoMemory => "no frames for a zspage",
            Self::BadHandle => "no object has this handle",
            Self::Pinned => "the object is pinned",
            Self::BadFrame => "no zspage can be moved between these frames",
        })
    }
}

impl core::error::Error for ZsError {}

/// Where an object's payload is, until it is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// First frame of its zspage, whose frames are contiguous.
    pub at: Pfn,
    /// Bytes from the start of `at` to the payload; may be past its first page.
    pub offset: usize,
    /// Bytes of payload the slot holds: at least what was asked for.
    pub capacity: usize,
}

/// A pool of objects in frames of the arena.
#[derive(Debug)]
pub struct ZsPool {
    table: ClassTable,
    /// Per class of the table.
    lists: Vec<Lists>,
    /// Objects per class of the table.
    used: Vec<usize>,
    zspages: Zspages,
    handles: Handles,
    bases: Bases,
    /// Pages of all zspages.
    pages_used: usize,
    /// Objects copied from slot to slot by zspage compaction.
    objs_moved: u64,
    /// Pages freed by zspage compaction.
    pages_compacted: u64,
}

impl Default for ZsPool {
    fn default() -> Self {
        Self::new()
    }
}

impl ZsPool {
    /// An empty pool with zspages of up to 8 pages.
    #[must_use]
    pub fn new() -> Self {
        Self::with_chain(DEFAULT_CHAIN)
    }

    /// An empty pool with zspages of up to `chain` pages. Longer zspages waste
    /// less and have fewer huge classes, shorter ones are easier to find room
    /// for.
    ///
    /// # Panics
    /// When `chain` is not in 1 ..= 16.
    #[must_use]
    pub fn with_chain(chain: usize) -> Self {
        let table = ClassTable::new(PAGE_SIZE, chain);
        let classes = table.classes().len();
        Self {
            table,
            lists: vec![Lists::default(); classes],
            used: vec![0; classes],
            zspages: Zspages::new(),
            handles: Handles::new(),
            bases: Bases::default(),
            pages_used: 0,
            objs_moved: 0,
            pages_compacted: 0,
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

    /// Allocates room for `size` bytes (1 ..= a page). The payload's bytes are
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
        let position = self.table.lookup(size).ok_or(ZsError::BadSize)?;
        let class = self.table.classes()[position];
        if !self.handles.reserve() {
            return Err(ZsError::NoMemory);
        }
        let (id, index) = loop {
            let id = match self.lists[position].fullest_with_room() {
                Some(id) => id,
                None => self.grow(position, frames).ok_or(ZsError::NoMemory)?,
            };
            if let Some(index) = take_slot(self.zspages.get_mut(id), &class, memory) {
                break (id, index);
            }
            // Its free list was overwritten. Each round takes one zspage out of
            // the way, so the loop ends.
            self.lists[position].remove(&mut self.zspages, id);
            self.lists[position].push(&mut self.zspages, id, DAMAGED);
        };
        // Cannot fail after `reserve`.
        let handle = self.handles.insert(id, index).ok_or(ZsError::NoMemory)?;
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
        if zspage.inuse == 0 {
            let base = zspage.base;
            self.lists[position].remove(&mut self.zspages, id);
            self.zspages.remove(id);
            self.bases.remove(base);
            self.pages_used -= class.pages;
            frames.free(base, class.pages);
            return Ok(());
        }
        let offset = usize::from(place.index) * class.size;
        Header::Free(zspage.free).write(memory, zspage.base, offset);
        zspage.free = place.index;
        self.regroup(id, &class);
        Ok(())
    }

    /// Where an object is now.
    ///
    /// # Panics
    /// For a handle without an object.
    #[must_use]
    #[track_caller]
    pub fn location(&self, handle: Handle) -> Location {
        self.try_location(handle)
            .expect("no object has this handle")
    }

    /// Where an object is now; `None` for a handle without an object.
    #[must_use]
    pub fn try_location(&self, handle: Handle) -> Option<Location> {
        let place = self.handles.get(handle)?;
        let (zspage, class) = self.zspage(place);
        let slot = usize::from(place.index) * class.size;
        Some(Location {
            at: zspage.base,
            offset: slot + class.header(),
            capacity: class.capacity(),
        })
    }

    /// Whether the bytes in front of the object still name this handle: `false`
    /// when they were overwritten or the handle has no object. An object with a
    /// page of its own has no such bytes, its owner is noted elsewhere.
    #[must_use]
    pub fn check_owner(&self, handle: Handle, memory: &impl Memory) -> bool {
        let Some(place) = self.handles.get(handle) else {
            return false;
        };
        let (zspage, class) = self.zspage(place);
        if class.is_huge() {
            return zspage.owner == Some(handle);
        }
        let offset = usize::from(place.index) * class.size;
        Header::read(memory, zspage.base, offset) == Header::Owned(handle)
    }

    /// Keeps an object where it is until as many [`Self::unpin`] calls: it is
    /// neither moved, nor relocated with its zspage, nor freed.
    ///
    /// # Panics
    /// For a handle without an object, or one pinned 65,535 times already.
    #[track_caller]
    pub fn pin(&mut self, handle: Handle) {
        let place = self
            .handles
            .get(handle)
            .expect("pinning a handle without an object");
        let pins = place.pins.checked_add(1).expect("too many pins");
        self.handles.set_pins(handle, pins);
        if place.pins == 0 {
            self.zspages.get_mut(place.zspage).pinned += 1;
        }
    }

    /// Takes back one [`Self::pin`].
    ///
    /// # Panics
    /// For a handle without an object or an object without a pin.
    #[track_caller]
    pub fn unpin(&mut self, handle: Handle) {
        let place = self
            .handles
            .get(handle)
            .expect("unpinning a handle without an object");
        let pins = place
            .pins
            .checked_sub(1)
            .expect("unpinning an object without a pin");
        self.handles.set_pins(handle, pins);
        if pins == 0 {
            self.zspages.get_mut(place.zspage).pinned -= 1;
        }
    }

    /// Whether an object is pinned; `false` for a handle without an object.
    #[must_use]
    pub fn is_pinned(&self, handle: Handle) -> bool {
        self.handles
            .get(handle)
            .is_some_and(|place| place.pins != 0)
    }

    /// Pages of the zspage that starts at `at`, `None` when none does.
    #[must_use]
    pub fn zspage_pages(&self, at: Pfn) -> Option<usize> {
        let id = self.bases.get(at)?;
        Some(self.class_of(self.zspages.get(id)).pages)
    }

    /// Notes that the zspage at `from` is now at `to`: constant time, handles
    /// stay as they are. The caller has moved the frames or copied the bytes
    /// ([`Self::zspage_pages`] of them), and owns `from` afterwards, the pool
    /// `to`.
    ///
    /// # Errors
    /// [`ZsError::BadFrame`] when no zspage starts at `from` or one does at
    /// `to`; [`ZsError::Pinned`] when a reader is in the zspage. Nothing has
    /// changed then.
    pub fn relocate(&mut self, from: Pfn, to: Pfn) -> Result<(), ZsError> {
        let id = self.bases.get(from).ok_or(ZsError::BadFrame)?;
        if from != to && self.bases.get(to).is_some() {
            return Err(ZsError::BadFrame);
        }
        let zspage = self.zspages.get_mut(id);
        if zspage.pinned != 0 {
            return Err(ZsError::Pinned);
        }
        zspage.base = to;
        self.bases.remove(from);
        self.bases.insert(to, id);
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

    /// Objects moved and pages freed by zspage compaction.
    pub(crate) const fn compaction_counters(&self) -> (u64, u64) {
        (self.objs_moved, self.pages_compacted)
    }

    /// Makes a new zspage for the class at `position`, on its empty list.
    fn grow(&mut self, position: usize, frames: &mut impl FrameSource) -> Option<ZspageId> {
        // The table has at most 255 classes.
        let class = u8::try_from(position).ok()?;
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

    /// Moves a zspage to the head of the list that fits how full it is, unless
    /// it is on that list already.
    fn regroup(&mut self, id: ZspageId, class: &SizeClass) {
        let zspage = self.zspages.get(id);
        let group = zspage.group_for(objs(class));
        if group != zspage.group {
            let lists = &mut self.lists[usize::from(zspage.class)];
            lists.remove(&mut self.zspages, id);
            lists.push(&mut self.zspages, id, group);
        }
    }

    /// The record and class of the zspage an object is in.
    fn zspage(&self, place: Place) -> (&Zspage, &SizeClass) {
        let zspage = self.zspages.get(place.zspage);
        (zspage, self.class_of(zspage))
    }

    /// The class of a zspage.
    fn class_of(&self, zspage: &Zspage) -> &SizeClass {
        &self.table.classes()[usize::from(zspage.class)]
    }
}

/// Takes a free slot: the one freed last, else the first never used. `None`
/// when the list of free slots was overwritten.
fn take_slot(zspage: &mut Zspage, class: &SizeClass, memory: &impl Memory) -> Option<u16> {
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

/// Slots per zspage; at most 2048 (32-byte slots in 16 pages).
fn objs(class: &SizeClass) -> u16 {
    u16::try_from(class.objs).unwrap_or(u16::MAX)
}
