//! Signals that are the program's: whom they are told to, and how its handlers are entered.

use super::interrupted::{end_call, settle};
use super::masks;
use super::sending::carry;
use super::signals::{self, Action, DEFAULT, IGNORE, NODEFER, RESETHAND, RESTORER, SI_TKILL};
use crate::cancel;
use crate::memory::bring::Access;
use crate::raw::{self, OURS, nr};
use crate::signal::actions;
use crate::signal::context::{Context, SAVED, at};
use crate::signal::posted::{Signal, To};
use crate::state::State;
use crate::threads::Record;

const SIGSYS: usize = 31;
/// `si_code` of a signal that the kernel says nothing of.
pub(super) const SI_KERNEL: i32 = 0x80;

/// Whether a signal of a positive `si_code` comes of what the thread does.
const fn is_raised(signal: usize) -> bool {
    matches!(signal, 4 | 5 | 7 | 8 | 11 | SIGSYS)
}

/// What the program's frame is about.
pub(super) struct Frame<'a> {
    pub(super) info: &'a mut [i32; 32],
    pub(super) context: &'a mut Context,
}

impl Frame<'_> {
    pub(super) fn code(&self) -> i32 {
        self.info[2]
    }

    /// Of a signal that was sent: the process that did.
    pub(super) fn sender(&self) -> isize {
        self.info[4] as isize
    }

    /// Of a timer's: what it was made with.
    #[allow(clippy::cast_possible_truncation, reason = "64 bits")]
    pub(super) fn value(&self) -> usize {
        self.words()[3] as usize
    }

    /// Of a call that dispatch stopped: by which gate it came.
    pub(super) fn gate(&self) -> u32 {
        self.info[7].cast_unsigned()
    }

    /// What a page fault was about.
    pub(super) fn access(&self) -> Access {
        const WRITE: usize = 2;
        if self.register(at::ERROR) & WRITE == 0 {
            Access::Read
        } else {
            Access::Write
        }
    }

    pub(super) fn address(&self) -> usize {
        let low = self.info[4].cast_unsigned() as usize;
        let high = self.info[5].cast_unsigned() as usize;
        high << 32 | low
    }

    /// The `siginfo_t`, by words.
    fn words(&self) -> [u64; 16] {
        let half = |at: usize| u64::from(self.info[at].cast_unsigned());
        core::array::from_fn(|at| half(2 * at + 1) << 32 | half(2 * at))
    }

    #[allow(clippy::cast_possible_truncation, reason = "halves of words")]
    fn set_words(&mut self, words: &[u64; 16]) {
        for (halves, word) in self.info.chunks_exact_mut(2).zip(words) {
            halves[0] = (*word as u32).cast_signed();
            halves[1] = ((*word >> 32) as u32).cast_signed();
        }
    }

    /// Has the handler return to `address`.
    fn return_to(&mut self, address: u64) {
        let context = core::ptr::from_mut(self.context).cast::<u64>();
        // SAFETY: below the context lies the word that the kernel put the return address in.
        unsafe { context.sub(1).write(address) };
    }

    #[allow(clippy::cast_possible_truncation, reason = "64 bits")]
    pub(super) fn register(&self, at: usize) -> usize {
        self.context[at] as usize
    }
}

/// Looks for what was sent to the thread, whichever signal of that number it is that is handled: the handler of
/// the program's to be entered, `handler` where that has one already.
pub(super) fn posted(
    state: &State,
    record: &'static Record,
    signal: usize,
    frame: &mut Frame<'_>,
    handler: usize,
) -> usize {
    let Some(thread) = record.thread() else {
        return handler;
    };
    let mut handler = handler;
    while handler == 0
        && let Some(sent) = record.signals.posted.take(thread, signal)
    {
        frame.set_words(&sent.2);
        handler = pass_on(state, Some(record), frame, &sent, false);
    }
    if handler != 0 && record.signals.posted.has(thread, signal) {
        // (It comes when this handler has been entered.)
        carry(thread, signal);
    }
    handler
}

/// A signal that the kernel has told of all there is.
pub(super) fn pass_on_as_told(
    state: &State,
    record: Option<&'static Record>,
    signal: usize,
    frame: &mut Frame<'_>,
) -> usize {
    let to = match frame.code() {
        SI_TKILL => To::Thread,
        _ => To::Process,
    };
    let forced = frame.code() > 0 && is_raised(signal);
    let sent = (signal, to, frame.words());
    pass_on(state, record, frame, &sent, forced)
}

/// A signal that is the program's: as the kernel would deliver it. `forced`: it cannot be ignored or wait.
fn pass_on(
    state: &State,
    record: Option<&'static Record>,
    frame: &mut Frame<'_>,
    sent: &Signal,
    forced: bool,
) -> usize {
    let signal = sent.0;
    let bit = 1_u64 << (signal - 1);
    let blocked = record.filter(|record| record.blocked() & bit != 0);
    let action = {
        let mut signals = state.signals_here().lock();
        let action = signals.actions[signal];
        if !forced && (blocked.is_some() || action.handler == IGNORE) {
            settle(frame.context, &signals.actions);
        } else if action.flags & RESETHAND != 0 && action.handler > IGNORE {
            signals.actions[signal].handler = DEFAULT;
        }
        action
    };
    if action.handler == IGNORE && !forced {
        return 0;
    }
    if let Some(record) = blocked
        && !forced
    {
        masks::note(state, record, sent);
        return 0;
    }
    if action.handler <= IGNORE || blocked.is_some() {
        // It ends the process, as it would have; sent again where nothing repeats it, as the access does that is
        // a fault. (The kernel's own may be about a frame that there was no room for.)
        let default = Action {
            handler: DEFAULT,
            flags: RESTORER,
            restorer: state.entries.restorer,
            mask: 0,
        };
        signals::install(signal, &default);
        if !forced || frame.code() == SI_KERNEL {
            let (pid, thread) = (raw::own(nr::GETPID, [0; 3]), raw::own(nr::GETTID, [0; 3]));
            let ids = [pid.cast_unsigned(), thread.cast_unsigned(), signal];
            raw::own(nr::TGKILL, ids);
        }
        return 0;
    }
    if actions::is_ours(signal) && !actions::restarts(&action) {
        // (The kernel takes it for one that does: `installed`.)
        end_call(frame.context);
    }
    let deferred = if action.flags & NODEFER == 0 { bit } else { 0 };
    let mask = masks::entering(record, frame.context, action.mask | deferred);
    frame.context[at::ENTERED] = mask;
    // (Where nothing of ours is blocked before, after or meanwhile, there is nothing to be put back.)
    let is_seen = (frame.context[SAVED] | action.mask | deferred) & OURS != 0;
    if is_seen || actions::is_ours(signal) || signal == cancel::SIGNAL {
        frame.return_to(state.entries.entered_restorer);
    }
    #[allow(clippy::cast_possible_truncation, reason = "64 bits")]
    return action.handler as usize;
}
