//! Moments at which no event is in flight (*quiet*), and how to come by one.
//!
//! Only then does the kernel put pages in place and move them, and say what is registered;
//! else it answers EAGAIN. A program whose threads discard or remap without a pause leaves no
//! such moment: one of them is always between its change and the reading of it. Whoever has
//! waited for long asks for one ([`Space::ask_for_quiet`]). A thread of ours then *holds*
//! the address space, again and again, with pauses as long ([`Hold`]): no change can begin
//! meanwhile, and those that were made are only to be read, and to be noted by the threads
//! that made them, which takes these some microseconds each. After that it is quiet until the
//! hold ends. So the wait is bounded, and the program goes on in the pauses.
//!
//! One wait no hold ends: mremap of locked memory that grows has the kernel touch what is new
//! before it reports the change. Its own fault would be served once its own event is read.
//! What is new there was never written to, so it is left to the kernel: the page is not
//! registered until it is there ([`Space::free_who_waits_for_itself`]).
//!
//! What needs the lock of the address space (the page table, the list of mappings) waits for
//! the end of a hold. Placing and moving pages does not.

use crate::address_space::Space;
use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::address_space::quiet::MOST;
use crate::events::resolve::Resolved;
use crate::page::{Vpn, address_of};
use crate::page_fault::Fault;
use crate::segment::Counter;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::hold::Hold;
use zfolio_sys::lock::{futex_wait, futex_wake, pause};
use zfolio_sys::procfs::PresentRun;
use zfolio_sys::thread::{Clock, now_ns, sleep_exactly};
use zfolio_sys::thread_files::{mremap_waited_in, wait_channel};

/// How long it is looked for a quiet moment before anything is tried, after somebody asked, ns.
const ACTIVE_NS: u64 = 3_000_000;
/// Pages gone over in a hold: at first, at least and at most. (Some 70 ns each.)
const FIRST: usize = (4 << 20) / PAGE_SIZE;
const FEWEST: usize = (1 << 20) / PAGE_SIZE;
/// Shortest and longest pause between two holds, ns.
const SHORTEST_NS: u64 = 20_000;
const LONGEST_NS: u64 = 5_000_000;
/// How long a fault waits before it asks, ns: most collisions pass by themselves.
const ASK_AFTER_NS: u64 = 200_000;

/// How long reclaim waits for a moment that it asked for, ns.
const AWAITED_NS: u64 = 2_000_000;
/// How long a fault waits before its thread is asked whether it waits for itself, ns.
const OWN_NS: u64 = 20_000_000;
/// Events to be put in order at which reading stops until the next hold.
const PARKED: usize = 32;

const MREMAP_FIXED: usize = 2;

/// Whether page `vpn` is new to what an mremap with such arguments moves to a place that it was
/// given: what lay there is no more.
fn is_new_to([_, old, new, flags, to]: [usize; 5], vpn: Vpn) -> bool {
    let [old, new] = [old, new].map(|bytes| to.saturating_add(bytes).div_ceil(PAGE_SIZE));
    flags & MREMAP_FIXED != 0 && (old..new).contains(&vpn)
}

/// Whether a thread waits for a page of ours. One in mremap does so only once what lay at its target
/// is gone: before that it waits for the address space, and may still be refused. (It cannot end
/// the mremap under the core lock, without which nobody reads its event.)
fn waits_for_a_page(thread: u32) -> bool {
    wait_channel(thread, &mut [0; 64]) == Some("handle_userfault")
}

/// Whether nothing is kept of page `vpn`, by the events that wait as well: one of them may
/// have carried there what is kept elsewhere, or discarded what was there.
fn holds_nothing(core: &Core, vpn: Vpn) -> bool {
    match core.inbox.parked.resolve(vpn) {
        Resolved::Discarded => true,
        Resolved::At(page) => {
            matches!(core.pages.extents.place(page), Place::Present | Place::Gone)
        }
    }
}

impl Space {
    /// Whether no event is in flight, read or not.
    pub(crate) fn is_quiet(&self) -> bool {
        let elsewhere = self.address(zfolio_mm::Pfn(0));
        self.fds.program().is_quiet(elsewhere)
    }

    /// Whether it is known to be of no use to try now what needs a quiet moment.
    pub(crate) fn is_restless(&self) -> bool {
        self.quiet.active.load(Ordering::Relaxed) && !self.is_quiet()
    }

    /// Whether the lock of the address space is held by us, or about to be: what needs it
    /// waits. Does not begin under the core lock.
    pub(crate) fn is_held(&self) -> bool {
        self.quiet.held.load(Ordering::Relaxed)
    }

    /// Somebody has waited too long for a quiet moment.
    pub(crate) fn ask_for_quiet(&self) {
        let until = now_ns(Clock::Monotonic) + ACTIVE_NS;
        self.quiet.until_ns.store(until, Ordering::Relaxed);
        self.quiet.active.store(true, Ordering::Relaxed);
        if self.quiet.asked.swap(1, Ordering::AcqRel) == 0 {
            futex_wake(&self.quiet.asked, 1);
        }
    }

    /// The same, if faults that were put off have waited for long.
    pub(crate) fn ask_for_deferred(&self, core: &mut Core) {
        self.free_who_waits_for_itself(core);
        let active = self.quiet.active.load(Ordering::Relaxed);
        let oldest = core.inbox.deferred.front().map(|fault| fault.read_ns);
        let long = |read| active || now_ns(Clock::Monotonic) - read > ASK_AFTER_NS;
        if oldest.is_some_and(long) || core.inbox.parked.len() >= PARKED {
            self.ask_for_quiet();
        }
    }

    /// Has the kernel fill the page for a thread that waits for it within mremap, and whose
    /// event is in flight until it goes on. What is new there was never stored: a page of which
    /// anything is kept is another's, or of a fault that the thread does not wait for any more;
    /// unless it lies where that mremap has emptied the place, of which it tells later.
    fn free_who_waits_for_itself(&self, core: &mut Core) {
        let freed = self.quiet.freed.load(Ordering::Relaxed);
        // (It will again, page after page.)
        let again = core.inbox.put_off_for(freed);
        let Some(fault) = core.inbox.deferred.get(again.unwrap_or(0)) else {
            return;
        };
        let (now, thread, vpn) = (now_ns(Clock::Monotonic), fault.thread, fault.vpn);
        let long = now - fault.read_ns > OWN_NS && now > self.quiet.next_ns.load(Ordering::Relaxed);
        if again.is_none() && !long || self.is_quiet() {
            return;
        }
        self.quiet.next_ns.store(now + OWN_NS, Ordering::Relaxed);
        let is_new =
            |call| holds_nothing(core, vpn) || is_new_to(call, vpn) && waits_for_a_page(thread);
        if !mremap_waited_in(thread).is_some_and(is_new) {
            if again.is_some() {
                self.quiet.freed.store(0, Ordering::Relaxed);
            }
            // (The next one is asked then.)
            core.inbox.ask_next();
            return;
        }
        let page = address_of(vpn);
        if self.fds.program().unregister(page, PAGE_SIZE).is_ok() {
            core.pages.registered.remove(page..page + PAGE_SIZE);
            core.inbox.deferred.remove(again.unwrap_or(0));
            self.quiet.freed.store(thread, Ordering::Relaxed);
            self.quiet.left.store(page, Ordering::Relaxed);
            self.count(Counter::LeftToTheKernel, 1);
        }
    }

    /// Registers the page again that was left to the kernel, once it is there: before the
    /// mremap's event is read, after which the program may carry the whole range on, in one
    /// mapping.
    pub(crate) fn take_back_what_was_left(&self) {
        let page = self.quiet.left.load(Ordering::Relaxed);
        if page == 0 {
            return;
        }
        let mut run = [PresentRun::default()];
        let there = self
            .fds
            .pagemap()
            .occupied(page, page + PAGE_SIZE, &mut run);
        if matches!(there, Ok((1, _))) {
            // (What is refused is registered by the hand, as what is new is.)
            let _ = self.fds.program().register(page, PAGE_SIZE);
            self.quiet.left.store(0, Ordering::Relaxed);
        }
    }

    /// Whether events had better stay unread until the next hold: those who made them wait
    /// meanwhile and make no more, and as many as are to be put in order then stay few.
    pub(crate) fn has_read_enough(&self, core: &Core) -> bool {
        core.inbox.parked.len() >= PARKED
            && !core.freeze.is_frozen()
            && self.quiet.active.load(Ordering::Relaxed)
            && self.quiet.works.load(Ordering::Relaxed)
            && !self.is_held()
    }

    /// Waits for the moment that was asked for, but not long, and applies the events that
    /// wait for it: whoever serves faults may wait for the caller.
    pub(crate) fn await_quiet_moment(&self) {
        let end = now_ns(Clock::Monotonic) + AWAITED_NS;
        while now_ns(Clock::Monotonic) < end {
            {
                let mut core = self.core.lock();
                self.pump_for_others(&mut core);
                if self.is_quiet() {
                    self.apply_parked(&mut core);
                    return;
                }
            }
            pause(AWAITED_NS / 100);
        }
    }

    /// Applies the events that wait, and has the faults that were put off tried again, if
    /// that may succeed now.
    pub(crate) fn retry_if_quiet(&self, core: &mut Core) {
        if self.is_quiet() {
            self.apply_parked(core);
            self.quiet.found.fetch_add(1, Ordering::Relaxed);
            core.inbox.retry_deferred();
        }
    }

    /// The life of the thread that holds the address space.
    pub(crate) fn hold_thread(&self) -> ! {
        // (Not one that is to run soon: on the same processor, whoever serves faults would
        // wait for the end of the hold that is made for it.)
        sleep_exactly();
        let mut hold = None;
        let mut pages = FIRST;
        loop {
            if self.quiet.asked.swap(0, Ordering::AcqRel) == 0 {
                let now = now_ns(Clock::Monotonic);
                let rest = self
                    .quiet
                    .until_ns
                    .load(Ordering::Relaxed)
                    .saturating_sub(now);
                let active = rest > 0;
                self.quiet.active.store(active, Ordering::Relaxed);
                futex_wait(&self.quiet.asked, 0, active.then_some(rest));
                continue;
            }
            if hold.is_none() {
                hold = Hold::reserve(MOST).ok();
                let start = hold.as_ref().map_or(0, |hold| hold.range().start);
                self.quiet.range.store(start, Ordering::Relaxed);
            }
            // (Where there are no addresses for it, whoever waits goes on trying.)
            let took = hold
                .as_mut()
                .map_or(LONGEST_NS, |hold| self.hold(hold, &mut pages));
            pause((took / 2).clamp(SHORTEST_NS, LONGEST_NS));
        }
    }

    /// Holds the address space once; for how long, ns. `pages`: as few as make do.
    fn hold(&self, hold: &mut Hold, pages: &mut usize) -> u64 {
        let found = self.quiet.found.load(Ordering::Relaxed);
        {
            // (Nobody reads the page table under the core lock now, nor will.)
            let _core = self.core.lock();
            self.quiet.held.store(true, Ordering::Relaxed);
        }
        let begin = now_ns(Clock::Monotonic);
        let held = hold.fill(*pages).and_then(|()| hold.hold(*pages));
        self.quiet.held.store(false, Ordering::Relaxed);
        self.quiet.works.store(held.is_ok(), Ordering::Relaxed);
        if held.is_ok() {
            self.count(Counter::AddressSpaceHolds, 1);
        }
        let took = now_ns(Clock::Monotonic) - begin;
        // (Whoever does not wait any more may not have needed this one.)
        let waits = {
            let core = self.core.lock();
            let before = |fault: &Fault| fault.read_ns < begin;
            core.inbox.deferred.front().is_some_and(before) || core.inbox.parked.len() >= PARKED
        };
        if waits && self.quiet.found.load(Ordering::Relaxed) == found {
            *pages = (*pages + *pages / 4).min(MOST);
        } else {
            *pages = (*pages - *pages / 8).max(FEWEST);
        }
        took
    }

    /// See [`Quiet::range`](crate::address_space::quiet::Quiet::range).
    pub(crate) fn range_of_holds(&self) -> Range<usize> {
        self.quiet.range()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_new_where_it_was_told_to_go() {
        const PAGE: usize = PAGE_SIZE;
        let call = |flags| [0x10 * PAGE, 2 * PAGE - 1, 4 * PAGE - 1, flags, 0x50 * PAGE];
        let new = |flags| (0..0x100).filter(move |vpn| is_new_to(call(flags), *vpn));
        assert!(new(3).eq([0x52, 0x53]));
        assert_eq!(new(1).count(), 0, "the kernel's choice is free of anything");
        let far = [0, PAGE, usize::MAX, 3, usize::MAX - PAGE];
        assert!(!is_new_to(far, 0x10));
    }
}
