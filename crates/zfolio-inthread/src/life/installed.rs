//! Our handlers of SIGSEGV, SIGBUS and SIGSYS, as the kernel has them.

use crate::signal::actions::{self, Action, ONSTACK, RESTART, RESTORER, SIGINFO};
use crate::state::State;

/// SIGBUS, SIGSEGV, SIGSYS.
const OURS: [usize; 3] = [7, 11, SIGSYS];
/// By which ticks come as well: to have a call made again is the rule then (`super::ticks`).
const SIGSYS: usize = 31;

/// Installs them.
pub(crate) fn install(state: &State) {
    let actions = state.signals_here().lock().actions;
    for signal in OURS {
        install_one(state, signal, &actions[signal]);
    }
}

/// Installs one of them: `asked` is what the program does with it.
pub(super) fn install_one(state: &State, signal: usize, asked: &Action) {
    // All are blocked while one of ours runs: a fault of our own ends the process, and what
    // is sent waits.
    let mut action = Action {
        handler: state.entries.signal,
        flags: SIGINFO | RESTORER | ONSTACK,
        restorer: state.entries.restorer,
        mask: !0,
    };
    if signal == SIGSYS || actions::restarts(asked) {
        action.flags |= RESTART;
    }
    actions::install(signal, &action);
}

/// Gives them back to whom they were.
pub(crate) fn give_back(state: &State) {
    let actions = state.signals_here().lock().actions;
    for signal in OURS {
        actions::install(signal, &actions[signal]);
    }
}
