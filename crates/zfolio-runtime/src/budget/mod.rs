//! How much may be resident: of this process, and of all of its run or group.
//!
//! - [`usage`]: what is resident.
//! - [`pressure`]: how short memory is, and how long a fault waits.
//! - [`fair_share`]: a part of `high` for every process, by what each needs.
//! - [`hard_limit`], `at_max`: `--max`, and what is done there.
//!
//! State: this process's membership of its run and its group, and its part of `high`.
//!
//! Lock: none. The parts are words of the segment, taken by compare and exchange.
//!
//! Below: the segment, `health`.

mod at_max;
pub mod fair_share;
pub mod hard_limit;
pub(crate) mod pressure;
pub(crate) mod usage;

use crate::budget::fair_share::Membership;
use crate::budget::hard_limit::HardLimit;
use crate::health::Health;
use crate::options::Options;
use crate::scope::Scope;
use crate::segment::GroupEvent;
use crate::wakeups::Wakeups;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What memory there is, and how much of it this process may have.
pub struct Memory {
    /// What is below.
    health: Health,
    pub(crate) options: Options,
    /// Whose memory it moves.
    pub(crate) scope: Scope,
    pub(crate) wakeups: Wakeups,
    /// Its place among those that share `high`.
    membership: Membership,
    allowance: Allowance,
    /// `max`, and what it may have of it.
    hard: HardLimit,
    /// How long each fault waits because of its group's `swap.high`, ns.
    swap_penalty_ns: AtomicU64,
    /// Frames of ours to give back to the system for copies that it made.
    borrowed: AtomicUsize,
    /// Pages beyond `high` granted because nothing more could be moved out.
    overdraft: AtomicUsize,
    /// When a fault was last given memory beyond `high`, ns.
    urgent_ns: AtomicU64,
    /// Resident pages at the last sample.
    resident: AtomicUsize,
}

/// What this process may have.
struct Allowance {
    /// Pages of `high`: all, or its share.
    pages: AtomicUsize,
    /// How many share it.
    members: AtomicUsize,
    /// It was ever shared: what this process may have rises and sinks with what others have.
    changes: AtomicBool,
    /// More than that, and nothing leaves: somebody looks into the process (`zfolio inspect`).
    inspected: AtomicBool,
}

impl Deref for Memory {
    type Target = Health;

    fn deref(&self) -> &Health {
        &self.health
    }
}

impl Memory {
    pub(crate) fn new(
        health: Health,
        options: Options,
        scope: Scope,
        membership: Membership,
    ) -> Self {
        Self {
            health,
            options,
            scope,
            wakeups: Wakeups::default(),
            membership,
            allowance: Allowance {
                pages: AtomicUsize::new(options.high),
                members: AtomicUsize::new(1),
                changes: AtomicBool::new(false),
                inspected: AtomicBool::new(false),
            },
            hard: HardLimit::of(&options),
            swap_penalty_ns: AtomicU64::new(0),
            borrowed: AtomicUsize::new(0),
            overdraft: AtomicUsize::new(0),
            urgent_ns: AtomicU64::new(0),
            resident: AtomicUsize::new(0),
        }
    }

    /// See [`Health::reset_in_fork_child`].
    pub(crate) fn reset_in_fork_child(&self) {
        self.health.reset_in_fork_child();
        self.wakeups.forget_frame_waiters();
        self.hard.note_within();
        self.set_inspected(false);
    }

    /// Whether nothing leaves because somebody looks into the process: neither `high` nor `max`
    /// is kept meanwhile.
    pub(crate) fn is_inspected(&self) -> bool {
        self.allowance.inspected.load(Ordering::Acquire)
    }

    /// Begins or ends that. The control thread alone does so.
    pub(crate) fn set_inspected(&self, inspected: bool) {
        self.allowance.inspected.store(inspected, Ordering::Release);
    }

    /// Counts an event for the group whose limit is meant, and for those above it.
    pub(crate) fn count_group_event(&self, event: GroupEvent) {
        self.membership.count_event(self.segment(), event);
    }

    /// In the child of a fork: the place among those that share `high` is its parent's.
    pub(crate) fn forget_membership(&self) {
        self.membership.forget();
    }
}
