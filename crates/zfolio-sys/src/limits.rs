//! What the program may still have: resource limits, and filters of system
//! calls.

use crate::procfs::File;
use crate::syscall::{Errno, nr, syscall};
use core::sync::atomic::{AtomicUsize, Ordering};

const RLIMIT_FSIZE: usize = 1;
const RLIMIT_DATA: usize = 2;
const RLIMIT_NOFILE: usize = 7;
const RLIMIT_AS: usize = 9;
const INFINITY: u64 = u64::MAX;
/// Descriptors that must be possible while the manager opens its own.
const DESCRIPTORS: u64 = 64;

/// A `struct rlimit64`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Limit {
    soft: u64,
    hard: u64,
}

impl Limit {
    fn get(which: usize) -> Result<Self, Errno> {
        let mut now = Self { soft: 0, hard: 0 };
        // SAFETY: the kernel writes one structure.
        unsafe {
            let to = (&raw mut now) as usize;
            syscall(nr::PRLIMIT64, [0, which, 0, to, 0, 0])
        }
        .map(|_| now)
    }

    fn set(self, which: usize) -> Result<(), Errno> {
        let from = (&raw const self) as usize;
        // SAFETY: the kernel reads one structure.
        unsafe { syscall(nr::PRLIMIT64, [0, which, from, 0, 0, 0]) }.map(drop)
    }
}

/// Calls `with` while some descriptors can be had, whatever the program's
/// limit: that is one for the whole process, and raised for the moment, as far
/// as this process may.
pub fn with_descriptors<R>(with: impl FnOnce() -> R) -> R {
    let Ok(before) = Limit::get(RLIMIT_NOFILE) else {
        return with();
    };
    if before.soft >= DESCRIPTORS {
        return with();
    }
    let raised = Limit {
        soft: DESCRIPTORS,
        hard: before.hard.max(DESCRIPTORS),
    };
    let within = Limit {
        soft: before.hard.min(DESCRIPTORS),
        hard: before.hard,
    };
    let set = [raised, within]
        .into_iter()
        .find(|limit| limit.set(RLIMIT_NOFILE).is_ok());
    let result = with();
    // Unless the program has set another meanwhile.
    if set.is_some() && Limit::get(RLIMIT_NOFILE).ok() == set {
        let _ = before.set(RLIMIT_NOFILE);
    }
    result
}

/// Bytes of the largest file that this process may write: beyond it gets SIGXFSZ.
#[must_use]
pub fn largest_file() -> u64 {
    Limit::get(RLIMIT_FSIZE).map_or(INFINITY, |limit| limit.soft)
}

/// Bytes of private memory that may be mapped yet before the program's limits
/// are reached. `size` and `data` are what it has.
#[must_use]
pub fn headroom(size: usize, data: usize) -> usize {
    let left = |which, used: usize| match Limit::get(which) {
        Ok(limit) if limit.soft != INFINITY => usize::try_from(limit.soft)
            .unwrap_or(usize::MAX)
            .saturating_sub(used),
        _ => usize::MAX,
    };
    left(RLIMIT_AS, size).min(left(RLIMIT_DATA, data))
}

/// Descriptors that stand for nothing, in the manager's own table.
static RESERVE: [AtomicUsize; 4] = [const { AtomicUsize::new(NONE) }; 4];
const NONE: usize = usize::MAX;

/// Keeps some descriptors, so that those that come with FORK events have room
/// under a limit that cannot be raised. For the first thread of a table.
pub fn reserve_descriptors() {
    for kept in &RESERVE {
        if kept.load(Ordering::Acquire) == NONE
            && let Ok(file) = File::open(c"/")
        {
            kept.store(file.fd(), Ordering::Release);
        }
    }
}

/// The table is a new one.
pub(crate) fn forget_reserve() {
    for kept in &RESERVE {
        kept.store(NONE, Ordering::Release);
    }
}

/// Gives one of the reserve up; false if there is none.
pub(crate) fn give_from_reserve() -> bool {
    RESERVE.iter().any(|kept| {
        let fd = kept.swap(NONE, Ordering::AcqRel);
        if fd != NONE {
            File::from_fd(fd).close();
        }
        fd != NONE
    })
}

/// Whether this thread has filters of system calls.
pub(crate) fn is_filtered() -> bool {
    const PR_GET_SECCOMP: usize = 21;
    // SAFETY: takes numbers only.
    unsafe { syscall(nr::PRCTL, [PR_GET_SECCOMP, 0, 0, 0, 0, 0]) != Ok(0) }
}

/// How many filters of system calls this thread has; what an unfit call does
/// (the process may be killed) is up to them.
#[must_use]
pub fn filters() -> u32 {
    if !is_filtered() {
        return 0;
    }
    let Ok(status) = File::open(c"/proc/thread-self/status") else {
        return u32::MAX;
    };
    let mut text = [0; 4096];
    let len = status.read_at(&mut text, 0).unwrap_or(0);
    status.close();
    count_of(&text[..len]).unwrap_or(u32::MAX)
}

fn count_of(status: &[u8]) -> Option<u32> {
    let line = status
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Seccomp_filters:"))?;
    core::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Most memory this process has had resident, pages; it needs no /proc.
#[must_use]
pub fn largest_resident() -> usize {
    // struct rusage: two timevals, then maxrss in KiB.
    let mut usage = [0_u64; 18];
    // SAFETY: the kernel writes one structure of that size.
    let _ = unsafe { syscall(nr::GETRUSAGE, [0, usage.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    usize::try_from(usage[4]).unwrap_or(0) / 4
}

/// Most mappings a process may have; `None` where that is not told.
#[must_use]
pub fn most_mappings() -> Option<usize> {
    let file = File::open(c"/proc/sys/vm/max_map_count").ok()?;
    let mut text = [0; 32];
    let len = file.read_at(&mut text, 0).unwrap_or(0);
    file.close();
    core::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_counted() {
        assert_eq!(
            count_of(b"Seccomp:\t2\nSeccomp_filters:\t3\nx:\t1\n"),
            Some(3)
        );
        assert_eq!(count_of(b"Seccomp:\t0\n"), None);
        assert!(filters() < 1000);
    }

    #[test]
    fn a_process_without_limits_has_room() {
        assert!(largest_resident() > 100);
        assert!(headroom(0, 0) > 1 << 30);
        assert!(most_mappings().is_none_or(|most| most > 100));
    }
}
