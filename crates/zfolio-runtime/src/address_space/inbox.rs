//! What the descriptor told and nobody has dealt with yet: a part of the core.

use crate::address_space::newborn::Child;
use crate::address_space::recent_faulters::RecentFaulters;
use crate::events::parked::ParkedEvents;
use crate::page_fault::Fault;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Faults remembered but not served yet, at most.
pub(crate) const PENDING: usize = 1024;

/// Faults, events and children, and who waits for more of them.
pub(crate) struct Inbox {
    /// Faults read and not taken by a thread yet.
    pub(crate) pending: VecDeque<Fault>,
    /// Faults put off because an event was in flight.
    pub(crate) deferred: VecDeque<Fault>,
    /// Events that wait until no operation is under way.
    pub(crate) parked: ParkedEvents,
    /// Descriptors of children, from FORK events.
    pub(crate) children: Vec<Child>,
    /// Who faulted lately.
    pub(crate) faulting: RecentFaulters,
    /// Faults left for which several threads stay on duty.
    pub(crate) crowd: u32,
    /// A thread is waiting on the descriptor.
    pub(crate) reader: bool,
    /// Fault threads asleep on [`Wakeups::fault`](crate::wakeups::Wakeups::fault).
    pub(crate) sleepers: u32,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            pending: VecDeque::with_capacity(PENDING),
            deferred: VecDeque::with_capacity(PENDING),
            parked: ParkedEvents::new(),
            children: Vec::with_capacity(64),
            faulting: RecentFaulters::default(),
            crowd: 0,
            reader: false,
            sleepers: 0,
        }
    }

    /// Faults put off are to be tried again now.
    pub(crate) fn retry_deferred(&mut self) {
        self.pending.append(&mut self.deferred);
    }

    /// When the fault that waits longest, for a thread or for its next try, was read, ns.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        let waiting = self.pending.iter().chain(&self.deferred);
        waiting.map(|fault| fault.read_ns).min()
    }

    /// In the child of a fork: what the parent's threads were about to do is theirs alone.
    pub(crate) fn forget_parents_work(&mut self) {
        self.children.clear();
        self.pending.clear();
        self.deferred.clear();
        self.reader = false;
        self.sleepers = 0;
    }

    /// A child forked in its turn: its children lack what it lacks, and have
    /// its past.
    pub(crate) fn answer_for_forks_of(&mut self, child: &mut Child) {
        let (mark, since) = (child.mark, &child.since);
        let young = child.forks.drain(..).map(|uffd| Child {
            since: since.clone(),
            ..Child::new(uffd, mark)
        });
        self.children.extend(young);
    }
}
