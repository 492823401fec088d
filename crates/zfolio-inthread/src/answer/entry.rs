//! Where calls arrive: from a stub, or from the handler of a call that dispatch stopped.
//!
//! r11 has the address at which the program goes on. rcx has the one at which it would by its own
//! text, which unwinders are shown. (rcx and r11 are the kernel's to change.) All other registers are as
//! for the call. Where the program goes on rcx is never the address that it goes on at, as it is behind a call
//! that the processor has made and nobody has answered (`life::handlers`). Calls without pointers go straight to the kernel. For the others all registers are saved
//! in a [`Frame`]; the vector registers too, since the code called uses them.
//!
//! It lies on the stack that the call is answered on. On the thread's own that is below the 128
//! bytes that the program may use under its stack pointer. So it is on the signal stack: left for another, the
//! kernel would take it for free, and write the next signal's frame over the handler's. From anywhere else
//! nothing may be written to the program's stack: there the first thing is to take a stack of ours
//! ([`call_stacks`]).

use super::dispatch;
use crate::call_stacks;
use crate::seen::frame::Frame;
use crate::seen::stubs;
use crate::seen::table::{CALLS, PLAIN};
use crate::signal::context::ALIGNMENT_CHECKED;
use crate::threads::{FIRST_SLOT, OWN_STACK, SIGNAL_STACK};
use core::arch::global_asm;

/// Instructions that go to 10 where the call is answered on the program's stack, and on with the stack
/// pointer at the slot of one of ours, which is taken, else; rcx is free until `$restore` has been done.
macro_rules! choose_stack {
    ($restore:literal) => {
        concat!(
            "mov rcx, qword ptr [rip + zfolio_record@GOTTPOFF]
             mov rcx, qword ptr fs:[rcx]
             test rcx, rcx
             jz 3f
             cmp rsp, [rcx + {own}]
             jb 4f
             cmp rsp, [rcx + {own} + 8]
             ja 4f
             3:\n",
            $restore,
            "jmp 10f
             4:
             cmp rsp, [rcx + {signals}]
             jb 6f
             cmp rsp, [rcx + {signals} + 8]
             jbe 3b
             6:
             lea rcx, [rcx + {first_slot}]
             lock bts dword ptr [rcx + {taken}], 0
             jnc 7f
             add rcx, {size}
             lock bts dword ptr [rcx + {taken}], 0
             jnc 7f
             add rcx, {size}
             lock bts dword ptr [rcx + {taken}], 0
             jc 3b
             7:
             mov [rcx], rsp
             mov rsp, rcx\n",
            $restore
        )
    };
}

global_asm!(
    ".hidden zfolio_call_entry",
    ".globl zfolio_call_entry",
    ".hidden zfolio_call_exit",
    ".globl zfolio_call_exit",
    ".type zfolio_call_entry, @function",
    ".p2align 5",
    "zfolio_call_entry:",
    ".cfi_startproc",
    ".cfi_def_cfa rsp, 0",
    ".cfi_register rip, r11",
    // rcx is made free: it is what r11 is, or said in the stub that r11 is in.
    "cmp rcx, r11",
    "jne 5f",
    choose_stack!("mov rcx, r11\n"),
    "jmp 20f",
    "5:",
    choose_stack!("movsxd rcx, dword ptr [r11 - {far}]\nlea rcx, [rcx + r11 - {from}]\n"),
    // On a stack of ours, at its slot.
    "20:",
    ".cfi_offset rsp, 0",
    "lea rsp, [rsp - 128]",
    "push r11",
    "push rcx",
    ".cfi_def_cfa rsp, 144",
    ".cfi_offset rip, -144",
    "mov ecx, eax",
    "cmp ecx, {calls}",
    "jae 21f",
    "lea r11, [rip + {plain}]",
    "cmp byte ptr [r11 + rcx], 0",
    "je 21f",
    "syscall",
    "pop rcx",
    "pop r11",
    "lea rcx, [rsp + 128]",
    "mov rsp, [rcx]",
    "mov qword ptr [rcx], {none}",
    "mov dword ptr [rcx + {taken}], 0",
    "jmp r11",
    "21:",
    "lea r11, [rsp + 144]",
    "push r11",
    "push [r11]",
    "jmp 30f",
    // On the program's.
    "10:",
    ".cfi_def_cfa rsp, 0",
    ".cfi_same_value rsp",
    ".cfi_register rip, rcx",
    "lea rsp, [rsp - 128]",
    "push r11",
    "push rcx",
    ".cfi_def_cfa rsp, 144",
    ".cfi_offset rip, -144",
    "mov ecx, eax",
    "cmp ecx, {calls}",
    "jae 11f",
    "lea r11, [rip + {plain}]",
    "cmp byte ptr [r11 + rcx], 0",
    "je 11f",
    "syscall",
    "pop rcx",
    "pop r11",
    "lea rsp, [rsp + 128]",
    "xor ecx, ecx",
    "jmp r11",
    "11:",
    "lea r11, [rsp + 144]",
    "push 0",
    "push r11",
    "30:",
    ".cfi_def_cfa rsp, 160",
    ".cfi_offset rsp, -160",
    "push r15",
    "push r14",
    "push r13",
    "push r12",
    "push rbp",
    "push rbx",
    "push r9",
    "push r8",
    "push r10",
    "push rdx",
    "push rsi",
    "push rdi",
    "push rax",
    "sub rsp, 256",
    "mov rbp, rsp",
    ".cfi_def_cfa rbp, 520",
    ".cfi_offset r15, -168",
    ".cfi_offset r14, -176",
    ".cfi_offset r13, -184",
    ".cfi_offset r12, -192",
    ".cfi_offset rbp, -200",
    ".cfi_offset rbx, -208",
    "movups [rsp], xmm0",
    "movups [rsp + 16], xmm1",
    "movups [rsp + 32], xmm2",
    "movups [rsp + 48], xmm3",
    "movups [rsp + 64], xmm4",
    "movups [rsp + 80], xmm5",
    "movups [rsp + 96], xmm6",
    "movups [rsp + 112], xmm7",
    "movups [rsp + 128], xmm8",
    "movups [rsp + 144], xmm9",
    "movups [rsp + 160], xmm10",
    "movups [rsp + 176], xmm11",
    "movups [rsp + 192], xmm12",
    "movups [rsp + 208], xmm13",
    "movups [rsp + 224], xmm14",
    "movups [rsp + 240], xmm15",
    "50:",
    "mov rdi, rsp",
    "and rsp, -16",
    "cld",
    // (The code called reads what is not aligned, as it may where the program has not had that checked.)
    "push rax",
    "pushfq",
    "test byte ptr [rsp + 2], {checks}",
    "jnz 40f",
    "41:",
    "call {dispatch}",
    "test byte ptr [rsp + 2], {checks}",
    "jnz 42f",
    "43:",
    "mov rsp, rbp",
    "jmp zfolio_call_exit",
    "40:",
    "push [rsp]",
    "and byte ptr [rsp + 2], ~{checks}",
    "popfq",
    "jmp 41b",
    "42:",
    "pushfq",
    "or byte ptr [rsp + 2], {checks}",
    "popfq",
    "jmp 43b",
    // rdi: a frame that a call goes on with, on a stack of ours.
    ".hidden zfolio_call_again",
    ".globl zfolio_call_again",
    "zfolio_call_again:",
    "mov rsp, rdi",
    "mov rbp, rdi",
    "jmp 50b",
    // rsp: a frame.
    "zfolio_call_exit:",
    "movups xmm0, [rsp]",
    "movups xmm1, [rsp + 16]",
    "movups xmm2, [rsp + 32]",
    "movups xmm3, [rsp + 48]",
    "movups xmm4, [rsp + 64]",
    "movups xmm5, [rsp + 80]",
    "movups xmm6, [rsp + 96]",
    "movups xmm7, [rsp + 112]",
    "movups xmm8, [rsp + 128]",
    "movups xmm9, [rsp + 144]",
    "movups xmm10, [rsp + 160]",
    "movups xmm11, [rsp + 176]",
    "movups xmm12, [rsp + 192]",
    "movups xmm13, [rsp + 208]",
    "movups xmm14, [rsp + 224]",
    "movups xmm15, [rsp + 240]",
    "add rsp, 256",
    "pop rax",
    "pop rdi",
    "pop rsi",
    "pop rdx",
    "pop r10",
    "pop r8",
    "pop r9",
    "pop rbx",
    "pop rbp",
    "pop r12",
    "pop r13",
    "pop r14",
    "pop r15",
    "mov r11, [rsp + 24]",
    "mov rcx, [rsp + 8]",
    "test rcx, rcx",
    "jz 31f",
    "mov rsp, [rsp]",
    "mov qword ptr [rcx], {none}",
    "mov dword ptr [rcx + {taken}], 0",
    "jmp r11",
    "31:",
    "mov rsp, [rsp]",
    "xor ecx, ecx",
    "jmp r11",
    ".cfi_endproc",
    // A call of the program's that reached a function of ours: rdi its number, rsi its six
    // arguments.
    ".hidden zfolio_call_here",
    ".globl zfolio_call_here",
    ".type zfolio_call_here, @function",
    "zfolio_call_here:",
    "mov rax, rdi",
    crate::raw::six_arguments!(),
    "lea rcx, [rip + 4f]",
    "mov r11, rcx",
    "jmp zfolio_call_entry",
    "4:",
    "ret",
    calls = const CALLS,
    own = const OWN_STACK,
    signals = const SIGNAL_STACK,
    first_slot = const first_slot_of(3),
    size = const call_stacks::SIZE,
    taken = const call_stacks::TAKEN,
    none = const call_stacks::NONE.cast_signed(),
    far = const stubs::BACK_AT,
    from = const stubs::BACK_FROM,
    plain = sym PLAIN,
    checks = const ALIGNMENT_CHECKED >> 16,
    dispatch = sym dispatch,
);

/// From a record to its first slot; the entry looks at `count` of them.
const fn first_slot_of(count: usize) -> usize {
    assert!(count == call_stacks::COUNT);
    FIRST_SLOT
}

unsafe extern "C" {
    fn zfolio_call_entry();
    fn zfolio_call_here(number: usize, args: *const [usize; 6]) -> isize;
}

/// Where stubs and the handler of dispatch go.
pub(crate) fn address() -> usize {
    zfolio_call_entry as *const () as usize
}

unsafe extern "C" fn dispatch(frame: *mut Frame) {
    // SAFETY: the entry's frame, on this thread's stack.
    let frame = unsafe { &mut *frame };
    frame.rax = dispatch::dispatch(frame).cast_unsigned();
}

/// Makes a call of the program's that reached a function of ours, as if it had come here.
///
/// # Safety
/// Whatever the call demands of its arguments.
pub(crate) unsafe fn call_here(number: usize, args: &[usize; 6]) -> isize {
    // SAFETY: by contract.
    unsafe { zfolio_call_here(number, args) }
}
