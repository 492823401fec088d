//! Locks whose words the kernel reads and writes without waiting for a page: mutexes with
//! priority inheritance, and robust ones, which it unlocks when their owner has ended. On a page that is out
//! a call would fail (EFAULT), and the owner's death be lost. So a page with such a lock stays
//! from the moment the lock is initialised, and so does what a futex call of these kinds names.
//!
//! # Invariant
//! Pages are judged, by [`is_kept`], and moved out in steps. Who notes a page waits until the
//! step that was under way is over, and then has the page brought back: a later step sees
//! the note. (Each side writes what the other reads with an exchange, a full barrier on this
//! architecture, before it reads what the other writes.)
//!
//! Nothing here allocates or takes a lock: a futex call may be made in a signal handler, and
//! pages are judged under a lock of the manager's. A note is never taken back: that a lock is
//! destroyed or its memory unmapped is not always seen, and when it is another may lie there.

use crate::behind::Behind;
use crate::manager;
use crate::outside;
use crate::sealed;
use core::ffi::{c_int, c_void};
use core::ops::Range;
use zfolio_inthread::start::{call, is_on};
use zfolio_sys::page_set::PageSet;
use zfolio_sys::syscall::nr;

const PAGE_SHIFT: usize = 12;
const MADV_POPULATE_WRITE: usize = 23;
/// Bytes of a `pthread_mutex_t`.
const MUTEX: usize = 40;
/// Places of the table. (A megabyte of addresses, of which a process has in memory what it has
/// written to.)
const PLACES: usize = 1 << 17;

static KEPT: PageSet<PLACES> = PageSet::new();

/// Whether any page of a range of addresses has a lock that the kernel walks.
pub(crate) fn is_kept(range: &Range<usize>) -> bool {
    KEPT.overlaps(&(range.start >> PAGE_SHIFT..((range.end - 1) >> PAGE_SHIFT) + 1))
}

/// Has the pages of `len` bytes at `start` stay from here on, and brings them back.
fn keep(start: usize, len: usize) {
    let pages = start >> PAGE_SHIFT..(start.wrapping_add(len - 1) >> PAGE_SHIFT) + 1;
    pages.clone().for_each(|page| KEPT.insert(page));
    if is_on() {
        return;
    }
    let Some(manager) = manager().filter(|manager| manager.is_ours()) else {
        return;
    };
    manager.wait_for_leaving();
    let at = pages.start << PAGE_SHIFT;
    let args = [at, pages.len() << PAGE_SHIFT, MADV_POPULATE_WRITE, 0, 0, 0];
    // SAFETY: keeps every byte. What cannot be written is the caller's call to refuse.
    let _ = unsafe { call(nr::MADVISE, args) };
}

/// pthread_mutex_init.
type InitMutex = unsafe extern "C" fn(mutex: *mut c_void, how: *const c_void) -> c_int;

/// pthread_mutex_init(3): notes where a mutex of these kinds is.
///
/// # Safety
/// As the call's.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_mutex_init(mutex: *mut c_void, how: *const c_void) -> c_int {
    // SAFETY: a function of that name.
    let init = unsafe { core::mem::transmute::<usize, InitMutex>(found(&INIT_MUTEX)) };
    // SAFETY: as the caller vouches.
    let result = unsafe { init(mutex, how) };
    if result == 0 && !how.is_null() && outside::is_for_kernel(how) {
        let at = mutex as usize;
        keep(at, MUTEX);
        zfolio_inthread::start::keep(&(at..at + MUTEX));
    }
    result
}

/// Called by syscall(2) for calls of two kinds, with their first arguments and the fifth.
extern "C" fn look(number: usize, first: usize, second: usize, third: usize, fifth: usize) {
    if number == nr::MSEAL {
        sealed::seal_first(first, second, third);
    } else {
        futex(first, second, fifth);
    }
}

/// A futex call.
fn futex(word: usize, operation: usize, other: usize) {
    /// Without the flags for private words and the clock.
    const COMMAND: usize = 0x7f;
    const WAKE_OP: usize = 5;
    const LOCK_PI: usize = 6;
    const TRYLOCK_PI: usize = 8;
    const WAIT_REQUEUE_PI: usize = 11;
    const CMP_REQUEUE_PI: usize = 12;
    const LOCK_PI2: usize = 13;
    let (first, second) = match operation & COMMAND {
        WAKE_OP => (false, true),
        LOCK_PI..=TRYLOCK_PI | LOCK_PI2 => (true, false),
        WAIT_REQUEUE_PI | CMP_REQUEUE_PI => (true, true),
        _ => return,
    };
    for address in [(first, word), (second, other)]
        .into_iter()
        .filter_map(|(used, address)| used.then_some(address))
    {
        if address % 4 == 0 && (1 << PAGE_SHIFT..1 << 47).contains(&address) {
            keep(address, 4);
        }
    }
}

/// syscall(2), which libc's own functions do not use: a futex call or an mseal is looked at first, and then
/// libc's goes on as if it had been called. (By a jump: the child of a vfork returns through
/// here as well, and what is above the stack pointer then is its parent's.)
///
/// # Safety
/// As the call's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall() {
    core::arch::naked_asm!(
        "cmp rdi, {futex}",
        "je 4f",
        "cmp rdi, {mseal}",
        "jne 2f",
        "4:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "mov r8, r9",
        "call {look}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "2:",
        "mov rax, [rip + {libcs} + {found}]",
        "test rax, rax",
        "jz 3f",
        "jmp rax",
        "3:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        futex = const nr::FUTEX,
        mseal = const nr::MSEAL,
        look = sym look,
        libcs = sym SYSCALL,
        found = const Behind::FOUND,
        find = sym find_syscall,
    )
}

static SYSCALL: Behind = Behind::new(c"syscall");
static INIT_MUTEX: Behind = Behind::new(c"pthread_mutex_init");

/// Looks for what is behind ours now: later the caller may be a signal handler.
pub(crate) fn look_behind() {
    SYSCALL.find();
    INIT_MUTEX.find();
}

extern "C" fn find_syscall() -> usize {
    found(&SYSCALL)
}

/// Ends the program where there is nothing: it called a function that it does not have.
fn found(behind: &Behind) -> usize {
    let found = behind.find();
    if found == 0 {
        zfolio_sys::process::say("zfolio: libc's functions behind ours cannot be found\n");
        zfolio_sys::process::exit_now(zfolio_runtime::fatal::EXIT_FAILED);
    }
    found
}
