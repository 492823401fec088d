//! Holding the address space still for a moment.
//!
//! Every call that changes mappings, or discards memory that is registered, begins under the
//! kernel's lock of the address space. mprotect holds that lock exclusively for as long as it
//! takes to go over the pages of its range: some 70 ns a page. A range of our own whose pages
//! are all the zero page takes that time whenever it is asked for, and costs 2 KiB of page
//! tables a MiB.

use crate::arena::{name_mapping, unmap};
use crate::syscall::{Errno, nr, syscall};
use core::ops::Range;
use zfolio_mm::PAGE_SIZE;

const PROT_NONE: usize = 0;
const PROT_READ: usize = 1;

/// A range to hold the address space with.
///
/// # Invariants
/// `range` is a private mapping of ours that nothing else uses. Its first `filled` bytes are
/// the zero page, of which the first `closed` are out of reach. The child of a fork does not have it.
#[derive(Debug)]
pub struct Hold {
    range: Range<usize>,
    filled: usize,
    /// The first so many bytes cannot be read just now.
    closed: usize,
}

impl Hold {
    /// Reserves addresses for `pages` pages.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn reserve(pages: usize) -> Result<Self, Errno> {
        const MAP_PRIVATE_ANON_NORESERVE: usize = 0x02 | 0x20 | 0x4000;
        const MADV_DONTFORK: usize = 10;
        const MADV_NOHUGEPAGE: usize = 15;
        let len = pages * PAGE_SIZE;
        let flags = MAP_PRIVATE_ANON_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { syscall(nr::MMAP, [0, len, PROT_READ, flags, usize::MAX, 0]) }?;
        let range = start..start + len;
        name_mapping(start, len, c"zfolio hold");
        // (Refused where there are no huge pages: then there is nothing to forbid.)
        // SAFETY: a mapping of ours.
        let _ = unsafe { syscall(nr::MADVISE, [start, len, MADV_NOHUGEPAGE, 0, 0, 0]) };
        // SAFETY: as above.
        unsafe { syscall(nr::MADVISE, [start, len, MADV_DONTFORK, 0, 0, 0]) }
            .inspect_err(|_| unmap(range.clone()))?;
        Ok(Self {
            range,
            filled: 0,
            closed: 0,
        })
    }

    /// Where it lies.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Fills what is not yet of the first `pages` pages, so that they can be held with.
    ///
    /// # Errors
    /// When there is no memory for page tables, or before Linux 5.14.
    pub fn fill(&mut self, pages: usize) -> Result<(), Errno> {
        const MADV_POPULATE_READ: usize = 22;
        let len = (pages * PAGE_SIZE).min(self.range.len());
        if len > self.filled {
            let (at, len) = (self.range.start + self.filled, len - self.filled);
            // SAFETY: reads pages of a mapping of ours.
            unsafe { syscall(nr::MADVISE, [at, len, MADV_POPULATE_READ, 0, 0, 0]) }?;
            self.filled += len;
        }
        Ok(())
    }

    /// Holds the address space for about as long as it takes to go over `pages` pages.
    ///
    /// # Errors
    /// When the kernel refuses mprotect.
    pub fn hold(&mut self, pages: usize) -> Result<(), Errno> {
        let len = (pages * PAGE_SIZE).min(self.filled);
        let closed = core::mem::take(&mut self.closed);
        if closed > 0 {
            self.protect(closed, PROT_READ)?;
        }
        // (To open again what the last hold has closed takes as long.)
        if closed < len / 2 {
            self.protect(len, PROT_NONE)?;
            self.closed = len;
        }
        Ok(())
    }

    fn protect(&self, len: usize, access: usize) -> Result<(), Errno> {
        // SAFETY: a mapping of ours that nobody reads.
        unsafe { syscall(nr::MPROTECT, [self.range.start, len, access, 0, 0, 0]) }.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_filled_once_and_held_with_again_and_again() {
        let mut hold = Hold::reserve(64).expect("addresses");
        hold.fill(16).expect("page tables");
        hold.hold(16).expect("protected");
        hold.fill(1 << 20).expect("page tables");
        assert_eq!(hold.filled, 64 * PAGE_SIZE);
        hold.hold(1 << 20).expect("protected");
        unmap(hold.range);
    }
}
