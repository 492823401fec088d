//! Clocks: the time of day, time since boot, CPU time.

use crate::syscall::{nr, syscall};

/// A clock, as `clock_gettime` numbers them.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Clock {
    /// Time of day: it may be set, and is the same in every time namespace.
    Realtime = 0,
    /// Time since boot.
    Monotonic = 1,
    /// CPU time of all threads of this process.
    ProcessCpu = 2,
    /// CPU time of this thread.
    ThreadCpu = 3,
}

/// Nanoseconds on `clock`. A system call (half a microsecond at most) for CPU time, and
/// where the process has no shared object of the kernel's.
#[must_use]
pub fn now_ns(clock: Clock) -> u64 {
    match crate::vdso::clock_gettime(clock as usize) {
        Some([seconds, ns]) => seconds * 1_000_000_000 + ns,
        None => now_ns_of_system(clock),
    }
}

/// Has [`now_ns`] make the system call itself from here on: for a process in which calls from
/// other text than ours are stopped, by a signal that may be blocked.
pub fn read_clocks_by_calls() {
    crate::vdso::leave_alone();
}

/// The same, always by the system call.
pub(crate) fn now_ns_of_system(clock: Clock) -> u64 {
    let mut spec = [0_u64; 2];
    // SAFETY: the kernel writes one timespec.
    let _ = unsafe {
        syscall(
            nr::CLOCK_GETTIME,
            [clock as usize, spec.as_mut_ptr() as usize, 0, 0, 0, 0],
        )
    };
    spec[0] * 1_000_000_000 + spec[1]
}
