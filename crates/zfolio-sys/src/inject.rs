//! Failures on demand, in debug builds only: what the two paths do when the
//! kernel says no is tested by having it say no.
//!
//! The plan is text, `CALL:ERROR:FIRST[+STEP][:FILE]`: from the FIRSTth time that the
//! manager makes CALL (and every STEPth time after) it fails with ERROR, a
//! number; or, ERROR being `hang`, it never returns, or `late`, it is made half a
//! millisecond late. The names are in `CALLS`.

use crate::arena::map_shared_file;
use crate::syscall::{Errno, ask_whether_it_fails, nr};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Calls that can be made to fail: name, number, and request of an ioctl.
const CALLS: &[(&str, usize, Option<usize>)] = &[
    ("userfaultfd", nr::USERFAULTFD, None),
    ("api", nr::IOCTL, Some(0xc018_aa3f)),
    ("register", nr::IOCTL, Some(0xc020_aa00)),
    ("wake", nr::IOCTL, Some(0x8010_aa02)),
    ("copy", nr::IOCTL, Some(0xc028_aa03)),
    ("move", nr::IOCTL, Some(0xc028_aa05)),
    ("continue", nr::IOCTL, Some(0xc020_aa07)),
    ("pagemap_scan", nr::IOCTL, Some(0xc060_6610)),
    ("procmap_query", nr::IOCTL, Some(0xc068_6611)),
    ("read", nr::READ, None),
    ("pread", nr::PREAD64, None),
    ("pwrite", nr::PWRITE64, None),
    ("fallocate", nr::FALLOCATE, None),
    ("poll", nr::PPOLL, None),
    ("futex", nr::FUTEX, None),
    ("open", nr::OPEN, None),
    ("mmap", nr::MMAP, None),
    ("munmap", nr::MUNMAP, None),
    ("mremap", nr::MREMAP, None),
    ("mprotect", nr::MPROTECT, None),
    ("madvise", nr::MADVISE, None),
    ("process_madvise", nr::PROCESS_MADVISE, None),
    ("clone", nr::CLONE, None),
    ("close_range", nr::CLOSE_RANGE, None),
];

/// Errors above every errno: the call never returns.
const HANG: u32 = u32::MAX;
/// Likewise: the call is made, but late.
const LATE: u32 = u32::MAX - 1;

/// Index in [`CALLS`], plus one; 0: no plan.
static CALL: AtomicU32 = AtomicU32::new(0);
static ERROR: AtomicU32 = AtomicU32::new(0);
static FIRST: AtomicU32 = AtomicU32::new(0);
static STEP: AtomicU32 = AtomicU32::new(0);
static MADE: AtomicU32 = AtomicU32::new(0);

/// Address of the word that counts the failures made, in the plan's FILE of a
/// page; 0: none.
static TOLD: AtomicUsize = AtomicUsize::new(0);

fn map_told(path: &str) -> Option<usize> {
    let mut text = [0; 256];
    text.get_mut(..path.len())?.copy_from_slice(path.as_bytes());
    let path = CStr::from_bytes_until_nul(&text).ok()?;
    map_shared_file(path, 4096, 0).ok()
}

/// Takes a plan; false if it makes no sense.
pub fn plan(text: &str) -> bool {
    let mut parts = text.split(':');
    let (Some(call), Some(error), Some(when)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let told = match parts.next() {
        Some(path) => map_told(path),
        None => Some(0),
    };
    let (first, step) = when.split_once('+').unwrap_or((when, "0"));
    let error = match error {
        "hang" => Some(HANG),
        "late" => Some(LATE),
        number => number.parse().ok(),
    };
    let index = CALLS.iter().position(|(name, ..)| *name == call);
    let (Some(index), Some(error), Ok(first), Ok(step), Some(told)) =
        (index, error, first.parse(), step.parse(), told)
    else {
        return false;
    };
    TOLD.store(told, Ordering::Relaxed);
    ERROR.store(error, Ordering::Relaxed);
    FIRST.store(first, Ordering::Relaxed);
    STEP.store(step, Ordering::Relaxed);
    CALL.store(u32::try_from(index).unwrap_or(0) + 1, Ordering::Release);
    ask_whether_it_fails(fails);
    true
}

/// What a call is to fail with, if it is.
fn fails(number: usize, args: &[usize; 6]) -> Option<Errno> {
    let call = CALL.load(Ordering::Acquire) as usize;
    let (_, planned, request) = CALLS.get(call.checked_sub(1)?)?;
    // As on a kernel without it, so that what stands in for it can fail.
    if (*planned, number) == (nr::MADVISE, nr::PROCESS_MADVISE) {
        return Some(Errno::OPNOTSUPP);
    }
    if *planned != number || request.is_some_and(|request| request != args[1]) {
        return None;
    }
    let made = MADE.fetch_add(1, Ordering::Relaxed) + 1;
    let first = FIRST.load(Ordering::Relaxed);
    let step = STEP.load(Ordering::Relaxed);
    let due = made == first || made > first && step > 0 && (made - first).is_multiple_of(step);
    if !due {
        return None;
    }
    if let told @ 1.. = TOLD.load(Ordering::Relaxed) {
        // SAFETY: mapped shared by `map_told`, a page, and never unmapped.
        unsafe { &*(told as *const AtomicU32) }.fetch_add(1, Ordering::Relaxed);
    }
    match ERROR.load(Ordering::Relaxed) {
        HANG => loop {
            crate::lock::pause(1_000_000_000);
        },
        LATE => {
            crate::lock::pause(500_000);
            None
        }
        error => i32::try_from(error).ok().map(Errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_no_plan() {
        for text in [
            "",
            "move",
            "move:12",
            "nothing:12:1",
            "move:x:1",
            "move:12:1+x",
        ] {
            assert!(!plan(text), "{text}");
        }
    }

    #[test]
    fn a_call_fails_when_it_was_planned_to() {
        use crate::uffd::Uffd;
        // (A call that no other test of this crate makes.)
        let fails = || Uffd::open(0).map(Uffd::close) == Err(Errno(99));
        assert!(!fails());
        assert!(plan("api:99:2+2"));
        let failed: [bool; 5] = core::array::from_fn(|_| fails());
        assert_eq!(failed, [false, true, false, true, false]);
    }
}
