//! Swap-out: a hand (an address) moves over managed memory and closes what has not come back
//! lately.
//!
//! Nothing tells which page was used: there is no bit that may be read without privilege. So a
//! page that came back from the pool is passed over once more than one that never left
//! (its heat), and otherwise the hand's order decides. Clean pages ([`super::clean`]) go before
//! the hand moves, and it passes over those that are left.

use super::bring::{fill_incoming, set};
use super::core::MemoryCore;
use super::empty::{leaf_of, present};
use super::transit::batch::Batch;
use super::way::{self, STAGE};
use super::words::{LEAF, PAGES, Word};
use crate::memory::layer::MemoryState;
use crate::raw::{PAGE, SHIFT};
use core::ops::Range;
use zfolio_runtime::segment::GroupEvent;
use zfolio_sys::thread::{Clock, now_ns};
use zfolio_zswap::{Slot, StoreError};

/// Pages stored at a time, at least.
pub(super) const OUT: usize = 16;
/// Pages by which the limit is raised where reclaim gets nowhere.
pub(super) const ROOM: usize = 256;
/// Room made beyond what is asked for, pages: batches cost less than single pages.
pub(super) const SLACK: usize = 32;

/// What is done with pages that may go.
pub(super) enum Closing<'a> {
    /// They are stored and closed, until usage is at the goal.
    Now,
    /// Those that are open between closed ones are stored and closed.
    CutOff,
    /// They are marked as on their way out, and gathered.
    Later(&'a mut Batch),
}

impl Closing<'_> {
    /// Whether more is to be closed.
    fn goes_on(&self, core: &MemoryCore, state: &MemoryState, goal: usize) -> bool {
        match self {
            Self::Now | Self::CutOff => core.usage(state) > goal,
            Self::Later(batch) => batch.headroom() >= OUT && core.beyond(state, goal) > batch.len(),
        }
    }

    /// Most pages of a run that may be closed now.
    fn most(&self) -> usize {
        match self {
            Self::Now | Self::CutOff => STAGE,
            Self::Later(batch) => batch.headroom(),
        }
    }

    fn close(&mut self, core: &mut MemoryCore, state: &MemoryState, run: &Range<usize>) {
        match self {
            Self::Now | Self::CutOff => core.store(state, run),
            Self::Later(batch) => batch.add(state, core, run),
        }
    }
}

impl MemoryCore {
    /// Closes pages until `pages` more may be opened; what cannot be closed is gone over
    /// twice, and then they are opened all the same.
    pub(crate) fn make_room(&mut self, state: &MemoryState, pages: usize) {
        if self.closes_nothing() || self.pool.is_none() {
            return;
        }
        let usage = self.usage(state);
        self.call_reclaimer(state, usage, pages);
        if usage + pages <= self.limit() {
            return;
        }
        let refused = self.closing.bounds.begin();
        self.look(state, refused);
        let goal = self.limit().saturating_sub(pages + SLACK);
        let goal = if state.is_behind() {
            self.next_step(state, goal, pages)
        } else {
            goal
        };
        self.close_down_to(state, goal, pages);
    }

    /// Closes pages until usage is at `goal`, so that `pages` may be opened. The bounds of this
    /// batch have begun.
    pub(super) fn close_down_to(&mut self, state: &MemoryState, goal: usize, pages: usize) {
        let start = now_ns(Clock::Monotonic);
        let work = state.begin_work();
        self.figures.waits += 1;
        state
            .membership
            .count_event(state.segment, GroupEvent::High);
        self.compact_for_room(state);
        let (closed, pool) = self.close_until(state, goal);
        // Nothing more to close, or the pool takes what closing gives: the limit is raised,
        // until there is less to do again.
        let helpless = self.usage(state) > goal && closed < 2 * pool + SLACK;
        self.settle_room(state, pages, helpless);
        self.figures.waited_ns += now_ns(Clock::Monotonic) - start;
        state.end_reclaim(work);
        state.pressure.note_made(closed, start);
    }

    /// Closes pages until usage is at `goal`, or what there is has been gone over twice: how many were closed,
    /// and by how many the pool grew.
    pub(super) fn close_until(&mut self, state: &MemoryState, goal: usize) -> (usize, usize) {
        state
            .batches
            .begin(|| state.threads.pinned(), &mut self.seen);
        let (closed, pool) = (state.words.closed(), self.pool_pages());
        self.drop_clean(state, goal);
        let most = 3 * self.ranges.managed_pages() + LEAF;
        let mut looked = 0;
        while looked < most && self.usage(state) > goal && self.closing.bounds.goes_on() {
            let Some(window) = self.next_window(state, &mut looked) else {
                break;
            };
            self.close_window(state, &window, goal, &mut Closing::Now);
        }
        state.batches.end();
        let closed = state.words.closed().saturating_sub(closed);
        let pool = self.pool_pages().saturating_sub(pool);
        (closed, pool)
    }

    /// The next part of managed memory under the hand, a leaf's at most, that somebody may have
    /// touched. Adds how many pages were passed over and are in it.
    pub(super) fn next_window(
        &mut self,
        state: &MemoryState,
        looked: &mut usize,
    ) -> Option<Range<usize>> {
        let most = self.ranges.managed_pages() + LEAF;
        let mut passed = 0;
        while passed <= most {
            let found = self.ranges.managed_from(self.closing.hand);
            let range = match found {
                Some(range) => range,
                None => {
                    self.closing.hand = 0;
                    let resident = self.open_pages(state);
                    self.closing.refaults.begin_round(resident);
                    self.ranges.managed_from(0)?
                }
            };
            let (start, end) = (range.start.max(self.closing.hand), range.end >> SHIFT);
            let page = state.words.past_untouched(start >> SHIFT, end);
            self.closing.hand = page << SHIFT;
            passed += page - (start >> SHIFT);
            if page < end {
                let window = leaf_of(self.closing.hand, range.end);
                self.closing.hand = window.end;
                *looked += passed + (window.len() >> SHIFT);
                return Some(window);
            }
        }
        None
    }

    /// Closes what may be closed of a window, until usage is at `goal`.
    pub(super) fn close_window(
        &mut self,
        state: &MemoryState,
        window: &Range<usize>,
        goal: usize,
        closing: &mut Closing<'_>,
    ) {
        let pages = window.start >> SHIFT..window.end >> SHIFT;
        if !state.words.may_any_leave(&pages) {
            return;
        }
        // (What a device writes to memory that leaves by a copy would not be seen.)
        if self.has_devices && self.ranges.protection(window.start).leaves_by_copy() {
            return;
        }
        if !self.is_watched(state, window) {
            return;
        }
        if !matches!(closing, Closing::CutOff) && !self.is_any_cold(state, &pages) {
            return;
        }
        let Some(present) = present(window) else {
            return;
        };
        let group = self.group(state);
        let mut page = pages.start;
        while page < pages.end && closing.goes_on(self, state, goal) {
            self.open_standby(state, page..pages.end);
            let unit = open_unit(state, page, group, pages.end);
            if unit.is_empty() || !self.may_close(state, &unit, closing) {
                page = unit.end.max(page + 1);
                continue;
            }
            let is_present = |unit: &Range<usize>| {
                unit.clone()
                    .any(|page| present[page - pages.start] & 1 != 0)
            };
            let here = is_present(&unit);
            let most = if here {
                state.most_stored(unit.start).min(closing.most())
            } else {
                LEAF
            };
            let mut run = unit;
            while run.end < pages.end && run.len() + group <= most {
                let next = open_unit(state, run.end, group, pages.end);
                if next.is_empty()
                    || is_present(&next) != here
                    || !self.may_close(state, &next, closing)
                {
                    break;
                }
                run.end = next.end;
            }
            let is_closed = |page: usize| state.words.get(page).is_closed();
            let is_wanted = match closing {
                Closing::CutOff => is_closed(run.start - 1) && is_closed(run.end),
                Closing::Now | Closing::Later(_) => self.may_cut(state, &run),
            };
            if !is_wanted {
                // (They stay.)
            } else if here {
                closing.close(self, state, &run);
            } else {
                self.close_absent_run(state, &run, closing);
            }
            page = run.end;
        }
        // (What is left of the window is the first to be looked at next time.)
        self.closing.hand = page << SHIFT;
    }

    /// Opens pages that are closed with their bytes in place, to be looked at as any others.
    fn open_standby(&mut self, state: &MemoryState, pages: Range<usize>) {
        let is_one = |page: &usize| state.words.get(*page) == Word::Standby;
        let count = pages.clone().take_while(is_one).count();
        let run = pages.start..pages.start + count;
        let addresses = run.start << SHIFT..run.end << SHIFT;
        if run.is_empty() || self.way.open_written(&addresses).is_err() {
            return;
        }
        for page in run {
            set(state, self, page, Word::OPEN);
        }
    }

    /// Whether any page that is open is not spared. (Where none is, the kernel need not be asked which are
    /// there.)
    pub(super) fn is_any_cold(&mut self, state: &MemoryState, pages: &Range<usize>) -> bool {
        pages.clone().any(|page| match state.words.get(page) {
            Word::Open { heat: 0 } => !self.closing.refaults.spares(page),
            Word::Open { .. } | Word::Standby => true,
            _ => false,
        })
    }

    /// Whether all of a unit may go now. Cools it where it may not yet.
    fn may_close(
        &mut self,
        state: &MemoryState,
        unit: &Range<usize>,
        closing: &Closing<'_>,
    ) -> bool {
        // (What cuts mappings goes whatever it is.)
        let spares = !matches!(closing, Closing::CutOff);
        let mut may = true;
        for page in unit.clone() {
            match state.words.get(page) {
                Word::Open { heat: 0 } => {
                    may &= !(spares && self.closing.refaults.spares(page));
                }
                Word::Open { heat } => {
                    set(state, self, page, Word::Open { heat: heat - 1 });
                    may = false;
                }
                _ => return false,
            }
        }
        let addresses = unit.start << SHIFT..unit.end << SHIFT;
        may && !self.is_held(&addresses) && !self.seen.covers(&addresses)
    }

    /// Has faults of the range that a window is in reported, from the first on.
    pub(super) fn is_watched(&mut self, state: &MemoryState, window: &Range<usize>) -> bool {
        let Some((range, kind)) = self.ranges.at(window.start) else {
            return false;
        };
        kind.registered || self.watch(state, &range, &(0..0))
    }

    /// Has faults of a range reported; false where that cannot be now. In a batch.
    ///
    /// What is absent is closed from here on, whichever way it came to be so: a touch by the
    /// kernel, for a call, would be refused. What calls have pinned is made present before.
    ///
    /// `fresh`: of it, what was mapped a moment ago, where nothing is.
    pub(super) fn watch(
        &mut self,
        state: &MemoryState,
        range: &Range<usize>,
        fresh: &Range<usize>,
    ) -> bool {
        let in_thread = self.way.kind == way::Kind::InThread;
        let read_only = self.ranges.is_read_only(range.start);
        if in_thread && !self.seen.populate(range, read_only) {
            return false;
        }
        if self.way.watch(range).is_err() {
            return false;
        }
        // (And one range with its neighbours, if they are so too.)
        self.ranges.edit(range, |kind| kind.registered = true);
        if in_thread {
            let behind = fresh.end.max(range.start);
            for part in [range.start..fresh.start.min(range.end), behind..range.end] {
                self.close_absent(state, &part);
            }
        }
        true
    }

    /// Closes pages that hold nothing, as few mappings as can be made by it. (They count as
    /// open, and nothing else would make them count less.)
    fn close_absent_run(
        &mut self,
        state: &MemoryState,
        run: &Range<usize>,
        closing: &mut Closing<'_>,
    ) {
        // What is closed beside it by the same means is one mapping with it.
        let joins = [run.start - 1, run.end].into_iter().any(|page| {
            match (self.way.kind, state.words.get(page)) {
                (way::Kind::InThread, _) => false,
                (way::Kind::Guard, beside) => beside == Word::Untouched,
                (way::Kind::Protect, beside) => beside.is_closed(),
            }
        });
        let may = self.may_close_as_mapping(run);
        if may && (joins || run.len() >= self.least_untouched(state)) {
            self.close_untouched(state, run);
        } else if self.way.kind == way::Kind::Guard || !may {
            self.close_as_zeros(state, run, closing);
        }
    }

    /// Closes pages that hold nothing as others are, as many as may be now: another thread may put something
    /// there meanwhile.
    fn close_as_zeros(
        &mut self,
        state: &MemoryState,
        run: &Range<usize>,
        closing: &mut Closing<'_>,
    ) {
        let mut page = run.start;
        while page < run.end && closing.most() > 0 {
            let part = page..run.end.min(page + closing.most());
            closing.close(self, state, &part);
            page = part.end;
        }
    }

    /// Stores and closes a run of pages, all of them that can be frozen now.
    ///
    /// # Errors
    /// The pool has refused them: they are open, and as they were.
    pub(super) fn store_run(
        &mut self,
        state: &MemoryState,
        run: &Range<usize>,
    ) -> Result<(), StoreError> {
        let addresses = run.start << SHIFT..run.end << SHIFT;
        let several = state.is_several();
        let protection = self.ranges.protection(addresses.start);
        let frozen = match self.way.freeze(&addresses, several, protection) {
            Ok(frozen) if frozen > 0 => frozen,
            _ => {
                self.figures.unmovable += run.len() as u64;
                return Ok(());
            }
        };
        let addresses = addresses.start..addresses.start + frozen;
        let count = frozen >> SHIFT;
        let mut slots = [Slot::ZERO; STAGE];
        let slots = &mut slots[..count];
        let Some(pool) = &mut self.pool else {
            return Ok(());
        };
        let source = self.way.source(&addresses);
        let mut pages: [&[u8]; STAGE] = [&[]; STAGE];
        for (page, bytes) in pages.iter_mut().zip(source.chunks_exact(PAGE)) {
            *page = bytes;
        }
        let stored = state.store(pool.zswap, &mut pool.context, &pages[..count], slots);
        let Err(error) = stored else {
            for (page, slot) in (run.start..).zip(&*slots) {
                let word = match *slot {
                    Slot::ZERO => Word::Zero,
                    slot => Word::Stored(slot),
                };
                set(state, self, page, word);
                self.closing.refaults.note_left(page);
            }
            self.count_left(state, count);
            self.figures.pages_out += count as u64;
            if self.way.discards_apart(protection)
                && let Err(errno) = self.way.discard(&addresses)
            {
                // (Which of them are gone is not told.)
                self.fail(format_args!(
                    "the memory at {:#x} could not be discarded (errno {})",
                    addresses.start, errno.0
                ));
            }
            if self.way.commit(&addresses, several, protection).is_err() {
                self.put_back(state, &(run.start..run.start + count), several);
            }
            return Ok(());
        };
        if let Err(errno) = self.way.undo(&addresses, several, protection) {
            self.fail(format_args!(
                "the memory at {:#x} could not be opened again (errno {})",
                addresses.start, errno.0
            ));
        }
        Err(error)
    }

    /// Pages stay that are open: they are passed over for a while.
    pub(super) fn stay(&mut self, state: &MemoryState, run: &Range<usize>) {
        self.figures.unmovable += run.len() as u64;
        for page in run.clone() {
            set(state, self, page, Word::Open { heat: 2 });
        }
    }
}

const _: () = assert!(OUT <= STAGE && PAGES > 0);

impl MemoryCore {
    /// Makes pages whole again that are in the pool, and closed in part.
    fn put_back(&mut self, state: &MemoryState, run: &Range<usize>, several: bool) {
        let slots = fill_incoming(state, self, run);
        let addresses = run.start << SHIFT..run.end << SHIFT;
        let protection = self.ranges.protection(addresses.start);
        if let Err(errno) = self.way.make_whole(&addresses, several, protection) {
            self.fail(format_args!(
                "the memory at {:#x} could not be opened again (errno {})",
                addresses.start, errno.0
            ));
        }
        for page in run.clone() {
            set(state, self, page, Word::Open { heat: 2 });
        }
        if let Some(pool) = &self.pool {
            pool.zswap.invalidate(&slots[..run.len()]);
        }
        self.figures.unmovable += run.len() as u64;
    }
}

/// The open pages from `page` on, of its group: where a part of a group is closed already the
/// others go without it.
fn open_unit(state: &MemoryState, page: usize, group: usize, end: usize) -> Range<usize> {
    let end = (page + 1).next_multiple_of(group).min(end);
    let is_open = |page: &usize| matches!(state.words.get(*page), Word::Open { .. });
    let open = (page..end).take_while(is_open).count();
    page..page + open
}
