//! The scanners at work: what is to be moved, and where to.
//!
//! Each function is one unit of a step: it looks at no more than a pageblock and says
//! at how many slots. `Err` ends the run.

use super::claim::Claim;
use super::compactor::{Compactor, Phase, Source};
use super::folios::{Folios, Found};
use super::freepages::FreePages;
use super::policy::{Batch, Policy, Sources};
use super::request::Outcome;
use super::scan::{Scan, Span};
use crate::buddy::BLOCK_SLOTS;
use crate::types::{ORDERS, Order, Pfn};

/// Pages isolated at a time (the kernel's `COMPACT_CLUSTER_MAX`).
const CLUSTER: usize = 32;

/// No blocks elsewhere.
const NONE: [usize; ORDERS] = [0; ORDERS];

/// What a slot number of the arena is as a pfn.
fn pfn(slot: usize) -> Pfn {
    Pfn(0).offset(slot)
}

impl<P: Policy> Compactor<P> {
    /// Whether this policy moves a folio, now.
    pub(super) fn takes(&self, pages: usize, movable: bool) -> bool {
        movable && self.is_small_enough(pages) && (P::SOURCES != Sources::SinglePages || pages == 1)
    }

    /// The migrate scanner by position: lists the next 32 pages of folios, or all of
    /// what is left in a pageblock that 32 were moved out of already.
    pub(super) fn collect_cluster(&mut self, owner: &impl Folios) -> Result<usize, Outcome> {
        if self.source.is_done() {
            let Some(next) = self.scan.next_source(owner) else {
                return Err(self.scanners_met());
            };
            self.source = next;
            self.finishing = false;
        }
        let from = self.source.at;
        while !self.source.is_done() {
            if !self.finishing && self.migratepages >= CLUSTER {
                self.finishing = true;
                break;
            }
            let at = pfn(self.source.at);
            self.source.at += match owner.look(at) {
                Found::Free(order) => order.pages(),
                Found::Folio { pages, movable } => {
                    if self.takes(pages, movable) {
                        self.list(at, pages);
                    }
                    pages
                }
                Found::Other { pages } => pages,
            };
        }
        let passed = self.source.at - from;
        self.counters_mut().compact_migrate_scanned += passed as u64;
        if !self.sources.is_empty() {
            self.batch_ready(Phase::Migrate);
        }
        Ok(passed)
    }

    /// Chooses the region of the next pageblock that is cheapest to empty, claims
    /// what is free of it and lists the folios in it.
    pub(super) fn collect_region(&mut self, owner: &mut impl Folios) -> Result<usize, Outcome> {
        let Some(block) = self.scan.next_source(owner) else {
            return Err(self.scanners_met());
        };
        let Some(base) = self.cheapest_region(owner, block) else {
            self.counters_mut().compact_migrate_scanned += BLOCK_SLOTS as u64;
            return Ok(BLOCK_SLOTS);
        };
        self.claim = Claim::new(base, self.order());
        self.source = Span {
            at: base.index(),
            end: base.index() + self.order().pages(),
        };
        if self.list_region(owner) && !self.sources.is_empty() && self.may_fit(owner) {
            self.batch_ready(Phase::Gather);
        } else {
            // No room, or something immovable came since, or the last folio went.
            self.clear_sources();
            self.drop_claim(owner);
        }
        let passed = BLOCK_SLOTS + self.order().pages();
        self.counters_mut().compact_migrate_scanned += passed as u64;
        Ok(passed)
    }

    /// Claims the free slots of the region, lists its folios; says whether that is all
    /// there is in it.
    pub(super) fn list_region(&mut self, owner: &mut impl Folios) -> bool {
        let mut slot = self.source.at;
        while slot < self.source.end {
            let at = pfn(slot);
            slot += match owner.look(at) {
                _ if self.claim.holds(at) => 1,
                Found::Free(_) => match owner.isolate(at) {
                    Some(order) if self.claim.covers(at, order.pages()) => {
                        self.claim.add(at, order.pages());
                        self.counters_mut().compact_isolated += order.pages() as u64;
                        order.pages()
                    }
                    Some(order) => {
                        owner.give(at, order.pages());
                        return false;
                    }
                    None => return false,
                },
                Found::Folio { pages, movable }
                    if self.takes(pages, movable) && self.claim.covers(at, pages) =>
                {
                    self.list(at, pages);
                    pages
                }
                Found::Folio { .. } | Found::Other { .. } => return false,
            };
        }
        true
    }

    /// The aligned region of the order wanted with the fewest pages in use, of those
    /// in which nothing stands in the way. `None` when there is none.
    fn cheapest_region(&self, owner: &impl Folios, block: Span) -> Option<Pfn> {
        let shift = u32::from(self.order().get());
        // Pages in use by region; `None`: cannot be emptied, or need not be.
        let mut used = [Some(0_usize); BLOCK_SLOTS];
        let mut slot = block.at;
        while slot < block.end {
            let (pages, fit, in_use) = match owner.look(pfn(slot)) {
                Found::Free(order) => (order.pages(), order < self.order(), false),
                Found::Folio { pages, movable } => (pages, self.takes(pages, movable), true),
                Found::Other { pages } => (pages, false, false),
            };
            let last = (slot + pages - 1).min(block.end - 1) - block.at;
            let (first, last) = ((slot - block.at) >> shift, last >> shift);
            for region in &mut used[first..=last] {
                *region = region.filter(|_| fit && first == last);
            }
            if in_use {
                used[first] = used[first].map(|so_far| so_far + pages);
            }
            slot += pages;
        }
        let regions = used[..BLOCK_SLOTS >> shift].iter().enumerate();
        let fit = regions.filter_map(|(region, used)| used.map(|used| (used, region)));
        let (_, region) = fit.min()?;
        Some(pfn(block.at + (region << shift)))
    }

    /// Lists a folio for migration.
    fn list(&mut self, at: Pfn, pages: usize) {
        self.sources.push(Source::new(at, pages));
        self.migratepages += pages;
        self.counters_mut().compact_isolated += pages as u64;
    }

    /// The batch is complete.
    fn batch_ready(&mut self, next: Phase) {
        self.sort_sources();
        self.phase = next;
    }

    /// The free scanner: isolates free blocks of targets until there is room, and at
    /// least one.
    pub(super) fn gather(&mut self, owner: &mut impl Folios) -> Result<usize, Outcome> {
        let need = self.need();
        if P::BATCH == Batch::Region && self.has_room(&need, false) {
            self.phase = Phase::Migrate;
            return Ok(1);
        }
        if self.target.is_done() {
            let Some(block) = self.scan.next_target(owner) else {
                self.no_more_targets(owner);
                return Ok(1);
            };
            self.target = Span::of_block(block);
        }
        let from = self.target.at;
        while !self.target.is_done() {
            let at = pfn(self.target.at);
            self.target.at += match owner.look(at) {
                Found::Free(order) if order == Order::HUGE || self.claim.covers(at, 1) => {
                    order.pages()
                }
                Found::Free(order) => {
                    let taken = owner.isolate(at);
                    if let Some(order) = taken {
                        self.free.put(at, order);
                        self.counters_mut().compact_isolated += order.pages() as u64;
                        if self.has_room(&need, true) {
                            self.target.at += order.pages();
                            self.phase = Phase::Migrate;
                            break;
                        }
                    }
                    taken.map_or(order, |taken| taken).pages()
                }
                Found::Folio { pages, .. } | Found::Other { pages } => pages,
            };
        }
        let passed = self.target.at - from;
        self.counters_mut().compact_free_scanned += passed as u64;
        Ok(passed)
    }

    /// Whether enough is isolated for the batch: pages by number where it is moved as
    /// far as it goes (`isolated`: something just was), blocks by order where it is
    /// all or nothing.
    fn has_room(&self, need: &[usize; ORDERS], isolated: bool) -> bool {
        match P::BATCH {
            Batch::Cluster => isolated && self.free.pages() >= self.migratepages,
            Batch::Region => {
                // Cheap first: the exact test is done once it may succeed.
                self.free.pages() >= self.migratepages && self.free.short_of(need, &NONE).is_none()
            }
        }
    }

    /// How many blocks of each order the batch needs; not asked where it need not fit.
    fn need(&self) -> [usize; ORDERS] {
        let mut need = [0; ORDERS];
        if P::BATCH == Batch::Cluster {
            return need;
        }
        for source in &self.sources[self.next..] {
            need[source.order().index()] += 1;
        }
        need
    }

    /// Whether the region fits into all that is free, cutting folios if need be: known
    /// from the numbers of free blocks, before any is isolated.
    fn may_fit(&mut self, owner: &mut impl Folios) -> bool {
        let mut more = NONE;
        for order in Order::all().filter(|order| *order < Order::HUGE) {
            more[order.index()] = owner.free_blocks(order);
        }
        self.cut_to_fit(owner, &more)
    }

    /// The free scanner is at its end. What was isolated may still serve. A region
    /// that does not fit into it is left alone, unless cutting folios makes it fit.
    fn no_more_targets(&mut self, owner: &mut impl Folios) {
        match P::BATCH {
            Batch::Cluster => self.phase = Phase::Migrate,
            Batch::Region => {
                if !self.cut_to_fit(owner, &NONE) {
                    self.clear_sources();
                    self.drop_claim(owner);
                    self.phase = Phase::Collect;
                }
            }
        }
    }

    /// Cuts folios of the batch until all fit into what is isolated and `more` blocks
    /// elsewhere. `false` when the pages do not suffice, or one cannot be cut.
    fn cut_to_fit(&mut self, owner: &mut impl Folios, more: &[usize; ORDERS]) -> bool {
        let elsewhere = Order::all().map(|order| more[order.index()] * order.pages());
        if self.free.pages() + elsewhere.sum::<usize>() < self.migratepages {
            return false;
        }
        while let Some(order) = self.free.short_of(&self.need(), more) {
            if !self.cut_one(owner, order) {
                return false;
            }
        }
        true
    }

    /// Cuts one folio of `order` into single pages. `false` when none can be cut.
    fn cut_one(&mut self, owner: &mut impl Folios, order: Order) -> bool {
        let cut = (self.next..self.sources.len()).find(|nth| {
            let source = self.sources[*nth];
            source.order() == order && source.pages() > 1 && owner.split(source.at)
        });
        let Some(nth) = cut else { return false };
        let source = self.sources.remove(nth);
        // At the end, where the smallest are once the batch is sorted.
        let singles = (0..source.pages()).map(|page| Source::new(source.at.offset(page), 1));
        self.sources.extend(singles);
        self.counters_mut().thp_migration_split += 1;
        true
    }
}
