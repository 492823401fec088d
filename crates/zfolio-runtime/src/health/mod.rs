//! What has to go on, and how the process ends when it does not.
//!
//! - [`fatal`]: ends the process with a line and status 70. What cannot be served right is
//!   never served wrong.
//! - [`progress`]: words that change as threads get on.
//!
//! State: those words, and which slot of the segment is this process's. No lock: whoever ends
//! the process may hold any of them.
//!
//! Below: `frames`, for what a load that failed counted; the segment.

pub mod fatal;
pub(crate) mod progress;

use crate::frames::Physical;
use crate::segment::{MAX_FAULT_THREADS, Segment};
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use zfolio_sys::identity;
use zfolio_sys::thread::pid;

/// Whether the manager gets on, and where it says so.
pub struct Health {
    /// What is below.
    physical: Physical,
    segment: &'static Segment,
    /// Index of this process's slot in the segment.
    statistics: AtomicUsize,
    pid: AtomicU32,
    /// Which process its threads run in.
    identity: AtomicU64,
    /// When the fault that each worker serves was read, ns; 0: none.
    serving_since: [AtomicU64; 1 + MAX_FAULT_THREADS],
    /// Bumped by the control thread as it goes on.
    control_turns: AtomicU64,
    /// Times that messages were read.
    reads: AtomicU64,
    /// CPU time of each worker's thread, ns.
    cpu_ns: [AtomicU64; 1 + MAX_FAULT_THREADS],
    /// Faults that wait at `max`, as they were told to.
    max_waiters: AtomicU32,
}

impl Deref for Health {
    type Target = Physical;

    fn deref(&self) -> &Physical {
        &self.physical
    }
}

impl Health {
    pub(crate) fn new(physical: Physical, segment: &'static Segment, statistics: usize) -> Self {
        Self {
            physical,
            segment,
            statistics: AtomicUsize::new(statistics),
            pid: AtomicU32::new(pid()),
            identity: AtomicU64::new(identity::of_process()),
            serving_since: Default::default(),
            control_turns: AtomicU64::new(1),
            reads: AtomicU64::new(0),
            cpu_ns: Default::default(),
            max_waiters: AtomicU32::new(0),
        }
    }

    /// In the child of a fork: no operation is under way, nobody holds a lock.
    pub(crate) fn reset_in_fork_child(&self) {
        self.zswap.reset_in_fork_child();
        self.max_waiters.store(0, Ordering::Relaxed);
        for since in &self.serving_since {
            since.store(0, Ordering::Relaxed);
        }
    }
}
