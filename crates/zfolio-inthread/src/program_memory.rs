//! The program's memory, read and written where it may not be there: a fault of nobody's is a result, not a
//! signal to the program.

use core::arch::global_asm;

// Touching what may be memory nobody has. The fault handler, finding a fault of nobody's at
// `zfolio_copy_at` or `zfolio_touch_at`, goes on at `zfolio_copy_failed` or `zfolio_touched`.
global_asm!(
    ".hidden zfolio_copy",
    ".hidden zfolio_copy_at",
    ".hidden zfolio_copy_failed",
    ".globl zfolio_copy, zfolio_copy_at, zfolio_copy_failed",
    ".type zfolio_copy, @function",
    "zfolio_copy:",
    "mov rcx, rdx",
    "zfolio_copy_at:",
    "rep movsb",
    "xor eax, eax",
    "ret",
    "zfolio_copy_failed:",
    "mov eax, 1",
    "ret",
    ".hidden zfolio_touch",
    ".hidden zfolio_touch_at",
    ".hidden zfolio_touched",
    ".globl zfolio_touch, zfolio_touch_at, zfolio_touched",
    ".type zfolio_touch, @function",
    "zfolio_touch:",
    "zfolio_touch_at:",
    "lock or byte ptr [rdi], 0",
    "zfolio_touched:",
    "ret",
);

unsafe extern "C" {
    fn zfolio_copy(to: *mut u8, from: *const u8, len: usize) -> usize;
    static zfolio_copy_at: u8;
    static zfolio_copy_failed: u8;
    fn zfolio_touch(at: *mut u8);
    static zfolio_touch_at: u8;
    static zfolio_touched: u8;
}

/// Where execution goes on after a fault at `pc` that nobody has an answer to; `None` if
/// `pc` is neither the copying nor the touching instruction.
pub(crate) fn fixup(pc: usize) -> Option<usize> {
    if pc == &raw const zfolio_touch_at as usize {
        return Some(&raw const zfolio_touched as usize);
    }
    let at = &raw const zfolio_copy_at as usize;
    (pc == at).then_some(&raw const zfolio_copy_failed as usize)
}

/// A plain value that the program may have written any bytes into.
///
/// # Safety
/// Every bit pattern is a value, and there is no padding that matters.
pub(crate) unsafe trait Plain: Copy {
    /// All bits zero.
    const ZERO: Self;
}
// SAFETY: numbers.
unsafe impl Plain for u64 {
    const ZERO: Self = 0;
}
// SAFETY: numbers.
unsafe impl Plain for u32 {
    const ZERO: Self = 0;
}
// SAFETY: numbers.
unsafe impl Plain for u8 {
    const ZERO: Self = 0;
}
// SAFETY: numbers.
unsafe impl<const N: usize> Plain for [u64; N] {
    const ZERO: Self = [0; N];
}

/// Reads a value of the program's; `None` where there is no memory. At 0, which calls are given for
/// what they are to leave out, nothing is looked for: that would be a fault and a signal each time.
pub(crate) fn read<T: Plain>(address: usize) -> Option<T> {
    if address == 0 {
        return None;
    }
    let mut value = T::ZERO;
    // SAFETY: writes to `value` alone; a read of nothing is turned into a result.
    let failed = unsafe {
        zfolio_copy(
            (&raw mut value).cast(),
            address as *const u8,
            size_of::<T>(),
        )
    };
    (failed == 0).then_some(value)
}

/// Reads bytes of the program's into `into`; false where there is no memory, and at 0, as [`read`].
pub(crate) fn read_bytes(address: usize, into: &mut [u8]) -> bool {
    // SAFETY: writes to `into` alone.
    address != 0 && unsafe { zfolio_copy(into.as_mut_ptr(), address as *const u8, into.len()) == 0 }
}

/// Touches a byte as who writes there, and leaves it as it is, whoever else writes meanwhile. Nothing
/// happens where there is no memory.
pub(crate) fn touch_to_write(address: usize) {
    // SAFETY: no bit is changed, in one step; a fault of nobody's is passed over.
    unsafe { zfolio_touch(address as *mut u8) }
}

/// Writes a value where a call of the program's asked for it; false where there is no memory.
pub(crate) fn write<T: Plain>(address: usize, value: T) -> bool {
    // SAFETY: the program named the address as one to be written to by this call.
    unsafe {
        zfolio_copy(
            address as *mut u8,
            (&raw const value).cast(),
            size_of::<T>(),
        ) == 0
    }
}

/// The bytes of program memory that the core lock keeps others from changing.
///
/// # Safety
/// The pages are readable, and no thread can write to them until the slice is gone.
pub(crate) unsafe fn bytes<'a>(address: usize, len: usize) -> &'a [u8] {
    // SAFETY: by contract.
    unsafe { core::slice::from_raw_parts(address as *const u8, len) }
}

/// As [`bytes`], to be written.
///
/// # Safety
/// The pages are writable, and no other thread can touch them until the slice is gone.
pub(crate) unsafe fn bytes_mut<'a>(address: usize, len: usize) -> &'a mut [u8] {
    // SAFETY: by contract.
    unsafe { core::slice::from_raw_parts_mut(address as *mut u8, len) }
}

#[cfg(test)]
mod tests {
    use super::{read, read_bytes};

    /// No handler is there: a touch of 0 would end the test.
    #[test]
    fn nothing_is_read_at_zero() {
        assert_eq!(read::<u32>(0), None);
        assert!(!read_bytes(0, &mut [0; 8]));
        let word = 7_u64;
        assert_eq!(read::<u64>((&raw const word) as usize), Some(7));
    }
}
