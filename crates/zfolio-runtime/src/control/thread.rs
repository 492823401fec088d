//! The control thread: watches usage, reclaims ahead of need, follows forks,
//! compacts the pool and makes it denser, publishes statistics.

use crate::budget::pressure::{Relief, nap_ns};
use crate::control::Manager;
use crate::control::inspection::Inspection;
use crate::control::relief::Remembered;
use crate::error::Unstarted;
use crate::health::fatal::say_unmanaged;
use crate::segment::{Counter, THREADS, state};
use crate::upkeep::recompress::Situation;
use core::sync::atomic::Ordering;
use zfolio_sys::thread::{Clock, ask_for_low_latency, id, now_ns};

/// Sleep when reclaim found nothing to do about pressure, ns.
const STUCK_NS: u64 = 2_000_000;
/// Sleep between two parts of what comes back for an inspector, ns.
const COMES_NS: u64 = 50_000;
/// Usage that changed by no more pages between two looks is steady.
const STEADY: usize = 64;
/// Sleep between looks at regions for which there is a pool to compact, ns.
const REGION_NAP_NS: u64 = 200_000_000;

impl Manager {
    /// The control thread's life.
    pub(crate) fn control_thread(&self) -> ! {
        ask_for_low_latency();
        self.stats().process.threads[THREADS - 1].store(id(), Ordering::Relaxed);
        let mut worker = self.workers[0].lock();
        let mut memory = Remembered::default();
        let mut compacting = self.compacting.lock();
        let mut tier = self.tier.lock();
        let mut inspection = Inspection::default();
        loop {
            let wake_seq = self.wakeups.control_seq();
            self.control_goes_on();
            self.follow_forks(&mut worker);
            self.apply_parked(&mut self.core.lock());
            self.tend_engines();
            let usage = self.usage();
            self.make_huge_frame(usage);
            self.tend_backing();
            self.take_frames(usage);
            let comes_back = self.tend_inspection(&mut inspection, &mut worker);
            self.publish_before_reclaim(&mut memory, usage);
            let pressed = self.is_pressed(usage);
            self.wakeups.control_works();
            if pressed {
                self.scope.before_moving();
            }
            let relief = if pressed {
                self.relieve(&mut worker, &mut memory, &mut compacting)
            } else {
                Relief::Enough
            };
            self.adjust_overdraft(relief);
            self.look_at_max(usage, relief == Relief::Exhausted, &mut memory.over_max);
            self.tell_if_refused(relief);
            self.compact(&mut compacting, pressed);
            self.assemble_huge_pages();
            let situation = Situation {
                relief,
                pressed,
                returns: memory.turnover.returns(),
                wake_seq,
            };
            self.tend_tier(&mut tier, situation);
            let stuck = pressed && self.is_pressed(self.usage());
            self.count_huge_pages();
            self.publish(self.usage());
            memory.published_ns = now_ns(Clock::Monotonic);
            // While nothing changes, half of what is left up to `high` itself.
            let calm = usage == memory.usage && relief == Relief::Enough;
            let steady = usage.abs_diff(memory.usage) <= STEADY && relief == Relief::Enough;
            memory.usage = usage;
            let to_start = (self.watermarks().start + self.overdraft()).saturating_sub(usage);
            let to_high = if calm {
                self.watermarks().high.saturating_sub(usage) / 2
            } else {
                0
            };
            let nap = if comes_back {
                COMES_NS
            } else if stuck {
                STUCK_NS
            } else {
                let left = to_start.max(to_high).max(self.room_to_grow());
                nap_ns(left, steady && self.options.follows)
            };
            let nap = if self.scope.polls_usage() || stuck {
                Some(nap)
            } else {
                self.region_nap()
            };
            if !stuck && nap.is_some_and(|nap| self.stays_awake(&mut worker, wake_seq, nap)) {
                continue;
            }
            self.wakeups.control_stops();
            // (Who found no bell to ring, a moment ago.)
            if stuck || self.scope.polls_usage() || !self.is_pressed(self.usage()) {
                self.wakeups.control_sleep(wake_seq, nap);
            }
        }
    }

    /// How long to sleep between looks at regions: whoever takes frames rings.
    fn region_nap(&self) -> Option<u64> {
        (self.zswap.pool_pages() > 0).then_some(REGION_NAP_NS)
    }

    /// Takes the frames to keep at hand of the system, where there is room for them.
    fn take_frames(&self, usage: usize) {
        let free = self.arena().free_frames();
        if !self.has_room_for_frames(usage) || free >= self.watermarks().free_low {
            return;
        }
        let wanted = (self.watermarks().free_target - free).min(self.watermarks().window());
        if let Some(run) = self.arena().populate_run(wanted) {
            self.arena().give_frames(run, wanted);
            self.wakeups.frames_freed();
        }
    }

    /// A process of which nothing could be registered is not managed: that is
    /// told as of one that could not be started, unless something moves later.
    fn tell_if_refused(&self, relief: Relief) {
        let slot = self.stats();
        let moved = slot.counter(Counter::PagesOut).load(Ordering::Relaxed) > 0;
        let errno = self.last_unregistered();
        match slot.state.load(Ordering::Relaxed) {
            state::MANAGING if !moved && relief == Relief::Exhausted && errno.0 != 0 => {
                let what = "registering its memory with userfaultfd";
                say_unmanaged(slot, state::UNMANAGED, &Unstarted::Failed { what, errno });
            }
            state::UNMANAGED if moved => {
                slot.set_message("");
                slot.state.store(state::MANAGING, Ordering::Release);
            }
            _ => {}
        }
    }
}
