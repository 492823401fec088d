//! A thread of ours in the program: where its stack and its thread pointer are, and with which status it
//! ends.
//!
//! libc knows nothing of it. It blocks all signals, makes its calls unseen (dispatch is not handed on to new
//! threads), and has no record: below its thread pointer lie zeros.

use crate::raw::PAGE;
use crate::threads;
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_sys::arena::reserve_private;
use zfolio_sys::syscall::Errno;

/// Bytes of its stack.
const STACK: usize = 128 << 10;

/// As `zfolio_sys::thread` makes threads: VM, FILES, FS, SIGHAND, THREAD, SYSVSEM, SETTLS, UNTRACED.
pub(super) const CLONE_FLAGS: usize =
    0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x8_0000 | 0x80_0000;

/// What it ends with: the status of the last thread of a process is the process's, so it is that of the
/// program's thread that ended last.
pub(super) static STATUS: AtomicU32 = AtomicU32::new(0);

/// A thread of the program's ends with this status.
pub(super) fn note_status(status: usize) {
    let status = u32::try_from(status & 0xff).unwrap_or(0);
    STATUS.store(status, Ordering::Release);
}

/// Where such a thread lives. Memory that it takes when there is one.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Where its stack ends.
    pub(super) top: usize,
    /// Its thread pointer.
    pub(super) pointer: usize,
}

impl Place {
    /// Has addresses ready.
    pub(super) fn reserve(name: &core::ffi::CStr) -> Result<Self, Errno> {
        // (As far as our word of thread-local storage: zeros, no record.)
        let storage = 0_usize.wrapping_sub(threads::place_of_record(0));
        let storage = storage.next_multiple_of(PAGE);
        let range = reserve_private(STACK + storage + PAGE, name)?;
        let top = range.start + STACK;
        let pointer = top + storage;
        Ok(Self { top, pointer })
    }
}
