//! The five configurations of the Linux series on compaction of large folios
//! (2023), for comparison. Nothing here is part of the running system.
//!
//! | variant | folios of several pages | isolated free blocks |
//! |---|---|---|
//! | [`Base`] | stay | single pages |
//! | [`SplitFolios`] | cut into single pages, then moved | single pages |
//! | [`MigrateWhole`] | moved whole | by order, never split |
//! | [`SplitFree`] | moved whole | by order, split on demand |
//! | [`SortSources`] | moved whole, small ones first | by order, split on demand |
//!
//! [`MigrateWhole`] has the fault that made moving folios whole look slower than
//! cutting them: a single page that finds no single free page ends the whole run,
//! larger blocks or not ([`super::Outcome::NoFreePage`]).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::folios::Folios;
use super::freepages::FreePages;
use super::policy::{Batch, Policy, Sort, Sources};
use super::scan::{Scan, Span};
use crate::buddy::BLOCK_SLOTS;
use crate::types::{ORDERS, Order, Pfn};

/// How many pages of a block are kept together.
#[derive(Debug)]
pub struct Lists<const SINGLES: bool, const SPLITS: bool> {
    /// Blocks by order.
    lists: [Vec<Pfn>; ORDERS],
    pages: usize,
}

/// Single pages only: larger blocks are taken apart at once.
pub type Singles = Lists<true, false>;
/// Blocks as they were isolated.
pub type Unsplit = Lists<false, false>;
/// Blocks that are split on demand, and never merged.
pub type Splitting = Lists<false, true>;

impl<const SINGLES: bool, const SPLITS: bool> FreePages for Lists<SINGLES, SPLITS> {
    const SPLITS: bool = SPLITS;

    fn new(_slots: usize) -> Self {
        Self {
            lists: [const { Vec::new() }; ORDERS],
            pages: 0,
        }
    }

    fn pages(&self) -> usize {
        self.pages
    }

    fn blocks(&self, order: Order) -> usize {
        self.lists[order.index()].len()
    }

    fn put(&mut self, at: Pfn, order: Order) {
        self.pages += order.pages();
        if SINGLES {
            let pages = (0..order.pages()).rev().map(|page| at.offset(page));
            self.lists[0].extend(pages);
        } else {
            self.lists[order.index()].push(at);
        }
    }

    fn take(&mut self, order: Order) -> Option<Pfn> {
        let from = Order::all()
            .filter(|from| *from >= order && (SPLITS || *from == order))
            .find(|from| self.blocks(*from) != 0)?;
        let at = self.lists[from.index()].pop()?;
        for half in Order::all().filter(|half| (order..from).contains(half)) {
            self.lists[half.index()].push(at.offset(half.pages()));
        }
        self.pages -= order.pages();
        Some(at)
    }

    fn pop(&mut self) -> Option<(Pfn, Order)> {
        let order = Order::all().rev().find(|order| self.blocks(*order) != 0)?;
        let at = self.lists[order.index()].pop()?;
        self.pages -= order.pages();
        Some((at, order))
    }

    fn validate(&self) -> Result<(), String> {
        let mut runs: Vec<(usize, usize)> = Order::all()
            .flat_map(|order| {
                let list = &self.lists[order.index()];
                list.iter().map(move |at| (at.index(), order.pages()))
            })
            .collect();
        runs.sort_unstable();
        let sum: usize = runs.iter().map(|(_, pages)| pages).sum();
        if sum != self.pages {
            return Err(format!("{sum} pages listed, {} counted", self.pages));
        }
        for pair in runs.windows(2) {
            if pair[0].0 + pair[0].1 > pair[1].0 {
                return Err(format!("blocks at {} and {} overlap", pair[0].0, pair[1].0));
            }
        }
        match runs.iter().find(|(at, pages)| at % pages != 0) {
            Some((at, _)) => Err(format!("misaligned block at {at}")),
            None => Ok(()),
        }
    }

    fn holds(&self, at: Pfn) -> bool {
        Order::all().any(|order| {
            let mut list = self.lists[order.index()].iter();
            list.any(|block| (block.index()..block.index() + order.pages()).contains(&at.index()))
        })
    }
}

/// The kernel's scanners: sources from the bottom up, targets from the top down, by
/// pageblock, until they meet. Where they are is kept from run to run.
#[derive(Debug)]
pub struct Linear {
    blocks: usize,
    /// The next slot of the migrate scanner.
    source: usize,
    /// The free scanner has this pageblock and all above it behind it.
    target: usize,
    /// The run began at both ends of the arena.
    whole: bool,
}

impl Scan for Linear {
    fn new(blocks: usize) -> Self {
        Self {
            blocks,
            source: 0,
            target: blocks,
            whole: true,
        }
    }

    fn begin(&mut self, _owner: &impl Folios, _order: Order) {
        self.whole = self.source == 0 && self.target == self.blocks;
    }

    fn next_source(&mut self, _owner: &impl Folios) -> Option<Span> {
        let block = self.source / BLOCK_SLOTS;
        if block >= self.target {
            return None;
        }
        let span = Span {
            at: self.source,
            ..Span::of_block(block)
        };
        self.source = span.end;
        Some(span)
    }

    fn next_target(&mut self, _owner: &impl Folios) -> Option<usize> {
        // The source at hand ends at `source`.
        let sources = self.source.div_ceil(BLOCK_SLOTS);
        if self.target <= sources {
            return None;
        }
        self.target -= 1;
        Some(self.target)
    }

    fn end(&mut self, source: Span, unused: Option<usize>, met: bool) {
        if met {
            *self = Self::new(self.blocks);
            return;
        }
        if !source.is_done() {
            self.source = source.at;
        }
        if let Some(unused) = unused {
            self.target = self.target.max(unused / BLOCK_SLOTS + 1);
        }
    }

    fn is_whole(&self) -> bool {
        self.whole
    }
}

macro_rules! variants {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $sources:ident, $free:ident, $sort:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Policy for $name {
            const NAME: &'static str = $text;
            const SOURCES: Sources = Sources::$sources;
            const SORT: Sort = Sort::$sort;
            const BATCH: Batch = Batch::Cluster;
            type Free = $free;
            type Scan = Linear;
        }
    )*};
}

variants! {
    /// Single pages are compacted, larger folios stay.
    Base = "base", SinglePages, Singles, AsFound;
    /// Larger folios are cut into single pages first.
    SplitFolios = "split-folios", Split, Singles, AsFound;
    /// Folios are moved whole, into free blocks of exactly their order.
    MigrateWhole = "migrate-whole", Whole, Unsplit, AsFound;
    /// Folios are moved whole, free blocks are split for them.
    SplitFree = "split-free", Whole, Splitting, AsFound;
    /// As [`SplitFree`], with the folios of a batch sorted by order.
    SortSources = "sort-sources", Whole, Splitting, SmallFirst;
}
