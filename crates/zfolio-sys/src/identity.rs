//! Which process this is: a random number that no other process has or will have.
//!
//! A process id is none: it is another one in each pid namespace, and is used again. The
//! number lies on a page that the kernel empties in the child of a fork (`MADV_WIPEONFORK`,
//! Linux 4.14) and that whoever shares the memory (vfork, `CLONE_VM`) shares as well. So it
//! tells a copy of a process from the process, whatever namespaces the copy is in.

use crate::arena::{map_private, name_mapping, unmap};
use crate::syscall::{nr, syscall};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const PAGE: usize = 4096;
/// Set in what stands for the number where there is no such page: a process id.
const WEAK: u64 = 1 << 63;

static MARK: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());

/// The number of the calling process; never 0.
#[must_use]
pub fn of_process() -> u64 {
    let Some(mark) = mark() else {
        return WEAK | u64::from(crate::thread::pid());
    };
    match mark.load(Ordering::Acquire) {
        0 => {
            let fresh = random() & !WEAK | 1;
            let first = mark.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire);
            first.err().unwrap_or(fresh)
        }
        known => known,
    }
}

/// The word on the page, which is mapped by who asks first.
fn mark() -> Option<&'static AtomicU64> {
    const MADV_WIPEONFORK: usize = 18;
    let known = MARK.load(Ordering::Acquire);
    // SAFETY: null, or a page that is never unmapped; any bytes are a valid word.
    if let Some(mark) = unsafe { known.as_ref() } {
        return Some(mark);
    }
    let page = map_private(PAGE).ok()?;
    name_mapping(page, PAGE, c"zfolio identity");
    // SAFETY: advice on our own mapping.
    let wiped = unsafe { syscall(nr::MADVISE, [page, PAGE, MADV_WIPEONFORK, 0, 0, 0]) };
    let fresh = page as *mut AtomicU64;
    let set = wiped.is_ok().then(|| {
        MARK.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire)
            .map_or_else(|first| first, |_| fresh)
    });
    if set != Some(fresh) {
        unmap(page..page + PAGE);
    }
    // SAFETY: as above.
    unsafe { set?.as_ref() }
}

/// 64 random bits; where the kernel has none to give yet, the time and the process id.
fn random() -> u64 {
    let mut bits = 0_u64;
    // SAFETY: the kernel writes eight bytes.
    let got = unsafe { syscall(nr::GETRANDOM, [(&raw mut bits) as usize, 8, 0, 0, 0, 0]) };
    if got == Ok(8) {
        return bits;
    }
    let now = crate::thread::now_ns_of_system(crate::thread::Clock::Monotonic);
    now.rotate_left(20) ^ u64::from(crate::thread::pid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_the_same() {
        let first = of_process();
        assert_ne!(first, 0);
        assert_eq!(first & WEAK, 0, "this kernel has such pages");
        assert_eq!(of_process(), first);
    }
}
