//! Ids and names of the calling thread and its process.

use crate::syscall::{Errno, nr, syscall};

/// Process id, asked of the kernel (not cached across forks).
#[must_use]
pub fn pid() -> u32 {
    // SAFETY: no arguments.
    let pid = unsafe { syscall(nr::GETPID, [0; 6]) };
    pid.ok().and_then(|p| u32::try_from(p).ok()).unwrap_or(0)
}

/// Id of the calling thread.
#[must_use]
pub fn id() -> u32 {
    // SAFETY: no arguments.
    let id = unsafe { syscall(nr::GETTID, [0; 6]) };
    id.ok().and_then(|id| u32::try_from(id).ok()).unwrap_or(0)
}

/// Whether this process has no thread of that id (any more).
#[must_use]
pub fn has_ended(id: u32) -> bool {
    // SAFETY: takes numbers only; signal 0 is none.
    let asked = unsafe { syscall(nr::TGKILL, [pid() as usize, id as usize, 0, 0, 0, 0]) };
    asked == Err(Errno::SRCH)
}

/// Process id of the parent.
#[must_use]
pub fn parent_pid() -> u32 {
    // SAFETY: no arguments.
    let pid = unsafe { syscall(nr::GETPPID, [0; 6]) };
    pid.ok().and_then(|p| u32::try_from(p).ok()).unwrap_or(0)
}

/// The name of the calling thread, NUL-padded.
#[must_use]
pub fn name() -> [u8; 16] {
    const PR_GET_NAME: usize = 16;
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes 16 bytes at most.
    let _ = unsafe {
        syscall(
            nr::PRCTL,
            [PR_GET_NAME, name.as_mut_ptr() as usize, 0, 0, 0, 0],
        )
    };
    name
}

/// Names the calling thread; 15 bytes are kept.
pub fn set_name(name: &str) {
    const PR_SET_NAME: usize = 15;
    let mut bytes = [0_u8; 16];
    let len = name.len().min(15);
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    // SAFETY: the kernel reads a NUL-terminated name.
    let _ = unsafe {
        syscall(
            nr::PRCTL,
            [PR_SET_NAME, bytes.as_ptr() as usize, 0, 0, 0, 0],
        )
    };
}
