//! Faults: a closed group is touched.
//!
//! In a signal handler, in a thread of the program; what `faults/by_sigbus.rs` says of
//! that holds here too.

use super::groups::{End, State};
use super::{GroupCore, GroupWorker, LocatedGroup, Protected};
use crate::address_space::place::Place;
use crate::page::Vpn;
use crate::segment::Counter;
use crate::serve_loop::{Ended, Next, Pager, Teller, Tried, serve_fault};
use crate::transfer::worker::claim_worker;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_sys::closable::Aside;
use zfolio_sys::lock::{MutexGuard, pause};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns};
use zfolio_zswap::Slot;

/// Rounds of making room after which a fault has its group all the same.
const ROUNDS_BEFORE_OVERDRAFT: u32 = 100;
/// Times that others are closed for a group that the kernel will not open, and the
/// wait where none can be, ns.
pub(super) const OPENINGS: u32 = 1000;
pub(super) const OPENING_NS: u64 = 100_000;
/// Runs closed at a time for that.
const CLOSED_AT_ONCE: usize = 8;
/// Groups looked at for one while there are mappings left.
const LOOKS: usize = 512;

/// The kernel would not open a group: there are as many mappings as there may be.
pub(crate) struct NotOpened;

/// A touch of a closed group.
#[derive(Clone, Copy)]
pub(crate) struct Touch {
    address: usize,
    /// Rounds of making room.
    rounds: u32,
    /// Times that the kernel would not open it.
    refusals: u32,
}

impl Pager for Protected {
    type Fault = Touch;
    type PerThread = GroupWorker;
    type Served = ();
    type Refusal = NotOpened;

    fn try_fault(&self, worker: &mut GroupWorker, touch: &mut Touch) -> Tried<(), NotOpened> {
        let urgent = touch.rounds >= ROUNDS_BEFORE_OVERDRAFT;
        self.try_serve(worker, touch.address, urgent)
    }

    fn make_room(&self, worker: &mut GroupWorker, touch: &mut Touch) {
        touch.rounds += 1;
        if !self.wait_for_room(worker) {
            touch.rounds = ROUNDS_BEFORE_OVERDRAFT;
        }
    }

    fn make_way(&self, touch: &mut Touch, _: NotOpened) {
        touch.refusals += 1;
        let mut core = self.core.lock();
        let any = core.table.open_groups();
        let closed = [1, any]
            .into_iter()
            .any(|longest| self.close_runs(&mut core, longest, usize::MAX) > 0);
        drop(core);
        if !closed {
            // (Others may unmap something.)
            pause(OPENING_NS);
        }
        if touch.refusals == OPENINGS {
            self.fail(format_args!(
                "the kernel would not open the memory at {:#x} (are there as many mappings as \
                 vm.max_map_count allows?)",
                touch.address
            ));
        }
    }
}

/// SIGSEGV told: the thread that touched serves, and waits for whoever has the group.
struct BySigsegv;

impl Teller<Protected> for BySigsegv {
    fn served(&mut self, pager: &Protected, (): (), _: Touch) {
        pager.count(Counter::FaultsServed, 1);
    }

    fn put_off(&mut self, pager: &Protected, _: Touch, turn: u32) -> Next {
        pager.wait(turn);
        Next::Again
    }
}

impl Protected {
    pub(super) fn serve(&self, address: usize) -> bool {
        let (mut worker, index) = claim_worker(&self.workers);
        let Some(stack) = self.stacks.get(index - 1) else {
            return false;
        };
        stack.call(|| self.serve_address(&mut worker, address))
    }

    fn serve_address(&self, worker: &mut GroupWorker, address: usize) -> bool {
        let touch = Touch {
            address,
            rounds: 0,
            refusals: 0,
        };
        serve_fault(self, &mut BySigsegv, worker, touch) == Ended::Served
    }

    fn try_serve(
        &self,
        worker: &mut GroupWorker,
        address: usize,
        urgent: bool,
    ) -> Tried<(), NotOpened> {
        let mut core = self.core.lock();
        let Some(place) = core.place(address) else {
            return Tried::NotOurs;
        };
        match core.table.state(place.group) {
            Some(State::Open) => {
                // Opened by another thread meanwhile; or the program has changed
                // the protection, and changing it back ends the fault too.
                let open = place.memory.open(&place.range);
                drop(core);
                let page = address & !(PAGE_SIZE - 1);
                // (What the system has no memory for is not served for ever.)
                if open.is_ok() && place.memory.is_sound(&(page..page + PAGE_SIZE)) {
                    Tried::Served(())
                } else {
                    Tried::NotOurs
                }
            }
            Some(State::Standby) => {
                if self.open(&mut core, &place).is_err() {
                    return Tried::Refused(NotOpened);
                }
                core.table.warm(place.group);
                self.let_in(&mut core, &place);
                self.count(Counter::StandbyRefault, place.pages());
                self.count(Counter::PagesIn, place.pages());
                Tried::Served(())
            }
            Some(State::Loading | State::Storing) => {
                core.table.want(place.group);
                Tried::Later(self.turns.load(Ordering::SeqCst))
            }
            None => self.bring(worker, core, place, urgent),
        }
    }

    /// Opens a group that is closed.
    fn bring(
        &self,
        worker: &mut GroupWorker,
        mut core: MutexGuard<'_, GroupCore>,
        place: LocatedGroup,
        urgent: bool,
    ) -> Tried<(), NotOpened> {
        let limit = self.watermarks().limit + self.overdraft();
        if !urgent && self.usage(&core) + place.pages() > limit {
            return Tried::NoRoom;
        }
        if core.table.makes_run(place.group)
            && super::RUNS.load(Ordering::Relaxed) >= self.most_runs
        {
            // (With nothing to close there are more: it is a quarter only.)
            self.close_runs(&mut core, 1, LOOKS);
        }
        let pages = place.range.start / PAGE_SIZE..place.range.end / PAGE_SIZE;
        if core.extents.tracked(pages.clone()).next().is_none() {
            if self.open(&mut core, &place).is_err() {
                return Tried::Refused(NotOpened);
            }
            self.let_in(&mut core, &place);
            self.count(Counter::HolePages, place.pages());
            self.ring_at(&core);
            return Tried::Served(());
        }
        let (group, count) = (place.group, place.pages());
        core.table.set(group, count, State::Loading, End::Hot);
        let mut slots = [Slot::ZERO; super::MOST_PAGES];
        for (page, word) in core.extents.tracked(pages.clone()) {
            if let Place::Stored(slot) = word {
                slots[page - pages.start] = slot;
            }
        }
        let slots = &slots[..count];
        drop(core);
        self.count(Counter::Pgmajfault, 1);
        let loaded = self.load(worker, &place, &pages, slots);
        if loaded.is_ok() {
            // (There is no backing: what is here was in the pool.)
            let order = Order::holding_at_most(count);
            self.zswap.count_load(order, false);
        }
        let mut core = self.core.lock();
        let opened = loaded.and_then(|aside| aside.put_back().map_err(|(_, errno)| errno));
        if opened.is_err() {
            // What was loaded is gone, and in the pool as before.
            core.table.close(group);
            self.done();
            return Tried::Refused(NotOpened);
        }
        for page in pages {
            core.extents.set(page, Place::Present);
        }
        core.table.count_run(group, true, &super::RUNS);
        self.let_in(&mut core, &place);
        self.done();
        self.ring_at(&core);
        drop(core);
        self.zswap.invalidate(slots);
        Tried::Served(())
    }

    fn let_in(&self, core: &mut GroupCore, place: &LocatedGroup) {
        let end = End::Hot;
        core.table.set(place.group, place.pages(), State::Open, end);
    }

    /// Brings the pages of a group that have a slot into memory, aside. The others are
    /// zeros and have none.
    fn load<'a>(
        &self,
        worker: &mut GroupWorker,
        place: &'a LocatedGroup,
        pages: &Range<Vpn>,
        slots: &[Slot],
    ) -> Result<Aside<'a>, Errno> {
        let mut aside = place.memory.take(&place.range)?;
        aside.unlock()?;
        let stored = slots.iter().filter(|slot| **slot != Slot::ZERO).count();
        if stored == slots.len() {
            aside.make();
        }
        for (page, slot) in pages.clone().zip(slots) {
            if *slot == Slot::ZERO {
                continue;
            }
            let bytes = page * PAGE_SIZE..(page + 1) * PAGE_SIZE;
            let context = &mut worker.context;
            let to = aside.bytes_mut(&bytes);
            let result = self.zswap.load_into(context, *slot, to);
            if let Err(why) = result {
                self.fail(format_args!(
                    "the page at {:#x} of a region could not be brought ({why})",
                    bytes.start
                ));
            }
        }
        self.count(Counter::PagesIn, stored);
        Ok(aside)
    }

    /// At the limit: makes room in this thread; false if there is none to be
    /// made.
    fn wait_for_room(&self, worker: &mut GroupWorker) -> bool {
        let begin = now_ns(Clock::Monotonic);
        let made = self.make_room(worker) || self.wait_for_others();
        let took = now_ns(Clock::Monotonic) - begin;
        self.count(Counter::HighEvents, 1);
        self.stats.add(Counter::StallNs, took);
        made
    }

    /// Waits for what others load and store; false if they do nothing.
    fn wait_for_others(&self) -> bool {
        let turn = {
            let core = self.core.lock();
            let busy = core.table.is_any_busy();
            busy.then(|| self.turns.load(Ordering::SeqCst))
        };
        turn.map(|turn| self.wait(turn)).is_some()
    }

    /// Closes runs of at most `longest` open groups, which gives two mappings back
    /// each; returns how many. Whole runs: a part would cost mappings.
    pub(super) fn close_runs(&self, core: &mut GroupCore, longest: usize, looks: usize) -> usize {
        let mut closed = 0;
        while closed < CLOSED_AT_ONCE {
            let GroupCore { table, pins, .. } = core;
            let unit = table.addresses(1).len();
            let addresses = |run: &Range<usize>| run.start * unit..run.end * unit;
            let may = |run: &Range<usize>| !pins.overlaps(&addresses(run));
            let Some(run) = table.short_run(longest, looks, may) else {
                return closed;
            };
            let Some(first) = core.place_of(run.start) else {
                return closed;
            };
            let last = addresses(&run).end.min(first.memory.view().end);
            if first.memory.close(&(first.range.start..last)).is_err() {
                return closed;
            }
            for group in run {
                // (What comes after may be the next region's.)
                let place = core.place_of(group);
                let Some(place) = place.filter(|place| place.range.end <= last) else {
                    break;
                };
                core.table.count_run(place.group, false, &super::RUNS);
                self.stand_by(core, &place, End::Hot);
            }
            closed += 1;
        }
        closed
    }
}
