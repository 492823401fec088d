//! The process as every room knows it: its threads, what it was asked for, whether it is still
//! managed, and what rooms below have to ask of those above.

use crate::pins::Batches;
use crate::raw::Blocked;
use crate::threads::{Threads, on_service_stack};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use zfolio_runtime::options::Options;
use zfolio_runtime::segment::Segment;

/// The lowest of the three layers of [`State`](crate::state::State).
pub(crate) struct ProcessState {
    pub(crate) threads: Threads,
    pub(crate) batches: Batches,
    pub(crate) segment: &'static Segment,
    pub(crate) options: Options,
    /// Of the process whose memory this is.
    pub(crate) pid: AtomicU32,
    /// More than one thread; never again one.
    pub(crate) several: AtomicBool,
    /// Threads of ours beside the program's: `life::hold`, `life::reclaimer`. Changed under the core lock.
    pub(crate) accompanied: AtomicU32,
    /// Management has ended: every page is open and stays so.
    pub(crate) left: AtomicBool,
    /// The program filters its calls, and would not let ours through: `life::leave::step_aside`.
    pub(crate) filtered: AtomicU32,
    /// Handlers of the program's are entered by our entry: `life::signals::handle_by_entry`.
    pub(crate) signals_by_entry: AtomicBool,
    pub(crate) entries: Entries,
    /// Our own text: calls from there are not the program's.
    pub(crate) text: Range<usize>,
}

/// Where the program's calls and signals come to us, and what `life` does for those below: the
/// start knows.
pub(crate) struct Entries {
    /// Address of the entry of system calls.
    pub(crate) call: usize,
    /// Of signals.
    pub(crate) signal: u64,
    /// Where handlers return to.
    pub(crate) restorer: u64,
    /// Where those return to that ours have entered.
    pub(crate) entered_restorer: u64,
    /// Has handlers entered by ours, or not any more (`life::signals::handle_by_entry`).
    pub(crate) handle_by_entry: fn(bool),
    /// Where a thread of the program's is sent to make one that holds the process (`life::hold`).
    pub(crate) hold: usize,
    /// Ends management, for the reason given (`life::leave::leave`).
    pub(crate) leave: fn(&'static str),
}

impl ProcessState {
    /// Runs `f` with all signals blocked, on the service stack.
    pub(crate) fn at_rest<R>(&self, f: impl FnOnce() -> R) -> R {
        let blocked = Blocked::new();
        on_service_stack(&blocked, f)
    }

    /// Whether another thread than the caller may touch the program's memory.
    pub(crate) fn is_several(&self) -> bool {
        self.several.load(Ordering::Acquire) || self.accompanied.load(Ordering::Acquire) != 0
    }

    /// Whether this task is of the process whose memory this is: not so the child of
    /// posix_spawn, which shares it as long as its parent waits.
    pub(crate) fn is_own_process(&self) -> bool {
        zfolio_sys::thread::pid() == self.pid.load(Ordering::Relaxed)
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}
