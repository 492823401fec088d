//! System calls about signals: what the program asks for is kept ([`crate::signal::actions`]), and the
//! kernel is told what it may know.
//!
//! SIGSEGV, SIGBUS and SIGSYS are ours: what the program does with them is kept in a table,
//! and followed when a fault is none of ours. What the program blocks of them is `masks`'s.

use crate::cancel;
use crate::program_memory::{self, Plain};
use crate::raw::{self, Blocked, OURS, err, nr};
use crate::signal::actions::SIGNALS;
pub(crate) use crate::signal::actions::{
    Action, DEFAULT, IGNORE, NODEFER, ONSTACK, RESETHAND, RESTORER, SIGINFO, Signals, install,
    is_ours,
};
use crate::state::State;
use crate::threads::{self, Record};
use core::sync::atomic::Ordering;
use zfolio_sys::lock::Mutex;

/// `si_code` of a signal sent to a thread.
pub(crate) const SI_TKILL: i32 = -6;

impl State {
    /// What this task does with signals: what the process does, unless it is the child of
    /// posix_spawn, which shares the memory and has actions of its own.
    pub(crate) fn signals_here(&self) -> &Mutex<Signals> {
        let record = threads::current();
        let spawned = record.map_or(0, |record| record.spawned.load(Ordering::Relaxed));
        // SAFETY: 0, or in the frame of the parent, which waits as long as the child has the
        // record.
        unsafe { (spawned as *const Mutex<Signals>).as_ref() }.unwrap_or(&self.signals)
    }

    /// Whether it is such a child.
    fn is_spawned(&self) -> bool {
        !core::ptr::eq(self.signals_here(), &raw const self.signals)
    }
}

/// All handlers are gone, as after exec; what is ignored stays so.
pub(crate) fn clear_handlers(state: &State) {
    let _blocked = Blocked::new();
    let mut signals = state.signals_here().lock();
    for (signal, action) in signals.actions.iter_mut().enumerate().skip(1) {
        if action.handler == DEFAULT || action.handler == IGNORE {
            continue;
        }
        *action = Action::ZERO;
        if !is_ours(signal) {
            install(signal, action);
        }
    }
}

/// Has the kernel ignore those of ours that the program ignores; which.
pub(crate) fn ignore_in_kernel(state: &State) -> [bool; 3] {
    let actions = {
        let _blocked = Blocked::new();
        state.signals_here().lock().actions
    };
    [7, 11, 31].map(|signal: usize| {
        let ignored = actions[signal].handler == IGNORE;
        ignored && install(signal, &actions[signal]) == 0
    })
}

/// What the kernel is told for an action of the program's.
fn for_kernel(state: &State, signal: usize, action: &Action) -> Action {
    let mut told = *action;
    told.mask &= !OURS;
    if action.handler != DEFAULT && action.handler != IGNORE {
        told.flags |= RESTORER;
        told.restorer = state.entries.restorer;
        let by_entry = state.signals_by_entry.load(Ordering::Relaxed);
        if by_entry || signal == cancel::SIGNAL {
            // (Then all are blocked, and the program's handler is entered from ours.)
            told.handler = state.entries.signal;
            told.flags |= SIGINFO;
            told.mask = !0;
        }
        if by_entry {
            told.flags |= ONSTACK;
        }
    }
    told
}

/// From here on the kernel puts frames on signal stacks and enters handlers by our entry (`true`): memory is about
/// to be closed, where it could not put a frame, and what runs on a stack there has said so to nobody. Or it
/// enters them itself again, where the program's stack pointer is.
pub(crate) fn handle_by_entry(state: &State, by_entry: bool) {
    if state.is_spawned() {
        return; // the kernel would be told for the child alone, which has everything blocked
    }
    let _blocked = Blocked::new();
    let signals = state.signals.lock();
    if state.signals_by_entry.swap(by_entry, Ordering::AcqRel) == by_entry {
        return;
    }
    for (signal, action) in signals.actions.iter().enumerate().skip(1) {
        if !is_ours(signal) && action.handler != DEFAULT && action.handler != IGNORE {
            install(signal, &for_kernel(state, signal, action));
        }
    }
}

/// rt_sigaction. Pointers are pinned.
pub(crate) fn action(state: &State, args: [usize; 6]) -> isize {
    let [signal, new, old, size, ..] = args;
    if size != 8 || signal == 0 || signal >= SIGNALS {
        return err::INVAL;
    }
    let wanted = match new {
        0 => None,
        at => match program_memory::read::<Action>(at) {
            Some(action) => Some(action),
            None => return err::FAULT,
        },
    };
    let before;
    {
        let _blocked = Blocked::new();
        let mut signals = state.signals_here().lock();
        if !is_ours(signal) && signals.actions[signal].flags & RESETHAND != 0 {
            // The kernel has set it back, if the signal has come.
            let mut now = Action::ZERO;
            let at = (&raw mut now) as usize;
            // SAFETY: an action of this frame.
            unsafe { raw::call(nr::RT_SIGACTION, [signal, 0, at, 8, 0, 0]) };
            if now.handler == DEFAULT {
                signals.actions[signal].handler = DEFAULT;
            }
        }
        before = signals.actions[signal];
        if let Some(action) = wanted {
            if !is_ours(signal) {
                let result = install(signal, &for_kernel(state, signal, &action));
                if result != 0 {
                    return result;
                }
            }
            signals.actions[signal] = action;
        }
    }
    if old != 0 && !program_memory::write(old, before) {
        return err::FAULT;
    }
    0
}

/// The kernel's `stack_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Stack {
    start: u64,
    flags: u64,
    len: u64,
}
// SAFETY: three numbers.
unsafe impl Plain for Stack {
    const ZERO: Self = Self {
        start: 0,
        flags: 0,
        len: 0,
    };
}

const SS_ONSTACK: u64 = 1;
const SS_DISABLE: u64 = 2;
/// A signal stack of fewer bytes is not used: a fault in a handler needs one more frame on it than there would be,
/// which takes some KiB where vector registers are wide.
const LEAST: u64 = 16 << 10;

/// The signal stack that the program has set, as it is now: a handler that runs on one that was set
/// with SS_AUTODISARM has none, and may set another; the kernel sets the one before as it returns.
fn signal_stack(record: &Record) -> Stack {
    let mut now = Stack::ZERO;
    // SAFETY: one stack_t of this frame.
    unsafe { raw::call(nr::SIGALTSTACK, [0, (&raw mut now) as usize, 0, 0, 0, 0]) };
    let (ours, _) = record.own_signal_stack();
    if now.start == ours as u64 {
        return small_stack(record).map_or(
            Stack {
                flags: SS_DISABLE,
                ..Stack::ZERO
            },
            |[start, len]| Stack { start, len, ..now },
        );
    }
    now
}

/// The program's own, where it is too small to be used: where, and its bytes.
fn small_stack(record: &Record) -> Option<[u64; 2]> {
    let [start, len] =
        [0, 1].map(|at: usize| record.stacks.small[at].load(Ordering::Relaxed) as u64);
    (len > 0).then_some([start, len])
}

fn note_small_stack(record: &Record, [start, len]: [usize; 2]) {
    record.stacks.small[0].store(start, Ordering::Relaxed);
    record.stacks.small[1].store(len, Ordering::Relaxed);
}

/// Has the kernel use the signal stack that the program has set, or none, instead of ours.
pub(crate) fn give_back_stack(record: &Record) {
    let none = [0, SS_DISABLE, 0];
    let given = small_stack(record).map_or(none, |[start, len]| [start, 0, len]);
    raw::own(nr::SIGALTSTACK, [given.as_ptr() as usize, 0, 0]);
}

/// sigaltstack. Pointers are pinned.
pub(crate) fn alternate(state: &State, record: &Record, args: [usize; 6]) -> isize {
    let [new, old, ..] = args;
    let before = signal_stack(record);
    if new != 0 {
        let Some(wanted) = program_memory::read::<Stack>(new) else {
            return err::FAULT;
        };
        if before.flags & SS_ONSTACK != 0 {
            return err::PERM;
        }
        if wanted.flags & SS_DISABLE != 0 {
            note_small_stack(record, [0, 0]);
            record.use_own_signal_stack();
        } else {
            let start = usize::try_from(wanted.start).unwrap_or(0);
            let len = usize::try_from(wanted.len).unwrap_or(0);
            let at = (&raw const wanted) as usize;
            // The kernel writes frames there: left alone from here on.
            state.locked(|core| {
                if !state.has_left() && len < 1 << 40 {
                    core.keep(state, &(start..start.saturating_add(len)));
                }
            });
            // SAFETY: one stack_t of this frame, naming what the program named.
            let result = unsafe { raw::call(nr::SIGALTSTACK, [at, 0, 0, 0, 0, 0]) };
            if result != 0 {
                return result;
            }
            // (It is one that the kernel takes.)
            let is_small = wanted.len < LEAST && wanted.flags == 0;
            note_small_stack(record, if is_small { [start, len] } else { [0, 0] });
            if is_small {
                record.use_own_signal_stack();
            } else {
                record.set_signal_stack([start, start.saturating_add(len)]);
            }
        }
    }
    if old != 0 && !program_memory::write(old, before) {
        return err::FAULT;
    }
    0
}
