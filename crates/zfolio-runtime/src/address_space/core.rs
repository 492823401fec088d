//! What the core lock guards, in four parts.

use crate::address_space::clean_queue::CleanPages;
use crate::address_space::freeze::Freeze;
use crate::address_space::history::History;
use crate::address_space::inbox::{Inbox, PENDING};
use crate::address_space::pages::Pages;
use crate::address_space::place::Place;
use crate::page::Vpn;

/// The state under the one lock that everything short goes through.
///
/// Its rule: **every event that has left the kernel's queue is applied before
/// anybody else looks at the queue, moves a page, or trusts a word.** So the
/// descriptor is read, events are applied, pages are moved in and out, and
/// words change under this lock only; compression and decompression happen
/// outside it, on pages whose word says `Storing` or `Loading`.
pub(crate) struct Core {
    pub(crate) pages: Pages,
    pub(crate) history: History,
    pub(crate) inbox: Inbox,
    pub(crate) freeze: Freeze,
}

impl Core {
    /// `clean`: for clean pages; `slots`: of the arena, where a fork may have to note what was
    /// copied meanwhile, else 0.
    pub(crate) fn new(clean: CleanPages, slots: usize) -> Self {
        Self {
            pages: Pages::new(clean),
            history: History::new(),
            inbox: Inbox::new(),
            freeze: Freeze::new(slots),
        }
    }

    /// Notes that page `vpn` was served by a copy. Does not use the heap.
    pub(crate) fn note_superseded(&mut self, vpn: Vpn) {
        let kept = !matches!(self.pages.extents.place(vpn), Place::Present | Place::Gone);
        let superseded = &mut self.freeze.superseded;
        if kept && superseded.len() < superseded.capacity() {
            superseded.push(vpn);
        }
    }

    /// Whether `messages` more can be kept.
    pub(crate) fn has_room(&self, messages: usize) -> bool {
        self.inbox.pending.len() + messages <= PENDING
            && (!self.freeze.is_being_copied() || self.inbox.parked.has_room(messages))
    }

    /// Whether something is put off until no event is in flight.
    pub(crate) fn waits_for_quiet(&self) -> bool {
        !self.inbox.deferred.is_empty()
            || (!self.inbox.parked.is_empty() && !self.freeze.is_frozen())
    }

    /// Whether new operations may start.
    pub(crate) fn is_open(&self) -> bool {
        !self.freeze.is_frozen() && self.inbox.parked.is_empty()
    }
}
