//! Where objects are, what keeps them there, and whole zspages on the move.

use zfolio_mm::{Memory, Pfn};

use super::error::ZsError;
use super::zs_pool::ZsPool;
use crate::class::SizeClass;
use crate::grouping::Grouping;
use crate::handle::{Handle, Place};
use crate::slot::Header;
use crate::zspage::Zspage;

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

impl<G: Grouping> ZsPool<G> {
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
            self.pinned += 1;
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
            self.pinned -= 1;
        }
    }

    /// Takes back every pin: for the child of a fork, in which the threads that
    /// hold them do not exist.
    pub fn forget_pins(&mut self) {
        if self.pinned == 0 {
            return;
        }
        for value in 1..=self.handles.cells() {
            let handle = u32::try_from(value).ok().and_then(Handle::from_u32);
            let Some((handle, place)) = handle.and_then(|h| Some((h, self.handles.get(h)?))) else {
                continue;
            };
            if place.pins != 0 {
                self.handles.set_pins(handle, 0);
                self.zspages.get_mut(place.zspage).pinned -= 1;
            }
        }
        self.pinned = 0;
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

    /// The zspage that starts at `at`: its pages, and whether a reader is in it.
    /// `None` when none starts there.
    #[must_use]
    pub fn zspage_at(&self, at: Pfn) -> Option<(usize, bool)> {
        let zspage = self.zspages.get(self.bases.get(at)?);
        Some((self.class_of(zspage).pages, zspage.pinned != 0))
    }

    /// Moves the zspage of `pages` pages at `from` to `to`, where the caller has
    /// room for it: `carry` moves the frames or copies the bytes, and says whether
    /// it could. Called between the checks and the change of the record, it is the
    /// only one to look at or change the bytes; the owner's lock is held over it.
    ///
    /// # Errors
    /// [`ZsError::BadFrame`] when no such zspage starts at `from` or one does at
    /// `to`; [`ZsError::Pinned`]; [`ZsError::NoMemory`] when `carry` says no.
    /// Nothing has changed then.
    pub fn move_zspage(
        &mut self,
        from: Pfn,
        to: Pfn,
        pages: usize,
        carry: impl FnOnce() -> bool,
    ) -> Result<(), ZsError> {
        let (found, pinned) = self.zspage_at(from).ok_or(ZsError::BadFrame)?;
        if found != pages || self.bases.get(to).is_some() {
            return Err(ZsError::BadFrame);
        }
        if pinned {
            return Err(ZsError::Pinned);
        }
        if !carry() {
            return Err(ZsError::NoMemory);
        }
        self.relocate(from, to)
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

    /// The record and class of the zspage an object is in.
    fn zspage(&self, place: Place) -> (&Zspage, &SizeClass) {
        let zspage = self.zspages.get(place.zspage);
        (zspage, self.class_of(zspage))
    }

    /// The class of a zspage.
    pub(super) fn class_of(&self, zspage: &Zspage) -> &SizeClass {
        &self.table.classes()[usize::from(zspage.class)]
    }
}
