//! Sites of calls that become jumps: a call that dispatch stops costs a signal, one that
//! jumps to us a few instructions.
//!
//! Only one form is rewritten: `mov $number, %eax; syscall`, once the call itself has come
//! through it. The mov becomes a jump to a stub; the syscall stays where it is, and so does
//! what comes after it: whoever is on the way between the two, or returns to after the
//! syscall, finds what was there. The stub does what the mov did.
//!
//! Only text of files is rewritten that nobody changes or shares (`memory::texts`).
//!
//! With one thread no other can run the bytes that change. With several they are changed by
//! one aligned store of eight bytes, where they lie in such; the others keep their signal.

use super::entry::entry_address;
use crate::raw::{self, PAGE, nr};
use crate::state::State;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use zfolio_sys::lock::Mutex;

/// Bytes of a stub.
const STUB: usize = 32;
/// Bytes of the mov, and of the jump it becomes.
const MOV: usize = 5;
const READ_EXECUTE: usize = 5;
const ALL: usize = 7;

/// Stubs made so far.
static MADE: Mutex<usize> = Mutex::from_raw(
    <zfolio_sys::lock::RawFutexMutex as zfolio_sys::lock::RawMutex>::INIT,
    0,
);
/// Set to 1 once something was refused: no more is tried.
static REFUSED: AtomicUsize = AtomicUsize::new(0);

/// A call came from before `back`, by dispatch. In a signal handler, all signals blocked.
pub(crate) fn consider(state: &State, back: usize, number: usize) {
    if number >= super::table::CALLS || REFUSED.load(Ordering::Relaxed) != 0 {
        return;
    }
    let site = back - 2 - MOV;
    // Of the page that was just run alone: a fault here, in a handler, would have no stack.
    if (site - 1) & !(PAGE - 1) != (back - 1) & !(PAGE - 1) {
        return;
    }
    let mut bytes = [0_u8; 8];
    if !raw::read_bytes(site - 1, &mut bytes) {
        return;
    }
    let [before, mov, immediate @ .., s0, s1] = bytes;
    let is_form = mov == 0xb8
        && u32::from_le_bytes(immediate) as usize == number
        && [s0, s1] == [0x0f, 0x05]
        // A prefix would make it another register's.
        && before & 0xf0 != 0x40;
    if !is_form {
        return;
    }
    if !state.texts.lock().covers(&(site - 1..back)) {
        return;
    }
    let several = state.is_several();
    if several && site % 8 + MOV > 8 {
        return;
    }
    let mut made = MADE.lock();
    let stub = state.stubs.start + *made * STUB;
    let distance = stub.wrapping_sub(back - 2).cast_signed();
    let Ok(distance) = i32::try_from(distance) else {
        return;
    };
    if stub + STUB > state.stubs.end {
        return;
    }
    if !write_stub(stub, number, back) || !write_jump(site, distance, several) {
        REFUSED.store(1, Ordering::Relaxed);
        return;
    }
    *made += 1;
}

/// Changes what may be done to the pages of `range`.
fn protect(range: &Range<usize>, as_: usize) -> bool {
    let start = range.start & !(PAGE - 1);
    let len = range.end.next_multiple_of(PAGE) - start;
    raw::own(nr::MPROTECT, [start, len, as_]) == 0
}

/// `mov $number, %eax; movabs $back, %rcx; movabs $entry, %r11; jmp *%r11`
fn write_stub(at: usize, number: usize, back: usize) -> bool {
    let mut code = [0x90_u8; STUB];
    code[0] = 0xb8;
    #[allow(clippy::cast_possible_truncation, reason = "below CALLS")]
    code[1..5].copy_from_slice(&(number as u32).to_le_bytes());
    code[5..7].copy_from_slice(&[0x48, 0xb9]);
    code[7..15].copy_from_slice(&back.to_le_bytes());
    code[15..17].copy_from_slice(&[0x49, 0xbb]);
    code[17..25].copy_from_slice(&entry_address().to_le_bytes());
    code[25..28].copy_from_slice(&[0x41, 0xff, 0xe3]);
    let range = at..at + STUB;
    // (Others may run stubs of the same page.)
    if !protect(&range, ALL) {
        return false;
    }
    // SAFETY: memory of ours that no thread runs yet.
    unsafe { ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, STUB) };
    protect(&range, READ_EXECUTE)
}

fn write_jump(site: usize, distance: i32, several: bool) -> bool {
    let range = site..site + MOV;
    if !protect(&range, ALL) {
        return false;
    }
    let mut jump = [0xe9_u8; MOV];
    jump[1..].copy_from_slice(&distance.to_le_bytes());
    if several {
        let word = site & !7;
        // SAFETY: eight bytes of mapped text, writable now.
        let word_at = unsafe { &*(word as *const AtomicU64) };
        let mut bytes = word_at.load(Ordering::Relaxed).to_le_bytes();
        bytes[site - word..site - word + MOV].copy_from_slice(&jump);
        word_at.store(u64::from_le_bytes(bytes), Ordering::SeqCst);
    } else {
        // SAFETY: the bytes of a mov that this thread has just run, and no other runs.
        unsafe { ptr::copy_nonoverlapping(jump.as_ptr(), site as *mut u8, MOV) };
    }
    protect(&range, READ_EXECUTE)
}

/// In the child of a fork: nobody is making a stub.
pub(crate) fn reset_in_child(state: &State) {
    // (Whoever changes it holds the core lock, as the fork did.)
    zfolio_sys::lock::reset_in_fork_child(&state.texts);
    zfolio_sys::lock::reset_in_fork_child(&MADE);
}
