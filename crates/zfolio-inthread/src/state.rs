//! All there is in a process, in one place that handlers and calls find.

use crate::life::actions::Signals;
use crate::life::sent::Sent;
use crate::memory::core::Core;
use crate::memory::following::Following;
use crate::memory::texts::Texts;
use crate::memory::transit::stage::Stages;
use crate::memory::transit::waits::Bells;
use crate::memory::way::{OURS, Way};
use crate::memory::words::Words;
use crate::pins::Batches;
use crate::raw::Blocked;
use crate::threads::{Threads, on_service_stack};
use core::ops::{Range, RangeInclusive};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use zfolio_runtime::fair_share::Membership;
use zfolio_runtime::options::Options;
use zfolio_runtime::segment::Segment;
use zfolio_sys::lock::Mutex;

pub(crate) struct State {
    pub(crate) words: Words,
    pub(crate) core: Mutex<Core>,
    /// Its place among those that share the limits.
    pub(crate) membership: Membership,
    /// How far a `high` that changes has been followed.
    pub(crate) following: Following,
    /// When the backing, which refused, is tried again (0: it did not), ns.
    pub(crate) retry_ns: AtomicU64,
    pub(crate) bells: Bells,
    /// Held before the core lock.
    pub(crate) stages: Stages,
    pub(crate) batches: Batches,
    pub(crate) threads: Threads,
    /// Taken with all signals blocked.
    pub(crate) texts: Mutex<Texts>,
    pub(crate) signals: Mutex<Signals>,
    /// Signals of ours that were sent to the process while all threads blocked them; and
    /// whether there ever was one.
    pub(crate) sent: Mutex<Sent>,
    pub(crate) some_sent: AtomicBool,
    /// Threads that fault at once serve themselves beside one another: [`State::is_beside`].
    pub(crate) beside: bool,
    /// More than one thread; never again one.
    pub(crate) several: AtomicBool,
    /// Management has ended: every page is open and stays so.
    pub(crate) left: AtomicBool,
    /// The program filters its calls, and would not let ours through: [`crate::life::leave::step_aside`].
    pub(crate) filtered: AtomicU32,
    /// Some code runs on a stack in managed memory: its signals are handled elsewhere.
    pub(crate) moving_stacks: AtomicBool,
    /// Of the process whose memory this is.
    pub(crate) pid: AtomicU32,
    /// Numbers of our descriptors: [`State::note_descriptors`].
    pub(crate) descriptors: Descriptors,
    pub(crate) own_memory: OwnMemory,
    pub(crate) entries: Entries,
    pub(crate) segment: &'static Segment,
    pub(crate) options: Options,
    /// Our own text: calls from there are not the program's.
    pub(crate) text: Range<usize>,
}

/// Where the program's calls and signals come to us: addresses, which the start knows.
pub(crate) struct Entries {
    /// Of system calls.
    pub(crate) call: usize,
    /// Of signals.
    pub(crate) signal: u64,
    /// Where handlers return to.
    pub(crate) restorer: u64,
}

/// Numbers of our descriptors, to be asked without a lock; `usize::MAX` for none.
pub(crate) struct Descriptors([AtomicUsize; OURS]);

impl Descriptors {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicUsize::new(usize::MAX) }; OURS])
    }
}

/// Descriptors of the program that are its own memory as a file: what they reach is brought.
pub(crate) struct OwnMemory([AtomicUsize; MOST_OWN]);

/// Most of them at a time.
const MOST_OWN: usize = 8;

impl OwnMemory {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicUsize::new(usize::MAX) }; MOST_OWN])
    }

    #[inline]
    pub(crate) fn is_one(&self, fd: usize) -> bool {
        self.0.iter().any(|one| one.load(Ordering::Relaxed) == fd)
    }

    /// False when there are too many.
    pub(crate) fn note(&self, fd: isize) -> bool {
        let fd = fd.cast_unsigned();
        self.0.iter().any(|one| {
            let free = one.compare_exchange(usize::MAX, fd, Ordering::Relaxed, Ordering::Relaxed);
            free.is_ok()
        })
    }

    pub(crate) fn forget_from(&self, range: RangeInclusive<usize>) {
        for one in &self.0 {
            let fd = one.load(Ordering::Relaxed);
            if fd != usize::MAX && range.contains(&fd) {
                one.store(usize::MAX, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn forget(&self, fd: usize) {
        for one in &self.0 {
            let _ = one.compare_exchange(fd, usize::MAX, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());

/// Publishes it; once.
pub(crate) fn publish(state: &'static State) {
    STATE.store(ptr::from_ref(state).cast_mut(), Ordering::Release);
}

/// The state. Only reached by what the start has set up.
pub(crate) fn get() -> &'static State {
    // SAFETY: published before the first handler or call that comes here, and leaked.
    unsafe { &*STATE.load(Ordering::Acquire) }
}

/// Takes it back: nothing is seen after all.
pub(crate) fn unpublish() {
    STATE.store(ptr::null_mut(), Ordering::Release);
}

/// Whether the process is under interception.
pub(crate) fn is_there() -> bool {
    !STATE.load(Ordering::Acquire).is_null()
}

impl State {
    /// Waits until a batch of reclaim's that is under way has ended.
    pub(crate) fn await_batch(&self) {
        self.at_rest(|| drop(self.core.lock()));
    }

    /// Runs `f` with all signals blocked, on the service stack.
    pub(crate) fn at_rest<R>(&self, f: impl FnOnce() -> R) -> R {
        let blocked = Blocked::new();
        on_service_stack(&blocked, f)
    }

    /// Whether faults are served in transit. Not by guards: what protects a page for the moment in
    /// which it is filled or closed interrupts the other processors four times, and threads
    /// that sleep at the lock meanwhile need no interrupt.
    pub(crate) fn is_beside(&self) -> bool {
        self.beside && self.is_several()
    }

    pub(crate) fn is_several(&self) -> bool {
        self.several.load(Ordering::Acquire)
    }

    /// Writes down which descriptors the way has. The core lock is held, or nobody else there.
    pub(crate) fn note_descriptors(&self, way: &Way) {
        for (place, fd) in self.descriptors.0.iter().zip(way.descriptors()) {
            place.store(fd.unwrap_or(usize::MAX), Ordering::Release);
        }
    }

    pub(crate) fn descriptors(&self) -> [usize; OURS] {
        core::array::from_fn(|at| self.descriptors.0[at].load(Ordering::Acquire))
    }

    pub(crate) fn is_our_descriptor(&self, fd: usize) -> bool {
        self.descriptors().contains(&fd)
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
