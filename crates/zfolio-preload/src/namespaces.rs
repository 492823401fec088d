//! unshare(2) and setns(2), which the kernel refuses to a process with more
//! than one thread for some namespaces. The watcher is a thread that the
//! program does not know of: it leaves for that moment.

use crate::outside::set_errno;
use crate::{manager, without_watcher};
use core::ffi::c_int;
use zfolio_inthread::start::{call as syscall, is_on};
use zfolio_sys::syscall::{Errno, nr};

/// unshare(2).
#[unsafe(no_mangle)]
extern "C" fn unshare(flags: c_int) -> c_int {
    alone(nr::UNSHARE, [flags, 0])
}

/// setns(2).
#[unsafe(no_mangle)]
extern "C" fn setns(descriptor: c_int, kind: c_int) -> c_int {
    alone(nr::SETNS, [descriptor, kind])
}

/// Makes a call, and should it be refused as to a process with threads, again
/// without the watcher.
fn alone(number: usize, args: [c_int; 2]) -> c_int {
    let [first, second] = args.map(|arg| arg.cast_unsigned() as usize);
    let call = || {
        // SAFETY: takes numbers only.
        unsafe { syscall(number, [first, second, 0, 0, 0, 0]) }
    };
    let mut result = call();
    if refused(result) && manager().is_none() && !is_on() {
        without_watcher(|| result = call());
    }
    match result {
        Ok(_) => 0,
        Err(errno) => {
            set_errno(errno.0);
            -1
        }
    }
}

fn refused(result: Result<usize, Errno>) -> bool {
    matches!(result, Err(Errno::INVAL | Errno::USERS))
}
