//! Memory that is mapped twice: the program's view, which is open or closed
//! piece by piece, and our own, through which we see it either way.
//!
//! The memory is the kernel's shared kind without a file descriptor: nothing
//! that the program does to its descriptors touches it, and it counts against
//! no limit of files. Both views stay with this process. Our own never leaves
//! this module but as bytes lent for the length of a call.
//!
//! Addresses are the program's view's everywhere. Who calls has the pages to
//! himself for as long as a call lasts (as in `zfolio_mm::Memory`): closed to the
//! program, and no other thread of ours at them.

use crate::arena::name_mapping;
use crate::region::keep_from_children;
use crate::syscall::{Errno, nr, syscall};
use core::ops::Range;

const PROT_NONE: usize = 0;
const PROT_READ_WRITE: usize = 3;
const MAP_SHARED_ANON_NORESERVE: usize = 0x01 | 0x20 | 0x4000;
const MREMAP_MAYMOVE_FIXED: usize = 3;
const MADV_REMOVE: usize = 9;
const MADV_DONTDUMP: usize = 16;
const MADV_POPULATE_READ: usize = 22;

/// Both views of one range.
///
/// # Invariants
/// `own .. own + view.len()` is mapped readable and writable, and the same
/// memory as `view`, as long as this lives.
#[derive(Debug)]
pub struct Twin {
    view: Range<usize>,
    own: usize,
}

fn call(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: makes, changes or removes mappings of ours alone: each caller
    // below says whose addresses it gives.
    unsafe { syscall(number, args) }
}

impl Twin {
    /// Puts new memory, zeros and closed, in place of what is mapped at `view`
    /// (whole pages of the caller's own), and maps it for us as well. Children
    /// of forks have neither.
    ///
    /// # Errors
    /// As the kernel says. What is mapped at `view` then is of no use.
    pub fn over(view: &Range<usize>) -> Result<Self, Errno> {
        let len = view.len();
        let flags = MAP_SHARED_ANON_NORESERVE;
        // A fresh mapping at an address of the kernel's choice. Closed at first:
        // where new memory is locked (MCL_FUTURE) all of it would be made now.
        let own = call(nr::MMAP, [0, len, PROT_NONE, flags, usize::MAX, 0])?;
        let twin = Self {
            view: view.clone(),
            own,
        };
        let _ = call(nr::MUNLOCK, [own, len, 0, 0, 0, 0]);
        // A length of 0: the mapping stays, and there is a second one. The
        // caller's addresses, by contract.
        let args = [own, 0, len, MREMAP_MAYMOVE_FIXED, view.start, 0];
        call(nr::MREMAP, args)?;
        call(nr::MPROTECT, [own, len, PROT_READ_WRITE, 0, 0, 0])?;
        keep_from_children(view)?;
        keep_from_children(&(own..own + len))?;
        name_mapping(own, len, c"zfolio own view");
        name_mapping(view.start, len, c"zfolio region");
        // The program's view says it all, and twice is too much.
        let _ = call(nr::MADVISE, [own, len, MADV_DONTDUMP, 0, 0, 0]);
        Ok(twin)
    }

    /// The program's addresses.
    #[must_use]
    pub fn view(&self) -> Range<usize> {
        self.view.clone()
    }

    /// Our own address of one of the program's.
    fn own(&self, range: &Range<usize>) -> usize {
        assert!(
            range.start <= range.end && self.view.start <= range.start,
            "below the view"
        );
        assert!(range.end <= self.view.end, "above the view");
        self.own + (range.start - self.view.start)
    }

    fn protect(&self, range: &Range<usize>, how: usize) -> Result<(), Errno> {
        self.own(range);
        // The program's view, inside it.
        call(nr::MPROTECT, [range.start, range.len(), how, 0, 0, 0]).map(drop)
    }

    /// Lets the program read and write `range`.
    ///
    /// # Errors
    /// `NOMEM` when there would be more mappings than the system allows, or
    /// the program has unmapped some of it.
    pub fn open(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.protect(range, PROT_READ_WRITE)
    }

    /// Keeps the program from `range`: once this returns no thread can read or
    /// write it.
    ///
    /// # Errors
    /// As [`Self::open`]; it is open as it was then.
    pub fn close(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.protect(range, PROT_NONE)
    }

    /// Has the program's open pages of `range` in its page table, so that
    /// touching them is no fault. A wish.
    pub fn prepare(&self, range: &Range<usize>) {
        self.own(range);
        let args = [range.start, range.len(), MADV_POPULATE_READ, 0, 0, 0];
        let _ = call(nr::MADVISE, args);
    }

    /// Makes the pages of `range` for us all at once, instead of each as it is
    /// written to. A wish.
    pub fn make(&self, range: &Range<usize>) {
        crate::arena::make_own(self.own(range), range.len());
    }

    /// Whether the kernel can have the pages of `range` at all. (It is taken to,
    /// where it cannot be asked: before Linux 5.14.)
    #[must_use]
    pub fn is_sound(&self, range: &Range<usize>) -> bool {
        let args = [self.own(range), range.len(), MADV_POPULATE_READ, 0, 0, 0];
        matches!(call(nr::MADVISE, args), Ok(_) | Err(Errno::INVAL))
    }

    /// Gives the memory of `range` back to the system: it reads as zeros.
    ///
    /// # Errors
    /// As the kernel says; the bytes are what they were then, or zeros.
    pub fn punch(&self, range: &Range<usize>) -> Result<(), Errno> {
        let (own, len) = (self.own(range), range.len());
        let remove = || call(nr::MADVISE, [own, len, MADV_REMOVE, 0, 0, 0]).map(drop);
        match remove() {
            Err(Errno::INVAL) => {
                // The program has locked all that it has (mlockall), this too.
                let _ = call(nr::MUNLOCK, [self.own, self.view.len(), 0, 0, 0, 0]);
                remove()
            }
            done => done,
        }
    }

    /// Runs `f` on the bytes of `range`.
    pub fn with<R>(&self, range: &Range<usize>, f: impl FnOnce(&[u8]) -> R) -> R {
        let own = self.own(range);
        // SAFETY: mapped, by the invariant; by contract nobody writes to it.
        f(unsafe { core::slice::from_raw_parts(own as *const u8, range.len()) })
    }

    /// Runs `f` on the bytes of `range`, to be written.
    pub fn with_mut<R>(&self, range: &Range<usize>, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let own = self.own(range);
        // SAFETY: mapped, by the invariant; by contract it is the caller's alone.
        f(unsafe { core::slice::from_raw_parts_mut(own as *mut u8, range.len()) })
    }
}

impl Drop for Twin {
    /// Unmaps our own view; the program's is its owner's to unmap.
    fn drop(&mut self) {
        // Lent out to nobody: that takes a reference to this.
        let _ = call(nr::MUNMAP, [self.own, self.view.len(), 0, 0, 0, 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{map_region, unmap_region};
    use zfolio_mm::PAGE_SIZE;

    #[test]
    fn what_one_view_has_the_other_has_until_it_is_punched() {
        let view = map_region(8 * PAGE_SIZE).expect("a mapping");
        let twin = Twin::over(&view).expect("a second one");
        let page = |at: usize| view.start + at * PAGE_SIZE..view.start + (at + 1) * PAGE_SIZE;
        let first = page(3);
        twin.open(&first).expect("opened");
        let seen = first.start as *mut u8;
        // SAFETY: open, and this thread's alone.
        unsafe { seen.write_volatile(7) };
        assert_eq!(twin.with(&first, |bytes| bytes[0]), 7);
        twin.close(&first).expect("closed");
        twin.with_mut(&first, |bytes| bytes[1] = 9);
        twin.open(&first).expect("opened");
        twin.prepare(&first);
        assert!(twin.is_sound(&view));
        // SAFETY: as above.
        assert_eq!(unsafe { seen.add(1).read_volatile() }, 9);
        twin.punch(&first).expect("punched");
        twin.make(&first);
        // SAFETY: as above.
        assert_eq!(unsafe { seen.read_volatile() }, 0);
        assert!(twin.open(&page(0)).is_ok() && twin.close(&page(0)).is_ok());
        drop(twin);
        // SAFETY: nobody uses it.
        unsafe { unmap_region(&view) };
    }

    #[test]
    #[should_panic(expected = "above the view")]
    fn what_is_not_in_the_view_is_not_lent() {
        let view = map_region(PAGE_SIZE).expect("a mapping");
        let twin = Twin::over(&view).expect("a second one");
        twin.with(&(view.start..view.end + 1), |_| ());
    }
}
