//! Our handlers of SIGSEGV, SIGBUS and SIGSYS, as the kernel has them.

use crate::signal::actions::{self, Action, ONSTACK, RESTART, RESTORER, SIGINFO};
use crate::state::State;

/// SIGBUS, SIGSEGV, SIGSYS.
const OURS: [usize; 3] = [7, 11, 31];

/// Installs them.
pub(crate) fn install(state: &State) {
    // All are blocked while one of ours runs: a fault of our own ends the process, and what
    // is sent waits. A call that one interrupts is made again, unless `interrupted` has it end.
    let action = Action {
        handler: state.entries.signal,
        flags: SIGINFO | RESTORER | ONSTACK | RESTART,
        restorer: state.entries.restorer,
        mask: !0,
    };
    for signal in OURS {
        actions::install(signal, &action);
    }
}

/// Gives them back to whom they were.
pub(crate) fn give_back(state: &State) {
    let actions = state.signals_here().lock().actions;
    for signal in OURS {
        actions::install(signal, &actions[signal]);
    }
}
