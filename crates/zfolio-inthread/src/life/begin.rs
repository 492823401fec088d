//! A new task that shares the memory: the call that makes it, and what it does first.

use super::leave;
use super::signals;
use super::ticks;
use crate::raw::{self, OURS};
use crate::seen::arm;
use crate::seen::frame::Frame;
use crate::state;
use crate::threads;
use core::arch::global_asm;

/// In the mask that a task inherits: it has no handlers. (SIGKILL's bit, of no mask.)
pub(super) const CLEARED: usize = 1 << 8;

// A call that makes a task: rdi its number, rsi its six arguments. The new task's stack pointer
// is a frame, as the caller has prepared it; it goes on as a call does that ends (`seen::entry`).
global_asm!(
    ".hidden zfolio_call_clone",
    ".globl zfolio_call_clone",
    ".type zfolio_call_clone, @function",
    ".p2align 4",
    "zfolio_call_clone:",
    "mov rax, rdi",
    crate::raw::six_arguments!(),
    "syscall",
    "test rax, rax",
    "jz 3f",
    "ret",
    "3:",
    "mov rbp, rsp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {begin}",
    "mov rsp, rbp",
    "jmp zfolio_call_exit",
    begin = sym begin,
);

unsafe extern "C" {
    fn zfolio_call_clone(number: usize, args: *const [usize; 6]) -> isize;
}

/// Makes the call; the new task begins in [`begin`], with its stack pointer at a frame.
pub(super) fn clone_with(number: usize, args: &[usize; 6]) -> isize {
    // SAFETY: the program's call, with a stack prepared.
    unsafe { zfolio_call_clone(number, args) }
}

unsafe extern "C" fn begin(frame: *mut Frame) {
    // SAFETY: the copy that `copy_to` made where the new thread begins.
    let frame = unsafe { &mut *frame };
    thread(frame);
}

/// The first thing a new task does, all signals blocked.
fn thread(frame: &mut Frame) {
    let state = state::get();
    let inherited = core::mem::replace(&mut frame.rax, 0) as u64;
    let begins = core::ptr::from_ref(frame) as usize;
    if let Some(record) = state.threads.by_stack(begins) {
        record.set_blocked(inherited);
        record.begin();
    }
    if inherited & CLEARED as u64 != 0 {
        signals::clear_handlers(state);
    }
    if leave::is_all_given_back(state) {
        raw::set_mask(inherited);
        return;
    }
    if let Some(record) = threads::current() {
        if arm::arm(state) != 0 {
            leave::leave(state, "a new thread's system calls cannot be seen");
        }
        ticks::begin_here(state, record);
    }
    raw::set_mask(inherited & !OURS);
}
