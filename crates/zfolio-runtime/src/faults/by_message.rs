//! Faults that the descriptor tells: waiting for them, and sharing them out.
//!
//! One thread waits on the descriptor at a time; whoever finds more faults
//! than it can take wakes a sibling. What a fault needs is `swapin/serve.rs`'s to find.

use crate::address_space::core::Core;
use crate::faults::thread_placement::Placement;
use crate::page_fault::Fault;
use crate::segment::{Counter, FaultKind};
use crate::serve_loop::{Ended, Next, Pager, Teller, serve_fault};
use crate::swapout::Swap;
use crate::transfer::worker::Worker;
use zfolio_sys::lock::{MutexGuard, pause};
use zfolio_sys::thread::{Clock, ask_for_low_latency, now_ns};

/// How long a reader tries again before it sleeps, ns, while faults come fast.
const SPIN_NS: u64 = 20_000;
/// As many as reclaim and a thread that faults keep busy: there is none to spin on.
const FEW_PROCESSORS: usize = 2;
/// How soon faults put off are tried again, ns.
const RETRY_NS: u64 = 20_000;

/// Faults between two notes of a thread's CPU time.
const CPU_NOTE: u32 = 32;

/// A message told: a thread of ours serves, and others may go first.
#[derive(Default)]
struct ByMessage {
    /// When the last fault was served, monotonic ns.
    served_ns: u64,
}

impl Teller<Swap> for ByMessage {
    fn served(&mut self, pager: &Swap, kind: FaultKind, fault: Fault) {
        self.served_ns = pager.note_served(kind, fault);
    }

    fn put_off(&mut self, pager: &Swap, fault: Fault, _: u32) -> Next {
        pager.core.lock().inbox.put_off(fault);
        Next::Left
    }

    fn short(&mut self, pager: &Swap, worker: &mut Worker, fault: &mut Fault) -> Next {
        pager.wait_at_max(true);
        pager.make_room(worker, fault);
        pager.wait_at_max(false);
        if pager.may_wait_for_ever() && pager.let_others_go_first(*fault) {
            return Next::Left;
        }
        Next::Again
    }
}

impl Swap {
    /// A fault thread's life.
    pub(crate) fn fault_thread(&self, index: usize) -> ! {
        ask_for_low_latency();
        let mut worker = self.workers[index].lock();
        // (No spinning on the processor of the thread that faults, to which ours is bound, nor
        // where there are few: it would keep that thread from running.)
        let may_spin = !self.has_few_processors();
        let mut placement = Placement::new(may_spin);
        let mut spin_until = 0;
        let mut served = 0_u32;
        let mut by_message = ByMessage::default();
        loop {
            let fault = self.next_fault(&mut placement, spin_until);
            self.note_serving(index, fault.read_ns);
            self.wait_at_swap_high();
            worker.urgent = fault.waits > 0 && self.has_waited_enough(fault.waits);
            if serve_fault(self, &mut by_message, &mut worker, fault) == Ended::Served {
                served = served.wrapping_add(1);
                if served.is_multiple_of(CPU_NOTE) {
                    self.note_cpu(index);
                }
                let spins = may_spin && !placement.is_bound();
                spin_until = if spins {
                    by_message.served_ns + SPIN_NS
                } else {
                    0
                };
            }
            self.note_serving(index, 0);
        }
    }

    /// Counts a fault that was served; the time.
    pub(crate) fn note_served(&self, kind: FaultKind, fault: Fault) -> u64 {
        let now = now_ns(Clock::Monotonic);
        self.stats().faults[kind as usize].record(now - fault.read_ns);
        self.count(Counter::FaultsServed, 1);
        self.count(Counter::Pgmajfault, usize::from(kind.is_major()));
        now
    }

    /// Puts a fault behind those that wait for a thread, if any do: their pages may
    /// need no frame.
    fn let_others_go_first(&self, fault: Fault) -> bool {
        let mut core = self.core.lock();
        let others = core.inbox.has_faults();
        if others {
            core.inbox.put_last(fault);
        }
        others
    }

    /// The next fault to serve: from those read already, or from the
    /// descriptor, waiting as long as it takes.
    fn next_fault(&self, placement: &mut Placement, spin_until: u64) -> Fault {
        let few = self.has_few_processors();
        let mut core = self.core.lock();
        loop {
            if let Some(fault) = core.inbox.take_fault() {
                // (Where processors are few a second thread would only be in the way of the
                // control thread, which serves faults as well: `idle_control`.)
                if core.inbox.has_faults() && (!few || self.zswap.is_backed()) {
                    core.inbox.note_crowd();
                }
                if core.inbox.wants_sibling() {
                    self.wakeups.wake_sibling();
                }
                let faulting = core.inbox.faulting();
                drop(core);
                if let Some(awake_for) = placement.follow(faulting) {
                    self.keep_awake(awake_for);
                }
                return fault;
            }
            if core.inbox.has_reader() && core.waits_for_quiet() {
                // Whoever reads may sleep for long: retry without it.
                drop(core);
                pause(RETRY_NS);
                core = self.core.lock();
                self.retry_if_quiet(&mut core);
                self.ask_for_deferred(&mut core);
                continue;
            }
            if core.inbox.has_reader() {
                core = self.sleep_as_sibling(core);
                continue;
            }
            core.inbox.set_reader(true);
            let retry = core.waits_for_quiet();
            // (Where processors are few, the threads that fault have not run since.)
            if retry || !few && !placement.is_bound() {
                self.pump_or_leave(&mut core);
            }
            if !core.inbox.has_faults() {
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
            if retry && !core.inbox.has_faults() {
                self.retry_if_quiet(&mut core);
                self.ask_for_deferred(&mut core);
            }
            core.inbox.set_reader(false);
        }
    }

    const fn has_few_processors(&self) -> bool {
        self.processors() <= FEW_PROCESSORS
    }

    fn sleep_as_sibling<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        core.inbox.note_asleep();
        let seq = self.wakeups.sibling_seq();
        drop(core);
        self.wakeups.sleep_as_sibling(seq);
        let mut core = self.core.lock();
        core.inbox.note_awake();
        core
    }
}
