//! Where handlers of the program's run.
//!
//! Where memory may be out the kernel cannot put a signal's frame: the signal would be lost. So once the
//! pool has been made all handlers are told to run on the thread's signal stack (`signals`), and to come by our
//! entry. From there the frame moves to where the kernel would have put it, on the stack that was interrupted, and
//! the program's handler finds things as they are without us: as much stack as there is, its own frame to
//! keep, the signal stack free.
//!
//! A frame stays on the signal stack where
//! - the program wants it there: SA_ONSTACK, and a signal stack that it has set;
//! - the signal stack is what was interrupted: the kernel has put it where it belongs;
//! - the stack that was interrupted is managed memory, of which any page may be closed while the handler runs;
//! - it is a stack of ours, or there is no room (which is an overflow of the stack without us).
//!
//! The layout is the kernel's (`struct rt_sigframe`, `struct _fpx_sw_bytes`).

use crate::raw::{self, PAGE, nr};
use crate::seen::stack;
use crate::signal::actions::ONSTACK;
use crate::signal::context::{Context, at};
use crate::state::State;
use crate::threads::Record;
use core::ops::Range;
use core::ptr;

/// Bytes below the stack pointer that belong to the code that was interrupted.
const RED_ZONE: usize = 128;
/// Bytes of a frame but for the state of vectors, which lies above it: where the handler returns to, a
/// `ucontext_t`, a `siginfo_t`.
const FRAME: usize = INFO + 128;
/// From a frame to its `ucontext_t`, and to its `siginfo_t`, bytes.
pub(super) const CONTEXT: usize = 8;
pub(super) const INFO: usize = CONTEXT + 304;
/// Bytes below the frame that are used before the program's handler begins.
const BELOW: usize = 64;
/// From the state of vectors to the word that says whether it is longer than [`LEAST_VECTORS`], bytes. Behind
/// that word: how long.
const LONGER: usize = 464;
const LONGER_MARK: u32 = 0x4650_5853;
const LEAST_VECTORS: usize = 512;
/// More than any processor has.
const MOST_VECTORS: usize = 64 << 10;

/// Where a frame and its state of vectors belong.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    frame: usize,
    vectors: usize,
}

impl Place {
    /// On the stack that ends at `stack`, with so many bytes of vectors. As the kernel chooses; `None` where there
    /// are no such addresses.
    fn below(stack: usize, vectors: usize) -> Option<Self> {
        let vectors = stack.checked_sub(RED_ZONE)?.checked_sub(vectors)? & !63;
        let frame = (vectors.checked_sub(FRAME)? & !15).checked_sub(8)?;
        (frame > BELOW).then_some(Self { frame, vectors })
    }
}

/// Moves the frame of `context` to the stack that was interrupted, if it is one to go there; `flags` are those of
/// the program's action. Where it is now; 0: where it was. Everything is blocked, on the service stack.
pub(super) fn place(
    state: &State,
    record: Option<&Record>,
    context: &mut Context,
    flags: u64,
) -> usize {
    let from = ptr::from_mut(context) as usize - CONTEXT;
    let Some(record) = record.filter(|record| record.is_on_signal_stack(from)) else {
        return 0;
    };
    let [stack, vectors] =
        [at::RSP, at::VECTORS].map(|at| usize::try_from(context[at]).unwrap_or(0));
    let is_wanted_here = flags & ONSTACK != 0 && record.has_set_signal_stack();
    if is_wanted_here || record.is_on_signal_stack(stack) || state.threads.by_stack(stack).is_some()
    {
        return 0;
    }
    let Some(len) = vectors_len(from, vectors) else {
        return 0;
    };
    let Some(to) = Place::below(stack, len) else {
        return 0;
    };
    let window = to.frame - BELOW..stack;
    if !stack::is_unmanaged(state, record, &window) || !can_be_written(&window) {
        return 0;
    }
    // SAFETY: the kernel has written both, on the signal stack; `window` can be written, is nobody's but the
    // thread's, which is here, and nobody's but what its stack pointer leaves free; the two do not overlap, since
    // the signal stack was not interrupted.
    unsafe {
        ptr::copy_nonoverlapping(vectors as *const u8, to.vectors as *mut u8, len);
        ptr::copy_nonoverlapping(from as *const u8, to.frame as *mut u8, FRAME);
        let context = (to.frame + CONTEXT) as *mut u64;
        context.add(at::VECTORS).write(to.vectors as u64);
    }
    to.frame
}

/// Bytes of the state of vectors at `vectors`, which belongs to the frame at `from`; `None` where it is nothing
/// that is known here.
fn vectors_len(from: usize, vectors: usize) -> Option<usize> {
    if vectors < from + FRAME || vectors - from > MOST_VECTORS {
        return None;
    }
    // SAFETY: above the frame lies what the kernel put there, at least so much.
    let [mark, len] = unsafe { ((vectors + LONGER) as *const [u32; 2]).read() };
    let len = match mark {
        LONGER_MARK => len as usize,
        _ => LEAST_VECTORS,
    };
    (LEAST_VECTORS..=MOST_VECTORS).contains(&len).then_some(len)
}

/// Whether each page of `window` is there to be written to. (A fault here would end the process.) What is below the
/// stack pointer changes.
fn can_be_written(window: &Range<usize>) -> bool {
    let further = (window.start / PAGE + 1..window.end.div_ceil(PAGE)).map(|page| page * PAGE);
    core::iter::once(window.start)
        .chain(further)
        // SAFETY: of what lies in the window nothing is kept. The kernel writes eight bytes, or says that it cannot.
        .all(|at| unsafe { raw::call(nr::RT_SIGPROCMASK, [0, 0, at, 8, 0, 0]) } == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_lies_as_the_kernel_would_put_it() {
        for stack in (0x7000_0000..0x7000_0200).step_by(8) {
            for vectors in [512, 836, 2696, 11008] {
                let at = Place::below(stack, vectors).expect("there is room");
                assert_eq!(at.vectors % 64, 0);
                assert!(at.vectors + vectors <= stack - RED_ZONE);
                assert!(stack - RED_ZONE - (at.vectors + vectors) < 64, "no lower");
                // (As a function finds its stack: what is above its return address is aligned.)
                assert_eq!(at.frame % 16, 8);
                assert!(at.frame + FRAME <= at.vectors);
                assert!(at.vectors - (at.frame + FRAME) < 24, "no lower");
            }
        }
        assert_eq!(Place::below(700, 512), None);
        assert_eq!(Place::below(100, 512), None);
    }

    /// A frame of the kernel's: 440 bytes, vectors above them.
    #[test]
    fn the_length_of_vectors_is_read() {
        let mut memory = [0_u32; 1024];
        let from = memory.as_ptr() as usize;
        let at = |from: usize| from + 512;
        assert_eq!(vectors_len(from, at(from)), Some(LEAST_VECTORS));
        let word = (512 + LONGER) / 4;
        memory[word] = LONGER_MARK;
        for (said, len) in [(836, Some(836)), (100, None), (1 << 20, None)] {
            memory[word + 1] = said;
            assert_eq!(vectors_len(memory.as_ptr() as usize, at(from)), len);
        }
        assert_eq!(vectors_len(from, from + 100), None);
        assert_eq!(vectors_len(from, 0), None);
    }
}
