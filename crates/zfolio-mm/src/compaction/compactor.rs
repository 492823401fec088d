//! The run: begin, steps, outcome.
//!
//! ```text
//!            +-----------+  list full   +----------+  room enough  +-----------+
//!   begin -->|  Collect  |------------->|  Gather  |-------------->|  Migrate  |
//!            |  sources  |              |  targets |<--------------|  one by 1 |
//!            +-----------+              +----------+   none left   +-----------+
//!                  ^                          no room: region dropped    |
//!                  +-----------------------------------------------------+
//! ```
//!
//! A run ends when a block of the order wanted is free, when the score is reached,
//! when the scanners have met, when the owner is contended, or (in the one variant
//! that has this fault) when a folio finds no free block of exactly its order.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::backoff::Defer;
use super::claim::Claim;
use super::counters::Counters;
use super::folios::Folios;
use super::freepages::FreePages;
use super::policy::{Batch, Policy};
use super::request::{Goal, NotBegun, Outcome, Request, Step};
use super::scan::{Scan, Span};
use super::suitability::{Suitability, score, suitability};
use crate::buddy::BLOCK_SLOTS;
use crate::types::{Order, Pfn};

/// A folio listed for migration: a hint, looked at again before it is moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) at: Pfn,
    pub(super) pages: u16,
}

impl Source {
    /// A folio of 1 ..= 512 pages.
    pub(super) fn new(at: Pfn, pages: usize) -> Self {
        let pages = u16::try_from(pages).unwrap_or(u16::MAX);
        Self { at, pages }
    }

    pub(super) fn pages(self) -> usize {
        usize::from(self.pages)
    }

    /// The order of the block it needs.
    pub(super) fn order(self) -> Order {
        Order::holding(self.pages()).unwrap_or(Order::HUGE)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle,
    Collect,
    Gather,
    Migrate,
}

/// Compacts one arena. Its tables take 9 bytes of address space per slot and memory
/// only where something was isolated; nothing is allocated during a run, but for
/// the lists of the variants.
#[derive(Debug)]
pub struct Compactor<P: Policy> {
    pub(super) scan: P::Scan,
    pub(super) free: P::Free,
    pub(super) claim: Claim,
    /// The batch, of which those before `next` are done.
    pub(super) sources: Vec<Source>,
    pub(super) next: usize,
    /// Pages of the sources not done yet.
    pub(super) migratepages: usize,
    /// Sources refused as busy are looked at once more, in a second pass.
    pub(super) second_pass: bool,
    pub(super) source: Span,
    pub(super) target: Span,
    pub(super) phase: Phase,
    /// The pageblock whose rest is isolated at once, `None` for batches of 32.
    pub(super) finishing: bool,
    /// The free scanner was run for the source at hand already.
    pub(super) retried: bool,
    /// The scanners have met.
    pub(super) met: bool,
    request: Request,
    /// An allocation waits for this run.
    direct: bool,
    counters: Counters,
    defer: Defer,
}

impl<P: Policy> Compactor<P> {
    /// For an arena of `slots` slots.
    ///
    /// # Panics
    /// As [`crate::Buddy::new`].
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self {
            scan: P::Scan::new(slots / BLOCK_SLOTS),
            free: P::Free::new(slots),
            claim: Claim::default(),
            sources: Vec::with_capacity(BLOCK_SLOTS),
            next: 0,
            migratepages: 0,
            second_pass: false,
            source: Span::default(),
            target: Span::default(),
            phase: Phase::Idle,
            finishing: false,
            retried: false,
            met: false,
            request: Request {
                order: Order::HUGE,
                goal: Goal::OneBlock,
            },
            direct: false,
            counters: Counters::default(),
            defer: Defer::default(),
        }
    }

    /// What was counted since the compactor was made.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Pages taken from the owner and not given back yet.
    #[must_use]
    pub fn held_pages(&self) -> usize {
        self.free.pages() + self.claim.pages()
    }

    /// Whether a run is under way.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.phase != Phase::Idle
    }

    /// Begins a run for an allocation of `order` that has failed, if it is worth
    /// trying.
    ///
    /// # Errors
    /// Why it is not.
    ///
    /// # Panics
    /// When a run is under way.
    pub fn begin_direct(&mut self, owner: &impl Folios, order: Order) -> Result<(), NotBegun> {
        match suitability(owner, order) {
            Suitability::NotNeeded => return Err(NotBegun::NotNeeded),
            Suitability::Skip => return Err(NotBegun::NotSuitable),
            Suitability::Continue => {}
        }
        if self.defer.is_deferred(order) {
            return Err(NotBegun::Deferred);
        }
        let goal = Goal::OneBlock;
        self.begin(owner, Request { order, goal });
        self.direct = true;
        self.counters.compact_stall += 1;
        Ok(())
    }

    /// Begins a run that nobody waits for, whatever its prospects.
    ///
    /// # Panics
    /// When a run is under way.
    pub fn begin_unasked(&mut self, owner: &impl Folios, request: Request) {
        self.begin(owner, request);
        self.direct = false;
        self.counters.compact_daemon_wake += 1;
    }

    fn begin(&mut self, owner: &impl Folios, request: Request) {
        assert!(!self.is_running(), "a run is under way");
        self.request = request;
        self.scan.begin(owner, request.order);
        self.phase = Phase::Collect;
        self.met = false;
        self.finishing = false;
        self.source = Span::default();
        self.target = Span::default();
    }

    /// Goes on with the run until about `budget` slots were looked at or moved: at
    /// most a pageblock's looks and one folio more.
    ///
    /// # Panics
    /// When no run is under way.
    pub fn step(&mut self, owner: &mut impl Folios, budget: usize) -> Step {
        assert!(self.is_running(), "no run is under way");
        let mut spent = 0;
        while spent < budget.max(1) {
            if owner.contended() {
                return self.finish(owner, Outcome::Contended);
            }
            let unit = match (self.phase, P::BATCH) {
                (Phase::Idle | Phase::Collect, Batch::Cluster) => self.collect_cluster(owner),
                (Phase::Idle | Phase::Collect, Batch::Region) => self.collect_region(owner),
                (Phase::Gather, _) => self.gather(owner),
                (Phase::Migrate, _) => self.migrate(owner),
            };
            match unit {
                Ok(cost) => spent += cost.max(1),
                Err(outcome) => return self.finish(owner, outcome),
            }
        }
        Step::More
    }

    /// All steps of the run at once.
    ///
    /// # Panics
    /// When no run is under way.
    pub fn run(&mut self, owner: &mut impl Folios) -> Outcome {
        loop {
            if let Step::Done(outcome) = self.step(owner, usize::MAX) {
                return outcome;
            }
        }
    }

    /// Ends a run that is under way: everything held is given back.
    pub fn stop(&mut self, owner: &mut impl Folios) {
        if self.is_running() {
            self.finish(owner, Outcome::Contended);
        }
    }

    /// What ended: the scanners met.
    pub(super) fn scanners_met(&mut self) -> Outcome {
        self.met = true;
        if self.scan.is_whole() {
            Outcome::Complete
        } else {
            Outcome::Partial
        }
    }

    /// The order of the blocks wanted.
    pub(super) fn order(&self) -> Order {
        self.request.order
    }

    /// Whether a folio is small enough to be moved in this run.
    pub(super) fn is_small_enough(&self, pages: usize) -> bool {
        let limit = match self.request.goal {
            Goal::Everything => Order::HUGE,
            Goal::OneBlock | Goal::Score(_) => self.request.order,
        };
        Order::holding(pages).is_some_and(|order| order < limit)
    }

    /// Whether the goal is reached.
    pub(super) fn is_reached(&self, owner: &impl Folios) -> bool {
        match self.request.goal {
            Goal::OneBlock => Order::all()
                .filter(|order| *order >= self.request.order)
                .any(|order| owner.free_blocks(order) != 0),
            Goal::Score(low) => score(owner, self.held_pages()) <= low,
            Goal::Everything => false,
        }
    }

    /// Gives everything back and says how the run ended.
    fn finish(&mut self, owner: &mut impl Folios, outcome: Outcome) -> Step {
        let mut unused = (!self.target.is_done()).then_some(self.target.at);
        while let Some((at, order)) = self.free.pop() {
            owner.give(at, order.pages());
            unused = unused.max(Some(at.index()));
        }
        self.drop_claim(owner);
        // What was listed and not moved is for the next run.
        if let Some(first) = self.sources.get(self.next) {
            let block = first.at.index() / BLOCK_SLOTS;
            if self.source.end == (block + 1) * BLOCK_SLOTS {
                self.source.at = self.source.at.min(first.at.index());
            }
        }
        self.clear_sources();
        self.scan.end(self.source, unused, self.met);
        self.phase = Phase::Idle;
        if self.direct {
            match outcome {
                Outcome::Success => self.defer.success(self.request.order),
                Outcome::Complete => self.defer.failure(self.request.order),
                _ => {}
            }
            if outcome == Outcome::Success {
                self.counters.compact_success += 1;
            } else {
                self.counters.compact_fail += 1;
            }
        }
        Step::Done(outcome)
    }

    /// Gives the claimed slots back, as one block if that is what they are.
    pub(super) fn drop_claim(&mut self, owner: &mut impl Folios) {
        while let Some((at, pages)) = self.claim.pop() {
            owner.give(at, pages);
        }
    }

    /// Forgets the batch.
    pub(super) fn clear_sources(&mut self) {
        self.sources.clear();
        self.next = 0;
        self.migratepages = 0;
        self.second_pass = false;
        self.retried = false;
    }

    /// Whether compaction holds this slot. Slow: for tests.
    #[must_use]
    pub fn holds(&self, at: Pfn) -> bool {
        self.claim.holds(at) || self.free.holds(at)
    }

    /// Checks the invariants of [`super`] as far as they are the compactor's own.
    /// Takes time in proportion to the slots: for tests.
    ///
    /// # Errors
    /// A sentence on the first one found broken.
    pub fn validate(&self) -> Result<(), String> {
        self.free.validate()?;
        self.claim.validate()?;
        let base = self.claim.base();
        for slot in 0..self.claim.order().pages() {
            let at = base.offset(slot);
            if self.claim.holds(at) && self.free.holds(at) {
                return Err(format!("{at} is claimed and isolated"));
            }
        }
        let left: usize = self.sources[self.next..].iter().map(|s| s.pages()).sum();
        if left != self.migratepages {
            return Err(format!(
                "{left} pages listed, {} counted",
                self.migratepages
            ));
        }
        if !self.is_running() && self.held_pages() + self.sources.len() != 0 {
            return Err(format!("{} pages held without a run", self.held_pages()));
        }
        Ok(())
    }
}
