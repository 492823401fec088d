//! Folio compaction while the program runs: whole blocks of 2 MiB come free in the
//! arena.
//!
//! The algorithm is `zfolio_mm`'s ([`Evacuate`]); here is what it moves, and when.
//! Its folios are the zspages of the pool. It uses any free slot, with a frame or without:
//! a zspage is carried into holes by moving its frames, and into free frames by copying. In
//! the end a block that came free is all holes, its frames given back to the system in one
//! call. So a huge page on its way out finds a block to which it can be moved whole, and
//! memory is released by the huge page.
//!
//! So are runs of pages in standby: their words follow them. Where there is room for the pages
//! of such a run but no block for all of it, it is cut and carried page by page. Pages on their way in or
//! out stay, and their blocks are passed over.
//!
//! # Locks
//!
//! A zspage is carried under the pool's lock, which is what keeps loads, stores,
//! frees and zspage compaction away; that is at most 16 pages, some microseconds.
//! Nothing else is held then but the frame allocator's, for moments. Standby is
//! carried under the core lock, as all pages that have words are.
//!
//! # Forks
//!
//! A run holds slots that neither allocator knows of. It ends within the turn of the
//! control thread in which it began, which is an operation like a store: a fork
//! never sees one.

use crate::address_space::Space;
use crate::address_space::core::Core;
use crate::address_space::place::Place;
use crate::address_space::standby::StandbyRun;
use crate::page::GROUP_PAGES;
use crate::segment::Counter;
use alloc::vec;
use alloc::vec::Vec;
use zfolio_mm::buddy::BLOCK_SLOTS;
use zfolio_mm::compaction::backoff::Proactive;
use zfolio_mm::compaction::suitability::score;
use zfolio_mm::compaction::{
    Compactor, Evacuate, Folios, Found, Goal, NotBegun, Outcome, PageblockCounts, Refused, Request,
    Step,
};
use zfolio_mm::{Kind, Order, Pfn};
use zfolio_sys::thread::{Clock, now_ns};

/// How eager compaction is when nobody asks, 0 ..= 100: it begins when half of the
/// slots in blocks that are in use are free, and ends when 40 % are. The kernel's 20
/// waits for 90 %; here a page costs one move.
const PROACTIVENESS: usize = 60;
/// Slots looked at or moved between two looks at the clock.
const BUDGET: usize = 1024;

/// What the control thread remembers of folio compaction.
pub(crate) struct Evacuating {
    compactor: Compactor<Evacuate>,
    proactive: Proactive,
    /// The score at which the compaction under way is to stop; it goes on in the
    /// next turn if time ran out in this one.
    until: Option<usize>,
    /// Somebody asked for the compaction under way.
    requested: bool,
    /// Pages of the pool when a run made no progress: with another pool it may.
    idle_pool: Option<usize>,
    /// Of the slots that a run holds, those with a frame: a bit each.
    backed: Vec<u64>,
    /// What stood by when the run began, by slot.
    standby: Vec<StandbyRun>,
    /// Slots at which a run in standby is cut for this run of compaction: a bit each.
    cut: Vec<u64>,
}

impl Evacuating {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            compactor: Compactor::new(slots),
            proactive: Proactive::default(),
            until: None,
            requested: false,
            idle_pool: None,
            standby: Vec::new(),
            cut: vec![0; slots.div_ceil(64)],
            backed: vec![0; slots.div_ceil(64)],
        }
    }

    /// Begins a compaction of the whole arena, however little is scattered.
    pub(crate) const fn request(&mut self) {
        self.until = Some(0);
        self.requested = true;
    }

    /// Whether it is under way.
    pub(crate) const fn is_requested(&self) -> bool {
        self.requested
    }

    /// Notes what stands by. (The queue has runs that are out of date; one that
    /// hides another costs a block that is passed over.)
    fn list_standby(&mut self, space: &Space) {
        self.standby.clear();
        self.cut.fill(0);
        let core = space.core.lock();
        let valid = |run: &&StandbyRun| core.pages.extents.place(run.vpn) == Place::Standby(run.at);
        self.standby.extend(core.pages.standby.iter().filter(valid));
        drop(core);
        self.standby.sort_unstable_by_key(|run| run.at);
    }

    /// The compactor, and the arena as it is to see it for `time` ns.
    fn view<'a>(
        &'a mut self,
        space: &'a Space,
        time: u64,
    ) -> (&'a mut Compactor<Evacuate>, View<'a>) {
        let view = View {
            space,
            backed: &mut self.backed,
            standby: &self.standby,
            cut: &mut self.cut,
            until_ns: now_ns(Clock::Monotonic) + time,
        };
        (&mut self.compactor, view)
    }

    /// Makes free blocks for at most `time` ns, if a folio wants one or the free
    /// slots are scattered. The caller has begun an operation.
    pub(crate) fn evacuate(&mut self, space: &Space, time: u64) {
        match space.wanted_block() {
            Some(order) => self.evacuate_for_one(space, order, time),
            None => self.evacuate_unasked(space, time),
        }
    }

    /// A folio on its way out found no block of `order`.
    fn evacuate_for_one(&mut self, space: &Space, order: Order, time: u64) {
        self.list_standby(space);
        let (compactor, mut view) = self.view(space, time);
        let again = match compactor.begin_direct(&view, order) {
            // Short of time it goes on in the next turn.
            Ok(()) => finish(compactor, &mut view) == Outcome::Contended,
            Err(NotBegun::NotNeeded | NotBegun::NotSuitable | NotBegun::Deferred) => false,
        };
        space.block_was_looked_for(again.then_some(order));
        publish(space, compactor);
    }

    /// Nobody waits: only if what is free is scattered enough.
    fn evacuate_unasked(&mut self, space: &Space, time: u64) {
        let now_ms = now_ns(Clock::Monotonic) / 1_000_000;
        let pool = space.zswap.pool_pages();
        let idle_pool = self.idle_pool;
        if idle_pool.is_some_and(|idle| pool.abs_diff(idle) > idle / 8) {
            self.idle_pool = None;
            self.proactive = Proactive::default();
        }
        let low = match self.until {
            Some(low) => low,
            None => {
                let scattered = score(&self.view(space, 0).1, 0);
                let Some(low) = self.proactive.poll(now_ms, scattered, PROACTIVENESS) else {
                    return;
                };
                low
            }
        };
        self.list_standby(space);
        let (compactor, mut view) = self.view(space, time);
        let before = compactor.counters().pgmigrate_success;
        let request = Request {
            order: Order::HUGE,
            goal: Goal::Score(low),
        };
        compactor.begin_unasked(&view, request);
        let outcome = finish(compactor, &mut view);
        let idle = compactor.counters().pgmigrate_success == before;
        let after = score(&view, 0);
        publish(space, compactor);
        // Short of time it goes on in the next turn, if it does get on.
        self.until = (outcome == Outcome::Contended && !idle).then_some(low);
        if self.until.is_none() {
            self.requested = false;
            self.idle_pool = idle.then_some(pool);
            self.proactive.ended(now_ms, after);
        }
    }
}

/// The arena, as compaction sees it.
struct View<'a> {
    space: &'a Space,
    backed: &'a mut [u64],
    /// A hint, as the queue itself: words are asked.
    standby: &'a [StandbyRun],
    cut: &'a mut [u64],
    /// When the run is to end, ns.
    until_ns: u64,
}

impl View<'_> {
    fn is_backed(&self, at: Pfn) -> bool {
        self.backed[at.index() / 64] >> (at.index() % 64) & 1 != 0
    }

    fn note(&mut self, at: Pfn, kind: Kind) {
        let bit = 1 << (at.index() % 64);
        let word = &mut self.backed[at.index() / 64];
        match kind {
            Kind::Backed | Kind::Kept => *word |= bit,
            Kind::Hole => *word &= !bit,
        }
    }

    /// Whether runs in standby are cut before and after slot `at`.
    fn is_cut(&self, at: Pfn) -> bool {
        self.cut[at.index() / 64] >> (at.index() % 64) & 1 != 0
    }

    /// The pages that stand by from slot `at` on and can be carried together.
    fn standing_by(&self, core: &Core, at: Pfn) -> Option<StandbyRun> {
        let after = self.standby.partition_point(|run| run.at <= at);
        let run = self.standby[..after].last()?;
        let skip = at.index() - run.at.index();
        let end = (at.index() / BLOCK_SLOTS + 1) * BLOCK_SLOTS - at.index();
        let most = run.pages.saturating_sub(skip).min(GROUP_PAGES).min(end);
        let vpn = run.vpn + skip;
        let stands =
            |page: &usize| core.pages.extents.place(vpn + page) == Place::Standby(at.offset(*page));
        let whole = |page: &usize| *page == 0 || !self.is_cut(at.offset(*page));
        let most = if self.is_cut(at) { most.min(1) } else { most };
        let pages = (0..most)
            .take_while(|page| whole(page) && stands(page))
            .count();
        (pages > 0).then_some(StandbyRun { vpn, at, pages })
    }

    /// Carries what stands by at `from`.
    fn migrate_standby(&mut self, from: Pfn, to: Pfn, pages: usize) -> Result<u64, Refused> {
        let backed = self.backed_of(to, pages);
        let mut core = self.space.core.lock();
        let run = self.standing_by(&core, from).ok_or(Refused::Gone)?;
        if run.pages != pages {
            return Err(Refused::Gone);
        }
        if !core.is_open() {
            return Err(Refused::Busy);
        }
        let carried = self.space.arena().carry(from, to, pages, backed);
        let left = carried.ok_or(Refused::Busy)?;
        for page in 0..pages {
            core.pages
                .extents
                .set(run.vpn + page, Place::Standby(to.offset(page)));
        }
        core.pages.standby.push(StandbyRun { at: to, ..run });
        Ok(left)
    }

    fn migrate_zspage(&mut self, from: Pfn, to: Pfn, pages: usize) -> Result<u64, Refused> {
        let backed = self.backed_of(to, pages);
        let mut left = None;
        self.space.zswap.relocate(from, to, pages, || {
            left = self.space.arena().carry(from, to, pages, backed);
            left.is_some()
        })?;
        left.ok_or(Refused::Busy)
    }

    /// Which of a few slots that are held have frames, a bit each.
    fn backed_of(&self, at: Pfn, pages: usize) -> u64 {
        let slots = (0..pages).filter(|slot| self.is_backed(at.offset(*slot)));
        slots.fold(0, |mask, slot| mask | 1 << slot)
    }
}

impl Folios for View<'_> {
    fn slots(&self) -> usize {
        self.space.arena().map().slots()
    }

    fn look(&self, at: Pfn) -> Found {
        let frames = self.space.arena().frames();
        let block = Kind::ALL
            .iter()
            .find_map(|kind| frames.of(*kind).block_at(at));
        drop(frames);
        if let Some(order) = block {
            return Found::Free(order);
        }
        match self.space.zswap.zspage_at(at) {
            Some((pages, pinned)) => Found::Folio {
                pages,
                movable: !pinned,
            },
            None => match self.standing_by(&self.space.core.lock(), at) {
                Some(run) => Found::Folio {
                    pages: run.pages,
                    movable: true,
                },
                None => Found::Other { pages: 1 },
            },
        }
    }

    fn free_blocks(&self, order: Order) -> usize {
        let frames = self.space.arena().frames();
        let blocks: usize = Kind::ALL
            .map(|kind| frames.free_blocks(kind, order))
            .iter()
            .sum();
        if order < Order::HUGE {
            return blocks;
        }
        // The arena has several times the addresses that can be in use: of its whole
        // blocks only as many count as what is in use would fill.
        blocks.min(frames.used_pages().div_ceil(BLOCK_SLOTS).max(1))
    }

    fn free_pages(&self) -> usize {
        let whole = self.free_blocks(Order::HUGE) * BLOCK_SLOTS;
        let frames = self.space.arena().frames();
        let scattered = Kind::ALL.map(|kind| {
            frames.free_pages(kind) - frames.free_blocks(kind, Order::HUGE) * BLOCK_SLOTS
        });
        scattered.iter().sum::<usize>() + whole
    }

    fn pageblock(&self, block: usize) -> PageblockCounts {
        let frames = self.space.arena().frames();
        let free = Kind::ALL.map(|kind| frames.of(kind).free_in_pageblock(block));
        PageblockCounts {
            free: free.iter().sum(),
            holes: 0,
        }
    }

    fn isolate(&mut self, at: Pfn) -> Option<Order> {
        let mut frames = self.space.arena().frames();
        let (kind, order) = Kind::ALL
            .into_iter()
            .find_map(|kind| frames.take_block(kind, at).map(|order| (kind, order)))?;
        drop(frames);
        (0..order.pages()).for_each(|slot| self.note(at.offset(slot), kind));
        Some(order)
    }

    fn give(&mut self, at: Pfn, pages: usize) {
        let arena = self.space.arena();
        if pages == BLOCK_SLOTS && at.is_aligned(Order::HUGE) {
            let backed = (0..pages).filter(|slot| self.is_backed(at.offset(*slot)));
            arena.give_block(at, backed.count(), self.space.watermarks().free_low);
            return;
        }
        let mut first = 0;
        while first < pages {
            let kind = self.is_backed(at.offset(first));
            let len = (first..pages)
                .take_while(|slot| self.is_backed(at.offset(*slot)) == kind)
                .count();
            if kind {
                arena.give_frames(at.offset(first), len);
            } else {
                arena.give_holes(at.offset(first), len);
            }
            first += len;
        }
    }

    fn migrate(&mut self, from: Pfn, to: Pfn, pages: usize) -> Result<(), Refused> {
        let left = match self.migrate_zspage(from, to, pages) {
            Err(Refused::Gone) => self.migrate_standby(from, to, pages),
            other => other,
        }?;
        for slot in 0..pages {
            let kind = if left >> slot & 1 != 0 {
                Kind::Backed
            } else {
                Kind::Hole
            };
            self.note(from.offset(slot), kind);
        }
        Ok(())
    }

    /// Pages in standby can go one by one, a zspage cannot.
    fn split(&mut self, at: Pfn) -> bool {
        if self.space.zswap.zspage_at(at).is_some() {
            return false;
        }
        let run = self.standing_by(&self.space.core.lock(), at);
        let Some(run) = run.filter(|run| run.pages > 1) else {
            return false;
        };
        for slot in at.index()..at.index() + run.pages {
            self.cut[slot / 64] |= 1 << (slot % 64);
        }
        true
    }

    fn contended(&self) -> bool {
        now_ns(Clock::Monotonic) >= self.until_ns || self.space.should_yield()
    }
}

/// Goes on with a run until it has ended, which it does once the view is contended.
fn finish(compactor: &mut Compactor<Evacuate>, view: &mut View<'_>) -> Outcome {
    loop {
        if let Step::Done(outcome) = compactor.step(view, BUDGET) {
            return outcome;
        }
    }
}

fn publish(space: &Space, compactor: &Compactor<Evacuate>) {
    let counted = compactor.counters();
    for (counter, value) in [
        (Counter::CompactStall, counted.compact_stall),
        (Counter::CompactFail, counted.compact_fail),
        (Counter::CompactSuccess, counted.compact_success),
        (Counter::CompactDaemonWake, counted.compact_daemon_wake),
        (Counter::PgmigrateSuccess, counted.pgmigrate_success),
        (Counter::PgmigrateFail, counted.pgmigrate_fail),
        (Counter::ThpMigrationSuccess, counted.thp_migration_success),
        (Counter::ThpMigrationFail, counted.thp_migration_fail),
        (Counter::ThpMigrationSplit, counted.thp_migration_split),
        (
            Counter::CompactMigrateScanned,
            counted.compact_migrate_scanned,
        ),
        (Counter::CompactFreeScanned, counted.compact_free_scanned),
        (Counter::CompactIsolated, counted.compact_isolated),
    ] {
        space.stats().set(counter, value);
    }
}

#[cfg(test)]
mod tests;
