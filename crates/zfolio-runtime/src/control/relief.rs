//! Relief: pages are moved out, stored and released until usage is where it should be.

use crate::budget::pressure::Relief;
use crate::control::Manager;
use crate::policy::codec_choice::Turnover;
use crate::swapout::store::Stored;
use crate::swapout::{clock_hand::HandStep, hand::ClockHand};
use crate::transfer::worker::Worker;
use crate::upkeep::zspage_compaction::Compacting;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Clock, now_ns};

/// Rounds of the hand without finding enough before standby is stored as it is.
const ROUNDS: u32 = 3;

/// Further rounds, before each of which the refault clock is advanced.
const MOST_ROUNDS: u32 = 8;

/// For so many ranges that readers have passed the hand moves one extent: else a reader that goes
/// round and round would keep memory that nobody reads from leaving.
const HAND_STEPS: u32 = 64;

/// Pages by which standby is filled up at a time, at most a quarter of it: they leave
/// together.
const TOGETHER: usize = 256;

/// Pages stored between two looks at usage: a read of /proc takes a third of what
/// it takes to compress a page.
const USAGE_PAGES: usize = 32;

/// Pages that a turn of reclaim counts for at least, on the way to the next look at usage.
const PART_OF_USAGE: usize = 4;

/// Between two times that reclaim says what the process has and learns what it may have, and
/// looks at the pool, ns: well within the time after which others take its part.
const PUBLISH_NS: u64 = 20_000_000;
/// At a mark it does so before it moves anything, unless it did so a moment ago, ns.
const FRESH_NS: u64 = 1_000_000;

/// How old the list of mappings may be while there is pressure, ns.
const VMAS_NS: u64 = 100_000_000;
/// How many times as long as it took to read the list, and to register what is in it, it is used: while
/// the address space grows or shrinks, and else.
const TIMES_IF_CHANGED: u64 = 4;
const TIMES: u64 = 16;

/// What the control thread remembers between rounds.
#[derive(Default)]
pub(crate) struct Remembered {
    pub(super) vmas_read_ns: u64,
    /// How long that took.
    vmas_took_ns: u64,
    /// Address space, pages, when the mappings were last read.
    pub(super) vmas_size: usize,
    /// Usage when it was last looked at, pages.
    pub(super) usage: usize,
    /// Looks in a row at usage above `max`.
    pub(super) over_max: u32,
    /// When what the process has was last said, ns.
    pub(super) published_ns: u64,
    pub(super) turnover: Turnover,
}

impl Remembered {
    /// Whether what the process has is to be said `now`, where it is said every `every` ns: then it is.
    pub(super) const fn is_due(&mut self, now: u64, every: u64) -> bool {
        let is_due = now.saturating_sub(self.published_ns) >= every;
        if is_due {
            self.published_ns = now;
        }
        is_due
    }
}

impl Manager {
    /// Moves out, stores and releases until usage and free frames are where
    /// they should be, or nothing more can be done now.
    ///
    /// What sequential readers left behind goes first, and if that makes do
    /// the hand does not move: they will leave as much again.
    pub(crate) fn relieve(
        &self,
        worker: &mut Worker,
        memory: &mut Remembered,
        compacting: &mut Compacting,
    ) -> Relief {
        let mut hand = self.hand.lock();
        hand.wake();
        self.arena().keep_at_most(self.watermarks().kept_for_pool());
        // Under way at all, usage is brought down to `stop`; but reclaim that
        // only wants frames leaves it where it is.
        let before = self.usage();
        self.count_what_stays(&mut hand, before);
        let is_over = before > self.watermarks().start + self.overdraft();
        let mut mark = self.mark(is_over);
        let (mut took_passed, mut took_clean) = (false, false);
        let (mut usage, mut stored) = (0, USAGE_PAGES);
        loop {
            self.control_goes_on();
            if memory.is_due(now_ns(Clock::Monotonic), PUBLISH_NS) {
                usage = self.usage();
                stored = 0;
                self.publish(usage);
                // (What it may have is another now.)
                mark = self.mark(is_over);
                // As long as there is more to do than can be done it is not left, and a
                // pool full of holes is part of what there is to do.
                self.compact(compacting, true);
            }
            if stored >= USAGE_PAGES {
                usage = self.usage();
                stored = 0;
            }
            self.make_huge_frame(usage);
            self.look_at_mappings(&mut hand, memory);
            self.choose_density(memory);
            if self.zswap.is_backed() && self.zswap.wants_shrinking() {
                self.write_back(worker);
            }
            let over = usage.saturating_sub(mark);
            let free = self.arena().free_frames();
            let surplus = free.saturating_sub(self.frames_to_keep(usage));
            if usage > self.watermarks().limit + self.overdraft() {
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
            // (`high` has risen meanwhile, to above what the program needs.)
            if self.has_room_for_frames(usage) {
                return Relief::Enough;
            }
            if self.should_yield() {
                return Relief::Later;
            }
            self.return_borrowed();
            if self.has_passed(HAND_STEPS) {
                self.step_hand(&mut hand);
                let _ = self.move_gathered(&mut hand);
            }
            if self.reclaim_clean(mark) {
                took_clean = true;
                stored = USAGE_PAGES;
                continue;
            }
            if took_clean && over == 0 {
                return Relief::Enough;
            }
            let progress = match self.reclaim_passed(true) {
                Some(step) => {
                    took_passed = true;
                    self.store_moved(worker, step)
                }
                None if took_passed && over == 0 && free >= self.watermarks().free_low => {
                    return Relief::Enough;
                }
                None => self.advance(worker, &mut hand, memory),
            };
            if let Err(relief) = progress {
                return relief;
            }
            stored += worker.frames.len().max(PART_OF_USAGE);
        }
    }

    /// Where usage is to be brought to: `is_over`, if it was above `start`.
    fn mark(&self, is_over: bool) -> usize {
        let marks = self.watermarks();
        let mark = if is_over { marks.stop } else { marks.start };
        mark + self.overdraft()
    }

    /// Before reclaim begins: says what the process has, and learns what it may have by now.
    pub(crate) fn publish_before_reclaim(&self, memory: &mut Remembered, usage: usize) {
        if usage > self.watermarks().start && memory.is_due(now_ns(Clock::Monotonic), FRESH_NS) {
            self.publish(usage);
        }
    }

    /// Fills standby by moving the hand, and stores the coldest once it is
    /// full, or once the hand finds nothing more.
    fn advance(
        &self,
        worker: &mut Worker,
        hand: &mut ClockHand,
        memory: &mut Remembered,
    ) -> Result<(), Relief> {
        let full = self.watermarks().standby(self.zswap.pool_pages());
        let few = full - TOGETHER.min(full / 4);
        let standby = self.core.lock().pages.standby.pages();
        let moved_any = standby < few && self.fill_standby(hand, memory, full)?;
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
        hand: &mut ClockHand,
        memory: &mut Remembered,
        full: usize,
    ) -> Result<bool, Relief> {
        let later = |_: Errno| Relief::Later;
        let (mut rounds, mut all_rounds) = (0, 0);
        let mut moved_any = false;
        while rounds < ROUNDS {
            let pages = self.core.lock().pages.standby.pages();
            if pages >= full {
                break;
            }
            if pages + hand.gathered() >= full {
                moved_any |= self.move_gathered(hand).map_err(later)? > 0;
                continue;
            }
            match self.step_hand(hand) {
                HandStep::Moved(pages) => {
                    moved_any |= pages > 0;
                    let some = moved_any || hand.gathered() > 0;
                    if some && self.arena().free_frames() < self.watermarks().free_reserve {
                        break; // faults wait
                    }
                }
                HandStep::Round => {
                    all_rounds += 1;
                    let mut core = self.core.lock();
                    let spared = core.history.take_spared();
                    match spared {
                        // (The first may have been the end of one.)
                        Some(_) if all_rounds == 1 => {}
                        Some(ticks) if all_rounds <= MOST_ROUNDS => {
                            core.history.advance_clock(ticks)
                        }
                        _ => rounds += 1,
                    }
                    drop(core);
                    self.look_at_mappings(hand, memory);
                }
                HandStep::Later => {
                    self.ask_for_quiet();
                    self.await_quiet_moment();
                    return Err(Relief::Later);
                }
            }
        }
        moved_any |= self.move_gathered(hand).map_err(later)? > 0;
        Ok(moved_any)
    }

    /// See [`Turnover::choose_density`].
    fn choose_density(&self, memory: &mut Remembered) {
        let pool = self.zswap.pool_pages();
        let turnover = &mut memory.turnover;
        let least = turnover.least_form(self.options.follows, self.options.tier);
        let marks = self.watermarks();
        turnover.choose_density(self.stats(), least, &marks, pool, &self.density);
    }

    /// Reads the mappings if they changed or the list is old, and registers
    /// them, so that what the program touches first comes to us and waits its
    /// turn.
    fn look_at_mappings(&self, hand: &mut ClockHand, memory: &mut Remembered) {
        if let Some(generation) = self.scope.generation() {
            let generation = generation as usize;
            if generation != memory.vmas_size {
                memory.vmas_size = generation;
                self.core.lock().pages.list_registered(hand.vmas.list_mut());
            }
            return;
        }
        let now = now_ns(Clock::Monotonic);
        let size = self.address_space();
        let (took, age) = (memory.vmas_took_ns, now - memory.vmas_read_ns);
        let changed = size != memory.vmas_size && age > TIMES_IF_CHANGED * took;
        if changed || age > VMAS_NS.max(TIMES * took) {
            if hand.vmas.refresh().is_err() {
                return;
            }
            memory.vmas_size = size;
            memory.vmas_read_ns = now;
            self.register_all(hand);
            memory.vmas_took_ns = now_ns(Clock::Monotonic) - now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A turn takes 2 microseconds or, with large folios and a slow codec, 50 milliseconds.
    #[test]
    fn what_the_process_has_is_said_by_time_however_long_a_turn_takes() {
        for turn_ns in [2_000, 50_000_000] {
            let (mut memory, mut now, mut longest, mut times) = (Remembered::default(), 0, 0, 0);
            while now < 1_000_000_000 {
                now += turn_ns;
                let last = memory.published_ns;
                if memory.is_due(now, PUBLISH_NS) {
                    longest = longest.max(now - last);
                    times += 1;
                }
            }
            assert!(longest <= PUBLISH_NS + turn_ns, "{longest}");
            assert!((20..=50).contains(&times), "{times}");
        }
    }
}
