//! What is under the core lock.

use crate::address_space::clean_queue::CleanPages;
use crate::address_space::discard::Vanishing;
use crate::address_space::extent::Extents;
use crate::address_space::faulting::Faulting;
use crate::address_space::newborn::Child;
use crate::address_space::pins::Pins;
use crate::address_space::place::Place;
use crate::address_space::standby::Standby;
use crate::events::parked::Parked;
use crate::events::ranges::Ranges;
use crate::page::Vpn;
use crate::page_fault::Fault;
use crate::policy::readahead::{Neighbours, Rush, Streams};
use crate::policy::refault::Clock;
use crate::policy::strides::Strides;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// Faults remembered but not served yet, at most.
pub(crate) const PENDING: usize = 1024;

/// Ranges remembered as left behind, at most.
pub(crate) const BEHIND: usize = 512;

/// The state under the one lock that everything short goes through.
///
/// Its rule: **every event that has left the kernel's queue is applied before
/// anybody else looks at the queue, moves a page, or trusts a word.** So the
/// descriptor is read, events are applied, pages are moved in and out, and
/// words change under this lock only; compression and decompression happen
/// outside it, on pages whose word says `Storing` or `Loading`.
pub(crate) struct Core {
    pub(crate) extents: Extents,
    /// Addresses known to be registered with the program's descriptor.
    pub(crate) registered: Ranges,
    /// Ranges that must stay where they are.
    pub(crate) pins: Pins,
    pub(crate) standby: Standby,
    pub(crate) clean: CleanPages,
    pub(crate) streams: Streams,
    pub(crate) strides: Strides,
    pub(crate) rush: Rush,
    pub(crate) neighbours: Neighbours,
    /// Pages that sequential readers left behind, oldest first.
    pub(crate) behind: VecDeque<Range<Vpn>>,
    /// Faults read and not taken by a thread yet.
    pub(crate) pending: VecDeque<Fault>,
    /// Faults put off because an event was in flight.
    pub(crate) deferred: VecDeque<Fault>,
    /// Events that wait until no operation is under way.
    pub(crate) parked: Parked,
    /// A fork is under way: words must stay what they are.
    pub(crate) fork_freeze: bool,
    /// The memory may be being copied for a child: nothing may use the heap.
    pub(crate) being_copied: bool,
    /// Pages whose word still says where their bytes are, for a child's sake,
    /// though a copy is with the program: the words are dropped at the thaw.
    /// As many fit as the arena has slots. (Pages of zeros need none and may be
    /// more: then some stay as they are, present and never moved again.)
    pub(crate) superseded: Vec<Vpn>,
    pub(crate) vanishing: Vanishing,
    /// Descriptors of children, from FORK events.
    pub(crate) children: Vec<Child>,
    /// A child came without handlers and must be filled.
    pub(crate) raw_fork: bool,
    /// By which pages are spared.
    pub(crate) clock: Clock,
    /// The least ticks after which something may go that the hand has spared.
    pub(crate) spared: Option<u8>,
    /// Who faulted lately.
    pub(crate) faulting: Faulting,
    /// Faults left for which several threads stay on duty.
    pub(crate) crowd: u32,
    /// A thread is waiting on the descriptor.
    pub(crate) reader: bool,
    /// Fault threads asleep on `fault_wake`.
    pub(crate) sleepers: u32,
}

impl Core {
    /// Faults put off are to be tried again now.
    pub(crate) fn retry_deferred(&mut self) {
        let Self {
            pending, deferred, ..
        } = self;
        pending.append(deferred);
    }

    /// Remembers what a sequential reader has passed.
    pub(crate) fn leave_behind(&mut self, pages: Option<Range<Vpn>>) {
        let Some(pages) = pages else { return };
        if self.behind.len() == BEHIND {
            self.behind.pop_front();
        }
        self.behind.push_back(pages);
    }

    /// Notes that page `vpn` was served by a copy. Does not use the heap.
    pub(crate) fn note_superseded(&mut self, vpn: Vpn) {
        let kept = !matches!(self.extents.place(vpn), Place::Present | Place::Gone);
        if kept && self.superseded.len() < self.superseded.capacity() {
            self.superseded.push(vpn);
        }
    }

    /// Whether `messages` more can be kept.
    pub(crate) fn has_room(&self, messages: usize) -> bool {
        self.pending.len() + messages <= PENDING
            && (!self.being_copied || self.parked.has_room(messages))
    }

    /// Whether something is put off until no event is in flight.
    pub(crate) fn waits_for_quiet(&self) -> bool {
        !self.deferred.is_empty() || (!self.parked.is_empty() && !self.fork_freeze)
    }

    /// Whether new operations may start.
    pub(crate) fn is_open(&self) -> bool {
        !self.fork_freeze && self.parked.is_empty()
    }

    /// The addresses registered, for the hand.
    pub(crate) fn list_registered(&self, into: &mut Vec<Range<usize>>) {
        into.clear();
        into.extend(self.registered.iter());
    }
}
