//! The three signals that are ours, as the program sees them blocked.
//!
//! The kernel never has them blocked, but for moments in code of ours: a page that is out
//! comes back by them. What the program asks for is kept for each thread, and followed here:
//! one that is *sent* while it is blocked is noted, and sent again once it no longer is.
//!
//! | | with the kernel | with us |
//! |---|---|---|
//! | blocked | the other signals | [`OfThread::masked`](crate::signal::of_thread::OfThread::masked) |
//! | pending | the other signals | [`Sent`](crate::signal::sent::Sent): of a thread, and of the process |
//! | saved in a handler's frame | all of them, while the handler runs | put back by [`returning`] |
//!
//! # Invariant
//! A [`Sent`](crate::signal::sent::Sent) is touched with all signals blocked: a thread's by the thread alone, the
//! process's under its lock.

use super::{sending, unanswered};
use crate::program_memory;
use crate::raw::{self, Blocked, OURS, err, nr};
use crate::signal::context::{Context, SAVED, at};
use crate::signal::posted::{Signal, To};
use crate::signal::sent::{INFO, bit};
use crate::signal::waiting::Wait;
use crate::state::{self, State};
use crate::threads::{self, Record};
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_sys::thread::{Clock, now_ns};

const SIG_BLOCK: usize = 0;
const SIG_UNBLOCK: usize = 1;
const SIG_SETMASK: usize = 2;
impl Record {
    pub(crate) fn blocked(&self) -> u64 {
        self.signals.masked.load(Ordering::Relaxed) as u64
    }

    #[allow(clippy::cast_possible_truncation, reason = "64 bits")]
    pub(crate) fn set_blocked(&self, signals: u64) {
        self.signals
            .masked
            .store((signals & OURS) as usize, Ordering::Relaxed);
    }
}

/// A signal was sent that `record`'s thread has blocked. In a handler, all signals blocked.
pub(crate) fn note(state: &State, record: &Record, (signal, to, info): &Signal) {
    let signal = *signal;
    let bit = bit(signal);
    if *to == To::Thread {
        record.signals.sent.put(signal, info);
        record.signals.waiting.end(bit);
        return;
    }
    // To the process: whichever thread waits for it or does not block it has it.
    let put = || {
        state.some_sent.store(true, Ordering::SeqCst);
        state.sent.lock().put(signal, info);
        record.signals.waiting.end(bit);
    };
    put();
    if record.signals.waiting.signals() & bit != 0 {
        return;
    }
    // (A thread that begins to wait says so before it looks for what has come: it finds it, or is found here.)
    let is_its = |other: &&Record| {
        !core::ptr::eq(*other, record)
            && (other.blocked() & bit == 0 || other.signals.waiting.signals() & bit != 0)
    };
    let Some(other) = state.threads.all().find(is_its) else {
        return;
    };
    let is_there = state.sent.lock().take(bit).is_some();
    if is_there && sending::send(other, &(signal, To::Process, *info)) != 0 {
        put();
    }
}

/// Takes what waits of `wanted` and came to this thread or the process. All signals are blocked.
fn take(state: &State, record: &Record, wanted: u64) -> Option<Signal> {
    let one = |to: To| move |(signal, info): (usize, [u64; INFO])| (signal, to, info);
    let of_process = || state.sent.lock().take(wanted).map(one(To::Process));
    let of_thread = record.signals.sent.take(wanted).map(one(To::Thread));
    of_thread.or_else(of_process)
}

/// Sends this thread again what waits of `wanted`: it is pending with the kernel from here on.
/// All signals, or all of ours, are blocked.
fn send_again(state: &State, record: &Record, wanted: u64) {
    let this = zfolio_sys::thread::id();
    if record.thread() != Some(this) {
        // The child of a vfork, on its parent's record: what waits is its parent's.
        return;
    }
    let next = || {
        let _blocked = Blocked::new();
        take(state, record, wanted)
    };
    while let Some(signal) = next() {
        sending::send(record, &signal);
    }
}

/// Whether any of `wanted` waits.
fn waits(state: &State, record: &Record, wanted: u64) -> bool {
    (record.signals.sent.bits() | state.waiting()) & wanted != 0
}

/// rt_sigprocmask. Pointers are pinned.
pub(crate) fn mask(state: &State, record: &Record, args: [usize; 6]) -> isize {
    let [how, new, old, size, ..] = args;
    if size != 8 {
        return err::INVAL;
    }
    let blocked = record.blocked();
    let mut wanted = 0_u64;
    let mut becomes = blocked;
    if new != 0 {
        let Some(set) = program_memory::read::<u64>(new) else {
            return err::FAULT;
        };
        becomes = match how {
            SIG_BLOCK => blocked | set & OURS,
            SIG_UNBLOCK => blocked & !set,
            SIG_SETMASK => set & OURS,
            _ => return err::INVAL,
        };
        wanted = set & !OURS;
    }
    let mut before = 0_u64;
    let at = if new == 0 {
        0
    } else {
        (&raw const wanted) as usize
    };
    let before_at = (&raw mut before) as usize;
    // SAFETY: masks of this frame.
    let result = unsafe { raw::call(nr::RT_SIGPROCMASK, [how, at, before_at, 8, 0, 0]) };
    if result != 0 {
        return result;
    }
    record.set_blocked(becomes);
    let told = old == 0 || program_memory::write(old, before & !OURS | blocked);
    if waits(state, record, !becomes & OURS) {
        // (They come when this ends.)
        let _all = Blocked::new();
        send_again(state, record, !becomes & OURS);
    }
    if told { 0 } else { err::FAULT }
}

/// Makes a call that has another mask while it lasts: ours of it are `set`, and the call's own
/// argument is without them.
pub(crate) fn during(
    state: &State,
    record: &Record,
    set: u64,
    call: impl FnOnce() -> isize,
) -> isize {
    let before = record.blocked();
    if before & !set & OURS == 0 {
        record.set_blocked(set);
        let result = call();
        record.set_blocked(before);
        return result;
    }
    // One that comes between the change and the call has to end the call: until then it is
    // blocked, and the call's own mask lets it in. So is every other: a handler that began with ours
    // blocked could neither touch what is out nor make a call that dispatch stops.
    let _all = Blocked::new();
    record.set_blocked(set);
    send_again(state, record, !set & OURS);
    let result = call();
    record.set_blocked(before);
    result
}

/// rt_sigtimedwait for `set`. Pointers are pinned. Those of ours in it are blocked as long as it
/// lasts, but not with the kernel (see [`waiting`](crate::signal::waiting)).
pub(crate) fn taking(state: &State, record: &Record, set: u64, args: [usize; 6]) -> isize {
    const NS: u64 = 1_000_000_000;
    const LONGEST: u64 = i64::MAX.cast_unsigned();
    let [_, info_at, time_at, ..] = args;
    let time = match time_at {
        0 => Some([LONGEST, 0]),
        at => program_memory::read::<[u64; 2]>(at),
    };
    let Some(time) = time else { return err::FAULT };
    let is_refused = time[0] > LONGEST || time[1] >= NS;
    // (The child of a vfork, on its parent's record: what waits is its parent's.)
    let is_own = record.thread() == Some(zfolio_sys::thread::id());
    if set & OURS == 0 || is_refused || !is_own {
        return record.cancellation.call(nr::RT_SIGTIMEDWAIT, args);
    }
    let until = (time[0].saturating_mul(NS))
        .saturating_add(time[1])
        .saturating_add(now_ns(Clock::Monotonic));
    let others = set & !OURS;
    let mut args = args;
    args[0] = (&raw const others) as usize;
    args[2] = record.signals.waiting.time();
    let before = record.blocked();
    record.set_blocked(before | set);
    let mut wait = Wait {
        signals: set & OURS,
        time,
        ended: false,
    };
    // (Of a call that this one's handler interrupted.)
    let outer = record.signals.waiting.set(&wait);
    let result = loop {
        if let Some(result) = taken(state, record, set, info_at) {
            break result;
        }
        let result = record.cancellation.call(nr::RT_SIGTIMEDWAIT, args);
        let has_come = record.signals.waiting.has_ended() || waits(state, record, set & OURS);
        let goes_on = match result {
            // (The kernel ends a wait for one that another thread takes then; with no handler run, it is none
            // that the program is told of.)
            err::INTR => has_come || !is_over(record),
            err::AGAIN => has_come,
            _ => false,
        };
        if !goes_on {
            break result;
        }
        // One of ours has come; another thread may have it by now.
        if time_at != 0 {
            let left = until.saturating_sub(now_ns(Clock::Monotonic));
            wait.time = [left / NS, left % NS];
        }
        record.signals.waiting.set(&wait);
    };
    record.signals.waiting.set(&outer);
    if waits(state, record, outer.signals) {
        record.signals.waiting.end(outer.signals);
    }
    record.set_blocked(before);
    if waits(state, record, !before & set & OURS) {
        // (They come when this ends.)
        let _all = Blocked::new();
        send_again(state, record, !before & set & OURS);
    }
    result
}

/// Whether a wait that was interrupted is over: a handler of the program's has run, or the thread is to end.
fn is_over(record: &Record) -> bool {
    let is_to_end = |came: &AtomicU32| came.load(Ordering::Relaxed) != 0;
    record.signals.waiting.was_handled() || record.cancellation.stop().is_some_and(is_to_end)
}

/// Takes one of ours in `set` that waits: what rt_sigtimedwait returns of it, what was told of it written
/// to `info_at`.
fn taken(state: &State, record: &Record, set: u64, info_at: usize) -> Option<isize> {
    if !waits(state, record, set & OURS) {
        return None;
    }
    let (signal, _, info) = {
        let _all = Blocked::new();
        take(state, record, set & OURS)?
    };
    if info_at != 0 && !program_memory::write(info_at, info) {
        return Some(err::FAULT);
    }
    Some(signal.cast_signed())
}

/// rt_sigpending. The pointer is pinned.
pub(crate) fn pending(state: &State, record: &Record, args: [usize; 6]) -> isize {
    let result = raw::for_program(nr::RT_SIGPENDING, args);
    let waiting = (record.signals.sent.bits() | state.waiting()) & record.blocked();
    if result != 0 || waiting == 0 || args[1] < 8 {
        return result;
    }
    match program_memory::read::<u64>(args[0]) {
        Some(set) if program_memory::write(args[0], set | waiting) => 0,
        _ => err::FAULT,
    }
}

/// A handler of the program's begins: returns its mask. What is blocked of ours is saved in
/// the frame, for [`returning`].
pub(crate) fn entering(record: Option<&Record>, context: &mut Context, adds: u64) -> u64 {
    let mask = (context[SAVED] | adds) & !OURS;
    if let Some(record) = record {
        let blocked = record.blocked();
        context[SAVED] = context[SAVED] & !OURS | blocked;
        record.set_blocked(blocked | adds & OURS);
    }
    mask
}

/// A handler returns, to what its frame says; `entered`: 1 of one that [`entering`] let in, 2 of ours.
/// Elsewhere the program put ours into the mask itself.
pub(super) unsafe extern "C" fn returning(context: *mut Context, entered: usize) {
    raw::set_mask(!0);
    // SAFETY: the frame that the thread is about to return to the kernel.
    let context = unsafe { &mut *context };
    let state = state::get();
    unanswered::answer(state, threads::current(), context);
    let blocked = context[SAVED] & OURS;
    context[SAVED] &= !OURS;
    let Some(record) = threads::current() else {
        return;
    };
    if entered != 2 && unanswered::is_ended(context) {
        record.signals.waiting.note_handled();
    }
    #[allow(clippy::cast_possible_truncation, reason = "64 bits")]
    if entered != 2
        && let Some((pc, result)) = record.pieces.returning(context[at::RIP] as usize)
    {
        context[at::RIP] = pc as u64;
        context[at::RAX] = result;
    }
    if entered != 1 {
        record.set_blocked(record.blocked() | blocked);
        return;
    }
    record.set_blocked(blocked);
    if waits(state, record, !blocked & OURS) {
        send_again(state, record, !blocked & OURS);
    }
}

impl State {
    /// What was sent to the process and waits.
    fn waiting(&self) -> u64 {
        if !self.some_sent.load(Ordering::Relaxed) {
            return 0;
        }
        let _blocked = Blocked::new();
        self.sent.lock().bits()
    }
}
