//! What the room keeps: the words of pages, what the core lock guards, and what is touched
//! without it.

use super::core::MemoryCore;
use super::following::Following;
use super::pressure::Pressure;
use super::remote::Remote;
use super::texts::Texts;
use super::transit::stage::Stages;
use super::transit::waits::Bells;
use super::way::{OURS, Way};
use super::words::Words;
use crate::process::ProcessState;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use zfolio_runtime::fair_share::Membership;
use zfolio_sys::lock::Mutex;

/// The layer above [`ProcessState`], which it derefs to.
pub(crate) struct MemoryState {
    pub(crate) process: ProcessState,
    pub(crate) words: Words,
    pub(crate) core: Mutex<MemoryCore>,
    /// Its place among those that share the limits.
    pub(crate) membership: Membership,
    /// How far a `high` that changes has been followed.
    pub(crate) following: Following,
    pub(crate) remote: Remote,
    pub(crate) bells: Bells,
    /// When a thread of ours reclaims beside the program's.
    pub(crate) pressure: Pressure,
    /// Held before the core lock.
    pub(crate) stages: Stages,
    /// Taken with all signals blocked.
    pub(crate) texts: Mutex<Texts>,
    /// Threads that fault at once may serve themselves beside one another: [`Self::is_beside`]. Changes
    /// under the core lock.
    pub(crate) beside: AtomicBool,
    /// Numbers of our descriptors: [`Self::note_descriptors`].
    pub(crate) descriptors: Descriptors,
}

impl Deref for MemoryState {
    type Target = ProcessState;

    fn deref(&self) -> &ProcessState {
        &self.process
    }
}

/// Numbers of our descriptors, to be asked without a lock; `usize::MAX` for none.
pub(crate) struct Descriptors([AtomicUsize; OURS]);

impl Descriptors {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicUsize::new(usize::MAX) }; OURS])
    }
}

impl MemoryState {
    /// Waits until a batch of reclaim's that is under way has ended.
    pub(crate) fn await_batch(&self) {
        self.at_rest(|| drop(self.core.lock()));
    }

    /// Whether faults are served in transit. (Where that ends some may be under way still: who serves
    /// himself otherwise waits for them, by [`Self::exclusive`].)
    pub(crate) fn is_beside(&self) -> bool {
        self.beside.load(Ordering::Relaxed) && self.is_several()
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
}
