//! The control thread: watches usage, reclaims ahead of need, follows forks,
//! compacts the pool and makes it denser, publishes statistics.

use crate::address_space::extent::GROUP_PAGES;
use crate::faces::manager::{Manager, Worker};
use crate::faces::process::{Unstarted, say_unmanaged};
use crate::policy::codec_choice::Turnover;
use crate::segment::{Counter, THREADS, state};
use crate::swapout::clock_hand::{Reclaim, Step};
use crate::swapout::store::Stored;
use crate::upkeep::recompress::Situation;
use crate::upkeep::zspage_compaction::Compacting;
use core::sync::atomic::Ordering;
use zfolio_sys::lock::futex_wait;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, ask_for_low_latency, id, now_ns};

/// Longest and shortest sleep between looks at usage, ns.
const LONGEST_NS: u64 = 20_000_000;
const SHORTEST_NS: u64 = 500_000;
/// Sleep when reclaim found nothing to do about pressure, ns.
const STUCK_NS: u64 = 2_000_000;
/// Sleep between looks at regions for which there is a pool to compact, ns.
const REGION_NAP_NS: u64 = 200_000_000;
/// How fast a program is taken to be able to grow: pages a millisecond, 2 GB/s.
const PAGES_PER_MS: usize = 500;
/// Rounds of the hand without finding enough before standby is stored as it is.
const ROUNDS: u32 = 3;
/// Rounds besides, each of which has moved the clock on.
const MOST_ROUNDS: u32 = 8;
/// Ranges left behind for which the hand moves by one extent: a reader that goes
/// round must not keep what nobody reads in memory for ever.
const HAND_STEPS: u32 = 64;
/// Pages by which standby is filled up at a time, at most a quarter of it: they leave
/// together.
const TOGETHER: usize = 256;
/// Pages stored between two looks at usage: a read of /proc takes a third of what
/// it takes to compress a page.
const USAGE_PAGES: usize = 32;
/// What a turn counts for at least.
const PART_OF_USAGE: usize = 4;
/// Turns of reclaim between two looks at the statistics and the pool.
const PUBLISH_TURNS: u32 = 64;
/// How old the list of mappings may be while there is pressure, ns.
const VMAS_NS: u64 = 100_000_000;

/// How long to sleep when `headroom` pages are left to the next watermark.
#[must_use]
pub(crate) fn nap_ns(headroom: usize) -> u64 {
    (headroom as u64 * 1_000_000 / PAGES_PER_MS as u64).clamp(SHORTEST_NS, LONGEST_NS)
}

/// How reclaim ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relief {
    /// Usage and free frames are where they should be.
    Enough,
    /// A fork, an event in flight, a store refused.
    Later,
    /// The hand went round and found nothing that may move.
    Exhausted,
}

/// What the control thread remembers between rounds.
#[derive(Default)]
struct Memory {
    vmas_read_ns: u64,
    /// Address space, pages, when the mappings were last read.
    vmas_size: usize,
    /// Usage when it was last looked at, pages.
    usage: usize,
    /// Looks in a row at usage above `max`.
    over_max: u32,
    turnover: Turnover,
}

impl Manager {
    /// The control thread's life.
    pub(crate) fn control_thread(&self) -> ! {
        ask_for_low_latency();
        self.stats().threads[THREADS - 1].store(id(), Ordering::Relaxed);
        let mut worker = self.workers[0].lock();
        let mut memory = Memory::default();
        let mut compacting = self.compacting.lock();
        let mut tier = self.tier.lock();
        loop {
            let rung = self.control_wake.load(Ordering::Acquire);
            self.control_goes_on();
            self.follow_forks(&mut worker);
            self.settle(&mut self.core.lock());
            let usage = self.usage();
            self.make_huge_frame(usage);
            self.tend_backing();
            let pressed = self.is_pressed(usage);
            self.control_sleeps.store(0, Ordering::Relaxed);
            if pressed && let Some(regions) = self.regions() {
                (regions.before_moving)();
            }
            let relief = if pressed {
                self.relieve(&mut worker, &mut memory, &mut compacting)
            } else {
                Relief::Enough
            };
            self.adjust_room(relief);
            self.look_at_max(usage, relief == Relief::Exhausted, &mut memory.over_max);
            self.tell_if_refused(relief);
            self.compact(&mut compacting, pressed);
            let situation = Situation {
                relief,
                pressed,
                returns: memory.turnover.returns(),
                rung,
            };
            self.tend_tier(&mut tier, situation);
            let stuck = pressed && self.is_pressed(self.usage());
            self.count_huge_pages();
            self.publish(self.usage());
            // While nothing changes, half of what is left up to `high` itself.
            let calm = usage == memory.usage && relief == Relief::Enough;
            memory.usage = usage;
            let to_start = (self.watermarks().start + self.room()).saturating_sub(usage);
            let to_high = if calm {
                self.watermarks().high.saturating_sub(usage) / 2
            } else {
                0
            };
            let nap = if stuck {
                STUCK_NS
            } else {
                nap_ns(to_start.max(to_high))
            };
            let nap = if self.scope.is_process() || stuck {
                Some(nap)
            } else {
                self.region_nap()
            };
            if !stuck && nap.is_some_and(|nap| self.stays_warm(&mut worker, rung, nap)) {
                continue;
            }
            self.control_sleeps.store(1, Ordering::SeqCst);
            // (Who found no bell to ring, a moment ago.)
            if stuck || self.scope.is_process() || !self.is_pressed(self.usage()) {
                futex_wait(&self.control_wake, rung, nap);
            }
        }
    }

    fn is_pressed(&self, usage: usize) -> bool {
        if usage > self.watermarks().start + self.room() {
            return true;
        }
        // (Regions take frames from the system as long as there is memory.)
        let short = self.scope.is_process() || usage > self.watermarks().stop + self.room();
        short && self.arena().free_frames() < self.watermarks().free_low
    }

    /// How long to sleep between looks at regions: whoever takes frames rings.
    fn region_nap(&self) -> Option<u64> {
        (self.zswap.pool_pages() > 0).then_some(REGION_NAP_NS)
    }

    /// Rings for the control thread if regions with `usage` have work for it.
    pub(crate) fn wake_control_at(&self, usage: usize) {
        if self.control_sleeps.load(Ordering::Relaxed) != 0 && self.is_pressed(usage) {
            self.wake_control();
        }
    }

    /// Lets usage grow while faults wait and there is nothing to move out: what
    /// is left is the pool, and pages that may not move. Taken back, slowly,
    /// once reclaim finds enough again.
    fn adjust_room(&self, relief: Relief) {
        let room = self.room.load(Ordering::Relaxed);
        let room = match relief {
            Relief::Exhausted if self.frame_waiters.load(Ordering::Acquire) > 0 => {
                self.frames_freed();
                self.room_within_max(room + self.watermarks().free_low)
            }
            Relief::Enough => room - room.div_ceil(64),
            Relief::Exhausted | Relief::Later => room,
        };
        self.room.store(room, Ordering::Relaxed);
    }

    /// A process of which nothing could be registered is not managed: that is
    /// told as of one that could not be started, unless something moves later.
    fn tell_if_refused(&self, relief: Relief) {
        let slot = self.stats();
        let moved = slot.counter(Counter::PagesOut).load(Ordering::Relaxed) > 0;
        let errno = Errno(self.refused.load(Ordering::Relaxed));
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

    /// Moves out, stores and releases until usage and free frames are where
    /// they should be, or nothing more can be done now.
    ///
    /// What sequential readers left behind goes first, and if that makes do
    /// the hand does not move: they will leave as much again.
    fn relieve(
        &self,
        worker: &mut Worker,
        memory: &mut Memory,
        compacting: &mut Compacting,
    ) -> Relief {
        let mut reclaim = self.reclaim.lock();
        self.arena().keep_at_most(self.watermarks().kept_for_pool());
        // Under way at all, usage is brought down to `stop`; but reclaim that
        // only wants frames leaves it where it is.
        let before = self.usage();
        self.count_what_stays(&mut reclaim, before);
        let mark = if before > self.watermarks().start + self.room() {
            self.watermarks().stop
        } else {
            self.watermarks().start
        } + self.room();
        let (mut took_behind, mut took_clean) = (false, false);
        let (mut usage, mut stored) = (0, USAGE_PAGES);
        for turn in 1.. {
            self.control_goes_on();
            if stored >= USAGE_PAGES {
                usage = self.usage();
                stored = 0;
            }
            self.make_huge_frame(usage);
            self.look_at_mappings(&mut reclaim, memory);
            self.choose_density(memory);
            if self.zswap.wants_shrinking() {
                self.write_back(worker);
            }
            let over = usage.saturating_sub(mark);
            let free = self.arena().free_frames();
            let surplus = free.saturating_sub(self.frames_to_keep(usage));
            if usage > self.watermarks().limit + self.room() {
                self.give_up_huge_frame();
            }
            if over > 0 && surplus > 0 {
                self.arena().release(over.min(surplus));
                stored = USAGE_PAGES;
                continue;
            }
            if over == 0 && surplus > 0 {
                return Relief::Enough;
            }
            if self.is_called_away() {
                return Relief::Later;
            }
            self.pay_back();
            if self.behind_steps.load(Ordering::Relaxed) >= HAND_STEPS {
                self.behind_steps.store(0, Ordering::Relaxed);
                self.step_hand(&mut reclaim);
                let _ = self.move_gathered(&mut reclaim);
            }
            if self.reclaim_clean(mark) {
                took_clean = true;
                stored = USAGE_PAGES;
                continue;
            }
            if took_clean && over == 0 {
                return Relief::Enough;
            }
            let progress = match self.step_behind(true) {
                Some(step) => {
                    took_behind = true;
                    self.store_moved(worker, step)
                }
                None if took_behind && over == 0 && free >= self.watermarks().free_low => {
                    return Relief::Enough;
                }
                None => self.advance(worker, &mut reclaim, memory),
            };
            if let Err(relief) = progress {
                return relief;
            }
            stored += worker.frames.len().max(PART_OF_USAGE);
            if turn % PUBLISH_TURNS == 0 {
                self.publish(usage);
                // As long as there is more to do than can be done it is not left, and a
                // pool full of holes is part of what there is to do.
                self.compact(compacting, true);
            }
        }
        Relief::Later
    }

    /// Above the limit memory goes back to the system before faults get any:
    /// frames that they take keep usage where it is.
    pub(crate) fn frames_to_keep(&self, usage: usize) -> usize {
        if usage > self.watermarks().limit + self.room() {
            self.watermarks().free_reserve
        } else {
            self.watermarks().free_target
        }
    }

    /// Stores what was just moved to the cold end.
    pub(crate) fn store_moved(&self, worker: &mut Worker, step: Step) -> Result<(), Relief> {
        let Step::Moved(pages) = step else {
            return Err(Relief::Later);
        };
        let mut folios = 0..pages.div_ceil(GROUP_PAGES);
        if folios.all(|_| self.store_coldest(worker, 1) != Stored::Later) {
            Ok(())
        } else {
            Err(Relief::Later)
        }
    }

    /// Fills standby by moving the hand, and stores the coldest once it is
    /// full, or once the hand finds nothing more.
    fn advance(
        &self,
        worker: &mut Worker,
        reclaim: &mut Reclaim,
        memory: &mut Memory,
    ) -> Result<(), Relief> {
        let full = self.watermarks().standby(self.zswap.pool_pages());
        let few = full - TOGETHER.min(full / 4);
        let standby = self.core.lock().standby.pages;
        let moved_any = standby < few && self.fill_standby(reclaim, memory, full)?;
        match self.store_coldest(worker, self.batch_pages()) {
            Stored::Pages(_) => Ok(()),
            Stored::Nothing if moved_any || self.shrink_pool(worker) => Ok(()),
            Stored::Nothing => Err(Relief::Exhausted),
            Stored::Later => Err(Relief::Later),
        }
    }

    /// Moves the hand until `full` pages are in standby, or it finds no more, or
    /// faults wait; whether any page was moved out.
    fn fill_standby(
        &self,
        reclaim: &mut Reclaim,
        memory: &mut Memory,
        full: usize,
    ) -> Result<bool, Relief> {
        let later = |_: Errno| Relief::Later;
        let (mut rounds, mut all_rounds) = (0, 0);
        let mut moved_any = false;
        while rounds < ROUNDS {
            let pages = self.core.lock().standby.pages;
            if pages >= full {
                break;
            }
            if pages + reclaim.gathered() >= full {
                moved_any |= self.move_gathered(reclaim).map_err(later)? > 0;
                continue;
            }
            match self.step_hand(reclaim) {
                Step::Moved(pages) => {
                    moved_any |= pages > 0;
                    let some = moved_any || reclaim.gathered() > 0;
                    if some && self.arena().free_frames() < self.watermarks().free_reserve {
                        break; // faults wait
                    }
                }
                Step::Round => {
                    all_rounds += 1;
                    let mut core = self.core.lock();
                    let spared = core::mem::take(&mut core.spared);
                    match spared {
                        // (The first may have been the end of one.)
                        Some(_) if all_rounds == 1 => {}
                        Some(ticks) if all_rounds <= MOST_ROUNDS => core.clock.hurry(ticks),
                        _ => rounds += 1,
                    }
                    drop(core);
                    self.look_at_mappings(reclaim, memory);
                }
                Step::Later => {
                    self.ask_for_quiet();
                    self.await_quiet_moment();
                    return Err(Relief::Later);
                }
            }
        }
        moved_any |= self.move_gathered(reclaim).map_err(later)? > 0;
        Ok(moved_any)
    }

    /// See [`Turnover::choose_density`].
    fn choose_density(&self, memory: &mut Memory) {
        let pool = self.zswap.pool_pages();
        let turnover = &mut memory.turnover;
        turnover.choose_density(self.stats(), &self.watermarks(), pool, &self.density);
    }

    /// A fork asks for quiet.
    pub(crate) fn is_called_away(&self) -> bool {
        let mut core = self.core.lock();
        core.raw_fork || !self.opens(&mut core) || self.fork_asked()
    }

    /// Reads the mappings if they changed or the list is old, and registers
    /// them, so that what the program touches first comes to us and waits its
    /// turn.
    fn look_at_mappings(&self, reclaim: &mut Reclaim, memory: &mut Memory) {
        if let Some(regions) = self.regions() {
            let generation = regions.generation.load(Ordering::Acquire) as usize;
            if generation != memory.vmas_size {
                memory.vmas_size = generation;
                Self::region_list(&self.core.lock(), reclaim.vmas.list_mut());
            }
            return;
        }
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
