//! The registers of a call, as the entry (`answer::entry`) saves them and gives them back.

use crate::call_stacks;
use core::arch::global_asm;

/// The registers of a call, as they lie on the stack of the thread.
#[repr(C)]
pub(crate) struct Frame {
    vectors: [[u64; 2]; 16],
    /// The number; then the result.
    pub(crate) rax: usize,
    pub(crate) rdi: usize,
    pub(crate) rsi: usize,
    pub(crate) rdx: usize,
    pub(crate) r10: usize,
    pub(crate) r8: usize,
    pub(crate) r9: usize,
    /// Registers that calls keep: rbx, rbp, r12 to r15.
    kept: [usize; 6],
    /// The program's stack pointer, as it goes on.
    pub(crate) stack: usize,
    /// Slot of the stack of ours that this lies on (`call_stacks`); 0: it is the program's.
    pub(crate) slot: usize,
    /// Where its own text has the call return to, and where it goes on: the same, or the copy
    /// of what is there in a stub.
    returns: [usize; 2],
}

/// What the program may use below its stack pointer.
const RED_ZONE: usize = 128;
/// From a frame to the stack pointer of the program.
pub(crate) const ABOVE: usize = size_of::<Frame>() + RED_ZONE;
const _: () = assert!(ABOVE == 520);

impl Frame {
    pub(crate) fn args(&self) -> [usize; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }
}

// rdi: the stack pointer to return from a signal at, rsi: the slot of the stack of ours that this is
// on, or 0. It is given back once nothing on it is needed.
global_asm!(
    ".hidden zfolio_call_return",
    ".globl zfolio_call_return",
    ".type zfolio_call_return, @function",
    ".p2align 4",
    "zfolio_call_return:",
    "mov rsp, rdi",
    "test rsi, rsi",
    "jz 2f",
    "mov qword ptr [rsi], {none}",
    "mov dword ptr [rsi + {taken}], 0",
    "2:",
    "mov eax, 15",
    "syscall",
    none = const call_stacks::NONE.cast_signed(),
    taken = const call_stacks::TAKEN,
);

unsafe extern "C" {
    fn zfolio_call_return(stack: usize, slot: usize) -> !;
    fn zfolio_call_again(frame: usize) -> !;
}

/// Has a call answered from the beginning on the stack of ours whose slot is at `slot`, and which was taken for it: what
/// lies below the program's stack pointer may go with the call.
pub(crate) fn answer_on(slot: usize, frame: &Frame) -> ! {
    let at = slot - ABOVE;
    let copy = Frame { slot, ..*frame };
    // SAFETY: nobody else has the stack, and nothing of this call is needed but the copy.
    unsafe {
        (at as *mut Frame).write_unaligned(copy);
        zfolio_call_again(at)
    }
}

/// The program returns from a signal by a call of its own: the signal's frame is at its
/// stack pointer.
pub(crate) fn return_from_signal(frame: &Frame) -> ! {
    // SAFETY: all that the program has on its stack is above.
    unsafe { zfolio_call_return(frame.stack, frame.slot) }
}

/// Puts a copy of `frame`, with `rax` in it, right below `top`: where it lies. The program's
/// stack pointer is `stack` in it, and it is on no stack that is to be given back.
///
/// # Safety
/// Nobody uses what is below `top`.
pub(crate) unsafe fn copy_to(top: usize, frame: &Frame, rax: usize, stack: usize) -> usize {
    let at = top - ABOVE;
    let copy = Frame {
        rax,
        stack,
        slot: 0,
        ..*frame
    };
    // SAFETY: by contract; where it is the program's, a fault is served or is its own.
    unsafe { (at as *mut Frame).write_unaligned(copy) };
    at
}
