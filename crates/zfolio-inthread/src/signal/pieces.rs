//! Calls that are made in pieces, as one call would answer where a signal's handler runs meanwhile.
//!
//! A write of much memory to a pipe is made in pieces. Interrupted in a later one it must not be made
//! again, nor go on: what was moved before is its result, as it is of one call that has moved
//! something. So a piece is made at one place ([`Pieces::call`]), and whenever a handler of the
//! program's returns to a thread that makes such a call ([`Pieces::returning`]):
//!
//! | the handler returns to | then |
//! |---|---|
//! | the first piece, which has not been made or is made again | it is, as one call would be |
//! | a later piece that has not been made or is made again | it returns EINTR |
//! | any other place behind the first piece | the next one returns EINTR |

use crate::raw::err;
use core::arch::global_asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

/// [`Pieces::stage`]: no such call is being made, or its first piece, or a later one.
const NONE: u32 = 0;
const FIRST: u32 = 1;
const LATER: u32 = 2;

/// What is known of the call of a thread that is made in pieces.
#[derive(Default)]
pub(crate) struct Pieces {
    stage: AtomicU32,
    /// 1: a handler has run behind the first piece.
    came: AtomicU32,
    /// Never anything else.
    zero: AtomicU32,
}

/// Where [`Pieces::stage`] is in it.
pub(crate) const STAGE: usize = offset_of!(Pieces, stage);

global_asm!(
    ".hidden zfolio_piece_call",
    ".globl zfolio_piece_call",
    ".hidden zfolio_piece_test",
    ".globl zfolio_piece_test",
    ".hidden zfolio_piece_done",
    ".globl zfolio_piece_done",
    ".type zfolio_piece_call, @function",
    ".p2align 4",
    // rdi: the number, rsi: six arguments, rdx: not zero if it is not to be made, rcx: the stage, r8: the
    // stack pointer to call with, or 0.
    "zfolio_piece_call:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbx, -16",
    "push rbp",
    ".cfi_def_cfa_offset 24",
    ".cfi_offset rbp, -24",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "test r8, r8",
    "cmovnz rsp, r8",
    "mov rbx, rcx",
    "mov rax, rdi",
    "mov rcx, rdx",
    crate::raw::six_arguments!(),
    "zfolio_piece_test:",
    "cmp dword ptr [rcx], 0",
    "jne 2f",
    "syscall",
    "zfolio_piece_done:",
    "mov dword ptr [rbx], {later}",
    "mov rsp, rbp",
    ".cfi_remember_state",
    ".cfi_def_cfa_register rsp",
    "pop rbp",
    ".cfi_def_cfa_offset 16",
    "pop rbx",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_restore_state",
    "2:",
    "mov rax, {interrupted}",
    "jmp zfolio_piece_done",
    ".cfi_endproc",
    later = const LATER,
    interrupted = const err::INTR,
);

unsafe extern "C" {
    fn zfolio_piece_call(
        number: usize,
        args: *const [usize; 6],
        stop: *const AtomicU32,
        stage: *const AtomicU32,
        stack: usize,
    ) -> isize;
    static zfolio_piece_test: u8;
    static zfolio_piece_done: u8;
}

/// Behind the call of a piece.
pub(crate) fn after_call() -> usize {
    &raw const zfolio_piece_done as usize
}

/// Whether a thread at `pc` is about to make a piece, or to make it again.
pub(crate) fn is_before_call(pc: usize) -> bool {
    (&raw const zfolio_piece_test as usize..after_call()).contains(&pc)
}

impl Pieces {
    /// A thread begins.
    pub(crate) fn reset(&self) {
        self.stage.store(NONE, Ordering::Relaxed);
    }

    /// A call in pieces begins; what was, for [`Self::end`]: it may be in a handler.
    pub(crate) fn begin(&self) -> [u32; 2] {
        let before = [&self.stage, &self.came].map(|of| of.load(Ordering::Relaxed));
        self.came.store(0, Ordering::Relaxed);
        self.stage.store(FIRST, Ordering::Relaxed);
        before
    }

    pub(crate) fn end(&self, before: [u32; 2]) {
        self.stage.store(before[0], Ordering::Relaxed);
        self.came.store(before[1], Ordering::Relaxed);
    }

    /// Makes the next piece on behalf of the program, the first of them unless `stop` is not zero; with the
    /// stack pointer `stack` where that is not 0.
    pub(crate) fn call(
        &self,
        stack: usize,
        number: usize,
        args: [usize; 6],
        stop: Option<&AtomicU32>,
    ) -> isize {
        let stop = match self.stage.load(Ordering::Relaxed) {
            LATER => &self.came,
            _ => stop.unwrap_or(&self.zero),
        };
        // SAFETY: the program made this call, as a whole; what a piece does is what that would have done.
        unsafe { zfolio_piece_call(number, &raw const args, stop, &raw const self.stage, stack) }
    }

    /// A handler of the program's returns to `pc`. Where it is to go on instead, with EINTR as the
    /// result, if that is a later piece.
    pub(crate) fn returning(&self, pc: usize) -> Option<(usize, u64)> {
        let stage = self.stage.load(Ordering::Relaxed);
        if is_before_call(pc) {
            return (stage == LATER).then_some((after_call(), (err::INTR as i64).cast_unsigned()));
        }
        // (The first piece has been made, and nothing since.)
        if stage == LATER || pc == after_call() {
            self.came.store(1, Ordering::Relaxed);
        }
        None
    }
}
