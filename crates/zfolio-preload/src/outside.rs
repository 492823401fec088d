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
    ".weak pthread_mutexattr_getrobust",
    ".weak pthread_mutexattr_getprotocol",
    ".hidden zfolio_getrobust",
    "zfolio_getrobust:",
    "mov rax, [rip + pthread_mutexattr_getrobust@GOTPCREL]",
    "ret",
    ".hidden zfolio_getprotocol",
    "zfolio_getprotocol:",
    "mov rax, [rip + pthread_mutexattr_getprotocol@GOTPCREL]",
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
    fn zfolio_getrobust() -> Option<AskMutex>;
    fn zfolio_getprotocol() -> Option<AskMutex>;
    fn zfolio_errno_location() -> Option<extern "C" fn() -> *mut c_int>;
}

/// What asks for an attribute of a mutex.
type AskMutex = unsafe extern "C" fn(how: *const c_void, answer: *mut c_int) -> c_int;

/// Whether mutexes with these attributes are robust or inherit priorities.
pub(crate) fn is_for_kernel(how: *const c_void) -> bool {
    const INHERIT: c_int = 1;
    const ROBUST: c_int = 1;
    let ask = |with: Option<AskMutex>| {
        let mut answer = 0;
        // SAFETY: attributes that the caller has just made a mutex with.
        with.is_some_and(|with| unsafe { with(how, &raw mut answer) == 0 })
            .then_some(answer)
    };
    // SAFETY: read entries of the library's own offset table.
    let (robust, protocol) = unsafe { (zfolio_getrobust(), zfolio_getprotocol()) };
    ask(robust) == Some(ROBUST) || ask(protocol) == Some(INHERIT)
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
