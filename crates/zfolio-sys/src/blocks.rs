//! Blocks of any size out of a range of memory that somebody else keeps.

use crate::lock::{Mutex, RawFutexMutex};
use core::alloc::Layout;
use core::ops::Range;
use core::ptr::NonNull;
use talc::DefaultBinning;
use talc::base::Talc;
use talc::source::Manual;

/// An allocator over one range, which holds its lists as well.
pub struct Blocks(Mutex<Talc<Manual, DefaultBinning>>);

impl core::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Blocks")
    }
}

impl Blocks {
    /// Takes a range over; `None` if it is too small for the lists.
    ///
    /// # Safety
    /// The range is readable and writable, nobody else uses it, and it stays
    /// so for as long as this and its blocks are used.
    #[must_use]
    pub unsafe fn over(range: Range<usize>) -> Option<Self> {
        let mut talc = Talc::new(Manual);
        // SAFETY: by contract.
        unsafe { talc.claim(range.start as *mut u8, range.len()) }?;
        let raw = <RawFutexMutex as lock_api::RawMutex>::INIT;
        Some(Self(Mutex::from_raw(raw, talc)))
    }

    /// A block, of a size above zero.
    #[must_use]
    pub fn take(&self, layout: Layout) -> Option<NonNull<u8>> {
        assert!(layout.size() > 0, "blocks have a size");
        // SAFETY: the size is not zero.
        unsafe { self.0.lock().allocate(layout) }
    }

    /// Gives a block back.
    ///
    /// # Safety
    /// It was taken from here with this layout, and nobody uses it any more.
    pub unsafe fn give(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: by contract.
        unsafe { self.0.lock().deallocate(block.as_ptr(), layout) };
    }
}
