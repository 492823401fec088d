//! Memory of the program's that is open or closed to it piece by piece, and that we take
//! aside to look at and to fill.
//!
//! The memory is private and anonymous. Taking a piece aside (mremap with
//! `MREMAP_DONTUNMAP`) moves its pages to an address that nobody else knows; what stays
//! at the program's is closed and empty. Putting it back moves them to where they were,
//! in one step as the program sees it. A page keeps its bytes and whoever holds
//! it all the while: a device that writes to it (O_DIRECT, io_uring) goes on doing so.
//!
//! # What somebody holds does not go
//!
//! User space is not told whether somebody holds a page of its own, but the kernel lets go of
//! a page after `MADV_FREE` and `MADV_PAGEOUT` only if nobody does and nobody has written to
//! it since the first of the two. So [`Aside::hold_still`] copies the bytes, frees
//! the pages, and sees whether they are as copied; whatever a device writes from then on
//! leaves its page held, or written to. [`Aside::let_go`] then asks for them to go, and
//! mincore says whether all have. If not, [`Aside::mend`] makes the pages ordinary
//! ones again.
//!
//! A write in the instant between the copy of a byte and its second look is seen, unless the kernel
//! takes the page itself within it; and it cannot take what `MADV_FREE` has just put into the
//! processor's own list, where it is held.
//!
//! Addresses are the program's everywhere but in [`Aside`]. Who calls has the pages of a range
//! to himself for as long as a call lasts or an [`Aside`] lives: no other thread of ours is
//! at them.

use crate::arena::{avoid_huge_pages, discard, make_own};
use crate::procfs::File;
use crate::region::keep_from_children;
use crate::syscall::{Errno, nr, syscall};
use core::mem;
use core::ops::Range;
use zfolio_mm::PAGE_SIZE;

const PROT_NONE: usize = 0;
const PROT_READ_WRITE: usize = 3;
/// A mapping that takes nobody's place.
const MAP_ONLY_IN_A_HOLE: usize = 0x02 | 0x20 | 0x4000 | 0x10_0000;
const MREMAP_MAYMOVE: usize = 1;
const MREMAP_FIXED: usize = 2;
const MREMAP_DONTUNMAP: usize = 4;
const MADV_FREE: usize = 8;
const MADV_PAGEOUT: usize = 21;
const MADV_POPULATE_READ: usize = 22;
/// Most pages taken aside at a time.
const MOST: usize = 512;
/// Of an entry of /proc/self/pagemap: a page that is mapped here alone. The kernel's page of
/// zeros is not.
const EXCLUSIVE: u64 = 1 << 56;

/// Memory that is closed and opened.
///
/// # Invariants
/// `view` is one private, anonymous mapping of the caller's, or several that differ in their protection
/// alone, for as long as this lives.
#[derive(Debug)]
pub struct Closable {
    view: Range<usize>,
}

/// A piece of it that was taken aside. Dropped, its bytes are gone: what the program has
/// there is zeros, and closed.
#[derive(Debug)]
pub struct Aside<'a> {
    of: &'a Closable,
    /// The program's addresses.
    range: Range<usize>,
    /// Where its pages are.
    at: usize,
}

fn call(number: usize, args: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: makes, changes or removes mappings of ours alone: each caller
    // below says whose addresses it gives.
    unsafe { syscall(number, args) }
}

fn protect(at: usize, len: usize, how: usize) -> Result<(), Errno> {
    call(nr::MPROTECT, [at, len, how, 0, 0, 0]).map(drop)
}

/// Advice that does not apply to memory that is locked (mlockall) is given again after
/// unlocking it.
fn advise_unlocked(at: usize, len: usize, advice: usize) -> Result<(), Errno> {
    let advise = || call(nr::MADVISE, [at, len, advice, 0, 0, 0]).map(drop);
    match advise() {
        Err(Errno::INVAL) => {
            let _ = call(nr::MUNLOCK, [at, len, 0, 0, 0, 0]);
            advise()
        }
        done => done,
    }
}

impl Closable {
    /// Closes `view`, which the caller has mapped readable and writable, and which holds
    /// nothing yet. Children of forks do not have it.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn over(view: &Range<usize>) -> Result<Self, Errno> {
        let (start, len) = (view.start, view.len());
        keep_from_children(view)?;
        avoid_huge_pages(start, len);
        // (New memory may be locked: MCL_FUTURE.)
        let _ = call(nr::MUNLOCK, [start, len, 0, 0, 0, 0]);
        // Pieces of a mapping that has had a page are numbered by where they were first. So
        // those that come back are one mapping with their neighbours again.
        make_own(start, PAGE_SIZE);
        discard(start, PAGE_SIZE)?;
        protect(start, len, PROT_NONE)?;
        Ok(Self { view: view.clone() })
    }

    /// The program's addresses.
    #[must_use]
    pub fn view(&self) -> Range<usize> {
        self.view.clone()
    }

    fn assert_inside(&self, range: &Range<usize>) {
        assert!(
            range.start <= range.end && self.view.start <= range.start,
            "below the view"
        );
        assert!(range.end <= self.view.end, "above the view");
    }

    /// Lets the program read and write `range`.
    ///
    /// # Errors
    /// `NOMEM` when there would be more mappings than the system allows, or
    /// the program has unmapped some of it.
    pub fn open(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.assert_inside(range);
        protect(range.start, range.len(), PROT_READ_WRITE)
    }

    /// Keeps the program from `range`: once this returns no thread can read or
    /// write it, and no system call begins to.
    ///
    /// # Errors
    /// As [`Self::open`]; it is open as it was then.
    pub fn close(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.assert_inside(range);
        protect(range.start, range.len(), PROT_NONE)
    }

    /// Whether the kernel can have the pages of `range`, which is open, at all. (It is taken to,
    /// where it cannot be asked: before Linux 5.14.)
    #[must_use]
    pub fn is_sound(&self, range: &Range<usize>) -> bool {
        self.assert_inside(range);
        let args = [range.start, range.len(), MADV_POPULATE_READ, 0, 0, 0];
        matches!(call(nr::MADVISE, args), Ok(_) | Err(Errno::INVAL))
    }

    /// Drops the bytes of `range`: it reads as zeros, and takes no memory.
    ///
    /// # Errors
    /// As the kernel says; the bytes are what they were then, or zeros.
    pub fn discard(&self, range: &Range<usize>) -> Result<(), Errno> {
        self.assert_inside(range);
        const MADV_DONTNEED: usize = 4;
        advise_unlocked(range.start, range.len(), MADV_DONTNEED)
    }

    /// Takes the pages of `range`, 2 MiB at most, which is closed, aside. What is there
    /// may be looked at after [`Aside::unlock`].
    ///
    /// # Errors
    /// `NOMEM` when there would be more mappings than the system allows: nothing has
    /// changed then.
    pub fn take(&self, range: &Range<usize>) -> Result<Aside<'_>, Errno> {
        self.assert_inside(range);
        assert!(range.len() <= MOST * PAGE_SIZE, "too much at a time");
        let flags = MREMAP_MAYMOVE | MREMAP_DONTUNMAP;
        // To an address of the kernel's choice: it takes nobody's place.
        let args = [range.start, range.len(), range.len(), flags, 0, 0];
        let at = call(nr::MREMAP, args)?;
        Ok(Aside {
            of: self,
            range: range.clone(),
            at,
        })
    }
}

/// Words of a page. A device may write to them meanwhile: they are read one by one.
fn words(page: usize) -> impl Iterator<Item = u64> {
    (page..page + PAGE_SIZE)
        .step_by(mem::size_of::<u64>())
        // SAFETY: of a page that was taken aside, by the callers below.
        .map(|word| unsafe { (word as *const u64).read_volatile() })
}

fn is_zero(page: usize) -> bool {
    words(page).all(|word| word == 0)
}

fn is_as(page: usize, copy: &[u8]) -> bool {
    let copied = copy.as_chunks::<8>().0.iter();
    words(page).eq(copied.map(|bytes| u64::from_ne_bytes(*bytes)))
}

/// Makes a page one that was written to, and changes nothing in it.
fn touch(page: usize) {
    // SAFETY: of a page that was taken aside, by the callers below. (By hand: of an atomic
    // `or` of nothing a compiler makes a load.)
    unsafe {
        core::arch::asm!("lock or qword ptr [{}], 0", in(reg) page, options(nostack));
    }
}

/// Whether a page, which was just read, is one of its own; false for the kernel's
/// page of zeros, or none. `None` if that is not told.
fn is_own(page: usize) -> Option<bool> {
    let file = File::open(c"/proc/self/pagemap").ok()?;
    let mut entry = [0; 8];
    let offset = page / PAGE_SIZE * entry.len();
    let read = file.read_at(&mut entry, offset);
    file.close();
    (read == Ok(entry.len())).then(|| u64::from_ne_bytes(entry) & EXCLUSIVE != 0)
}

impl Aside<'_> {
    fn len(&self) -> usize {
        self.range.len()
    }

    fn pages(&self) -> impl Iterator<Item = usize> + use<> {
        (self.at..self.at + self.len()).step_by(PAGE_SIZE)
    }

    /// Lets us read and write it. Nothing below may be called before.
    ///
    /// # Errors
    /// As [`Closable::open`].
    pub fn unlock(&mut self) -> Result<(), Errno> {
        protect(self.at, self.len(), PROT_READ_WRITE)
    }

    /// Makes all pages at once, instead of each as it is written to. A wish.
    pub fn make(&mut self) {
        make_own(self.at, self.len());
    }

    /// The bytes of `range`, the program's addresses, to be filled: only of what was empty
    /// when it was taken.
    pub fn bytes_mut(&mut self, range: &Range<usize>) -> &mut [u8] {
        assert!(
            self.range.start <= range.start && range.end <= self.range.end,
            "not of what was taken"
        );
        let at = self.at + (range.start - self.range.start);
        // SAFETY: taken aside and unlocked; nobody held these pages, which were none.
        unsafe { core::slice::from_raw_parts_mut(at as *mut u8, range.len()) }
    }

    /// Puts the bytes into `copy`, and arranges that whatever is written to a page from
    /// here on is noticed by [`Self::let_go`]. False if somebody has written meanwhile.
    ///
    /// In any case, unless it is let go, it must be [mended](Self::mend).
    pub fn hold_still(&mut self, copy: &mut [u8]) -> bool {
        assert_eq!(copy.len(), self.len());
        for (page, copy) in self.pages().zip(copy.chunks_exact_mut(PAGE_SIZE)) {
            if is_zero(page) {
                // The kernel's page of zeros, which would never go, becomes one of its own.
                touch(page);
            }
            for (word, bytes) in words(page).zip(copy.as_chunks_mut::<8>().0) {
                *bytes = word.to_ne_bytes();
            }
        }
        advise_unlocked(self.at, self.len(), MADV_FREE).is_ok()
            && self
                .pages()
                .zip(copy.chunks_exact(PAGE_SIZE))
                .all(|(page, copy)| is_as(page, copy))
    }

    /// Gives up the memory of what was held still, unless somebody holds it or has
    /// written to it since.
    ///
    /// # Errors
    /// Itself: some of its pages are there. It must be [mended](Self::mend).
    pub fn let_go(self) -> Result<(), Self> {
        let advised = call(nr::MADVISE, [self.at, self.len(), MADV_PAGEOUT, 0, 0, 0]);
        let mut there = [1_u8; MOST];
        let asked = mincore(self.at, self.len(), &mut there);
        let there = &there[..self.len() / PAGE_SIZE];
        if advised.is_ok() && asked && there.iter().all(|page| page & 1 == 0) {
            Ok(())
        } else {
            Err(self)
        }
    }

    /// Makes the pages ordinary ones after [`Self::hold_still`]: those that have gone are
    /// as in `copy`, and the others keep what was written to them.
    pub fn mend(&mut self, copy: &[u8]) {
        for (page, copy) in self.pages().zip(copy.chunks_exact(PAGE_SIZE)) {
            let mut there = [1];
            let mut gone = mincore(page, PAGE_SIZE, &mut there) && there[0] & 1 == 0;
            let same = is_as(page, copy);
            if !same && is_zero(page) {
                // Zeros that somebody wrote, or none at all.
                gone |= is_own(page) == Some(false);
            }
            touch(page);
            // (Between its last look and here the kernel may take what nobody holds.)
            gone |= same && !is_as(page, copy) && is_zero(page);
            if gone {
                // SAFETY: ours alone: what has gone nobody held.
                unsafe {
                    core::ptr::copy_nonoverlapping(copy.as_ptr(), page as *mut u8, PAGE_SIZE);
                }
            }
        }
    }

    /// Puts it back, open to the program.
    ///
    /// # Errors
    /// As [`Closable::open`], with itself: nothing has changed.
    pub fn put_back(self) -> Result<(), (Self, Errno)> {
        let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
        let (to, len) = (self.range.start, self.len());
        match call(nr::MREMAP, [self.at, len, len, flags, to, 0]) {
            Ok(_) => {
                mem::forget(self);
                Ok(())
            }
            Err(errno) => {
                // The kernel may have unmapped the place before it found that it cannot.
                let args = [to, len, PROT_NONE, MAP_ONLY_IN_A_HOLE, usize::MAX, 0];
                if call(nr::MMAP, args).is_ok() {
                    let _ = keep_from_children(&self.range);
                }
                Err((self, errno))
            }
        }
    }

    /// Puts it back, closed.
    ///
    /// # Errors
    /// As [`Self::put_back`].
    pub fn put_back_closed(self) -> Result<(), (Self, Errno)> {
        if let Err(errno) = protect(self.at, self.len(), PROT_NONE) {
            return Err((self, errno));
        }
        self.put_back()
    }
}

/// Which pages are there, one byte each; false if the kernel does not say.
fn mincore(at: usize, len: usize, into: &mut [u8]) -> bool {
    assert!(len <= into.len() * PAGE_SIZE);
    call(nr::MINCORE, [at, len, into.as_mut_ptr() as usize, 0, 0, 0]).is_ok()
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        // A mapping of ours; lent out to nobody: that takes a reference to this.
        let _ = call(nr::MUNMAP, [self.at, self.len(), 0, 0, 0, 0]);
        self.of.assert_inside(&self.range);
    }
}

#[cfg(test)]
mod tests;
