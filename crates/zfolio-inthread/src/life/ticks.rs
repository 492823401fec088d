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
//! - Where a signal of the program's ends such a call, ours is handled first: [`super::interrupted`].
//! - A timer is not another process's: the child of a fork makes its own. An exec ends it.
//! - None is left when management ends: a filter of the program's may know no call about timers.

use super::interrupted::settle;
use crate::raw::{self, nr};
use crate::signal::context::Context;
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
    state.memory.count_calls(record.calls.take());
    stop(record);
}

/// The same, but for what it says of its calls, which is the thread's own to say.
fn stop(record: &Record) {
    if let Some(id) = record.ticks.timer.load(Ordering::Relaxed).checked_sub(1) {
        record.ticks.forget();
        raw::own(nr::TIMER_DELETE, [id as usize, 0, 0]);
    }
}

/// Ends those of all threads. The core lock is held: none begins.
pub(super) fn end_all(state: &State) {
    // (The child of posix_spawn has its parent's.)
    if state.is_own_process() {
        state.threads.all().for_each(stop);
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
    state.memory.count_calls(record.calls.take());
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
