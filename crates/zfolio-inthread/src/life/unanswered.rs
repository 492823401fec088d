//! Where a signal has come: behind calls that dispatch has stopped and nobody has answered, or that it ended.
//!
//! Dispatch stops a call by SIGSYS. The kernel keeps one signal of a number for a thread: where another
//! SIGSYS is about to be handled, sent by somebody this moment, that of dispatch is dropped. Then the
//! program would go on behind its call, with the number as the result. So each handler of ours, and the
//! return of each of the program's, looks for such a place.

use crate::cancel;
use crate::program_memory;
use crate::raw::{self, err};
use crate::signal::context::{Context, at};
use crate::signal::pieces;
use crate::state::State;
use crate::threads::Record;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// The flags of a debugger's steps (TF, RF), which the kernel may change.
const STEPPED: u64 = 1 << 8 | 1 << 16;

/// Has the call be answered that the thread of `record` has made last, if `context` is behind one that was
/// not. (One without a record makes its calls unseen.)
pub(super) fn answer(state: &State, record: Option<&Record>, context: &mut Context) {
    if record.is_some()
        && let Some(back) = behind_one(state, context)
    {
        answer_at(state, context, back, back);
    }
}

/// The program has made a call before `back` and is to go on at `goes_on` when it is answered.
#[allow(clippy::cast_possible_truncation, reason = "64 bits")]
pub(super) fn answer_at(state: &State, context: &mut Context, back: usize, goes_on: usize) {
    context[at::RAX] = cancel::marked(back, context[at::RAX] as usize) as u64;
    context[at::R11] = goes_on as u64;
    context[at::RCX] = back as u64;
    context[at::RIP] = state.entries.call as u64;
}

/// Whether it is behind a call that was made for the program and that a signal has ended.
pub(super) fn is_ended(context: &Context) -> bool {
    let after = [
        raw::after_call(),
        cancel::after_call(),
        pieces::after_call(),
    ];
    context[at::RAX].cast_signed() == err::INTR as i64
        && after.iter().any(|after| context[at::RIP] == *after as u64)
}

/// Where the program goes on, if that is behind a call that was not answered. (The processor puts that
/// address into rcx, where `answer::entry` never leaves it, and the flags into r11: a program that jumps there by
/// rcx has not made the call.)
fn behind_one(state: &State, context: &Context) -> Option<usize> {
    let pc = context[at::RIP];
    let flags = context[at::FLAGS] ^ context[at::R11];
    if pc != context[at::RCX] || flags & !STEPPED != 0 || state.has_left() {
        return None;
    }
    let pc = usize::try_from(pc).ok()?;
    let mut before = [0; SYSCALL.len()];
    let is_one = !state.text.contains(&pc)
        && program_memory::read_bytes(pc.wrapping_sub(SYSCALL.len()), &mut before)
        && before == SYSCALL;
    is_one.then_some(pc)
}
