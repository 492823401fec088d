//! Handle cells: location, pins, reuse.
//!
//! A handle is the number of a *cell* that says which slot of which zspage the
//! object is in. Owners keep the handle; whoever moves the object changes the
//! cell. Eight bytes per object; a freed cell links to the next free one and is
//! the first to be used again.
//!
//! A *pin* keeps an object where it is while a reader looks at its bytes
//! without the pool's lock.
//!
//! # Limits
//!
//! A handle of a freed object is recognised until its cell is used again; after
//! that it names the new object. There is no generation in the 28 bits.

use core::num::NonZeroU32;

use crate::chunked::Chunked;
use crate::zspage_id::ZspageId;

/// Names an object of a pool. Never 0 and below 2^28, so that an owner can
/// pack it with four bits of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(NonZeroU32);

const _: () = assert!(size_of::<Option<Handle>>() == 4);

impl Handle {
    /// Bits a handle's value fits in.
    pub const BITS: u32 = 28;

    /// The value, 1 .. 2^28.
    #[must_use]
    pub const fn as_u32(self) -> u32 {
        self.0.get()
    }

    /// The handle of a value; `None` for 0 or 2^28 and above.
    #[must_use]
    pub const fn from_u32(value: u32) -> Option<Self> {
        match NonZeroU32::new(value) {
            Some(value) if value.get() >> Self::BITS == 0 => Some(Self(value)),
            _ => None,
        }
    }

    /// The cell's index.
    const fn cell(self) -> u32 {
        self.0.get() - 1
    }
}

/// Index of a cell that has no object.
const FREE: u16 = u16::MAX;

/// Bits of a cell's `index` that say the slot; the four above, by how many classes
/// the object's own is below that of the slot.
const SLOT_BITS: u32 = 12;

/// Most classes between an object's own and that of its slot: 15 would make the
/// last slot look like [`FREE`].
pub(crate) const MAX_DISTANCE: u16 = 14;

/// One cell.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// The zspage; of a free cell, the value of the next free handle or 0.
    zspage: u32,
    /// The slot within it and the distance, see [`SLOT_BITS`]; or [`FREE`].
    index: u16,
    /// Readers that look at the object.
    pins: u16,
}

const _: () = assert!(size_of::<Cell>() == 8);

/// Where an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The zspage.
    pub(crate) zspage: ZspageId,
    /// The slot within it.
    pub(crate) index: u16,
    /// Readers that look at it.
    pub(crate) pins: u16,
    /// How many classes further up than its own it is: 0 unless it is a guest.
    pub(crate) distance: u16,
}

/// All cells of a pool.
#[derive(Debug)]
pub(crate) struct Handles {
    cells: Chunked<Cell>,
    /// First free handle.
    free: Option<Handle>,
    /// Cells with an object.
    live: usize,
}

impl Handles {
    /// No cells.
    pub(crate) const fn new() -> Self {
        Self {
            cells: Chunked::new(),
            free: None,
            live: 0,
        }
    }

    /// Objects.
    pub(crate) const fn live(&self) -> usize {
        self.live
    }

    /// Makes sure the next [`Self::insert`] has a cell; `false` when all
    /// 2^28 - 1 are in use.
    pub(crate) fn reserve(&mut self) -> bool {
        if self.free.is_some() {
            return true;
        }
        let Some(handle) = Handle::from_u32(self.cells.len() + 1) else {
            return false;
        };
        if self
            .cells
            .push(Cell {
                zspage: 0,
                index: FREE,
                pins: 0,
            })
            .is_none()
        {
            return false;
        }
        self.free = Some(handle);
        true
    }

    /// Takes a cell for the object in slot `index` of `zspage`, which is so many
    /// classes above its own; `None` without a reserved one.
    pub(crate) fn insert(&mut self, zspage: ZspageId, index: u16, distance: u16) -> Option<Handle> {
        let handle = self.free?;
        let cell = self.cells.get_mut(handle.cell())?;
        self.free = Handle::from_u32(cell.zspage);
        *cell = Cell {
            zspage: zspage.get(),
            index: index | distance << SLOT_BITS,
            pins: 0,
        };
        self.live += 1;
        Some(handle)
    }

    /// Where the object is; `None` for a handle that has no object.
    pub(crate) fn get(&self, handle: Handle) -> Option<Place> {
        let cell = self.cells.get(handle.cell())?;
        if cell.index == FREE {
            return None;
        }
        let zspage = ZspageId::new(cell.zspage)?;
        Some(Place {
            zspage,
            index: cell.index & ((1 << SLOT_BITS) - 1),
            pins: cell.pins,
            distance: cell.index >> SLOT_BITS,
        })
    }

    /// Notes that an object without pins is now in slot `index` of `zspage`, which
    /// is `distance` classes above its own.
    pub(crate) fn set_place(
        &mut self,
        handle: Handle,
        zspage: ZspageId,
        index: u16,
        distance: u16,
    ) {
        if let Some(cell) = self.cells.get_mut(handle.cell()) {
            debug_assert!(
                cell.index != FREE && cell.pins == 0,
                "moving a free or pinned cell"
            );
            cell.zspage = zspage.get();
            cell.index = index | distance << SLOT_BITS;
        }
    }

    /// Frees the cell of an object.
    pub(crate) fn remove(&mut self, handle: Handle) {
        let next = self.free.map_or(0, Handle::as_u32);
        if let Some(cell) = self.cells.get_mut(handle.cell()) {
            debug_assert!(cell.index != FREE, "freeing a free handle cell");
            *cell = Cell {
                zspage: next,
                index: FREE,
                pins: 0,
            };
            self.free = Some(handle);
            self.live -= 1;
        }
    }

    /// Sets the number of pins of an object.
    pub(crate) fn set_pins(&mut self, handle: Handle, pins: u16) {
        if let Some(cell) = self.cells.get_mut(handle.cell()) {
            cell.pins = pins;
        }
    }

    /// Every object with its place.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Handle, Place)> {
        (1..=self.cells.len())
            .filter_map(Handle::from_u32)
            .filter_map(|handle| self.get(handle).map(|place| (handle, place)))
    }

    /// Length of the list of free cells, `None` when it is longer than there
    /// are cells or meets one in use.
    pub(crate) fn free_cells(&self) -> Option<usize> {
        let mut count = 0;
        let mut next = self.free;
        while let Some(handle) = next {
            let cell = self.cells.get(handle.cell())?;
            count += 1;
            if cell.index != FREE || count > self.cells.len() {
                return None;
            }
            next = Handle::from_u32(cell.zspage);
        }
        usize::try_from(count).ok()
    }

    /// Cells, with an object or free.
    pub(crate) fn cells(&self) -> usize {
        self.cells.len() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_packable() {
        assert_eq!(Handle::from_u32(0), None);
        assert_eq!(Handle::from_u32(1 << 28), None);
        assert_eq!(Handle::from_u32(u32::MAX), None);
        for value in [1, 2, (1 << 28) - 1] {
            assert_eq!(Handle::from_u32(value).map(Handle::as_u32), Some(value));
        }
    }

    #[test]
    fn a_freed_cell_has_no_object_and_is_used_next() {
        let zspage = ZspageId::new(9).expect("not 0");
        let mut handles = Handles::new();
        let make = |handles: &mut Handles, index| {
            assert!(handles.reserve());
            handles
                .insert(zspage, index, index % 3)
                .expect("a reserved cell")
        };
        let (a, b) = (make(&mut handles, 0), make(&mut handles, 1));
        assert_ne!(a, b);
        handles.remove(a);
        assert_eq!(handles.get(a), None);
        assert_eq!(
            handles.get(b),
            Some(Place {
                zspage,
                index: 1,
                pins: 0,
                distance: 1,
            })
        );
        assert_eq!(
            (handles.live(), handles.cells(), handles.free_cells()),
            (1, 2, Some(1))
        );
        let again = make(&mut handles, 2);
        assert_eq!(again, a);
        assert_eq!(handles.iter().count(), 2);
    }
}
