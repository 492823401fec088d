//! What the program may have: symbols that are looked for weakly, so that the
//! library loads where they are missing (another C library's loader refuses a
//! library with a missing symbol, and with it the program).

use core::ffi::{c_int, c_void};

core::arch::global_asm!(
    ".weak __register_atfork",
    ".weak __lsan_do_leak_check",
    ".weak __errno_location",
    ".hidden zfolio_register_atfork",
    "zfolio_register_atfork:",
    "mov rax, [rip + __register_atfork@GOTPCREL]",
    "ret",
    ".hidden zfolio_leak_check",
    "zfolio_leak_check:",
    "mov rax, [rip + __lsan_do_leak_check@GOTPCREL]",
    "ret",
    ".hidden zfolio_errno_location",
    "zfolio_errno_location:",
    "mov rax, [rip + __errno_location@GOTPCREL]",
    "ret",
);

/// What pthread_atfork calls.
pub(crate) type RegisterAtfork = unsafe extern "C" fn(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
    dso: *mut c_void,
) -> c_int;

unsafe extern "C" {
    fn zfolio_register_atfork() -> Option<RegisterAtfork>;
    fn zfolio_leak_check() -> usize;
    fn zfolio_errno_location() -> Option<extern "C" fn() -> *mut c_int>;
}

/// glibc's registration of fork handlers; `None` in a program of another C
/// library, where constructors have no arguments either.
pub(crate) fn register_atfork() -> Option<RegisterAtfork> {
    // SAFETY: reads an entry of the library's own offset table.
    unsafe { zfolio_register_atfork() }
}

/// Whether the program was built with the leak checker of LSan or ASan.
pub(crate) fn has_leak_checker() -> bool {
    // SAFETY: as above.
    unsafe { zfolio_leak_check() != 0 }
}

/// Sets libc's errno, in a thread of the program.
pub(crate) fn set_errno(to: c_int) {
    // SAFETY: reads an entry of the library's own offset table; what it names
    // returns the address of the calling thread's errno.
    unsafe {
        if let Some(location) = zfolio_errno_location() {
            location().write(to);
        }
    }
}
