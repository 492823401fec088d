//! Children of forks, as long as the parent answers for them.
//!
//! Three things happen to a child here: its faults are served until it serves
//! itself, it is told what it cannot know, or it is filled and let go.

use crate::address_space::core::Core;
use crate::address_space::discard::BATCH;
use crate::address_space::newborn::{Child, QUIET_NS};
use crate::address_space::place::Place;
use crate::events::child_past::past_length;
use crate::events::event::Event;
use crate::events::resolve::resolve;
use crate::fork::Forks;
use crate::fork_handshake::{ForkWords, adopt};
use crate::page::{Vpn, address_of, pages_within};
use crate::segment::Counter;
use crate::transfer::worker::{Worker, ZERO_PAGE};
use alloc::vec::Vec;
use zfolio_mm::{PAGE_SHIFT, PAGE_SIZE};
use zfolio_sys::lock::pause;
use zfolio_sys::syscall::Errno;

/// Faults of a child served at a time. A child that is not on its own yet has
/// one thread.
const FAULTS: usize = 8;
/// Looks at most: some twenty seconds of them.
const QUIET_TRIES: u32 = 200_000;

impl Forks {
    /// Whether any child we answer for is still alive.
    pub(crate) fn any_child_lives(&self) -> bool {
        // The arena is not registered with a child's descriptor: a live child
        // answers ENOENT, a dead one ESRCH.
        let core = self.core.lock();
        let probe = self.address(zfolio_mm::Pfn(0));
        let zeros = ZERO_PAGE.as_ptr() as usize;
        core.inbox.children().iter().any(|child| {
            child.uffd.copy_pages(probe, zeros, PAGE_SIZE).stopped != Some(Errno::SRCH)
        })
    }

    /// Serves faults of children that are not on their own yet; returns how
    /// many children there are.
    ///
    /// Not while an event is in flight: it may be of a remap that the child has
    /// in its past, whose pages would be taken for untouched ones.
    pub(crate) fn serve_children(&self, worker: &mut Worker) -> usize {
        let mut core = self.core.lock();
        self.pump_for_others(&mut core);
        if core.inbox.children().is_empty() || !self.is_quiet() || !self.order_parked(&mut core) {
            return core.inbox.children().len();
        }
        core.inbox.note_all_read();
        for index in 0..core.inbox.children().len() {
            let mut child = core.inbox.take_child(index);
            let (mut faults, mut count) = ([0; FAULTS], 0);
            child.pump(|address| {
                if count < FAULTS {
                    faults[count] = address;
                    count += 1;
                }
            });
            if count > 0 {
                let past = self.past_of(&core, &mut child);
                for &address in &faults[..count] {
                    let page = resolve(past.iter(), address >> PAGE_SHIFT);
                    let from = self.page_before(&core, worker, page);
                    if child.uffd.copy_pages(address, from, PAGE_SIZE).done == 0 {
                        child.uffd.wake(address, PAGE_SIZE);
                    }
                }
            }
            core.inbox.answer_for_forks_of(&mut child);
            core.inbox.put_child_back(index, child);
        }
        core.inbox.children().len()
    }

    /// The parked events that the child has in its past, and what it did
    /// itself, in order.
    fn past_of(&self, core: &Core, child: &mut Child) -> Vec<Event> {
        let mut past: Vec<Event> = core.inbox.parked().ordered().copied().collect();
        if !past.is_empty() {
            let (mark, ours) = (child.mark, self.fds.program());
            let before = past
                .iter()
                .rposition(|event| *event == Event::Fork { mark });
            let length = past_length(
                &past,
                child.read_by_then.unwrap_or(past.len()),
                before.unwrap_or(past.len()),
                &core.pages.registered,
                |address| child.is_registered(address),
                |address| ours.is_registered(address).ok(),
            );
            past.truncate(length);
            past.retain(|event| !matches!(event, Event::Fork { .. }));
        }
        past.extend(child.since.iter().copied());
        past
    }

    /// Reads events until none is in flight: then all that changed the address
    /// space before a fork has been read, however late its event came.
    pub(super) fn read_all_events(&self) {
        for _ in 0..QUIET_TRIES {
            let mut core = self.core.lock();
            self.pump_for_others(&mut core);
            if self.is_quiet() && self.order_parked(&mut core) {
                core.inbox.note_all_read();
                return;
            }
            drop(core);
            self.ask_for_quiet();
            pause(QUIET_NS);
        }
        self.fail(format_args!(
            "events did not come to rest during a fork, so its child cannot be told what it lacks"
        ));
    }

    /// Lets the children go: closing a descriptor unregisters its ranges.
    /// `fill`: after copying in all that they lack; else the child is left
    /// the list of what it cannot know. `words` is where it looks for that:
    /// given only for the child that asked.
    pub(crate) fn release_children(
        &self,
        worker: &mut Worker,
        fill: bool,
        words: Option<ForkWords>,
    ) {
        self.read_all_events();
        let batch: Vec<Child> = self.core.lock().inbox.take_children();
        // With several, one came by a raw fork in another thread, and which is
        // which cannot be told.
        let fill = fill || batch.len() > 1;
        for mut child in batch {
            let past = {
                let mut core = self.core.lock();
                child.pump(drop);
                core.inbox.answer_for_forks_of(&mut child);
                self.past_of(&core, &mut child)
            };
            if fill
                || !words
                    .is_some_and(|words| words.leave(past.iter().map(|event| event.to_words())))
            {
                self.fill_child(worker, &mut child, &past, |_| true);
                if let Some(words) = words {
                    words.leave_filled();
                }
                self.count(Counter::RawForks, 1);
            } else if self.zswap.backing_pages() > 0 {
                // The file and its key are this process's alone.
                self.fill_child(
                    worker,
                    &mut child,
                    &past,
                    |place| matches!(place, Place::Stored(slot) if self.zswap.is_in_backing(slot)),
                );
            }
            if let Some(words) = words {
                words.set(words.adopt(), adopt::LEFT);
            }
            child.uffd.close_of_child();
        }
    }

    /// Copies pages kept for the program into a child: those in such places.
    fn fill_child(
        &self,
        worker: &mut Worker,
        child: &mut Child,
        past: &[Event],
        which: impl Fn(Place) -> bool,
    ) {
        let mut left = 0..usize::MAX >> PAGE_SHIFT;
        let mut batch = [(0, Place::Present); BATCH];
        let told = child.since.len(); // part of `past`
        loop {
            let core = self.core.lock();
            let batch = core.pages.extents.first_tracked(&mut left, &mut batch);
            drop(core);
            if batch.is_empty() {
                return;
            }
            if !self.fill_batch(worker, child, (past, told), batch, &which) {
                return;
            }
        }
    }

    /// See [`Self::fill_child`]; `told`: how many of the child's own events are in `past`.
    /// False: the child is no more.
    fn fill_batch(
        &self,
        worker: &mut Worker,
        child: &mut Child,
        (past, told): (&[Event], usize),
        batch: &[(Vpn, Place)],
        which: impl Fn(Place) -> bool,
    ) -> bool {
        let elsewhere = self.address(zfolio_mm::Pfn(0));
        for (vpn, place) in batch.iter().copied() {
            self.control_goes_on();
            self.fork_words().beat();
            if matches!(place, Place::Present | Place::Gone) || !which(place) {
                continue;
            }
            loop {
                child.pump(drop);
                if !child.forks.is_empty() {
                    self.core.lock().inbox.answer_for_forks_of(child);
                }
                let Some(to) = forward(past.iter().chain(&child.since[told..]), vpn) else {
                    break;
                };
                // Nothing moves before the thaw, which this thread makes: a device
                // need not be read under the lock.
                let place = self.core.lock().pages.extents.place(vpn);
                let from = self.bytes_of(worker, place);
                match child
                    .uffd
                    .copy_pages(address_of(to), from, PAGE_SIZE)
                    .stopped
                {
                    // Done, or there already.
                    None | Some(Errno::EXIST) => break,
                    // Nothing mapped there, if nothing is on its way elsewhere: the kernel
                    // looks for the mapping before it looks for events.
                    Some(Errno::NOENT | Errno::INVAL) if child.uffd.is_quiet(elsewhere) => break,
                    Some(Errno::SRCH) => return false,
                    // An event of the child's, or no memory: without this page
                    // it must not go on.
                    Some(_) => pause(QUIET_NS),
                }
            }
        }
        true
    }
}

/// Where page `vpn` is after `events`; `None` if it was discarded.
fn forward<'a>(mut events: impl Iterator<Item = &'a Event>, vpn: Vpn) -> Option<Vpn> {
    events.try_fold(vpn, |vpn, event| match *event {
        Event::Remove { start, end } | Event::Unmap { start, end } => {
            (!pages_within(start, end).contains(&vpn)).then_some(vpn)
        }
        Event::Remap { from, to, len } if pages_within(from, from + len).contains(&vpn) => {
            Some(vpn - (from >> PAGE_SHIFT) + (to >> PAGE_SHIFT))
        }
        // Whatever lay at the target of a remap is gone.
        Event::Remap { to, len, .. } => (!pages_within(to, to + len).contains(&vpn)).then_some(vpn),
        _ => Some(vpn),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_a_childs_events() {
        const PAGE: usize = PAGE_SIZE;
        let events = [
            Event::Remap {
                from: 0x10 * PAGE,
                to: 0x50 * PAGE,
                len: 4 * PAGE,
            },
            Event::Remove {
                start: 0x51 * PAGE,
                end: 0x52 * PAGE,
            },
        ];
        assert_eq!(forward(events.iter(), 0x10), Some(0x50));
        assert_eq!(forward(events.iter(), 0x11), None);
        assert_eq!(forward(events.iter(), 0x20), Some(0x20));
        assert_eq!(
            forward(events.iter(), 0x52),
            None,
            "overwritten by the remap"
        );
    }
}
