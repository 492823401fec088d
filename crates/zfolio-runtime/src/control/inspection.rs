//! Holding everything in place for who looks into the process (`zfolio inspect`).
//!
//! A debugger or a profiler stops all threads, ours too, and then reads: nobody would bring what
//! is out. So all of it comes back before, by the control thread, a part in each of its turns,
//! as if it were touched; and registrations end, since who reads a page that nobody ever touched
//! would wait for us as well. Nothing is reclaimed until no lease holds the process any more; then
//! the hand registers what it finds, as at the beginning.
//!
//! Forks go on: they are followed between two parts. The child is not held.

use crate::address_space::place::Place;
use crate::control::Manager;
use crate::page::{Vpn, pages_within};
use crate::page_fault::{Fault, Outcome};
use crate::pager::Access;
use crate::segment::Counter;
use crate::segment::inspection::{Watched, held};
use crate::transfer::worker::Worker;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_mm::PAGE_SHIFT;
use zfolio_sys::thread::{Clock, now_ns};

/// How long a part takes at most, ns: forks wait for the end of one.
const PART_NS: u64 = 5_000_000;
/// Pages found at a time.
const FOUND: usize = 64;

/// What the control thread remembers of inspectors.
#[derive(Default)]
pub(crate) struct Inspection {
    leases: Watched,
    /// The turn of this process's slot.
    turn: u64,
    /// Where what is to come back is looked for next.
    at: Vpn,
}

impl Manager {
    /// Begins, goes on with or ends a hold, as the leases say; whether more is to come back.
    pub(crate) fn tend_inspection(&self, inspection: &mut Inspection, worker: &mut Worker) -> bool {
        if !self.scope.has_events() {
            return false;
        }
        let slot = self.stats();
        if inspection.turn == 0 {
            inspection.turn = self.segment().turn_of(slot);
        }
        let leases = &self.segment().config().leases;
        let now = now_ns(Clock::Monotonic);
        if !inspection.leases.is_held(leases, inspection.turn, now) {
            if self.is_inspected() {
                self.set_inspected(false);
                slot.held.store(held::NO, Ordering::Release);
            }
            return false;
        }
        if !self.is_inspected() {
            self.set_inspected(true);
            inspection.at = 0;
            slot.held.store(held::COMING, Ordering::Release);
        }
        // (Once it is held something may be registered anew: by an event that was in flight.)
        if slot.held.load(Ordering::Relaxed) == held::HELD && self.is_all_left() {
            return false;
        }
        let all = self.bring_part(inspection, worker, now + PART_NS) && self.leave_all();
        if all && slot.held.swap(held::HELD, Ordering::AcqRel) != held::HELD {
            self.count(Counter::InspectHolds, 1);
        }
        !all
    }

    /// Brings pages back until that time; whether none was found from one end to the other.
    fn bring_part(&self, inspection: &mut Inspection, worker: &mut Worker, until: u64) -> bool {
        const END: Vpn = usize::MAX >> PAGE_SHIFT;
        let begun = inspection.at;
        let mut found = [(0, Place::Present); FOUND];
        // (All that it needs is there, whatever `high` is.)
        worker.urgent = true;
        let mut left = begun..END;
        let mut any = false;
        while !left.is_empty() && now_ns(Clock::Monotonic) < until {
            let pages = {
                let core = self.core.lock();
                core.pages.extents.first_tracked(&mut left, &mut found)
            };
            for (vpn, place) in pages {
                if matches!(place, Place::Present | Place::Gone) {
                    continue;
                }
                any = true;
                self.control_goes_on();
                let fault = Fault {
                    vpn: *vpn,
                    access: Access::Write,
                    thread: 0,
                    read_ns: now_ns(Clock::Monotonic),
                    waits: 0,
                };
                // (What is there by now, with those before it, costs a look.)
                let is_out = matches!(
                    self.core.lock().pages.extents.place(*vpn),
                    Place::Stored(_) | Place::Standby(_) | Place::Storing(_) | Place::Clean(_)
                );
                if is_out && !matches!(self.serve(worker, fault), Outcome::Served(_)) {
                    // A fork, an event in flight, no memory: from here on in the next turn.
                    inspection.at = *vpn;
                    worker.urgent = false;
                    return false;
                }
            }
        }
        worker.urgent = false;
        inspection.at = if left.is_empty() { 0 } else { left.start };
        !any && begun == 0 && left.is_empty()
    }

    /// Whether nothing is registered, and nothing kept.
    fn is_all_left(&self) -> bool {
        let core = self.core.lock();
        core.pages.registered.iter().next().is_none() && core.pages.extents.kept() == 0
    }

    /// Ends the registrations of all memory of which nothing is kept; whether that is all there
    /// is.
    fn leave_all(&self) -> bool {
        let mut core = self.core.lock();
        if !self.may_start(&mut core) || core.pages.extents.kept() > 0 || !self.is_quiet() {
            return false;
        }
        let registered: Vec<Range<usize>> = core.pages.registered.iter().collect();
        let mut all = true;
        for range in registered {
            if self
                .fds
                .program()
                .unregister(range.start, range.len())
                .is_err()
            {
                all = false;
                continue;
            }
            // (Words of what was discarded: the kernel fills it from here on.)
            let pages = pages_within(range.start, range.end);
            core.pages.registered.remove(range);
            self.drop_contents(&mut core, pages.clone());
            core.pages.extents.prune(pages);
        }
        all
    }
}
