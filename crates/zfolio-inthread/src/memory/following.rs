//! What [`follow`](super::follow), [`second_tier`](super::second_tier) and
//! [`cannot_leave`](super::cannot_leave) remember of a process, to be asked without a lock.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use zfolio_runtime::fair_share::Membership;
use zfolio_runtime::segment::{Looks, ProcessSlot, Segment};
use zfolio_sys::thread::Clock;

/// How far `high`, the other limits and requests have been followed.
pub(crate) struct Following {
    /// [`Membership::asked`] when that was last followed to its end.
    pub(super) kept: AtomicU64,
    /// A thread of this process is at it.
    pub(super) busy: AtomicBool,
    /// Calls that have passed.
    pub(super) passed: AtomicU32,
    /// Calls of the program that are to be counted once there is somewhere.
    pub(super) calls: AtomicU64,
    /// When a tick last looked at what the process has and may have, ns.
    pub(super) looked_ns: AtomicU64,
    /// When what cannot leave is counted.
    pub(super) looks: Looks,
    /// There is a second tier.
    pub(super) tier: AtomicBool,
    /// A thread of this process works on it.
    pub(super) recompresses: AtomicBool,
    /// Where what is done is counted; null where it is not.
    pub(super) slot: AtomicPtr<ProcessSlot>,
}

/// Something that a thread of the program does for us, and is counted: from when, by which
/// clock.
#[derive(Clone, Copy)]
pub(crate) struct Work(pub(super) Clock, pub(super) u64);

/// What the kernel does to bring a fault to a handler of the thread's own, and back, ns.
pub(crate) const SIGNAL_NS: u64 = 2_500;

impl Following {
    /// Of a process that keeps what holds now.
    pub(crate) fn new(membership: &Membership, segment: &Segment) -> Self {
        Self {
            kept: AtomicU64::new(membership.asked(segment)),
            busy: AtomicBool::new(false),
            passed: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            looked_ns: AtomicU64::new(0),
            looks: Looks::default(),
            tier: AtomicBool::new(false),
            recompresses: AtomicBool::new(false),
            slot: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// What is done is counted there from here on.
    pub(super) fn count_in(&self, slot: &'static ProcessSlot) {
        let slot = ptr::from_ref(slot).cast_mut();
        self.slot.store(slot, Ordering::Release);
    }

    pub(super) fn has_tier(&self, is_there: bool) {
        self.tier.store(is_there, Ordering::Relaxed);
    }

    /// In the child of a fork: who was closing pages is a thread of the parent's.
    pub(super) fn renew_in_child(&self) {
        self.busy.store(false, Ordering::Relaxed);
        self.recompresses.store(false, Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        self.looks.forget();
    }
}
