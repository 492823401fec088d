//! Moving the batch, a folio at a time.

use super::compactor::{Compactor, Phase, Source};
use super::folios::{Folios, Found, Refused};
use super::freepages::FreePages;
use super::policy::{Batch, Policy, Sort, Sources};
use super::request::Outcome;
use crate::types::Pfn;

impl<P: Policy> Compactor<P> {
    /// Puts the batch in the order in which it is moved.
    pub(super) fn sort_sources(&mut self) {
        match P::SORT {
            Sort::AsFound => {}
            Sort::SmallFirst => self.sources.sort_unstable_by_key(|s| (s.order(), s.at)),
            Sort::LargeFirst => {
                self.sources
                    .sort_unstable_by_key(|s| (core::cmp::Reverse(s.order()), s.at));
            }
        }
    }

    /// One unit of a step: moves the next folio of the batch, or ends the batch.
    pub(super) fn migrate(&mut self, owner: &mut impl Folios) -> Result<usize, Outcome> {
        let Some(&source) = self.sources.get(self.next) else {
            return self.batch_done(owner);
        };
        let Source { at, .. } = source;
        let pages = source.pages();
        let found = owner.look(at);
        let same = matches!(found, Found::Folio { pages: now, movable }
            if now == pages && self.takes(now, movable));
        if !same {
            let busy = matches!(found, Found::Folio { movable: false, .. });
            self.pass_over(
                owner,
                source,
                if busy { Refused::Busy } else { Refused::Gone },
            );
            return Ok(1);
        }
        if P::SOURCES == Sources::Split && pages > 1 {
            self.split(owner, source);
            return Ok(1);
        }
        let Some(to) = self.take_target(source) else {
            return self.no_target(owner, source);
        };
        match owner.migrate(at, to, pages) {
            Ok(()) => self.moved(owner, source),
            Err(why) => {
                self.free.put_run(to, pages);
                self.pass_over(owner, source, why);
            }
        }
        Ok(pages)
    }

    /// Room for a folio: a block of the order that holds it, less its tail.
    fn take_target(&mut self, source: Source) -> Option<Pfn> {
        let order = source.order();
        let to = self.free.take(order)?;
        let pages = source.pages();
        self.free.put_run(to.offset(pages), order.pages() - pages);
        Some(to)
    }

    /// A folio has left its place.
    fn moved(&mut self, owner: &mut impl Folios, source: Source) {
        let pages = source.pages();
        let large = u64::from(pages > 1);
        let counters = self.counters_mut();
        counters.pgmigrate_success += pages as u64;
        counters.thp_migration_success += large;
        match P::BATCH {
            Batch::Cluster => owner.give(source.at, pages),
            Batch::Region => self.claim.add(source.at, pages),
        }
        self.done_with(source);
    }

    /// A folio stays where it is.
    fn pass_over(&mut self, owner: &mut impl Folios, source: Source, why: Refused) {
        if why == Refused::Busy {
            let large = u64::from(source.pages() > 1);
            let counters = self.counters_mut();
            counters.pgmigrate_fail += source.pages() as u64;
            counters.thp_migration_fail += large;
        }
        self.done_with(source);
        if P::BATCH == Batch::Region && self.second_pass {
            // The region will not be whole: copying more of it is for nothing.
            self.drop_region(owner);
        }
    }

    fn done_with(&mut self, source: Source) {
        self.next += 1;
        self.migratepages -= source.pages();
        self.retried = false;
    }

    /// Cuts a folio into single pages, which join the batch.
    fn split(&mut self, owner: &mut impl Folios, source: Source) {
        let pages = source.pages();
        self.done_with(source);
        if owner.split(source.at) {
            self.counters_mut().thp_migration_split += 1;
            let singles = (0..pages).map(|page| Source::new(source.at.offset(page), 1));
            self.sources.extend(singles);
            self.migratepages += pages;
        } else {
            let counters = self.counters_mut();
            counters.pgmigrate_fail += pages as u64;
            counters.thp_migration_fail += 1;
        }
    }

    /// No isolated block is large enough. The free scanner is run once more; after
    /// that a folio of several pages is cut, if it can be, or left, and a single page
    /// ends the run.
    fn no_target(&mut self, owner: &mut impl Folios, source: Source) -> Result<usize, Outcome> {
        if P::BATCH == Batch::Region {
            // Room for all was made sure of, so this is a fault of ours: leave the
            // region rather than look for room for ever.
            debug_assert!(false, "no room for {} pages", source.pages());
            self.drop_region(owner);
            return Ok(1);
        }
        if !self.retried {
            self.retried = true;
            self.phase = Phase::Gather;
            return Ok(1);
        }
        if source.pages() > 1 {
            self.split(owner, source);
            return Ok(1);
        }
        if P::Free::SPLITS {
            // Nothing at all is isolated, and the free scanner has looked everywhere.
            debug_assert_eq!(
                self.free.pages(),
                0,
                "a page was wanted and there were some"
            );
            return Err(self.scanners_met());
        }
        if self.free.pages() == 0 {
            return Err(self.scanners_met());
        }
        Err(Outcome::NoFreePage)
    }

    /// The batch was gone through.
    fn batch_done(&mut self, owner: &mut impl Folios) -> Result<usize, Outcome> {
        self.clear_sources_keep_pass();
        if P::BATCH == Batch::Region {
            if !self.claim.is_whole() && !self.second_pass {
                // Folios that were busy, and slots that came free meanwhile.
                self.second_pass = true;
                if self.list_region(owner) && !self.sources.is_empty() {
                    self.sort_sources();
                    self.phase = Phase::Gather;
                    return Ok(self.order().pages());
                }
            }
            self.drop_region(owner);
        }
        self.phase = Phase::Collect;
        if self.is_reached(owner) {
            return Err(Outcome::Success);
        }
        Ok(1)
    }

    fn clear_sources_keep_pass(&mut self) {
        let pass = self.second_pass;
        self.clear_sources();
        self.second_pass = pass;
    }

    /// Ends work on the region: it goes back whole, or in pieces.
    fn drop_region(&mut self, owner: &mut impl Folios) {
        self.clear_sources();
        self.drop_claim(owner);
        self.phase = Phase::Collect;
    }
}
