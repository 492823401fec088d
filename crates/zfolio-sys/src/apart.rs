//! Where mappings of ours lie that are made while a program runs.
//!
//! Left to the kernel, a new mapping goes to the highest hole that it fits in: also one that the program made a moment
//! ago, and that it still counts as its own. A program that unmaps such a hole once more, or maps over it by MAP_FIXED,
//! as it may while nobody but itself makes mappings, would unmap ours. So ours are made next to each other, far below
//! the libraries, where nobody's mapping has ever been.
//!
//! No addresses are reserved for them: a limit of the program's (RLIMIT_AS) counts what is mapped.

use crate::syscall::{Errno, nr, syscall};
use core::sync::atomic::{AtomicUsize, Ordering};
use zfolio_mm::PAGE_SIZE;

/// How far below. The kernel makes mappings from the libraries downwards: no program maps that many bytes so. (Sanitizers
/// map more, at addresses of their own far below these.)
const DISTANCE: usize = 4 << 40;
/// Left free where something does lie there, before the next try.
const STEP: usize = 256 << 30;
const TRIES: usize = 4;
const FIXED_NOREPLACE: usize = 0x10_0000;

/// Where the mapping made last begins; the next ends there. 0: the kernel chooses.
static BOTTOM: AtomicUsize = AtomicUsize::new(0);

/// From now on mappings of ours are made apart; `library`: an address in a library of this process. Once. Not for a
/// library that is part of a program which knows of it.
pub fn keep_apart(library: usize) {
    let bottom = library.saturating_sub(DISTANCE) & !(PAGE_SIZE - 1);
    let _ = BOTTOM.compare_exchange(0, bottom, Ordering::Relaxed, Ordering::Relaxed);
}

/// A mapping of ours: of `source` (a descriptor and an offset in its file), or of no file.
///
/// # Errors
/// As the kernel says.
pub(crate) fn map(
    len: usize,
    protection: usize,
    flags: usize,
    source: Option<(usize, usize)>,
) -> Result<usize, Errno> {
    let (fd, offset) = source.unwrap_or((usize::MAX, 0));
    let map_at = |place, flags| {
        // SAFETY: a fresh mapping, in a hole.
        unsafe { syscall(nr::MMAP, [place, len, protection, flags, fd, offset]) }
    };
    let bytes = len.next_multiple_of(PAGE_SIZE);
    for at_once in 0..TRIES {
        let skipped = if at_once == 0 { 0 } else { STEP };
        let Some(place) = take(bytes + skipped) else {
            break;
        };
        match map_at(place, flags | FIXED_NOREPLACE) {
            Err(Errno::EXIST) => {}
            // (A kernel before 4.17 takes the place for a hint.)
            done => return done,
        }
    }
    map_at(0, flags)
}

/// The next `bytes` of those addresses, which nobody else gets.
fn take(bytes: usize) -> Option<usize> {
    let below = |bottom: usize| bottom.checked_sub(bytes).filter(|place| *place > 0);
    let taken = BOTTOM.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below);
    taken.ok().and_then(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE_ANONYMOUS: usize = 0x2 | 0x20;

    /// In this process, whose other tests map something meanwhile.
    #[test]
    fn what_lies_there_is_passed_over() {
        keep_apart(keep_apart as *const () as usize);
        let page = || map(PAGE_SIZE, 3, PRIVATE_ANONYMOUS, None).expect("a page");
        let first = page();
        assert!((keep_apart as *const () as usize) - first >= DISTANCE);
        let beside = first - PAGE_SIZE;
        let flags = PRIVATE_ANONYMOUS | FIXED_NOREPLACE;
        // SAFETY: a fresh mapping in a hole; refused where another test was faster.
        let _ = unsafe { syscall(nr::MMAP, [beside, PAGE_SIZE, 0, flags, usize::MAX, 0]) };
        let second = page();
        assert!(second < beside, "{second:#x} after {first:#x}");
        for page in [first, second] {
            // SAFETY: mappings of this test.
            let _ = unsafe { syscall(nr::MUNMAP, [page, PAGE_SIZE, 0, 0, 0, 0]) };
        }
    }
}
