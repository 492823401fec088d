//! Calls at which a thread may be cancelled (pthread_cancel), for a libc that judges by the program
//! counter whether a call has been made.
//!
//! glibc 2.41 and later makes such calls from one place. The handler of the signal that
//! pthread_cancel sends ends the thread if the program counter is in that place: then the call
//! has not been made, or is to be made again. Here the counter is in our text, so the handler
//! does nothing. But libc also ends the thread if a call that the signal interrupts returns EINTR. So from
//! the moment the signal has come such calls return EINTR, unless they have been made already.
//!
//! (The place's `syscall` is followed by a return and is never rewritten, so each of these calls
//! comes by dispatch's signal, which marks its number.)

use crate::program_memory;
use crate::raw;
use crate::signal::pieces;
use core::arch::global_asm;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The signal that pthread_cancel sends.
pub(crate) const SIGNAL: usize = 32;
/// What surrounds the place's `syscall`: a mov of r11 to the stack, which no compiler puts
/// there, and a return.
const BEFORE: [u8; 5] = [0x4c, 0x89, 0x5c, 0x24, 0x08];
const PLACE: usize = BEFORE.len() + 3;
/// Marks a number: not one that the kernel or the entry knows as a call.
const MARK: usize = 0x5a66_6f6c_8000_0000;
const NUMBER: usize = 0x7fff_ffff;
pub(crate) const EINTR: i32 = 4;

/// What is known of a thread.
#[derive(Default)]
pub(crate) struct Cancellation {
    /// 1: the call being made is of that place.
    within: AtomicU32,
    /// 1: the signal has come.
    came: AtomicU32,
    /// The program's stack pointer where the call being made is answered on a stack of ours; or 0. The
    /// kernel is called with it, so that handlers run where they would.
    stack: AtomicUsize,
}

/// What is known of a call, but for the signal.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// It is of that place.
    pub(crate) within: bool,
    /// The program's stack pointer, or 0.
    pub(crate) stack: usize,
}

global_asm!(
    ".hidden zfolio_cancellable_call",
    ".globl zfolio_cancellable_call",
    ".hidden zfolio_cancellable_done",
    ".globl zfolio_cancellable_done",
    ".hidden zfolio_cancellable_test",
    ".globl zfolio_cancellable_test",
    ".type zfolio_cancellable_call, @function",
    ".p2align 4",
    // rdi: the number, rsi: six arguments, rdx: not zero once the signal has come, rcx: the stack
    // pointer to call with, or 0.
    "zfolio_cancellable_call:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbx, -16",
    "mov rbx, rsp",
    ".cfi_def_cfa_register rbx",
    "test rcx, rcx",
    "cmovnz rsp, rcx",
    "mov rax, rdi",
    "mov rcx, rdx",
    crate::raw::six_arguments!(),
    "zfolio_cancellable_test:",
    "cmp dword ptr [rcx], 0",
    "jne 2f",
    "syscall",
    "zfolio_cancellable_done:",
    "mov rsp, rbx",
    ".cfi_remember_state",
    ".cfi_def_cfa_register rsp",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_restore_state",
    "2:",
    "mov rax, {interrupted}",
    "jmp zfolio_cancellable_done",
    ".cfi_endproc",
    interrupted = const -EINTR,
);

unsafe extern "C" {
    fn zfolio_cancellable_call(
        number: usize,
        args: *const [usize; 6],
        came: *const AtomicU32,
        stack: usize,
    ) -> isize;
    static zfolio_cancellable_test: u8;
    static zfolio_cancellable_done: u8;
}

/// Marks the number of a call that was made before `back`, if it is made at that place.
pub(crate) fn marked(back: usize, number: usize) -> usize {
    let mut place = [0; PLACE];
    let is_there = program_memory::read_bytes(back - (PLACE - 1), &mut place)
        && place[..BEFORE.len()] == BEFORE
        && place[BEFORE.len()..] == [0x0f, 0x05, 0xc3];
    if is_there && number & !NUMBER == 0 {
        number | MARK
    } else {
        number
    }
}

/// A number without its mark, and whether it had one.
pub(crate) fn unmarked(number: usize) -> (usize, bool) {
    if number & !NUMBER == MARK {
        (number & NUMBER, true)
    } else {
        (number, false)
    }
}

/// Behind the call that is made for that place.
pub(crate) fn after_call() -> usize {
    &raw const zfolio_cancellable_done as usize
}

impl Cancellation {
    /// A thread begins.
    pub(crate) fn reset(&self) {
        self.within.store(0, Ordering::Relaxed);
        self.came.store(0, Ordering::Relaxed);
        self.stack.store(0, Ordering::Relaxed);
    }

    /// Says what the call is that is about to be made; returns what was said before.
    pub(crate) fn set_call(&self, call: Call) -> Call {
        let before = Call {
            within: self.within.load(Ordering::Relaxed) != 0,
            stack: self.stack.load(Ordering::Relaxed),
        };
        self.within.store(u32::from(call.within), Ordering::Relaxed);
        self.stack.store(call.stack, Ordering::Relaxed);
        before
    }

    /// The signal has come while the program counter was `pc`. Where to go on, with EINTR as
    /// the result, if that is a call that has not been made, or is to be made again.
    pub(crate) fn interrupted(&self, pc: usize) -> Option<(usize, u64)> {
        self.came.store(1, Ordering::Relaxed);
        let done = after_call();
        let range = &raw const zfolio_cancellable_test as usize..done;
        let after = if range.contains(&pc) {
            done
        } else if pieces::is_before_call(pc) && self.within.load(Ordering::Relaxed) != 0 {
            pieces::after_call()
        } else {
            return None;
        };
        Some((after, i64::from(-EINTR).cast_unsigned()))
    }

    /// The program's stack pointer in the call being made, if it is answered on a stack of ours; or 0.
    pub(crate) fn stack(&self) -> usize {
        self.stack.load(Ordering::Relaxed)
    }

    /// What is not zero once a call that is about to be made is not to be.
    pub(crate) fn stop(&self) -> Option<&AtomicU32> {
        (self.within.load(Ordering::Relaxed) != 0).then_some(&self.came)
    }

    /// Makes a call on behalf of the program, the one that [`Self::set_call`] told of.
    pub(crate) fn call(&self, number: usize, args: [usize; 6]) -> isize {
        let stack = self.stack();
        if self.within.load(Ordering::Relaxed) == 0 {
            return raw::for_program_at(stack, number, args);
        }
        // SAFETY: the program made this call; what it does is what it would have done.
        unsafe { zfolio_cancellable_call(number, &raw const args, &raw const self.came, stack) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_the_place_are_marked() {
        let place = [0x90_u8, 0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05, 0xc3];
        let back = place.as_ptr() as usize + 8;
        assert_eq!(unmarked(marked(back, 202)), (202, true));
        assert_eq!(marked(back - 1, 202), 202);
        assert_eq!(unmarked(202), (202, false));
        // A number that the kernel refuses stays one.
        assert_eq!(unmarked(marked(back, 0x8000_0000)), (0x8000_0000, false));
        assert_eq!(unmarked(0x8000_0000), (0x8000_0000, false));
    }
}
