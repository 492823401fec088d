//! swapon(2) and swapoff(2), for experiments that stand beside the kernel's swap.

use crate::syscall::{Errno, syscall};
use core::ffi::CStr;

const SWAPON: usize = 167;
const SWAPOFF: usize = 168;
/// The low 15 bits are a priority.
const SWAP_FLAG_PREFER: usize = 0x8000;

/// Has the kernel swap to the device or file at `path`, which holds a swap
/// header, before it does to areas of lower `priority` (at most 32767).
///
/// # Errors
/// As the kernel says.
pub fn swapon(path: &CStr, priority: u16) -> Result<(), Errno> {
    let flags = SWAP_FLAG_PREFER | usize::from(priority & 0x7fff);
    // SAFETY: the kernel reads one terminated string. No memory of this
    // process changes but for where its pages may be.
    unsafe { syscall(SWAPON, [path.as_ptr() as usize, flags, 0, 0, 0, 0]) }.map(drop)
}

/// Brings back what is in the area at `path`, and no longer swaps to it.
///
/// # Errors
/// As the kernel says: `INVAL` where it is no swap area, `NOMEM` where what it
/// holds has no room.
pub fn swapoff(path: &CStr) -> Result<(), Errno> {
    // SAFETY: the kernel reads one terminated string.
    unsafe { syscall(SWAPOFF, [path.as_ptr() as usize, 0, 0, 0, 0, 0]) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_refused() {
        let none = c"/no/such/area";
        for refused in [swapon(none, 1), swapoff(none)] {
            let refused = refused.expect_err("there is no such file");
            assert!(matches!(refused, Errno::PERM | Errno::NOENT), "{refused:?}");
        }
    }
}
