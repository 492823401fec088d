//! What a thread waits for by rt_sigtimedwait, of the signals that are ours.
//!
//! The kernel is not told of them: it would have them blocked while the call lasts, and a handler that
//! comes in between could neither touch what is out nor make a call that dispatch stops. Such a signal
//! is noted as any that is blocked, which ends the call: by EINTR once it sleeps, and before
//! that by its timeout, which the kernel reads from here and which is nothing from then on.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What one wait is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wait {
    pub(crate) signals: u64,
    /// Seconds and nanoseconds.
    pub(crate) time: [u64; 2],
    /// One of the signals has come since.
    pub(crate) ended: bool,
}

/// The wait of a thread; that of a handler while it lasts. Touched by the thread alone, its handlers
/// included; others read the signals.
pub(crate) struct Waiting {
    signals: AtomicUsize,
    time: [AtomicU64; 2],
    ended: AtomicBool,
    /// A handler of the program's has run, and the call that it interrupted has ended.
    handled: AtomicBool,
}

impl Waiting {
    #[cfg(test)]
    const fn new() -> Self {
        Self {
            signals: AtomicUsize::new(0),
            time: [const { AtomicU64::new(0) }; 2],
            ended: AtomicBool::new(false),
            handled: AtomicBool::new(false),
        }
    }

    pub(crate) fn clear(&self) {
        self.signals.store(0, Ordering::Relaxed);
    }

    pub(crate) fn signals(&self) -> u64 {
        self.signals.load(Ordering::SeqCst) as u64
    }

    /// Sets what is waited for; returns what was. The signals are set last: from then on one ends it.
    #[allow(clippy::cast_possible_truncation, reason = "64 bits")]
    pub(crate) fn set(&self, wait: &Wait) -> Wait {
        let before = Wait {
            signals: self.signals.swap(0, Ordering::SeqCst) as u64,
            time: [0, 1].map(|at| self.time[at].load(Ordering::SeqCst)),
            ended: self.ended.load(Ordering::SeqCst),
        };
        for (word, value) in self.time.iter().zip(wait.time) {
            word.store(value, Ordering::SeqCst);
        }
        self.ended.store(wait.ended, Ordering::SeqCst);
        self.handled.store(false, Ordering::SeqCst);
        self.signals.store(wait.signals as usize, Ordering::SeqCst);
        before
    }

    /// Some of `signals` have come: a wait for them ends.
    pub(crate) fn end(&self, signals: u64) {
        if self.signals() & signals == 0 {
            return;
        }
        self.ended.store(true, Ordering::SeqCst);
        for word in &self.time {
            word.store(0, Ordering::SeqCst);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// A handler of the program's returns to behind a call that it has ended.
    pub(crate) fn note_handled(&self) {
        self.handled.store(true, Ordering::SeqCst);
    }

    /// Whether one has since this was last asked, or a wait began.
    pub(crate) fn was_handled(&self) -> bool {
        self.handled.swap(false, Ordering::SeqCst)
    }

    /// Address of the `timespec` that the kernel is given.
    pub(crate) fn time(&self) -> usize {
        self.time.as_ptr() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_the_wait_for_it_and_no_other() {
        let waiting = Waiting::new();
        let wait = |signals| Wait {
            signals,
            time: [5, 7],
            ended: false,
        };
        waiting.set(&wait(2));
        waiting.end(4);
        assert!(!waiting.has_ended());
        let outer = waiting.set(&wait(4));
        assert_eq!(outer, wait(2));
        waiting.end(4 | 8);
        assert!(waiting.has_ended());
        let inner = waiting.set(&outer);
        assert_eq!((inner.time, inner.ended), ([0, 0], true));
        assert!(!waiting.has_ended());
        waiting.clear();
        waiting.end(2);
        assert!(!waiting.has_ended());
    }
}
