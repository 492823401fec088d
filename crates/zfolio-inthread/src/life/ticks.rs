//! Ticks: a thread that runs for long, without a call and without a fault, is stopped for a moment
//! now and then.
//!
//! No thread of ours is there for it, so what sinks (`high`, by `zfolio set`, `--slowdown` or a smaller limit) is
//! followed by the program's threads: as they make calls (`memory::follow`), and here as they run.
//! Each has a timer of its own processor time, whose signal is SIGSYS, one of the three that are
//! ours. What the handler does is no more than what a fault may do at that place: take the core
//! lock, and close pages.
//!
//! # What the program sees of it
//! - A thread that sleeps has no ticks. The kernel sends such a signal as the thread returns to the
//!   program (`CONFIG_POSIX_CPU_TIMERS_TASK_WORK`, on x86 since Linux 5.10), not when the time is
//!   over: a call that waits is not interrupted, though the time ran out in its beginning.
//! - Where a signal of the program's ends such a call, ours is handled first, and the kernel goes by
//!   *its* SA_RESTART whether the call is made again. So SIGSYS has it, and [`settle`] ends the call
//!   where the program's handler has not.
//! - A timer is not another process's: the child of a fork makes its own. An exec ends it.
//! - None is left when management ends: a filter of the program's may know no call about timers.

use crate::cancel;
use crate::raw::{self, OURS, is_made_again, nr};
use crate::signal::actions::{Action, IGNORE, RESTART, SIGNALS};
use crate::signal::context::{Context, SAVED, at};
use crate::signal::pieces;
use crate::signal::sent::bit;
use crate::state::State;
use crate::threads::Record;
use core::sync::atomic::Ordering;

/// The signal.
const SIGSYS: usize = 31;
/// `si_code` of a timer's.
const SI_TIMER: i32 = -2;
/// `sigev_notify`: to one thread.
const SIGEV_THREAD_ID: u64 = 4;
const CLOCK_THREAD_CPUTIME: usize = 3;
/// Words of a `struct sigevent`.
const EVENT: usize = 8;
/// Processor time between two ticks, ns: as a rule, and while pages are to be closed.
const SELDOM_NS: u64 = 50_000_000;
const OFTEN_NS: u64 = 4_000_000;
/// Signals that the kernel hands out before others: of faults.
const FIRST: u64 = bit(4) | bit(5) | bit(8);

/// Begins the ticks of the calling thread, whose record it is. The core lock is held, and the
/// process is managed. (Without a timer, where the kernel has none to give, calls and faults do all.)
pub(crate) fn begin(record: &Record) {
    let mut event = [0_u64; EVENT];
    event[0] = core::ptr::from_ref(record) as u64;
    event[1] = SIGEV_THREAD_ID << 32 | SIGSYS as u64;
    event[2] = u64::from(zfolio_sys::thread::id());
    let mut id = 0_u32;
    let args = [event.as_ptr() as usize, (&raw mut id) as usize];
    record.ticks.forget();
    if raw::own(nr::TIMER_CREATE, [CLOCK_THREAD_CPUTIME, args[0], args[1]]) == 0 {
        record.ticks.timer.store(id + 1, Ordering::Relaxed);
        set_interval(record, SELDOM_NS);
    }
}

/// The same, where nobody has the core lock and management may have ended. All signals are blocked, on
/// the service stack.
pub(super) fn begin_here(state: &State, record: &Record) {
    let _core = state.core.lock();
    if !state.has_left() && state.is_own_process() {
        begin(record);
    }
}

/// Ends those of a thread. What has come already is still to be handled.
pub(super) fn end(state: &State, record: &Record) {
    // (The child of posix_spawn lives on its parent's record.)
    if !state.is_own_process() {
        return;
    }
    if let Some(id) = record.ticks.timer.load(Ordering::Relaxed).checked_sub(1) {
        record.ticks.forget();
        raw::own(nr::TIMER_DELETE, [id as usize, 0, 0]);
    }
}

/// Ends those of all threads. The core lock is held: none begins.
pub(super) fn end_all(state: &State) {
    for record in state.threads.all() {
        end(state, record);
    }
}

/// Whether a signal of this `si_code` and `si_value` is one.
pub(super) fn is_one(state: &State, code: i32, value: usize) -> bool {
    code == SI_TIMER && state.threads.by_stack(value).is_some()
}

/// One has come to the thread of `record`, at `context`.
pub(super) fn come(state: &State, record: &Record, context: &mut Context) {
    if state.filtered.load(Ordering::Relaxed) != 0 {
        return; // no call of ours is made any more
    }
    settle(context, &state.signals_here().lock().actions);
    if state.has_left() {
        return;
    }
    let often = state.memory.tick();
    if record.ticks.often.load(Ordering::Relaxed) != u32::from(often) {
        record.ticks.often.store(often.into(), Ordering::Relaxed);
        set_interval(record, if often { OFTEN_NS } else { SELDOM_NS });
    }
}

fn set_interval(record: &Record, ns: u64) {
    let Some(id) = record.ticks.timer.load(Ordering::Relaxed).checked_sub(1) else {
        return;
    };
    let times = [0, ns, 0, ns];
    raw::own(nr::TIMER_SETTIME, [id as usize, 0, times.as_ptr() as usize]);
}

/// Ends a call that would be made again after our handler where a signal of the program's waits,
/// whose handler ends calls.
fn settle(context: &mut Context, actions: &[Action; SIGNALS]) {
    if call_made_again(context).is_none() {
        return;
    }
    let mut pending = 0_u64;
    // (All are blocked here, so all that wait are told.)
    raw::own(nr::RT_SIGPENDING, [(&raw mut pending) as usize, 8, 0]);
    if ends_calls(pending & !context[SAVED], actions) {
        end_call(context);
    }
}

/// Whether the first of `pending` that has a handler of the program's ends calls.
fn ends_calls(pending: u64, actions: &[Action; SIGNALS]) -> bool {
    let first = |of: u64| {
        let mut signals = (1..SIGNALS).filter(|signal| of >> (signal - 1) & 1 != 0);
        signals.find(|signal| actions[*signal].handler > IGNORE)
    };
    let found = first(pending & FIRST).or_else(|| first(pending & !OURS));
    found.is_some_and(|signal| actions[signal].flags & RESTART == 0)
}

/// Where a call of the program's returns to that is made again after our handler.
#[allow(clippy::cast_possible_truncation, reason = "64 bits")]
fn call_made_again(context: &Context) -> Option<usize> {
    let (pc, rcx) = (context[at::RIP] as usize, context[at::RCX] as usize);
    let places = [
        raw::after_call(),
        cancel::after_call(),
        pieces::after_call(),
    ];
    places
        .into_iter()
        .find(|after| is_made_again(pc, rcx, *after))
}

/// Ends such a call: it returns EINTR.
pub(super) fn end_call(context: &mut Context) {
    if let Some(after) = call_made_again(context) {
        context[at::RIP] = after as u64;
        context[at::RAX] = i64::from(-cancel::EINTR).cast_unsigned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program_memory::Plain;
    use crate::signal::actions::DEFAULT;

    fn actions(of: &[(usize, u64, u64)]) -> [Action; SIGNALS] {
        let mut actions = [Action::ZERO; SIGNALS];
        for (signal, handler, flags) in of {
            (actions[*signal].handler, actions[*signal].flags) = (*handler, *flags);
        }
        actions
    }

    const fn bits(of: &[u64]) -> u64 {
        let (mut bits, mut at) = (0, 0);
        while at < of.len() {
            bits |= 1 << (of[at] - 1);
            at += 1;
        }
        bits
    }

    #[test]
    fn the_handler_that_comes_first_says_whether_a_call_ends() {
        let all = actions(&[
            (8, 0x1000, 0),
            (10, 0x1000, RESTART),
            (14, 0x1000, 0),
            (17, DEFAULT, 0),
            (31, 0x1000, 0),
        ]);
        assert!(!ends_calls(0, &all), "nothing of the program's has come");
        assert!(ends_calls(bits(&[14]), &all));
        assert!(!ends_calls(bits(&[10, 14]), &all), "the lower number first");
        assert!(ends_calls(bits(&[8, 10]), &all), "but those of faults");
        assert!(!ends_calls(bits(&[17]), &all), "no handler");
        assert!(ends_calls(bits(&[14, 17]), &all));
        assert!(!ends_calls(bits(&[31]), &all), "ours is not the program's");
    }

    #[test]
    fn only_a_call_that_was_begun_is_ended() {
        for after in [
            raw::after_call(),
            cancel::after_call(),
            pieces::after_call(),
        ] {
            let mut context = [0_u64; 64];
            // About to be made.
            context[at::RIP] = after as u64 - 2;
            end_call(&mut context);
            assert_eq!(context[at::RIP], after as u64 - 2);
            // Made, and to be made again.
            context[at::RCX] = after as u64;
            context[at::RAX] = 7;
            end_call(&mut context);
            assert_eq!(context[at::RIP], after as u64);
            assert_eq!(context[at::RAX].cast_signed(), -4);
            // Made, with a result.
            context[at::RAX] = 7;
            end_call(&mut context);
            assert_eq!(context[at::RAX], 7);
        }
    }
}
