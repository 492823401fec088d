//! The control thread stays awake although there is nothing to reclaim: for which threads, and why,
//! is [`thread_placement`](super::thread_placement)'s.
//!
//! An idle processor takes long to wake; this keeps it from falling asleep. Where several threads fault,
//! the control thread serves some of their faults meanwhile. It does neither
//!
//! - where there is one processor only: it would be in the program's way;
//! - where pages may have to be read from a backing: reclaim would wait for that.
//!
//! For a single thread that faults it serves none: two threads of ours would race for each message
//! (`docs/peers.md` has the figures).

use crate::page_fault::Fault;
use crate::segment::{Counter, FaultKind};
use crate::serve_loop::{Ended, Next, Teller, serve_fault};
use crate::swapout::Swap;
use crate::transfer::worker::Worker;
use crate::wakeups::AwakeFor;
use zfolio_sys::thread::{Clock, now_ns, yield_now};

/// How long it stays awake after a thread has strayed, ns: the load that the
/// scheduler goes by is of some 30 ms.
const AWAKE_NS: u64 = 20_000_000;
/// A yield that takes longer has let somebody else run, ns.
const OTHERS_NS: u64 = 3_000;
/// Others who run for longer, and for half of the time, keep the processor awake, ns.
const ENOUGH_NS: u64 = 500_000;
/// Turns of a spin between two looks for work.
const SPINS: u32 = 100;

/// A message told, and the control thread has nothing else to do: what cannot be served at
/// once is left to the fault threads.
struct WhileIdle;

impl Teller<Swap> for WhileIdle {
    fn served(&mut self, pager: &Swap, kind: FaultKind, fault: Fault) {
        pager.note_served(kind, fault);
        pager.count(Counter::ControlFaults, 1);
    }

    fn put_off(&mut self, pager: &Swap, fault: Fault, _: u32) -> Next {
        pager.core.lock().inbox.put_off(fault);
        Next::Left
    }

    fn short(&mut self, pager: &Swap, _: &mut Worker, fault: &mut Fault) -> Next {
        pager.core.lock().inbox.put_first(*fault);
        Next::Left
    }
}

impl Swap {
    /// Has the control thread stay awake for a moment.
    pub(crate) fn keep_awake(&self, awake_for: AwakeFor) {
        let until = now_ns(Clock::Monotonic) + AWAKE_NS;
        let apart = self.processors() > 1;
        let helps = awake_for == AwakeFor::Several && apart && !self.zswap.is_backed();
        self.wakeups.stay_awake(until, helps);
        if self.wakeups.control_sleeps() {
            self.wakeups.wake_control();
        }
    }

    /// Stays awake instead of a nap, if that is asked for, until there is something
    /// to do; whether it did.
    pub(crate) fn stays_awake(&self, worker: &mut Worker, wake_seq: u32, nap: u64) -> bool {
        let begin = now_ns(Clock::Monotonic);
        let until = self.wakeups.awake_until_ns().min(begin + nap);
        let idle = || {
            !self.wakeups.is_control_called(wake_seq)
                && self.arena().free_frames() >= self.watermarks().free_low
        };
        let (mut now, mut others) = (begin, 0);
        while now < until && idle() {
            self.return_borrowed();
            if self.wakeups.awake_helps() {
                if self.help(worker) {
                    now = now_ns(Clock::Monotonic);
                    continue;
                }
            } else {
                (0..SPINS).for_each(|_| core::hint::spin_loop());
            }
            let yielded = now_ns(Clock::Monotonic);
            // (Whoever else wants the processor has it: it is not idle then.)
            yield_now();
            now = now_ns(Clock::Monotonic);
            if now - yielded > OTHERS_NS {
                others += now - yielded;
            }
            if others > ENOUGH_NS.max((now - begin) / 2) {
                self.wakeups.stop_staying_awake();
                break;
            }
        }
        begin < until
    }

    /// Serves a fault that nobody has taken yet, if there is one; whether it did.
    ///
    /// One is read at a time: who waits on the descriptor does not learn of what others
    /// read. So if it cannot be served now a sibling of that thread is woken for it.
    fn help(&self, worker: &mut Worker) -> bool {
        // (Those that are to wait do so in a fault thread.)
        if self.swap_penalty_ns() > 0 {
            return false;
        }
        let Some(mut core) = self.core.try_lock() else {
            return false;
        };
        if !core.inbox.has_faults() {
            self.pump_one(&mut core);
        }
        let Some(fault) = core.inbox.take_fault() else {
            return false;
        };
        drop(core);
        if serve_fault(self, &mut WhileIdle, worker, fault) == Ended::Served {
            return true;
        }
        self.wakeups.wake_sibling();
        false
    }
}
