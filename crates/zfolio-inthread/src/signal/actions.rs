//! What is done with a signal, and the table of what the program asked for.

use crate::program_memory::Plain;
use crate::raw::{self, nr};

/// The kernel's `struct sigaction`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Action {
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    pub(crate) mask: u64,
}
// SAFETY: four numbers.
unsafe impl Plain for Action {
    const ZERO: Self = Self {
        handler: 0,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
}

pub(crate) const DEFAULT: u64 = 0;
pub(crate) const IGNORE: u64 = 1;
pub(crate) const SIGINFO: u64 = 4;
pub(crate) const RESTORER: u64 = 0x0400_0000;
pub(crate) const ONSTACK: u64 = 0x0800_0000;
pub(crate) const RESTART: u64 = 0x1000_0000;
pub(crate) const RESETHAND: u64 = 0x8000_0000;
pub(crate) const NODEFER: u64 = 0x4000_0000;
pub(crate) const SIGNALS: usize = 65;

/// As the program set them, by number.
#[derive(Clone, Copy)]
pub(crate) struct Signals {
    pub(crate) actions: [Action; SIGNALS],
}

pub(crate) const fn is_ours(signal: usize) -> bool {
    matches!(signal, 7 | 11 | 31)
}

impl Signals {
    /// Asks the kernel what is set now.
    pub(crate) fn now() -> Self {
        let mut actions = [Action::ZERO; SIGNALS];
        for (signal, action) in actions.iter_mut().enumerate().skip(1) {
            let at = (&raw mut *action) as usize;
            // SAFETY: one action of the table.
            unsafe { raw::call(nr::RT_SIGACTION, [signal, 0, at, 8, 0, 0]) };
        }
        Self { actions }
    }
}

/// Whether a signal that is sent does not end a call that waits, or not all of them.
pub(crate) fn restarts(action: &Action) -> bool {
    action.handler == IGNORE || action.flags & RESTART != 0
}

/// Sets an action in the kernel.
pub(crate) fn install(signal: usize, action: &Action) -> isize {
    let at = core::ptr::from_ref(action) as usize;
    // SAFETY: an action that outlives the call.
    unsafe { raw::call(nr::RT_SIGACTION, [signal, at, 0, 8, 0, 0]) }
}
