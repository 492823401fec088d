//! A region: memory by the slice.

use crate::error::Error;
use crate::group::Group;
use crate::memory::Memory;
use crate::pin::{Pin, PinMut};
use core::fmt;
use core::ops::{Bound, Deref, DerefMut, Range, RangeBounds};

/// A range of memory, zeros at first, that is compressed where it is not used.
///
/// It is used as the slice that it is. Dropping it unmaps it.
pub struct Region {
    memory: Memory,
    len: usize,
}

impl Region {
    /// Reserves `len` bytes in the process's [`Group`]. They take memory as
    /// they are touched, and none before.
    ///
    /// # Errors
    /// [`Error::Empty`], [`Error::TooLarge`], [`Error::TooManyRegions`], and
    /// those of [`Group::process`].
    pub fn reserve(len: usize) -> Result<Self, Error> {
        if len == 0 {
            return Err(Error::Empty);
        }
        Self::reserve_in(&Group::process()?, len)
    }

    /// Reserves `len` bytes in `group`. (Any length: what is more than whole
    /// pages takes one more.)
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_in(group: &Group, len: usize) -> Result<Self, Error> {
        if len == 0 {
            return Err(Error::Empty);
        }
        let memory = Memory::map(&group.0, len)?;
        Ok(Self { memory, len })
    }

    /// The group it is in.
    #[must_use]
    pub fn group(&self) -> Group {
        Group(self.memory.group().clone())
    }

    /// Its first byte. Aligned to 2 MiB.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.memory.range().start as *const u8
    }

    /// Its first byte, to write to.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.range().start as *mut u8
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a region has at least a byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Keeps the bytes of `range` in memory while the guard lives, so that
    /// system calls and foreign code may read them.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::PinnedTooMuch`].
    pub fn pin(&self, range: impl RangeBounds<usize>) -> Result<Pin<'_>, Error> {
        Pin::hold(&self.memory, self.inside(range)?)
    }

    /// As [`Self::pin`], to be written to.
    ///
    /// # Errors
    /// As [`Self::pin`].
    pub fn pin_mut(&mut self, range: impl RangeBounds<usize>) -> Result<PinMut<'_>, Error> {
        let inside = self.inside(range)?;
        Pin::hold(&self.memory, inside).map(PinMut)
    }

    /// Moves what is wholly in `range` out, to be compressed next: it will not
    /// be used for a while. A wrong advice costs time and nothing else.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn advise_cold(&self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        let range = self.inside(range)?;
        self.memory.with_engine(|engine| engine.advise_cold(&range));
        Ok(())
    }

    /// Brings back what is out of `range`, before it is touched, as much as a
    /// quarter of `high`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn advise_willneed(&self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        let range = self.inside(range)?;
        let most = self.group().high() / 4;
        let end = range.end.min(range.start.saturating_add(most));
        crate::pin::bring(&self.memory, &(range.start..end));
        Ok(())
    }

    /// Drops the contents of the pages wholly in `range`: they read as zeros,
    /// and take no memory. Use this instead of `madvise`, of which a region
    /// learns nothing.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn discard(&mut self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        let range = self.inside(range)?;
        self.discard_inner(range);
        Ok(())
    }

    /// Drops the contents of whole pages in a range of addresses, which must
    /// be inside, and which nobody else uses.
    pub(crate) fn discard_inner(&self, range: Range<usize>) {
        if self.memory.group().engine.is_some() {
            self.memory.with_engine(|engine| engine.discard(&range));
            return;
        }
        let inner = range.start.next_multiple_of(4096)..range.end & !4095;
        if inner.start < inner.end {
            // By contract nobody looks at these bytes any more.
            let _ = zfolio_sys::arena::discard(inner.start, inner.len());
        }
    }

    /// As [`Self::discard`], for holders of a region that is used by others
    /// too: nobody may use the range meanwhile, or count on what it holds.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    ///
    /// # Safety
    /// No reference to a byte of the range is alive.
    pub unsafe fn discard_shared(&self, range: impl RangeBounds<usize>) -> Result<(), Error> {
        let range = self.inside(range)?;
        self.discard_inner(range);
        Ok(())
    }

    /// Addresses of a range of the region.
    fn inside(&self, range: impl RangeBounds<usize>) -> Result<Range<usize>, Error> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.checked_add(1).ok_or(Error::OutOfRange)?,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.checked_add(1).ok_or(Error::OutOfRange)?,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len,
        };
        if start > end || end > self.len {
            return Err(Error::OutOfRange);
        }
        let base = self.memory.range().start;
        Ok(base + start..base + end)
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped for as long as the region lives, zeros or what was
        // written; the manager moves pages, but no byte changes.
        unsafe { core::slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed to the caller alone.
        unsafe { core::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len) }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("start", &self.as_ptr())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
