//! Memory that the program has sealed (mseal). It stays mapped as it is until the process ends: the
//! kernel refuses whatever would unmap any of it, but tells of that unmapping all the same, once it has looked at
//! other memory of the call's range. So what overlaps sealed memory was not unmapped.
//!
//! # Invariant
//! Whatever is noted is sealed: the kernel has said so before. Seals are noted for good, and a child of a
//! fork notes its own: what its parent kept from it (MADV_DONTFORK) is not there.

use crate::references::answer;
use core::ffi::{c_int, c_ulong, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};
use zfolio_inthread::start::{call, is_on};
use zfolio_sys::syscall::{Errno, nr};

const PAGE: usize = 4096;
/// Most seals that are noted. (What is refused over one more is taken for done.)
const MOST_SEALS: usize = 256;

/// First and last bytes of what is sealed; an end of 0: nothing.
static SEALED: [[AtomicUsize; 2]; MOST_SEALS] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; MOST_SEALS];
/// Places of that which were taken, or asked for.
static SEALS: AtomicUsize = AtomicUsize::new(0);

/// Whether any of `range` is sealed.
pub(crate) fn is_sealed(range: &Range<usize>) -> bool {
    sealed().any(|noted| noted.start < range.end && range.start < noted.end)
}

fn sealed() -> impl Iterator<Item = Range<usize>> {
    let count = SEALS.load(Ordering::Acquire).min(MOST_SEALS);
    SEALED[..count].iter().map(|place| {
        // (The end is written last.)
        let end = place[1].load(Ordering::Acquire);
        place[0].load(Ordering::Relaxed).min(end)..end
    })
}

/// In the child of a fork.
pub(crate) fn forget() {
    for place in &SEALED {
        place[1].store(0, Ordering::Relaxed);
    }
    SEALS.store(0, Ordering::Release);
}

/// Seals `len` bytes at `start`, and notes that it is so.
fn seal(start: usize, len: usize, flags: usize) -> Result<usize, Errno> {
    // SAFETY: reads and writes nothing of the program's.
    let result = unsafe { call(nr::MSEAL, [start, len, flags, 0, 0, 0]) };
    if result.is_err() || is_on() || len == 0 {
        return result;
    }
    // (The kernel has accepted the range: its end is an address.)
    let end = start + len.next_multiple_of(PAGE);
    if !sealed().any(|noted| noted.start <= start && end <= noted.end) {
        let next = SEALS.fetch_add(1, Ordering::AcqRel);
        if let Some(place) = SEALED.get(next) {
            place[0].store(start, Ordering::Relaxed);
            place[1].store(end, Ordering::Release);
        } else {
            SEALS.store(MOST_SEALS, Ordering::Relaxed);
        }
    }
    result
}

/// mseal(2).
#[unsafe(no_mangle)]
extern "C" fn mseal(start: *mut c_void, len: usize, flags: c_ulong) -> c_int {
    let flags = usize::try_from(flags).unwrap_or(usize::MAX);
    i32::try_from(answer(seal(start as usize, len, flags))).unwrap_or(-1)
}

/// As [`mseal`] by syscall(2), which makes the call once more: to seal what is sealed does nothing.
pub(crate) fn seal_first(start: usize, len: usize, flags: usize) {
    let _ = seal(start, len, flags);
}
