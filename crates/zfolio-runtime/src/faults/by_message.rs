//! Faults: reading them, sharing them out, finding what each one needs.
//!
//! One thread waits on the descriptor at a time; whoever finds more faults
//! than it can take wakes a sibling. Swap-in goes on in `load` (from the
//! pool), here (standby) or in `fill` (a page never touched).

use crate::address_space::extent::Vpn;
use crate::address_space::place::Place;
use crate::faces::manager::{Core, Fault, Manager, Worker, address_of};
use crate::faults::thread_placement::Seat;
use crate::policy::readahead;
use crate::segment::{Counter, FaultKind};
use crate::swapin::copy_in::COPIED;
use crate::transfer::move_in::Landed;
use core::sync::atomic::Ordering;
use zfolio_mm::{PAGE_SIZE, Pfn};
use zfolio_sys::lock::{MutexGuard, futex_wait, futex_wake, pause};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, ask_for_low_latency, now_ns};
use zfolio_sys::uffd::RawMessage;

/// Messages read at once.
const MESSAGES: usize = 16;
/// How long a reader tries again before it sleeps, ns, while faults come fast.
const SPIN_NS: u64 = 20_000;
/// As many as reclaim and a thread that faults keep busy: there is none to spin on.
const FEW_PROCESSORS: usize = 2;
/// How soon faults put off are tried again, ns.
const RETRY_NS: u64 = 20_000;

/// Waits for frames (a folio stored, or a millisecond) before a fault takes
/// memory beyond `high`: what is left does not compress.
const PATIENCE: u32 = 100;
/// How long others wait less after one fault lost its patience, ns.
const HOPELESS_NS: u64 = 1_000_000_000;

/// Faults for which several threads stay on duty after two came at once.
const CROWD: u32 = 256;
/// Faults between two notes of a thread's CPU time.
const CPU_NOTE: u32 = 32;

/// What became of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The page is in place.
    Served(FaultKind),
    /// An event is in flight, or the world is frozen: later.
    Defer,
    /// Frames are short: wait for reclaim, then try again.
    NeedFrames,
}

impl Manager {
    /// A fault thread's life.
    pub(crate) fn fault_thread(&self, index: usize) -> ! {
        ask_for_low_latency();
        let mut worker = self.workers[index].lock();
        // (Bound, it would keep whom it waits for from running, as it would where
        // processors are few.)
        let may_spin = !self.has_few_processors();
        let mut seat = Seat::new(may_spin);
        let mut spin_until = 0;
        let mut served = 0_u32;
        loop {
            let mut fault = self.next_fault(&mut seat, spin_until);
            self.serving_since[index].store(fault.read_ns, Ordering::Relaxed);
            worker.urgent = fault.waits > 0 && self.has_waited_enough(fault.waits);
            loop {
                let outcome = self.serve(&mut worker, fault);
                worker.urgent = false;
                match outcome {
                    Outcome::Served(kind) => {
                        let now = self.note_served(kind, fault);
                        served = served.wrapping_add(1);
                        if served.is_multiple_of(CPU_NOTE) {
                            self.note_cpu(index);
                        }
                        let spins = may_spin && !seat.is_bound();
                        spin_until = if spins { now + SPIN_NS } else { 0 };
                        break;
                    }
                    Outcome::Defer => {
                        self.core.lock().deferred.push_back(fault);
                        break;
                    }
                    Outcome::NeedFrames => {
                        fault.waits += 1;
                        worker.urgent = self.has_waited_enough(fault.waits);
                        self.wait_at_max(true);
                        self.make_frames(&mut worker);
                        self.wait_at_max(false);
                        if self.may_wait_for_ever() && self.let_others_go_first(fault) {
                            break;
                        }
                    }
                }
            }
            self.serving_since[index].store(0, Ordering::Relaxed);
        }
    }

    /// Counts a fault that was served; the time.
    pub(crate) fn note_served(&self, kind: FaultKind, fault: Fault) -> u64 {
        let now = now_ns(Clock::Monotonic);
        self.stats().faults[kind as usize].record(now - fault.read_ns);
        self.count(Counter::Pgmajfault, 1);
        now
    }

    /// Puts a fault behind those that wait for a thread, if any do: their pages may
    /// need no frame.
    fn let_others_go_first(&self, fault: Fault) -> bool {
        let mut core = self.core.lock();
        let others = !core.pending.is_empty();
        if others {
            core.pending.push_back(fault);
        }
        others
    }

    /// The next fault to serve: from those read already, or from the
    /// descriptor, waiting as long as it takes.
    fn next_fault(&self, seat: &mut Seat, spin_until: u64) -> Fault {
        let few = self.has_few_processors();
        let mut core = self.core.lock();
        loop {
            if let Some(fault) = core.pending.pop_front() {
                core.faulting.note(fault.thread);
                // (Where processors are few a second thread would only be in the way of the
                // control thread, which serves faults as well: `warm`.)
                if !core.pending.is_empty() && (!few || self.zswap.is_backed()) {
                    core.crowd = CROWD;
                }
                if core.crowd > 0 {
                    core.crowd -= 1;
                    if core.sleepers > 0 && !core.reader {
                        self.wake_sibling();
                    }
                }
                let faulting = core.faulting;
                drop(core);
                if let Some(warmth) = seat.follow(faulting) {
                    self.keep_warm(warmth);
                }
                return fault;
            }
            if core.reader && core.waits_for_quiet() {
                // Whoever reads may sleep for long: retry without it.
                drop(core);
                pause(RETRY_NS);
                core = self.core.lock();
                self.retry_if_quiet(&mut core);
                self.ask_for_deferred(&mut core);
                continue;
            }
            if core.reader {
                core = self.sleep_as_sibling(core);
                continue;
            }
            core.reader = true;
            let retry = core.waits_for_quiet();
            // (Where processors are few, the threads that fault have not run since.)
            if retry || !few && !seat.is_bound() {
                self.pump_or_leave(&mut core);
            }
            if core.pending.is_empty() {
                drop(core);
                let wait = if retry { Some(RETRY_NS) } else { None };
                if retry || spin_until == 0 || now_ns(Clock::Monotonic) >= spin_until {
                    let _ = self.fds.program().wait(wait);
                } else {
                    core::hint::spin_loop();
                }
                core = self.core.lock();
                self.pump_or_leave(&mut core);
            }
            if retry && core.pending.is_empty() {
                self.retry_if_quiet(&mut core);
                self.ask_for_deferred(&mut core);
            }
            core.reader = false;
        }
    }

    const fn has_few_processors(&self) -> bool {
        self.processors <= FEW_PROCESSORS
    }

    /// Whether a fault that waited `waits` times gets a frame beyond `high`.
    /// Once one has, what is left does not compress: others wait less.
    pub(crate) fn has_waited_enough(&self, waits: u32) -> bool {
        let now = now_ns(Clock::Monotonic);
        let last = self.urgent_ns.load(Ordering::Relaxed);
        let enough = if now.saturating_sub(last) < HOPELESS_NS {
            3
        } else {
            PATIENCE
        };
        if waits >= enough {
            self.urgent_ns.store(now, Ordering::Relaxed);
        }
        waits >= enough
    }

    fn sleep_as_sibling<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        core.sleepers += 1;
        let seen = self.fault_wake.load(Ordering::Acquire);
        drop(core);
        futex_wait(&self.fault_wake, seen, None);
        let mut core = self.core.lock();
        core.sleepers -= 1;
        core
    }

    /// Has another fault thread look for work.
    pub(crate) fn wake_sibling(&self) {
        self.fault_wake.fetch_add(1, Ordering::Release);
        futex_wake(&self.fault_wake, 1);
    }

    /// [`Self::pump`] for a thread that will not serve what it finds at once:
    /// the one waiting on the descriptor would not learn of it.
    pub(crate) fn pump_for_others(&self, core: &mut Core) {
        self.pump(core);
        if !core.pending.is_empty() {
            self.wake_sibling();
        }
    }

    /// Reads what waits on the descriptor: events are applied, faults queued.
    pub(crate) fn pump(&self, core: &mut Core) {
        self.read_messages(core, &mut [RawMessage::default(); MESSAGES]);
    }

    /// [`Self::pump`], unless events had better stay unread for now. (Who reads for others
    /// goes on at once with something else: it must not wait for a hold.)
    fn pump_or_leave(&self, core: &mut Core) {
        if !self.has_read_enough(core) {
            self.pump(core);
        }
    }

    /// Reads one message, if one waits, as [`Self::pump`] reads all.
    pub(crate) fn pump_one(&self, core: &mut Core) {
        self.read_messages(core, &mut [RawMessage::default()]);
    }

    fn read_messages(&self, core: &mut Core, messages: &mut [RawMessage]) {
        self.take_back_what_was_left();
        let mut now = 0;
        while core.has_room(messages.len()) {
            let count = match self.fds.program().read(messages) {
                Ok(0) => return,
                Ok(count) => count,
                Err(Errno::MFILE) => self.fail(format_args!(
                    "the child of a fork cannot be followed: no descriptor is free (RLIMIT_NOFILE)"
                )),
                Err(errno) => self.fail(format_args!(
                    "the userfaultfd descriptor is lost (errno {})",
                    errno.0
                )),
            };
            self.reads.fetch_add(1, Ordering::Relaxed);
            if now == 0 {
                now = now_ns(Clock::Monotonic);
            }
            for message in &messages[..count] {
                self.take_message(core, message, now);
            }
            if count < messages.len() || messages.len() == 1 {
                return;
            }
        }
    }

    /// Finds where the page is and brings it.
    pub(crate) fn serve(&self, worker: &mut Worker, fault: Fault) -> Outcome {
        worker.access = fault.access;
        let mut core = self.core.lock();
        if core.fork_freeze {
            return self.serve_frozen(&mut core, worker, fault);
        }
        if self.is_restless() || !self.opens(&mut core) {
            return Outcome::Defer;
        }
        if self.is_gone(&core, fault.vpn) {
            return Outcome::Served(FaultKind::Stale);
        }
        match core.extents.place(fault.vpn) {
            Place::Standby(at) => self.unstandby(&mut core, fault.vpn, at),
            Place::Storing(at) => self.uncompressed_copy(&mut core, fault.vpn, at),
            Place::Stored(_) => self.load(core, worker, fault.vpn),
            Place::Clean(slot) => self.touched_clean(core, worker, fault.vpn, slot),
            // Whoever loads it wakes all who wait for it.
            Place::Loading(_) => Outcome::Served(FaultKind::Stale),
            Place::Present | Place::Gone => self.fill(core, worker, fault.vpn),
        }
    }

    /// Whether page `vpn` was of a region that is no more: then nobody waits for it.
    pub(crate) fn is_gone(&self, core: &Core, vpn: Vpn) -> bool {
        let page = address_of(vpn)..address_of(vpn + 1);
        !self.scope.is_process() && !core.registered.contains(&page)
    }

    /// Moves a page, and what stands by next to it, straight back.
    fn unstandby(&self, core: &mut Core, vpn: Vpn, at: Pfn) -> Outcome {
        let huge = core.extents.get(vpn).is_some_and(|extent| extent.huge);
        let bounds = if huge {
            readahead::extent(vpn)
        } else {
            readahead::group(vpn)
        };
        let in_run = |core: &Core, page: Vpn, slot: Option<usize>| {
            slot.is_some_and(|slot| {
                matches!(core.extents.place(page), Place::Standby(pfn) if pfn.index() == slot)
            })
        };
        let (mut first, mut end) = (vpn, vpn + 1);
        while first > bounds.start
            && in_run(core, first - 1, at.index().checked_sub(vpn - (first - 1)))
        {
            first -= 1;
        }
        while end < bounds.end && in_run(core, end, Some(at.index() + (end - vpn))) {
            end += 1;
        }
        let base = Pfn(at.0).back(vpn - first);
        let whole = huge && end - first == bounds.len();
        if whole {
            let counted = self.is_huge(self.address(base));
            if counted {
                self.count(Counter::ThpSwpin, 1);
            }
        }
        self.bring_standby(core, vpn, first, base, end - first)
    }

    fn bring_standby(
        &self,
        core: &mut Core,
        vpn: Vpn,
        first: Vpn,
        base: Pfn,
        pages: usize,
    ) -> Outcome {
        let mut refused = None;
        let mut came = 0;
        self.land_cheaply(first, base, pages, COPIED, |index, landed| {
            let slot = base.offset(index);
            match landed {
                Landed::Moved => self.arena().give_holes(slot, 1),
                Landed::Copied | Landed::AlreadyThere => self.arena().give_frames(slot, 1),
                Landed::Refused(errno) => {
                    if first + index == vpn {
                        refused = Some(errno);
                    }
                    return;
                }
            }
            came += 1;
            core.extents.set(first + index, Place::Present);
        });
        core.standby.pages -= came;
        self.count(Counter::StandbyRefault, came);
        self.count(Counter::PagesIn, came);
        if let Some(extent) = core.extents.get_mut(vpn) {
            for page in first..first + pages {
                extent.past(page).come_along();
            }
            extent.past(vpn).spare(&core.clock);
            if extent.take_unasked(vpn) {
                core.rush.judge(true);
            }
        }
        refused.map_or(Outcome::Served(FaultKind::Standby), |errno| {
            self.refused(vpn, errno)
        })
    }

    /// The page is being compressed, so its frame must stay: copy it. The
    /// compressor finds its word changed and drops what it made.
    fn uncompressed_copy(&self, core: &mut Core, vpn: Vpn, at: Pfn) -> Outcome {
        match self.copy_in(vpn, self.address(at)) {
            Landed::Refused(errno) => self.refused(vpn, errno),
            _ => {
                core.extents.set(vpn, Place::Present);
                if let Some(extent) = core.extents.get_mut(vpn) {
                    extent.past(vpn).spare(&core.clock);
                }
                self.count(Counter::StandbyRefault, 1);
                self.count(Counter::PagesIn, 1);
                Outcome::Served(FaultKind::Standby)
            }
        }
    }

    /// A faulting page could not be put in place.
    pub(crate) fn refused(&self, vpn: Vpn, errno: Errno) -> Outcome {
        match errno {
            Errno::AGAIN | Errno::NOMEM => {
                self.count(Counter::MoveRetries, 1);
                Outcome::Defer
            }
            // Not about the page: a filter of the program's refuses the call, and
            // will go on to. Nobody could serve a fault any more.
            Errno::PERM => self.fail(format_args!(
                "the kernel no longer lets pages be put in place (a seccomp filter of the program?)"
            )),
            // A region is there as long as anybody may touch it; but its
            // descriptor may not be.
            other if !self.scope.is_process() => self.fail(format_args!(
                "a page of a region could not be put in place (errno {}: were descriptors closed?)",
                other.0
            )),
            // Nothing mapped there any more, or the program is ending: let
            // the toucher find out by itself.
            _ => {
                self.fds.program().wake(address_of(vpn), PAGE_SIZE);
                Outcome::Served(FaultKind::Stale)
            }
        }
    }
}
