//! The arena: one reserved range of addresses, cut into page-sized slots.

use crate::apart;
use crate::syscall::{Errno, Kernel, Linux, nr, syscall};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use zfolio_mm::{Memory, Order, PAGE_SHIFT, PAGE_SIZE, Pfn};

const PROT_READ_WRITE: usize = 3;
const MAP_PRIVATE_ANON_NORESERVE: usize = 0x02 | 0x20 | 0x4000;
/// Also where a program's mlockall has locked the arena with all the rest.
const MADV_DONTNEED_LOCKED: usize = 24;
const PR_SET_VMA: usize = 0x5356_4d41;
const PR_SET_VMA_ANON_NAME: usize = 0;

/// A private anonymous mapping, 2 MiB aligned, never unmapped.
///
/// # Invariants
/// `base .. base + slots * PAGE_SIZE` is mapped readable and writable for the
/// life of the process, and nobody but the holder of an arena block touches
/// that block's bytes.
#[derive(Clone, Copy, Debug)]
pub struct ArenaMap {
    base: NonNull<u8>,
    slots: usize,
}

// SAFETY: the mapping lives as long as the process and is the same in every
// thread; exclusive use of a block is its allocator's promise (see `Memory`).
unsafe impl Send for ArenaMap {}
// SAFETY: as above.
unsafe impl Sync for ArenaMap {}

impl ArenaMap {
    /// Reserves `slots` pages (a multiple of 512) of address space.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn reserve(slots: usize) -> Result<Self, Errno> {
        let len = slots << PAGE_SHIFT;
        let raw = map_private(len + Order::HUGE.bytes())?;
        let base = (raw + Order::HUGE.bytes() - 1) & !(Order::HUGE.bytes() - 1);
        name_mapping(raw, len + Order::HUGE.bytes(), c"zfolio arena");
        let base = NonNull::new(base as *mut u8).ok_or(Errno::NOMEM)?;
        Ok(Self { base, slots })
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The addresses of the arena.
    #[must_use]
    pub fn range(&self) -> core::ops::Range<usize> {
        let start = self.base.as_ptr() as usize;
        start..start + self.slots * PAGE_SIZE
    }

    /// Address of a slot.
    ///
    /// # Panics
    /// When the slot lies outside the arena.
    #[must_use]
    pub fn address(&self, at: Pfn) -> usize {
        assert!(at.index() < self.slots, "{at} outside the arena");
        self.base.as_ptr() as usize + (at.index() << PAGE_SHIFT)
    }

    fn bytes(&self, at: Pfn, offset: usize, len: usize) -> NonNull<u8> {
        let start = (at.index() << PAGE_SHIFT) + offset;
        assert!(
            start + len <= self.slots * PAGE_SIZE,
            "{at}+{offset} outside the arena"
        );
        // SAFETY: in bounds of the mapping, by the assertion above.
        unsafe { self.base.add(start) }
    }
}

impl Memory for ArenaMap {
    fn with<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        let start = self.bytes(at, offset, len);
        // SAFETY: in bounds; the caller holds the block, so nobody writes it.
        f(unsafe { core::slice::from_raw_parts(start.as_ptr(), len) })
    }

    fn with_mut<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let start = self.bytes(at, offset, len);
        // SAFETY: in bounds; the caller holds the block to itself.
        f(unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len) })
    }
}

/// A private anonymous mapping of `len` bytes that reserves no memory.
pub(crate) fn map_private(len: usize) -> Result<usize, Errno> {
    apart::map(len, PROT_READ_WRITE, MAP_PRIVATE_ANON_NORESERVE, None)
}

/// Gives a mapping of ours back, or the copy of one that the child of a fork inherited.
/// Nobody may use it any more: that is the contract of every `usize` address here.
pub fn unmap(range: core::ops::Range<usize>) {
    // SAFETY: a whole mapping that this crate made, by the contract above.
    let _ = unsafe { syscall(nr::MUNMAP, [range.start, range.len(), 0, 0, 0, 0]) };
}

/// Names a mapping, which also keeps it from merging with the program's.
/// Kernels without the feature refuse, harmlessly.
pub(crate) fn name_mapping(start: usize, len: usize, name: &core::ffi::CStr) {
    // SAFETY: the kernel reads the name and touches nothing else.
    let _ = unsafe {
        syscall(
            nr::PRCTL,
            [
                PR_SET_VMA,
                PR_SET_VMA_ANON_NAME,
                start,
                len,
                name.as_ptr() as usize,
                0,
            ],
        )
    };
}

/// Reserves `len` bytes of private memory under `name`; never unmapped.
///
/// # Errors
/// When the kernel refuses the mapping.
pub fn reserve_private(
    len: usize,
    name: &core::ffi::CStr,
) -> Result<core::ops::Range<usize>, Errno> {
    let start = map_private(len)?;
    name_mapping(start, len, name);
    Ok(start..start + len)
}

/// Maps `len` bytes of a file, shared; returns where. Never unmapped. The first `fixed`
/// bytes can be read only, now and later: by nobody who inherits the mapping either.
///
/// # Errors
/// As the kernel says.
pub fn map_shared_file(path: &core::ffi::CStr, len: usize, fixed: usize) -> Result<usize, Errno> {
    let at = map_file(path, len, None)?;
    if fixed == 0 {
        return Ok(at);
    }
    map_file(path, fixed, Some(at)).inspect_err(|_| unmap(at..at + len))
}

/// Maps a file to be written to, or a file's beginning `over` what is mapped there, not to
/// be written to.
fn map_file(path: &core::ffi::CStr, len: usize, over: Option<usize>) -> Result<usize, Errno> {
    const O_RDWR_CLOEXEC: usize = 0o2_000_002;
    const O_RDONLY_CLOEXEC: usize = 0o2_000_000;
    const PROT_READ: usize = 1;
    const MAP_FIXED: usize = 0x10;
    const MAP_SHARED: usize = 1;
    const SEEK_END: usize = 2;
    let (flags, access, how) = match over {
        None => (O_RDWR_CLOEXEC, PROT_READ_WRITE, MAP_SHARED),
        // (Of a file opened to be read no mapping can be made writable later.)
        Some(_) => (O_RDONLY_CLOEXEC, PROT_READ, MAP_SHARED | MAP_FIXED),
    };
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { syscall(nr::OPEN, [path.as_ptr() as usize, flags, 0, 0, 0, 0]) }?;
    // SAFETY: a fresh mapping at an address of the kernel's choice, or over one that
    // the caller has just made.
    let at = unsafe {
        // What is past the end of the file would be a SIGBUS when it is used.
        match syscall(nr::LSEEK, [fd, 0, SEEK_END, 0, 0, 0]) {
            Ok(bytes) if bytes >= len => {
                syscall(nr::MMAP, [over.unwrap_or(0), len, access, how, fd, 0])
            }
            _ => Err(Errno::INVAL),
        }
    };
    // SAFETY: our own descriptor; the mapping stays.
    let _ = unsafe { syscall(nr::CLOSE, [fd, 0, 0, 0, 0, 0]) };
    at
}

/// What [`SharedWords`] is made of: 64 KiB.
pub type Words = [AtomicU32; 16 << 10];

/// Words that stay shared with the children of a fork, until the
/// child takes new ones.
#[derive(Debug)]
pub struct SharedWords(AtomicPtr<Words>);

impl SharedWords {
    /// Maps them.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn map() -> Result<Self, Errno> {
        let words = Self(AtomicPtr::new(core::ptr::null_mut()));
        words.renew().map(|()| words)
    }

    /// Replaces them by new ones; the old stay mapped until the caller, who
    /// knows when nobody looks at them any more, unmaps their addresses.
    ///
    /// # Errors
    /// When the kernel refuses the mapping.
    pub fn renew(&self) -> Result<(), Errno> {
        const MAP_SHARED_ANON: usize = 0x01 | 0x20;
        let at = apart::map(size_of::<Words>(), PROT_READ_WRITE, MAP_SHARED_ANON, None)?;
        self.0.store(at as *mut Words, Ordering::Release);
        Ok(())
    }

    /// The words.
    #[must_use]
    pub fn get(&self) -> &'static Words {
        // SAFETY: set by `renew` to a mapping that is never unmapped, before
        // anybody has this value; any bytes are valid atomics.
        unsafe { &*self.0.load(Ordering::Acquire) }
    }

    /// Their addresses.
    #[must_use]
    pub fn range(&self) -> core::ops::Range<usize> {
        let start = core::ptr::from_ref(self.get()) as usize;
        start..start + size_of::<Words>()
    }
}

/// Has the kernel write-fault every page of `start .. start + len`, as a write
/// of the byte that is there would: pages shared with a child of a fork become
/// this process's own (a copy only if the child still has them).
pub fn make_own(start: usize, len: usize) {
    make_own_by::<Linux>(start, len);
}

/// As [`make_own`], by any kernel.
pub fn make_own_by<K: Kernel>(start: usize, len: usize) {
    // May fail where nothing is mapped any more.
    let _ = populate_by::<K>(start, len);
}

/// The same, where it matters whether it went well. Of a file, the pages there
/// are none of yet are made, and keep their place in it.
///
/// # Errors
/// EFAULT or ENOMEM when there is no room for a page, where touching it would be a
/// SIGBUS; EINVAL before Linux 5.14.
pub fn populate(start: usize, len: usize) -> Result<(), Errno> {
    populate_by::<Linux>(start, len)
}

fn populate_by<K: Kernel>(start: usize, len: usize) -> Result<(), Errno> {
    const MADV_POPULATE_WRITE: usize = 23;
    // SAFETY: changes no byte.
    unsafe { K::call(nr::MADVISE, [start, len, MADV_POPULATE_WRITE, 0, 0, 0]).map(drop) }
}

/// Has the kernel copy 2 MiB that are present, page by page, into a huge page (Linux 6.1).
///
/// # Errors
/// As the kernel says: EAGAIN where a page of it is pinned or protected just now, ENOMEM
/// where it has no huge page, EINVAL where there may be none, or something is missing.
pub fn collapse_by<K: Kernel>(start: usize, len: usize) -> Result<(), Errno> {
    const MADV_COLLAPSE: usize = 25;
    // SAFETY: changes no byte.
    unsafe { K::call(nr::MADVISE, [start, len, MADV_COLLAPSE, 0, 0, 0]).map(drop) }
}

/// Has the kernel use huge pages in `start .. start + len` where it has them.
pub fn prefer_huge_pages(start: usize, len: usize) {
    const MADV_HUGEPAGE: usize = 14;
    // SAFETY: changes no byte. A refusal means small pages.
    let _ = unsafe { syscall(nr::MADVISE, [start, len, MADV_HUGEPAGE, 0, 0, 0]) };
}

/// Has the kernel use none in `start .. start + len`.
pub fn avoid_huge_pages(start: usize, len: usize) {
    const MADV_NOHUGEPAGE: usize = 15;
    // SAFETY: changes no byte. A refusal means that there are none.
    let _ = unsafe { syscall(nr::MADVISE, [start, len, MADV_NOHUGEPAGE, 0, 0, 0]) };
}

/// Gives the frames behind `start .. start + len` back to the system. Empty
/// page tables go with them where the kernel reclaims those.
///
/// The range must be arena slots that the caller holds.
///
/// # Errors
/// As the kernel says.
pub fn discard(start: usize, len: usize) -> Result<(), Errno> {
    discard_by::<Linux>(start, len)
}

/// As [`discard`], by any kernel.
///
/// # Errors
/// As the kernel says.
pub fn discard_by<K: Kernel>(start: usize, len: usize) -> Result<(), Errno> {
    // SAFETY: by contract nobody looks at these bytes any more.
    unsafe { K::call(nr::MADVISE, [start, len, MADV_DONTNEED_LOCKED, 0, 0, 0]).map(drop) }
}

/// As [`discard_by`], of several ranges; how many of them, from the front.
///
/// `together`: with one interrupt of the other processors for all of them where the kernel
/// has that (6.16). Few programs make that call, and a filter may kill for it: it is for
/// threads of our own, and not made where calls are filtered.
pub fn discard_all_by<K: Kernel>(ranges: &[Discarded], together: bool) -> usize {
    /// Instead of a descriptor: this process (Linux 6.14).
    const PIDFD_SELF: usize = (-10_001_isize).cast_unsigned();
    let mut left = 0;
    if together && !crate::limits::is_filtered() {
        let (list, count) = (ranges.as_ptr() as usize, ranges.len());
        let call = [PIDFD_SELF, list, count, MADV_DONTNEED_LOCKED, 0, 0];
        // SAFETY: as for `discard`, of each range; they are laid out as iovecs.
        left = unsafe { K::call(nr::PROCESS_MADVISE, call) }.unwrap_or(0);
    }
    // (What it did not do is done one by one, or refused.)
    let done = ranges.iter().take_while(|range| {
        let there = left >= range.len;
        left = left.saturating_sub(range.len);
        there || discard_by::<K>(range.start, range.len).is_ok()
    });
    done.count()
}

/// A range to discard, laid out as the kernel's iovec.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Discarded {
    /// Its first address.
    pub start: usize,
    /// Bytes.
    pub len: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_words_are_mapped_to_the_last() {
        let words = SharedWords::map().expect("a mapping");
        for _ in 0..3 {
            for word in words.get() {
                assert_eq!(word.swap(1, Ordering::Relaxed), 0);
            }
            words.renew().expect("a mapping");
        }
    }
}
