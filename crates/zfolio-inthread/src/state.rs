//! All there is in a process, in one place that handlers and calls find.

use crate::life::descriptors::OwnMemory;
use crate::life::masks::Sent;
use crate::life::signals::Signals;
use crate::memory::bring::{Access, bring};
use crate::memory::core::Core;
use crate::memory::texts::Texts;
use crate::memory::transit::Bells;
use crate::memory::transit::stage::Stages;
use crate::memory::transit::swap_in::bring_beside;
use crate::memory::way::{OURS, Way};
use crate::memory::words::Words;
use crate::pins::Batches;
use crate::raw::Blocked;
use crate::threads::{Record, Threads, on_service_stack};
use core::ops::Range;
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
    /// Some code runs on a stack in managed memory: its signals are handled elsewhere.
    pub(crate) moving_stacks: AtomicBool,
    /// Of the process whose memory this is.
    pub(crate) pid: AtomicU32,
    /// Numbers of our descriptors: [`State::note_descriptors`].
    pub(crate) descriptors: Descriptors,
    pub(crate) own_memory: OwnMemory,
    pub(crate) segment: &'static Segment,
    pub(crate) options: Options,
    /// Our own text: calls from there are not the program's.
    pub(crate) text: Range<usize>,
}

/// Numbers of our descriptors, to be asked without a lock; `usize::MAX` for none.
pub(crate) struct Descriptors([AtomicUsize; OURS]);

impl Descriptors {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicUsize::new(usize::MAX) }; OURS])
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
    /// Runs `f` under the core lock while nothing is in transit: all signals blocked, on the
    /// service stack.
    pub(crate) fn locked<R>(&self, f: impl FnOnce(&mut Core) -> R) -> R {
        self.at_rest(|| f(&mut self.exclusive()))
    }

    /// Waits until a batch of reclaim's that is under way has ended.
    pub(crate) fn await_batch(&self) {
        self.at_rest(|| drop(self.core.lock()));
    }

    /// Opens the page at `address` for a system call, if it is closed.
    pub(crate) fn bring(&self, record: &Record, address: usize) {
        self.at_rest(|| {
            if self.is_beside() {
                bring_beside(self, Some(record), address, Access::Write, &mut |_| false)
            } else {
                bring(
                    self,
                    &mut self.core.lock(),
                    Some(record),
                    address,
                    Access::Write,
                )
            }
        });
    }

    /// Runs `f` with all signals blocked, on the service stack.
    fn at_rest<R>(&self, f: impl FnOnce() -> R) -> R {
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

    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }
}
