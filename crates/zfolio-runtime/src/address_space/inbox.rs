//! What the descriptor told and nobody has dealt with yet: a part of the core.

use crate::address_space::newborn::Child;
use crate::address_space::recent_faulters::RecentFaulters;
use crate::events::event::Event;
use crate::events::parked::ParkedEvents;
use crate::page_fault::Fault;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Faults remembered but not served yet, at most.
pub(crate) const PENDING: usize = 1024;

/// Faults for which several threads stay on duty after two came at once.
const CROWD: u32 = 256;

/// Faults, events and children, and who waits for more of them.
pub(crate) struct Inbox {
    /// Faults read and not taken by a thread yet.
    pub(super) pending: VecDeque<Fault>,
    /// Faults put off because an event was in flight.
    pub(super) deferred: VecDeque<Fault>,
    /// Events that wait until no operation is under way.
    pub(super) parked: ParkedEvents,
    /// Descriptors of children, from FORK events.
    pub(super) children: Vec<Child>,
    /// Who faulted lately.
    faulting: RecentFaulters,
    /// Faults left for which several threads stay on duty.
    crowd: u32,
    /// A thread is waiting on the descriptor.
    reader: bool,
    /// Fault threads asleep on [`Wakeups::fault`](crate::wakeups::Wakeups::fault).
    sleepers: u32,
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

    /// Whether faults have been read that no thread has taken.
    pub(crate) fn has_faults(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes the fault that comes next, and notes who faulted.
    pub(crate) fn take_fault(&mut self) -> Option<Fault> {
        let fault = self.pending.pop_front()?;
        self.faulting.note(fault.thread);
        Some(fault)
    }

    /// A fault is to be served after those that wait for a thread.
    pub(crate) fn put_last(&mut self, fault: Fault) {
        self.pending.push_back(fault);
    }

    /// A fault is to be served before those that wait for a thread.
    pub(crate) fn put_first(&mut self, fault: Fault) {
        self.pending.push_front(fault);
    }

    /// A fault is to be tried again when no event is in flight. A thread that was interrupted, and
    /// faults on the same page again, is put off once.
    pub(crate) fn put_off(&mut self, fault: Fault) {
        let is_same = |other: &Fault| (other.thread, other.vpn) == (fault.thread, fault.vpn);
        if !self.deferred.iter().any(is_same) {
            self.deferred.push_back(fault);
        }
    }

    /// Which of the faults that are put off is `thread`'s, if one is.
    pub(super) fn put_off_for(&self, thread: u32) -> Option<usize> {
        let of_it = |fault: &Fault| thread != 0 && fault.thread == thread;
        self.deferred.iter().position(of_it)
    }

    /// Of the faults that are put off another is the first now, if there are several.
    pub(super) fn ask_next(&mut self) {
        if !self.deferred.is_empty() {
            self.deferred.rotate_left(1);
        }
    }

    /// Who faulted lately.
    pub(crate) const fn faulting(&self) -> RecentFaulters {
        self.faulting
    }

    /// Several faults came at once: for a while two threads are to be on duty.
    pub(crate) fn note_crowd(&mut self) {
        self.crowd = CROWD;
    }

    /// A fault was taken: whether a sibling is to be woken for the next.
    pub(crate) fn wants_sibling(&mut self) -> bool {
        let crowded = self.crowd > 0;
        self.crowd = self.crowd.saturating_sub(1);
        crowded && self.has_sleepers() && !self.reader
    }

    /// Whether a thread waits on the descriptor.
    pub(crate) const fn has_reader(&self) -> bool {
        self.reader
    }

    /// The caller is the one that waits on the descriptor, or is so no more.
    pub(crate) fn set_reader(&mut self, reads: bool) {
        self.reader = reads;
    }

    /// Whether a fault thread sleeps until a sibling wakes it.
    pub(crate) const fn has_sleepers(&self) -> bool {
        self.sleepers > 0
    }

    /// A fault thread sleeps from here on, until [`Self::note_awake`].
    pub(crate) fn note_asleep(&mut self) {
        self.sleepers += 1;
    }

    /// One that slept is awake.
    pub(crate) fn note_awake(&mut self) {
        self.sleepers -= 1;
    }

    /// Events that wait.
    pub(crate) const fn parked(&self) -> &ParkedEvents {
        &self.parked
    }

    /// In the child of a fork: what happened before it, as the parent read it later.
    pub(crate) fn replace_parked(&mut self, past: impl Iterator<Item = Event>) {
        self.parked.replace(past);
    }

    /// Children that are not on their own yet.
    pub(crate) fn children(&self) -> &[Child] {
        &self.children
    }

    /// No event is in flight, and those that are parked are in order: what will be read from
    /// now on came after the forks by which the children came.
    pub(crate) fn note_all_read(&mut self) {
        let read = self.parked.len();
        for child in &mut self.children {
            child.read_by_then.get_or_insert(read);
        }
    }

    /// Takes them all.
    pub(crate) fn take_children(&mut self) -> Vec<Child> {
        self.children.drain(..).collect()
    }

    /// Takes the child at `index`, while something is done for it.
    pub(crate) fn take_child(&mut self, index: usize) -> Child {
        self.children.swap_remove(index)
    }

    /// Puts it back there.
    pub(crate) fn put_child_back(&mut self, index: usize, child: Child) {
        self.children.push(child);
        let last = self.children.len() - 1;
        self.children.swap(index, last);
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

    /// How many faults wait for a thread, how many are put off, and how many events wait.
    pub(crate) fn lengths(&self) -> [usize; 3] {
        let (parked, waiting) = (self.parked.len(), [&self.pending, &self.deferred]);
        let [pending, deferred] = waiting.map(VecDeque::len);
        [pending, deferred, parked]
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
        let (mark, since, read_by_then) = (child.mark, &child.since, child.read_by_then);
        let young = child.forks.drain(..).map(|uffd| Child {
            since: since.clone(),
            read_by_then,
            ..Child::new(uffd, mark)
        });
        self.children.extend(young);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::page_fault::Access;
    use std::vec::Vec;

    fn fault(thread: u32, vpn: usize) -> Fault {
        Fault {
            vpn,
            access: Access::Write,
            thread,
            read_ns: 1,
            waits: 0,
        }
    }

    #[test]
    fn a_thread_that_faults_again_on_its_page_is_put_off_once() {
        let mut inbox = Inbox::new();
        for _ in 0..2 * PENDING {
            inbox.put_off(fault(7, 100));
        }
        inbox.put_off(fault(7, 101));
        inbox.put_off(fault(8, 100));
        let put_off: Vec<_> = inbox.deferred.iter().map(|f| (f.thread, f.vpn)).collect();
        assert_eq!(put_off, [(7, 100), (7, 101), (8, 100)]);
    }

    #[test]
    fn the_thread_that_waits_for_itself_is_found_behind_others() {
        let mut inbox = Inbox::new();
        assert_eq!(inbox.put_off_for(8), None);
        inbox.ask_next();
        for thread in [7, 0, 8, 9] {
            inbox.put_off(fault(thread, 100));
        }
        assert_eq!(inbox.put_off_for(8), Some(2));
        assert_eq!(inbox.put_off_for(0), None, "a thread that is not known");
        inbox.ask_next();
        assert_eq!(inbox.put_off_for(8), Some(1));
        assert_eq!(inbox.deferred.len(), 4);
    }
}
