//! Dispatch by the kernel (`Documentation/admin-guide/syscall-user-dispatch.rst`): per thread,
//! off again in each new thread, in the child of a fork and after exec.

use crate::raw::{self, nr};
use crate::state::State;

const PR_SET_SYSCALL_USER_DISPATCH: usize = 59;

/// Has the kernel stop calls of this thread that are not made from our text; what it
/// returned, 0 for done.
pub(crate) fn arm(state: &State) -> isize {
    let (start, len) = (state.text.start, state.text.len());
    // SAFETY: numbers; no selector, so nothing of ours is read or written.
    unsafe {
        raw::call(
            nr::PRCTL,
            [PR_SET_SYSCALL_USER_DISPATCH, 1, start, len, 0, 0],
        )
    }
}

/// Whether the kernel has it, and lets this thread use it: armed for no call at all.
pub(crate) fn probe() -> isize {
    let all = 1 << 47;
    // SAFETY: numbers; every address is one that calls may be made from.
    let armed = unsafe { raw::call(nr::PRCTL, [PR_SET_SYSCALL_USER_DISPATCH, 1, 0, all, 0, 0]) };
    disarm();
    armed
}

/// The opposite.
pub(crate) fn disarm() {
    // SAFETY: numbers.
    unsafe { raw::call(nr::PRCTL, [PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0, 0]) };
}
