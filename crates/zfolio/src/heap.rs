//! An allocator whose memory is a region: collections that live in it.

use crate::error::Error;
use crate::group::Group;
use crate::region::Region;
use allocator_api2::alloc::{AllocError, Allocator, Layout};
use core::ptr::NonNull;
use std::sync::Arc;
use zfolio_sys::blocks::Blocks;

/// Blocks of this size give their pages back when they are freed.
const BIG: usize = 256 << 10;

/// A heap in a region, for collections that take an allocator
/// (`allocator_api2::vec::Vec`, `hashbrown::HashMap`, ...).
///
/// ```no_run
/// # fn main() -> Result<(), zfolio::Error> {
/// use allocator_api2::vec::Vec;
/// let heap = zfolio::Heap::new(64 << 30)?;
/// let mut numbers: Vec<u64, _> = Vec::new_in(heap.clone());
/// numbers.extend(0..1 << 30);
/// # Ok(())
/// # }
/// ```
///
/// A handle: clones are of the same heap, which lives as long as one of them.
/// Never make it the global allocator: faults are served by code that uses
/// that one.
#[derive(Clone, Debug)]
pub struct Heap(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    // Before the region: it has its lists in it.
    blocks: Blocks,
    region: Region,
}

impl Heap {
    /// A heap of at most `len` bytes, in the process's group.
    ///
    /// # Errors
    /// As [`Region::reserve`].
    pub fn new(len: usize) -> Result<Self, Error> {
        Self::over(Region::reserve(len.max(1))?)
    }

    /// A heap of at most `len` bytes, in `group`.
    ///
    /// # Errors
    /// As [`Region::reserve_in`].
    pub fn new_in(group: &Group, len: usize) -> Result<Self, Error> {
        Self::over(Region::reserve_in(group, len.max(1))?)
    }

    /// A heap in `region`, whose contents are lost.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for one too small to hold a heap's own lists.
    pub fn over(mut region: Region) -> Result<Self, Error> {
        let start = region.as_mut_ptr() as usize;
        let bytes = region.len();
        // SAFETY: the region is this heap's from here on, and outlives it.
        let blocks = unsafe { Blocks::over(start..start + bytes) };
        let blocks = blocks.ok_or(Error::TooLarge { bytes })?;
        Ok(Self(Arc::new(Shared { blocks, region })))
    }

    /// The region it is in.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.0.region
    }
}

// SAFETY: blocks are disjoint, of the layout asked for, and live as long as a
// clone of the heap does: the region is dropped with the last.
unsafe impl Allocator for Heap {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            let dangling = NonNull::without_provenance(
                core::num::NonZeroUsize::new(layout.align()).ok_or(AllocError)?,
            );
            return Ok(NonNull::slice_from_raw_parts(dangling, 0));
        }
        let block = self.0.blocks.take(layout).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        if layout.size() >= BIG {
            let start = block.as_ptr() as usize;
            self.0.region.discard_inner(start..start + layout.size());
        }
        // SAFETY: the caller's promise.
        unsafe { self.0.blocks.give(block, layout) };
    }
}
