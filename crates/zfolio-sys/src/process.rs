//! Acts on the whole process.

use crate::procfs::File;
use crate::syscall::{nr, syscall};

/// Writes a line to the program's standard error: its descriptor 2, which the
/// manager's own table does not have.
pub fn say(line: &str) {
    let pid = crate::thread::pid() as usize;
    // SAFETY: takes numbers, returns a descriptor or an error.
    let stderr = unsafe { syscall(nr::PIDFD_OPEN, [pid, 0, 0, 0, 0, 0]) }
        // SAFETY: as above.
        .and_then(|pidfd| unsafe { syscall(nr::PIDFD_GETFD, [pidfd, 2, 0, 0, 0, 0]) })
        .map(File::from_fd)
        .or_else(|_| File::open_for_writing(c"/proc/self/fd/2"));
    if let Ok(stderr) = stderr {
        let _ = stderr.write(line.as_bytes());
    }
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
