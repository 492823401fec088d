//! Swap-out beside other threads: as [`reclaim`](mod@crate::memory::reclaim) and
//! [`clean`](mod@crate::memory::clean), which choose the pages, but for the work.
//!
//! Pages are marked before they are moved: a system call that pins them from then on finds them
//! closed, and waits; the program may touch them until they go.

use super::batch::{Batch, Fate, MOST, Span};
use super::stage::{Stage, Taken};
use crate::memory::Vpn;
use crate::memory::bring::set;
use crate::memory::core::MemoryCore;
use crate::memory::layer::MemoryState;
use crate::memory::reclaim::Closing;
use crate::memory::way::{Kind, STAGE, Way};
use crate::memory::words::Word;
use crate::raw::{PAGE, SHIFT};
use core::ops::Range;
use zfolio_sys::arena::{Discarded, discard_all_by};
use zfolio_sys::lock::MutexGuard;
use zfolio_sys::syscall::Linux;
use zfolio_zswap::Slot;

/// Windows looked at under one hold of the lock, if nothing is found in them.
const WINDOWS: usize = 4;
/// Parts of a span between clean pages, where the pages of a span are protected and not its mapping.
const MOST_PARTS: usize = 2;
/// Pages given to the pool at once.
const TOGETHER: usize = 16;

impl MemoryCore {
    /// Whether pages must leave before so many come.
    pub(super) fn lacks_room(&self, state: &MemoryState, pages: usize) -> bool {
        let may = self.limit() + self.about_to_go();
        let usage = self.usage(state);
        self.call_reclaimer(state, usage, pages);
        self.pool.is_some() && !self.closes_nothing() && usage + pages > may
    }

    /// Pages on their way out that are counted as gone: so that one thread makes room for
    /// others, which go on. No more than lie between the limit and what the process may have.
    fn about_to_go(&self) -> usize {
        self.transit.going.min(self.slack())
    }

    /// Pages beyond `goal`.
    pub(crate) fn beyond(&self, state: &MemoryState, goal: usize) -> usize {
        self.usage(state).saturating_sub(self.about_to_go() + goal)
    }

    /// Chooses and marks what leaves next: until there would be `goal` pages, or the batch is
    /// full, or some windows have been looked at. Adds how many pages have been.
    fn choose(&mut self, state: &MemoryState, mark: u32, goal: usize, looked: &mut usize) -> Batch {
        let mut batch = Batch::new(mark);
        state
            .batches
            .begin(|| state.threads.pinned(), &mut self.seen);
        let mut pages = [(0, Slot::ZERO); STAGE];
        let most = self.beyond(state, goal).min(STAGE);
        let clean = self.oldest_clean(state, &mut pages[..most]);
        if clean > 0 {
            pages[..clean].sort_unstable_by_key(|(page, _)| *page);
            batch.add_clean(state, self, &pages[..clean]);
        }
        for _ in 0..WINDOWS {
            if batch.len > 0 {
                break;
            }
            let Some(window) = self.next_window(state, looked) else {
                *looked = usize::MAX;
                break;
            };
            batch.protection = self.ranges.protection(window.start);
            if self.closes_in_place() && !batch.protection.leaves_by_copy() {
                self.choose_span(state, window, goal, &mut batch, looked);
            } else {
                self.close_window(state, &window, goal, &mut Closing::Later(&mut batch));
            }
        }
        state.batches.end();
        batch
    }

    /// Says what has become of the pages of a batch.
    fn publish_batch(&mut self, state: &MemoryState, batch: &Batch) {
        for (places, start) in batch.runs() {
            for (at, page) in places.zip(start..) {
                match batch.fates[at] {
                    Fate::Gone if batch.slots[at] == Slot::ZERO => {
                        set(state, self, page, Word::Zero);
                    }
                    Fate::Gone => set(state, self, page, Word::Stored(batch.slots[at])),
                    Fate::Stays { heat } => set(state, self, page, Word::Open { heat }),
                    Fate::Frozen => self.fail(format_args!(
                        "the memory at {:#x} was moved away, and nowhere",
                        page << SHIFT
                    )),
                }
                if batch.fates[at] == Fate::Gone {
                    self.closing.refaults.note_left(page);
                    if batch.clean {
                        self.closing.clean.note_left(page);
                    }
                }
            }
        }
        if !batch.clean {
            for (places, start) in batch.runs() {
                self.count_folios(state, &(start..start + places.len()));
            }
        }
        if let Some(span) = &batch.span {
            span.open_rest(state, self);
        }
        if let Some(error) = batch.refused {
            state.count_refusal(error);
        }
        let all = &batch.fates[..batch.len];
        let gone = all.iter().filter(|fate| **fate == Fate::Gone).count() as u64;
        self.figures.pages_out += gone;
        self.count_left(state, usize::try_from(gone).unwrap_or(0));
        if batch.clean {
            self.figures.clean += gone;
        } else {
            self.figures.unmovable += batch.len as u64 - gone;
        }
    }
}

/// Closes the next pages on the way to `goal`; how many were to leave. Adds how many pages have been
/// looked at.
pub(super) fn send_next(
    state: &MemoryState,
    mut guard: MutexGuard<'_, MemoryCore>,
    taken: &mut Taken<'_>,
    goal: usize,
    looked: &mut usize,
) -> usize {
    let core = &mut *guard;
    if taken.made(core).is_none() {
        *looked = usize::MAX;
        return 0;
    }
    let mut batch = core.choose(state, taken.mark(), goal, looked);
    if batch.len == 0 {
        return 0;
    }
    let number = taken.number;
    let Some(stage) = taken.get() else {
        core.fail(format_args!("a thread has pages in transit by nothing"));
    };
    let way = stage.way(core);
    core.transit.going += batch.len;
    if let Some(span) = &batch.span {
        core.transit.frozen.add(number, &span.pages);
    }
    let thread = crate::threads::current();
    core.begin_transit(thread);
    state.stages.note_thread(number, thread);
    drop(guard);
    if let Err((page, errno)) = batch.send(stage, &way) {
        state.core.lock().fail(format_args!(
            "the memory at {:#x} could not be closed, nor opened again (errno {errno})",
            page << SHIFT
        ));
    }
    let mut guard = state.core.lock();
    let core = &mut *guard;
    core.publish_batch(state, &batch);
    if batch.span.is_some() {
        core.transit.frozen.remove(number);
    }
    core.transit.going -= batch.len;
    state.end_transit(guard, number);
    batch.len
}

/// A page that is neither here nor there, and the error number.
type Lost = (Vpn, i32);

impl Batch {
    /// The work: pages go, or stay as they are.
    fn send(&mut self, stage: &mut Stage, way: &Way) -> Result<(), Lost> {
        if let Some(span) = &self.span {
            let addresses = span.pages.start << SHIFT..span.pages.end << SHIFT;
            return self.send_span(stage, way, &addresses);
        }
        if self.clean {
            return self.discard_clean(stage, way);
        }
        self.freeze(way);
        self.store(stage, way)?;
        self.commit(stage, way)
    }

    /// The work for pages that are closed where they are.
    fn send_span(
        &mut self,
        stage: &mut Stage,
        way: &Way,
        addresses: &Range<usize>,
    ) -> Result<(), Lost> {
        let by_pages = way.protects() && self.is_opened_at_once();
        let protected = if by_pages {
            way.write_protect_pages(addresses)
        } else {
            way.write_protect(addresses)
        };
        if protected.is_err() {
            let len = self.len;
            self.fates[..len].fill(Fate::Stays { heat: 2 });
        } else {
            self.store(stage, way)?;
            if way.kind == Kind::Guard {
                self.guard(stage, way, addresses)?;
            } else {
                self.discard(stage);
            }
        }
        if by_pages {
            return self.open_pages(way);
        }
        let opened = way.open_written(addresses);
        opened.map_err(|errno| (addresses.start >> SHIFT, errno.0))
    }

    /// Whether next to nothing of the span is clean, which stays protected: each part between has a call of its
    /// own that ends the protection of pages, and each of these interrupts the other processors.
    fn is_opened_at_once(&self) -> bool {
        let parts = self.span.iter().flat_map(Span::but_clean);
        parts.count() <= MOST_PARTS
    }

    /// Lets all of the span be written to but what was clean. (That may be on its way out by another thread.)
    fn open_pages(&self, way: &Way) -> Result<(), Lost> {
        for run in self.span.iter().flat_map(Span::but_clean) {
            way.let_write(&(run.start << SHIFT..run.end << SHIFT))
                .map_err(|errno| (run.start, errno.0))?;
        }
        Ok(())
    }

    /// Puts markers in the place of what the pool has. Between a page and its marker there is nothing, which
    /// would read as zeros: so nobody touches the span meanwhile.
    fn guard(
        &mut self,
        stage: &mut Stage,
        way: &Way,
        addresses: &Range<usize>,
    ) -> Result<(), Lost> {
        if way.hide(addresses).is_err() {
            for (places, _) in self.frozen(Fate::Gone) {
                stage.zswap.invalidate(&self.slots[places.clone()]);
                self.fates[places].fill(Fate::Stays { heat: 2 });
            }
            return Ok(());
        }
        self.discard(stage);
        for (places, start) in self.frozen(Fate::Gone) {
            let run = start << SHIFT..(start + places.len()) << SHIFT;
            if way.mark(&run).is_err() {
                self.put_back(stage, way, places, start)?;
            }
        }
        Ok(())
    }

    /// Discards what the pool has. What the kernel leaves stays as it is.
    fn discard(&mut self, stage: &Stage) {
        let mut ranges = [Discarded::default(); MOST];
        let mut count = 0;
        for (places, start) in self.frozen(Fate::Gone) {
            ranges[count] = Discarded {
                start: start << SHIFT,
                len: places.len() << SHIFT,
            };
            count += 1;
        }
        let done = discard_all_by::<Linux>(&ranges[..count], true);
        for (places, _) in self.frozen(Fate::Gone).skip(done) {
            stage.zswap.invalidate(&self.slots[places.clone()]);
            self.fates[places].fill(Fate::Stays { heat: 2 });
        }
    }

    /// The work for clean pages: they are protected, and who would write to one waits for us. What
    /// the kernel leaves is the program's alone.
    fn discard_clean(&mut self, stage: &Stage, way: &Way) -> Result<(), Lost> {
        let len = self.len;
        self.fates[..len].fill(Fate::Gone);
        self.discard(stage);
        for (places, start) in self.frozen(Fate::Stays { heat: 2 }) {
            let addresses = start << SHIFT..(start + places.len()) << SHIFT;
            way.let_write(&addresses)
                .map_err(|errno| (start, errno.0))?;
        }
        Ok(())
    }

    /// A way whose place for what goes out is where the batch's page `at` has its own.
    fn way_at(way: &Way, at: usize) -> Way {
        way.with_places(way.incoming(), way.outgoing() + at * PAGE)
    }

    /// Keeps others from changing the pages.
    fn freeze(&mut self, way: &Way) {
        for (places, start) in self.runs() {
            let addresses = start << SHIFT..(start + places.len()) << SHIFT;
            let frozen = Self::way_at(way, places.start)
                .freeze(&addresses, true, self.protection)
                .unwrap_or(0)
                >> SHIFT;
            self.fates[places][frozen..].fill(Fate::Stays { heat: 0 });
        }
    }

    /// Frozen pages next to one another: which of the batch's pages, where in memory.
    fn frozen(&self, fate: Fate) -> impl Iterator<Item = (Range<usize>, Vpn)> + use<> {
        let fates = self.fates;
        self.runs().flat_map(move |(places, start)| {
            let first = places.start;
            let mut at = places.start;
            core::iter::from_fn(move || {
                while at < places.end && fates[at] != fate {
                    at += 1;
                }
                let from = at;
                while at < places.end && fates[at] == fate {
                    at += 1;
                }
                (from < at).then_some((from..at, start + from - first))
            })
        })
    }

    /// Gives the frozen pages to the pool.
    fn store(&mut self, stage: &mut Stage, way: &Way) -> Result<(), Lost> {
        let mut places = [(0_usize, 0_usize); MOST];
        let mut count = 0;
        for (run, start) in self.frozen(Fate::Frozen) {
            for (at, page) in run.zip(start..) {
                places[count] = (at, page);
                count += 1;
            }
        }
        for some in places[..count].chunks(TOGETHER) {
            if self.store_some(stage, way, some) {
                continue;
            }
            // Those alone that it will not have stay.
            for one in some {
                if self.store_some(stage, way, core::slice::from_ref(one)) {
                    continue;
                }
                let (at, page) = *one;
                if self.span.is_none() {
                    Self::way_at(way, at)
                        .undo(&(page << SHIFT..(page + 1) << SHIFT), true, self.protection)
                        .map_err(|errno| (page, errno.0))?;
                }
                self.fates[at] = Fate::Stays { heat: 2 };
            }
        }
        Ok(())
    }

    /// Gives pages to the pool; whether it has all of them, or none.
    fn store_some(&mut self, stage: &mut Stage, way: &Way, some: &[(usize, Vpn)]) -> bool {
        let ways: [Way; TOGETHER] = core::array::from_fn(|index| {
            let at = some.get(index).map_or(0, |(at, _)| *at);
            Self::way_at(way, at)
        });
        let mut pages: [&[u8]; TOGETHER] = [&[]; TOGETHER];
        for ((bytes, way), (_, page)) in pages.iter_mut().zip(&ways).zip(some) {
            let addresses = page << SHIFT..(page + 1) << SHIFT;
            *bytes = match self.span {
                None => way.source(&addresses),
                Some(_) => way.source_in_place(&addresses),
            };
        }
        let mut slots = [Slot::ZERO; TOGETHER];
        let stored = stage.zswap.store_bytes(
            &mut stage.context,
            &pages[..some.len()],
            &mut slots[..some.len()],
        );
        if let Err(error) = stored {
            if some.len() == 1 {
                self.refused = Some(error);
            }
            return false;
        }
        for ((at, _), slot) in some.iter().zip(slots) {
            self.slots[*at] = slot;
            self.fates[*at] = Fate::Gone;
        }
        true
    }

    /// Closes what the pool has.
    fn commit(&mut self, stage: &mut Stage, way: &Way) -> Result<(), Lost> {
        if way.discards_apart(self.protection) {
            self.discard(stage);
            // (What the kernel has left, and what the pool would not have.)
            for (places, start) in self.frozen(Fate::Stays { heat: 2 }) {
                let addresses = start << SHIFT..(start + places.len()) << SHIFT;
                way.thaw(&addresses, true, self.protection)
                    .map_err(|errno| (start, errno.0))?;
            }
        }
        if way.kind == Kind::InThread {
            // Wherever it came from it is in our place: one call for all of it.
            let all = 0..self.len * PAGE;
            let first = self.first();
            return way
                .commit(&all, true, self.protection)
                .map_err(|errno| (first, errno.0));
        }
        for (places, start) in self.frozen(Fate::Gone) {
            let addresses = start << SHIFT..(start + places.len()) << SHIFT;
            if way.commit(&addresses, true, self.protection).is_err() {
                self.put_back(stage, way, places, start)?;
            }
        }
        Ok(())
    }

    /// Makes pages whole again that are in the pool, and closed in part.
    fn put_back(
        &mut self,
        stage: &mut Stage,
        way: &Way,
        places: Range<usize>,
        start: Vpn,
    ) -> Result<(), Lost> {
        let mut way = way.clone();
        let slots = &self.slots[places.clone()];
        for (index, slot) in slots.iter().enumerate() {
            let into = way.incoming_page(index);
            if *slot == Slot::ZERO {
                into.fill(0);
            } else if stage
                .zswap
                .load_into(&mut stage.context, *slot, into)
                .is_err()
            {
                return Err((start + index, 0));
            }
        }
        let addresses = start << SHIFT..(start + places.len()) << SHIFT;
        way.make_whole(&addresses, true, self.protection)
            .map_err(|errno| (start, errno.0))?;
        stage.zswap.invalidate(slots);
        self.fates[places].fill(Fate::Stays { heat: 2 });
        Ok(())
    }
}
