//! The control thread: watches usage, reclaims ahead of need, follows forks,
//! publishes statistics.

use crate::manager::{Manager, Worker};
use crate::reclaim::{Reclaim, Step};
use crate::store::Stored;
use core::sync::atomic::Ordering;
use zfolio_sys::lock::futex_wait;
use zfolio_sys::thread::{Clock, ask_for_low_latency, now_ns};

/// Longest and shortest sleep between looks at usage, ns.
const LONGEST_NS: u64 = 20_000_000;
const SHORTEST_NS: u64 = 500_000;
/// Sleep when reclaim found nothing to do about pressure, ns.
const STUCK_NS: u64 = 2_000_000;
/// How fast a program is taken to be able to grow: pages a millisecond, 2 GB/s.
const PAGES_PER_MS: usize = 500;
/// How old the list of mappings may be while there is pressure, ns.
const VMAS_NS: u64 = 100_000_000;

/// How long to sleep when `headroom` pages are left to the next watermark.
#[must_use]
pub(crate) fn nap_ns(headroom: usize) -> u64 {
    (headroom as u64 * 1_000_000 / PAGES_PER_MS as u64).clamp(SHORTEST_NS, LONGEST_NS)
}

/// What the control thread remembers between rounds.
#[derive(Default)]
struct Memory {
    vmas_read_ns: u64,
    /// Address space, pages, when the mappings were last read.
    vmas_size: usize,
}

impl Manager {
    /// The control thread's life.
    pub(crate) fn control_thread(&self) -> ! {
        ask_for_low_latency();
        let mut worker = self.workers[0].lock();
        let mut memory = Memory::default();
        loop {
            let rung = self.control_wake.load(Ordering::Acquire);
            self.follow_forks(&mut worker);
            let usage = self.usage();
            let pressed = self.is_pressed(usage);
            if pressed {
                self.relieve(&mut worker, &mut memory);
            }
            let stuck = pressed && self.is_pressed(self.usage());
            self.publish(self.usage());
            let headroom = self.watermarks.start.saturating_sub(usage);
            let nap = if stuck { STUCK_NS } else { nap_ns(headroom) };
            futex_wait(&self.control_wake, rung, Some(nap));
        }
    }

    fn is_pressed(&self, usage: usize) -> bool {
        usage > self.watermarks.start || self.arena().free_frames() < self.watermarks.free_low
    }

    /// Moves out, stores and releases until usage and free frames are where
    /// they should be, or nothing more can be done now.
    fn relieve(&self, worker: &mut Worker, memory: &mut Memory) {
        let mut reclaim = self.reclaim.lock();
        self.look_at_mappings(&mut reclaim, memory);
        let mut rounds = 0;
        loop {
            let usage = self.usage();
            self.look_at_mappings(&mut reclaim, memory);
            self.choose_density();
            let over = usage.saturating_sub(self.watermarks.stop);
            let free = self.arena().free_frames();
            // Above the limit memory goes back to the system before faults get
            // any: frames they take keep usage where it is.
            let keep = if usage > self.watermarks.limit {
                self.watermarks.free_reserve
            } else {
                self.watermarks.free_target
            };
            let surplus = free.saturating_sub(keep);
            if over > 0 && surplus > 0 {
                self.arena().release(over.min(surplus));
                continue;
            }
            if over == 0 && surplus > 0 || self.is_called_away() {
                return;
            }
            let mut moved_nothing = false;
            if let Some(step) = self.step_behind() {
                if step == Step::Later {
                    return;
                }
            } else if self.core.lock().standby.pages < self.watermarks.standby {
                match self.step_hand(&mut reclaim) {
                    Step::Moved(0) => continue,
                    Step::Moved(_) => {
                        // Standby fills up before anything is stored.
                        if self.core.lock().standby.pages < self.watermarks.standby
                            && over < self.watermarks.standby
                        {
                            continue;
                        }
                    }
                    Step::Round => {
                        rounds += 1;
                        self.look_at_mappings(&mut reclaim, memory);
                        if rounds < 3 {
                            continue;
                        }
                        moved_nothing = true;
                    }
                    Step::Later => return,
                }
            }
            match self.store_coldest(worker) {
                Stored::Pages(_) => {}
                Stored::Nothing if moved_nothing => return,
                Stored::Nothing => {}
                Stored::Later => return,
            }
            self.publish(usage);
        }
    }

    /// Room or time: decided by how much of `high` the pool has taken.
    fn choose_density(&self) {
        let pool = self.zswap.pool_pages();
        if pool > self.watermarks.dense_on {
            self.density.set(true);
        } else if pool < self.watermarks.dense_off {
            self.density.set(false);
        }
    }

    /// A fork asks for quiet.
    fn is_called_away(&self) -> bool {
        let core = self.core.lock();
        core.raw_fork || !core.is_open() || self.fork_asked()
    }

    /// Reads the mappings if they changed or the list is old, and registers
    /// them, so that what the program touches first comes to us and waits its
    /// turn.
    fn look_at_mappings(&self, reclaim: &mut Reclaim, memory: &mut Memory) {
        let now = now_ns(Clock::Monotonic);
        let size = self.address_space();
        if size != memory.vmas_size || now - memory.vmas_read_ns > VMAS_NS {
            if reclaim.vmas.refresh().is_err() {
                return;
            }
            memory.vmas_size = size;
            memory.vmas_read_ns = now;
            self.register_all(reclaim);
        }
    }
}
