//! Out: groups are closed, stand by, and are compressed; and the thread that
//! does it ahead of need.

use super::groups::{End, HOTTEST, State};
use super::open::{OPENING_NS, OPENINGS};
use super::{GroupCore, GroupWorker, LocatedGroup, MOST_PAGES, Protected};
use crate::address_space::place::Place;
use crate::policy::codec_choice::Turnover;
use crate::segment::Counter;
use crate::upkeep::class_table;
use crate::upkeep::statistics::publish_pool;
use crate::upkeep::zspage_compaction::{PRESSED_NS, TURN_NS, Zspages};
use core::sync::atomic::Ordering;
use zfolio_compress::adaptive::Form;
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_sys::closable::Aside;
use zfolio_sys::lock::{futex_wait, pause};
use zfolio_sys::thread::{Clock, ask_for_low_latency, now_ns};
use zfolio_zswap::{Slot, StoreError, WorkContext};

/// Sleep while there is more in use than there should be and nothing can be
/// done, ns.
const STUCK_NS: u64 = 2_000_000;
/// Sleep between looks at a pool, which may be worth compacting, ns.
const NAP_NS: u64 = 200_000_000;
/// Groups of which the kernel holds a page, after which there is nothing more to be stored
/// for now.
const MOST_HELD: u32 = 64;
/// Pages stored after which it is asked what that has brought ...
const TRIAL: usize = 256;
/// ... and of which one part in so many has to become free.
const GAIN: usize = 16;

/// What a step came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CloseStep {
    /// This one, into so many bytes.
    Stored { pages: usize, bytes: usize },
    /// Somebody wanted the group that was chosen.
    Wanted,
    /// The kernel holds a page of it, for a device say: it is open again.
    Held,
    /// There is nothing that may go, or the pool takes nothing.
    Nothing,
}

/// What became of a group that was to be stored.
enum Sent<'a> {
    /// It is in the pool, in so many bytes, and its memory is given up.
    Gone(usize),
    Stays(Stays<'a>),
}

/// Where a group is that stays.
enum Stays<'a> {
    /// Nothing has happened to it.
    InPlace,
    /// Its pages are aside; and whether that is so because somebody holds one.
    Aside(Aside<'a>, bool),
}

impl Protected {
    /// What is out but for the storing, pages, before the coldest is stored.
    fn standby_target(&self, core: &GroupCore) -> usize {
        let pool = self.zswap.arena().backed_pages();
        self.watermarks().standby(pool).max(core.table.unit_pages())
    }

    pub(super) fn is_pressed(&self, core: &GroupCore) -> bool {
        self.usage(core) > self.watermarks().start + self.overdraft()
            || core.table.standby_pages() > self.standby_target(core)
    }

    /// Notes that a group was closed, its bytes where they are.
    pub(super) fn stand_by(&self, core: &mut GroupCore, place: &LocatedGroup, end: End) {
        core.table
            .set(place.group, place.pages(), State::Standby, end);
        self.count(Counter::PagesOut, place.pages());
    }

    /// Closes what has been open for longest until enough stands by.
    fn fill_standby(&self, core: &mut GroupCore) {
        let target = self.standby_target(core);
        // (Whoever is hot is cold after that many turns.)
        let turns = core.table.open_groups() * (usize::from(HOTTEST) + 2);
        for _ in 0..turns {
            if core.table.standby_pages() >= target {
                return;
            }
            let Some(group) = core.table.oldest_open() else {
                return;
            };
            let Some(place) = core.place_of(group) else {
                continue;
            };
            let spared = core.pins.overlaps(&place.range) || core.table.cool(group);
            if spared || self.close(core, &place).is_err() {
                let (pages, end) = (place.pages(), End::Hot);
                core.table.set(group, pages, State::Open, end);
            } else {
                self.stand_by(core, &place, End::Hot);
            }
        }
    }

    /// Stores the coldest group.
    fn step(&self, worker: &mut GroupWorker) -> CloseStep {
        let place = {
            let mut core = self.core.lock();
            self.fill_standby(&mut core);
            let Some(place) = self.coldest(&mut core) else {
                return CloseStep::Nothing;
            };
            let (pages, end) = (place.pages(), End::Hot);
            core.table.set(place.group, pages, State::Storing, end);
            place
        };
        let mut slots = [Slot::ZERO; MOST_PAGES];
        let slots = &mut slots[..place.pages()];
        match self.send_out(worker, &place, slots) {
            Sent::Gone(bytes) => {
                let mut core = self.core.lock();
                let first = place.range.start / PAGE_SIZE;
                for (index, slot) in slots.iter().enumerate() {
                    if *slot != Slot::ZERO {
                        core.extents.set(first + index, Place::Stored(*slot));
                    }
                }
                core.table.close(place.group);
                self.done();
                CloseStep::Stored {
                    pages: place.pages(),
                    bytes,
                }
            }
            Sent::Stays(stays) => {
                self.zswap.invalidate(slots);
                self.keep(&place, stays)
            }
        }
    }

    /// Takes the pages of a group that is being stored aside, puts them into the pool, and gives
    /// up their memory, unless somebody wants the group, or holds one of them.
    fn send_out<'a>(
        &self,
        worker: &mut GroupWorker,
        place: &'a LocatedGroup,
        slots: &mut [Slot],
    ) -> Sent<'a> {
        let Ok(mut aside) = place.memory.take(&place.range) else {
            return Sent::Stays(Stays::InPlace);
        };
        if aside.unlock().is_err() {
            return Sent::Stays(Stays::Aside(aside, false));
        }
        let GroupWorker { context, copy } = worker;
        let copy = &mut copy[..place.range.len()];
        let still = aside.hold_still(copy);
        let stored = still.then(|| self.store(context, place, copy, slots));
        let mut held = !still;
        let mut aside = match stored.flatten() {
            Some(bytes) if !self.is_wanted(place) => match aside.let_go() {
                Ok(()) => return Sent::Gone(bytes),
                Err(aside) => {
                    held = true;
                    aside
                }
            },
            _ => aside,
        };
        aside.mend(copy);
        if held {
            self.count(Counter::Unmovable, place.pages());
        }
        Sent::Stays(Stays::Aside(aside, held))
    }

    fn is_wanted(&self, place: &LocatedGroup) -> bool {
        self.core.lock().table.is_wanted(place.group)
    }

    /// Ends the storing of a group that stays: open if it is wanted, or held by the kernel.
    fn keep(&self, place: &LocatedGroup, stays: Stays<'_>) -> CloseStep {
        let (group, pages) = (place.group, place.pages());
        let (mut aside, held) = match stays {
            Stays::InPlace => (None, false),
            Stays::Aside(aside, held) => (Some(aside), held),
        };
        for round in 0_u32.. {
            let mut core = self.core.lock();
            let wanted = core.table.is_wanted(group);
            let opens = wanted || held;
            let put = match aside.take() {
                Some(aside) if opens => aside.put_back().map(|()| true),
                Some(aside) => aside.put_back_closed().map(|()| false),
                None => Ok(opens && place.memory.open(&place.range).is_ok()),
            };
            let opened = match put {
                Ok(opened) => opened,
                Err((back, _)) => {
                    aside = Some(back);
                    // As for a fault that finds no mapping left: others are closed for it.
                    self.close_runs(&mut core, 1, usize::MAX);
                    drop(core);
                    if round == OPENINGS {
                        break;
                    }
                    pause(OPENING_NS);
                    continue;
                }
            };
            let state = if opened { State::Open } else { State::Standby };
            core.table.warm(group);
            core.table.set(group, pages, state, End::Hot);
            if opened {
                core.table.count_run(group, true, &super::RUNS);
                self.count(Counter::StandbyRefault, pages);
                self.count(Counter::PagesIn, pages);
            }
            self.done();
            return match (wanted, held) {
                (true, _) => CloseStep::Wanted,
                (false, true) => CloseStep::Held,
                (false, false) => CloseStep::Nothing,
            };
        }
        self.fail(format_args!(
            "the kernel would not have the memory at {:#x} back (are there as many mappings as \
             vm.max_map_count allows?)",
            place.range.start
        ));
    }

    /// The coldest group that stands by and is not pinned. One that is, is for
    /// its holder to touch, and keeps its place behind the others.
    fn coldest(&self, core: &mut GroupCore) -> Option<LocatedGroup> {
        let most = core.table.standby_pages();
        for _ in 0..most {
            let place = core
                .table
                .coldest()
                .and_then(|group| core.place_of(group))?;
            if !core.pins.overlaps(&place.range) {
                return Some(place);
            }
            let (pages, end) = (place.pages(), End::Hot);
            core.table.set(place.group, pages, State::Standby, end);
        }
        None
    }

    /// Puts the pages of a group into the pool, and returns into how many bytes;
    /// `None` if somebody wants it meanwhile, or the pool has no room. `slots`
    /// names what is in the pool.
    fn store(
        &self,
        context: &mut WorkContext,
        place: &LocatedGroup,
        copy: &[u8],
        slots: &mut [Slot],
    ) -> Option<usize> {
        let mut bytes = 0;
        let parts = copy.chunks(Order::K64.bytes());
        for (part, slots) in parts.zip(slots.chunks_mut(Order::K64.pages())) {
            bytes += self.store_part(context, part, slots).ok()?;
            if self.is_wanted(place) {
                return None;
            }
        }
        Some(bytes)
    }

    fn store_part(
        &self,
        context: &mut WorkContext,
        part: &[u8],
        slots: &mut [Slot],
    ) -> Result<usize, StoreError> {
        let mut pages: [&[u8]; Order::K64.pages()] = [&[]; Order::K64.pages()];
        for (page, bytes) in pages.iter_mut().zip(part.chunks_exact(PAGE_SIZE)) {
            *page = bytes;
        }
        let pages = &pages[..slots.len()];
        let stored = self.zswap.store_bytes(context, pages, slots);
        if slots.len() == Order::K64.pages() {
            self.zswap.count_store(Order::K64, stored.is_ok());
        }
        stored.map(|report| report.compressed_bytes)
    }

    /// Stores until `enough` says so, or until there is nothing more to store or
    /// no gain in it; whether it was enough.
    ///
    /// Where the pool takes as much as it brings, usage may grow: the
    /// watermarks are raised, until there is less to do again.
    fn store_until(
        &self,
        worker: &mut GroupWorker,
        mut enough: impl FnMut(&GroupCore) -> bool,
    ) -> bool {
        let (mut stored, mut became, mut held) = (0, 0, 0);
        while !enough(&self.core.lock()) {
            match self.step(worker) {
                CloseStep::Stored { pages, bytes } => {
                    stored += pages;
                    became += bytes.div_ceil(PAGE_SIZE);
                }
                CloseStep::Wanted => {}
                CloseStep::Held => {
                    held += 1;
                    if held == MOST_HELD {
                        return false;
                    }
                }
                CloseStep::Nothing => return false,
            }
            if stored >= TRIAL {
                if stored.saturating_sub(became) < stored / GAIN {
                    self.overdraft.fetch_add(TRIAL, Ordering::Relaxed);
                    return false;
                }
                (stored, became) = (0, 0);
            }
        }
        true
    }

    /// Stores until a group fits below the limit; false if that cannot be had.
    pub(super) fn make_room(&self, worker: &mut GroupWorker) -> bool {
        self.store_until(worker, |core| {
            let limit = self.watermarks().limit + self.overdraft();
            self.usage(core) + core.table.unit_pages() <= limit
        })
    }

    /// Stores until usage is below `stop`; false if that cannot be had.
    fn relieve(&self, worker: &mut GroupWorker, turnover: &mut Turnover) -> bool {
        self.store_until(worker, |core| {
            let watermarks = self.watermarks();
            let pool = self.zswap.pool_pages();
            turnover.choose_density(self.stats, Form::Fast, &watermarks, pool, &self.density);
            self.usage(core) <= watermarks.stop + self.overdraft()
                && core.table.standby_pages() <= self.standby_target(core)
        })
    }

    /// The life of the thread that reclaims.
    pub(super) fn control(&self) -> ! {
        ask_for_low_latency();
        let mut worker = self.workers[0].lock();
        let mut turnover = Turnover::default();
        let mut zspages = Zspages::default();
        loop {
            let wake_seq = self.control_wake.load(Ordering::SeqCst);
            self.control_sleeps.store(0, Ordering::SeqCst);
            let pressed = self.is_pressed(&self.core.lock());
            let mut relieved = true;
            if pressed {
                (self.before_moving)();
                relieved = self.relieve(&mut worker, &mut turnover);
            }
            if relieved {
                let overdraft = self.overdraft();
                self.overdraft
                    .fetch_sub(overdraft.div_ceil(64), Ordering::Relaxed);
            }
            if zspages.is_due(&self.zswap, pressed) {
                let time = if pressed { PRESSED_NS } else { TURN_NS };
                let called = || self.control_wake.load(Ordering::Relaxed) != wake_seq;
                zspages.compact(&self.zswap, time, called);
            }
            self.publish();
            self.control_sleeps.store(1, Ordering::SeqCst);
            // (Who found no bell to ring, a moment ago.)
            if relieved && self.is_pressed(&self.core.lock()) {
                continue;
            }
            let nap = if relieved {
                (self.zswap.pool_pages() > 0).then_some(NAP_NS)
            } else {
                Some(STUCK_NS)
            };
            futex_wait(&self.control_wake, wake_seq, nap);
        }
    }

    /// Writes gauges into the statistics.
    pub(super) fn publish(&self) {
        let pool = self.zswap.snapshot();
        let (usage, standby, kept) = {
            let core = self.core.lock();
            let standby = core.table.standby_pages();
            (self.usage(&core), standby, core.extents.kept())
        };
        let bytes = |pages: usize| (pages * PAGE_SIZE) as u64;
        let now = now_ns(Clock::Monotonic);
        let classes = class_table::due(self.stats, &self.zswap, now);
        self.stats.update(|| {
            self.stats.set(Counter::ResidentBytes, bytes(usage));
            let program = usage.saturating_sub(self.zswap.pool_pages());
            self.stats.set(Counter::ProgramBytes, bytes(program + kept));
            self.stats.set(Counter::PoolBytes, pool.pool_total_size());
            self.stats.set(Counter::StandbyPages, standby as u64);
            publish_pool(self.stats, &pool);
            if let Some(classes) = &classes {
                class_table::publish(self.stats, classes, now);
            }
        });
    }
}
