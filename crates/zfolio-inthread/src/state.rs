//! All there is in a process, in one place that handlers and calls find.
//!
//! Three layers, each of which owns the one below and derefs to it, so that a room is given no
//! more than what is its own or below: [`ProcessState`](crate::process::ProcessState),
//! [`MemoryState`], [`State`].

use crate::memory::layer::MemoryState;
use crate::signal::actions::Signals;
use crate::signal::sent::Sent;
use core::ops::{Deref, RangeInclusive};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use zfolio_sys::lock::Mutex;

/// The highest layer: what calls and signals are answered from.
pub(crate) struct State {
    pub(crate) memory: MemoryState,
    pub(crate) signals: Mutex<Signals>,
    /// Signals of ours that were sent to the process while all threads blocked them; and
    /// whether there ever was one.
    pub(crate) sent: Mutex<Sent>,
    pub(crate) some_sent: AtomicBool,
    pub(crate) own_memory: OwnMemory,
    /// Id of the process in which a thread has a table of descriptors of its own; 0, or that of an
    /// ancestor: there is none.
    pub(crate) tables_apart: AtomicU32,
}

impl Deref for State {
    type Target = MemoryState;

    fn deref(&self) -> &MemoryState {
        &self.memory
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
