//! Memory that a program asks for: mappings that no child of a fork has, and
//! what else a library in somebody else's process needs of the kernel.

use crate::arena::name_mapping;
use crate::syscall::{Errno, nr, syscall};
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_mm::{Order, PAGE_SIZE};

const PROT_NONE: usize = 0;
const PROT_READ_WRITE: usize = 3;
const MAP_PRIVATE_ANON_NORESERVE: usize = 0x02 | 0x20 | 0x4000;
const MADV_DONTFORK: usize = 10;
const MADV_WIPEONFORK: usize = 18;
const SIG_SETMASK: usize = 2;
const F_DUPFD_CLOEXEC: usize = 1030;
const CLOSE_RANGE_UNSHARE: usize = 2;
/// Descriptors are kept above what programs choose by number.
const HIGH_DESCRIPTOR: usize = 500;

fn advise(range: &Range<usize>, advice: usize) -> Result<(), Errno> {
    // SAFETY: neither advice used here changes a byte in this process.
    unsafe { syscall(nr::MADVISE, [range.start, range.len(), advice, 0, 0, 0]) }.map(drop)
}

/// A child of a fork will not have `range` at all: what it would find there is
/// zeros wherever pages are out.
///
/// # Errors
/// As the kernel says.
pub fn keep_from_children(range: &Range<usize>) -> Result<(), Errno> {
    advise(range, MADV_DONTFORK)
}

/// Maps `len` bytes (whole pages), aligned to 2 MiB, with nothing mapped next
/// to them that could merge with them. Children of forks do not have them.
///
/// # Errors
/// `NOMEM` for more than the address space or a limit leaves.
pub fn map_region(len: usize) -> Result<Range<usize>, Errno> {
    let range = map_plain(len)?;
    if let Err(errno) = keep_from_children(&range) {
        // SAFETY: our own fresh mapping.
        unsafe { unmap_region(&range) };
        return Err(errno);
    }
    name_mapping(range.start, len, c"zfolio region");
    Ok(range)
}

/// As [`map_region`], and children of forks have it, like any memory.
///
/// # Errors
/// As [`map_region`].
pub fn map_plain(len: usize) -> Result<Range<usize>, Errno> {
    const HUGE: usize = Order::HUGE.bytes();
    let whole = len.checked_add(2 * HUGE).ok_or(Errno::NOMEM)?;
    let args = [
        0,
        whole,
        PROT_NONE,
        MAP_PRIVATE_ANON_NORESERVE,
        usize::MAX,
        0,
    ];
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let raw = unsafe { syscall(nr::MMAP, args) }?;
    // A page of nothing stays on either side.
    let start = (raw + PAGE_SIZE).next_multiple_of(HUGE);
    let range = start..start + len;
    let unmap = |from: usize, to: usize| {
        if from == to {
            return;
        }
        // SAFETY: parts of our own fresh mapping that nobody knows of.
        let _ = unsafe { syscall(nr::MUNMAP, [from, to - from, 0, 0, 0, 0]) };
    };
    // SAFETY: as above.
    let opened = unsafe { syscall(nr::MPROTECT, [start, len, PROT_READ_WRITE, 0, 0, 0]) };
    if let Err(errno) = opened {
        unmap(raw, raw + whole);
        return Err(errno);
    }
    unmap(raw, range.start - PAGE_SIZE);
    unmap(range.end + PAGE_SIZE, raw + whole);
    Ok(range)
}

/// Unmaps what [`map_region`] or [`map_plain`] mapped, guards included.
///
/// # Safety
/// Nobody uses the range any more, nor will.
pub unsafe fn unmap_region(range: &Range<usize>) {
    let (start, len) = (range.start - PAGE_SIZE, range.len() + 2 * PAGE_SIZE);
    // SAFETY: by contract.
    let _ = unsafe { syscall(nr::MUNMAP, [start, len, 0, 0, 0, 0]) };
}

/// A word that a copy of this process's memory (a child of a fork) reads as 0,
/// and whoever shares the memory as it is: without a system call.
#[derive(Clone, Copy, Debug)]
pub struct Mark(&'static AtomicU32);

impl Mark {
    /// Makes one, set.
    ///
    /// # Errors
    /// When the kernel refuses the mapping or the advice (before 4.14).
    pub fn set() -> Result<Self, Errno> {
        let page = crate::arena::reserve_private(PAGE_SIZE, c"zfolio mark")?;
        advise(&page, MADV_WIPEONFORK)?;
        // SAFETY: a page of ours that is never unmapped; any bytes are a valid
        // atomic.
        let word = unsafe { &*(page.start as *const AtomicU32) };
        word.store(1, Ordering::Release);
        Ok(Self(word))
    }

    /// Sets it in a copy as well.
    pub fn set_again(self) {
        self.0.store(1, Ordering::Release);
    }

    /// Whether this is the memory it was set in.
    #[must_use]
    pub fn is_set(self) -> bool {
        self.0.load(Ordering::Acquire) == 1
    }
}

/// Blocks all signals of the calling thread until it is dropped: a handler of
/// the program that touched a region must not find this thread with a lock of
/// the manager's.
#[derive(Debug)]
pub struct SignalsBlocked(u64);

impl SignalsBlocked {
    /// Blocks them.
    #[must_use]
    pub fn new() -> Self {
        Self(set_signal_mask(u64::MAX))
    }
}

impl Default for SignalsBlocked {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        set_signal_mask(self.0);
    }
}

/// Sets which signals are blocked in the calling thread; returns which were.
pub fn set_signal_mask(mask: u64) -> u64 {
    let mut before = 0_u64;
    let (new, old) = ((&raw const mask) as usize, (&raw mut before) as usize);
    // SAFETY: both masks are eight bytes.
    let _ = unsafe { syscall(nr::RT_SIGPROCMASK, [SIG_SETMASK, new, old, 8, 0, 0]) };
    before
}

/// Moves a descriptor to a high number, if that can be had; returns it.
#[must_use]
pub fn lift_descriptor(fd: usize) -> usize {
    // SAFETY: takes numbers, returns a new descriptor for the same file.
    let lifted = unsafe { syscall(nr::FCNTL, [fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR, 0, 0, 0]) };
    let Ok(lifted) = lifted else { return fd };
    crate::procfs::File::from_fd(fd).close();
    lifted
}

/// Gives the calling thread a descriptor table of its own, with `kept` and
/// nothing else in it: what the program closes stays open for it, and it keeps
/// none of the program's pipes open.
///
/// # Errors
/// `NOSYS`-like errors before Linux 5.9.
pub fn own_descriptors_with(kept: &mut [usize]) -> Result<(), Errno> {
    kept.sort_unstable();
    let close = |from: usize, to: usize, flags: usize| {
        // SAFETY: affects only this thread's table, which the first call makes.
        unsafe { syscall(nr::CLOSE_RANGE, [from, to, flags, 0, 0, 0]) }.map(drop)
    };
    let last = kept.last().map_or(0, |last| last + 1);
    close(last, u32::MAX as usize, CLOSE_RANGE_UNSHARE)?;
    let mut from = 0;
    for fd in kept {
        if *fd > from {
            close(from, *fd - 1, 0)?;
        }
        from = *fd + 1;
    }
    crate::limits::forget_reserve();
    Ok(())
}

/// Device and inode of a file, by its descriptor.
///
/// # Errors
/// As the kernel says.
pub fn identity_of(fd: usize) -> Result<(u64, u64), Errno> {
    crate::process::identity(crate::procfs::File::from_fd(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_aligned_and_apart() {
        let one = map_region(5 * PAGE_SIZE).expect("a mapping");
        let two = map_region(5 * PAGE_SIZE).expect("a mapping");
        for range in [&one, &two] {
            assert_eq!(range.len(), 5 * PAGE_SIZE);
            assert!(range.start.is_multiple_of(Order::HUGE.bytes()));
        }
        assert!(one.start.abs_diff(two.start) > Order::HUGE.bytes());
        // SAFETY: nobody has used them.
        unsafe {
            unmap_region(&one);
            unmap_region(&two);
        }
        assert_eq!(map_region(usize::MAX), Err(Errno::NOMEM));
        assert_eq!(map_region(1 << 60), Err(Errno::NOMEM));
    }

    #[test]
    fn a_mark_is_set_where_it_was_made() {
        assert!(Mark::set().expect("a mapping").is_set());
    }
}
