//! Acts on the whole process.

use crate::procfs::File;
use crate::syscall::{Errno, nr, syscall};
use core::sync::atomic::{AtomicU64, Ordering};

/// Device and inode of the file that lines are for; 0: unknown.
static STANDARD_ERROR: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// How long a line may wait for room in a pipe, ms.
const PATIENCE_MS: usize = 1000;

/// Says which file standard error was when the run began. Descriptor 2 may be
/// a file of the program's own by now, which must not find our lines in it.
pub fn know_standard_error(file: (u64, u64)) {
    STANDARD_ERROR[0].store(file.0, Ordering::Relaxed);
    STANDARD_ERROR[1].store(file.1, Ordering::Relaxed);
}

/// Writes a line to the program's standard error: its descriptor 2, which the
/// manager's own table does not have. False if that is not what it was when
/// the run began, or takes nothing.
pub fn say(line: &str) -> bool {
    let known = [0, 1].map(|at: usize| STANDARD_ERROR[at].load(Ordering::Relaxed));
    let Ok(stderr) = crate::limits::with_descriptors(standard_error) else {
        return false;
    };
    // Nobody may be reading a pipe: not saying it is better than not ending.
    let mut poll = [stderr.fd() as u64 & 0xffff_ffff | 4 << 32];
    // SAFETY: one pollfd (POLLOUT) that outlives the call.
    let ready = unsafe {
        syscall(
            nr::POLL,
            [poll.as_mut_ptr() as usize, 1, PATIENCE_MS, 0, 0, 0],
        )
    };
    identity(stderr) == Ok((known[0], known[1]))
        && ready == Ok(1)
        && stderr.write(line.as_bytes()) == Ok(line.len())
}

fn standard_error() -> Result<File, Errno> {
    let pid = crate::thread::pid() as usize;
    // SAFETY: takes numbers, returns a descriptor or an error.
    unsafe { syscall(nr::PIDFD_OPEN, [pid, 0, 0, 0, 0, 0]) }
        // SAFETY: as above.
        .and_then(|pidfd| unsafe { syscall(nr::PIDFD_GETFD, [pidfd, 2, 0, 0, 0, 0]) })
        .map(File::from_fd)
        .or_else(|_| File::open_for_writing(c"/proc/self/fd/2"))
}

/// Device and inode.
pub(crate) fn identity(file: File) -> Result<(u64, u64), Errno> {
    // struct stat: the first two of its 144 bytes' words.
    let mut stat = [0_u64; 18];
    // SAFETY: the kernel writes one structure of that size.
    unsafe {
        syscall(
            nr::FSTAT,
            [file.fd(), stat.as_mut_ptr() as usize, 0, 0, 0, 0],
        )
    }?;
    Ok((stat[0], stat[1]))
}

/// The number of the pid namespace of this process, in which [`crate::thread::pid`] says
/// which it is; 0 where there is no /proc.
#[must_use]
pub fn pid_namespace() -> u64 {
    // struct stat: see `identity`. (No descriptor is opened: the table may be the program's.)
    let mut stat = [0_u64; 18];
    let path = c"/proc/self/ns/pid";
    // SAFETY: a NUL-terminated path, of no directory since it is whole; the kernel writes one
    // structure of that size.
    let told = unsafe {
        syscall(
            nr::NEWFSTATAT,
            [
                0,
                path.as_ptr() as usize,
                stat.as_mut_ptr() as usize,
                0,
                0,
                0,
            ],
        )
    };
    if told.is_ok() { stat[1] } else { 0 }
}

/// Whether a process of this number is there, as far as this one can see.
#[must_use]
pub fn is_there(pid: u32) -> bool {
    // SAFETY: numbers; signal 0 is none.
    let sent = unsafe { syscall(nr::KILL, [pid as usize, 0, 0, 0, 0, 0]) };
    pid != 0 && !matches!(sent, Err(Errno::SRCH))
}

/// Ends every thread of the process at once.
pub fn exit_now(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        let _ = unsafe {
            syscall(
                nr::EXIT_GROUP,
                [status.cast_unsigned() as usize, 0, 0, 0, 0, 0],
            )
        };
    }
}
