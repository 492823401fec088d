//! One cell of the experiment: a variant, an arena, an order.

use super::arena::{Arena, Layout};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use zfolio_mm::Order;
use zfolio_mm::compaction::variants::{Base, MigrateWhole, SortSources, SplitFolios, SplitFree};
use zfolio_mm::compaction::{Compactor, Evacuate, Folios, Goal, Outcome, Policy, Request};

/// A run that failed is tried once more, for those that began where the one before
/// had stopped; then no more blocks are asked for.
const FAILURES: usize = 2;

/// How runs ended, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Ends {
    pub(super) success: u64,
    /// The scanners met.
    pub(super) met: u64,
    /// No free page of the folio's order was isolated.
    pub(super) no_free_page: u64,
    /// Of these, with a larger block free.
    pub(super) early: u64,
}

/// What was measured.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Cell {
    /// Bytes of a block of the order asked for.
    pub(super) block: usize,
    /// Blocks that the free memory is worth.
    pub(super) wanted: usize,
    /// Blocks obtained.
    pub(super) got: usize,
    /// Of these, by compaction: the others were there.
    pub(super) made: usize,
    /// Pages copied, for nothing too.
    pub(super) copied: u64,
    /// Folios cut into pages.
    pub(super) split: u64,
    pub(super) ends: Ends,
    /// Time of the processor in compaction.
    pub(super) took: Duration,
    /// Pages whose contents were wrong afterwards: 0.
    pub(super) damaged: usize,
}

/// A variant by its name.
pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) measure: fn(Layout, &mut [u8], Order) -> Cell,
}

const fn variant<P: Policy>() -> Variant {
    Variant {
        name: P::NAME,
        measure: measure::<P>,
    }
}

/// The base first, ours last.
pub(super) const VARIANTS: [Variant; 6] = [
    variant::<Base>(),
    variant::<SplitFolios>(),
    variant::<MigrateWhole>(),
    variant::<SplitFree>(),
    variant::<SortSources>(),
    variant::<Evacuate>(),
];

/// Asks for blocks of `order` until all that is free has been asked for, or two runs
/// in succession fail.
fn measure<P: Policy>(layout: Layout, bytes: &mut [u8], order: Order) -> Cell {
    let mut arena = Arena::new(layout, bytes);
    let mut compactor = Compactor::<P>::new(arena.slots());
    let request = Request {
        order,
        goal: Goal::OneBlock,
    };
    let mut cell = Cell {
        block: order.bytes(),
        wanted: arena.free_pages() / order.pages(),
        ..Cell::default()
    };
    let mut failures = 0;
    while cell.got < cell.wanted && failures < FAILURES {
        if arena.take(order) {
            cell.got += 1;
            continue;
        }
        let begin = cpu_time();
        compactor.begin_unasked(&arena, request);
        let outcome = compactor.run(&mut arena);
        cell.took += cpu_time().saturating_sub(begin);
        match outcome {
            Outcome::Success => cell.ends.success += 1,
            Outcome::NoFreePage => {
                cell.ends.no_free_page += 1;
                let larger = Order::all().skip(1).any(|o| arena.free_blocks(o) > 0);
                cell.ends.early += u64::from(larger);
            }
            _ => cell.ends.met += 1,
        }
        if outcome == Outcome::Success && arena.take(order) {
            cell.got += 1;
            cell.made += 1;
            failures = 0;
        } else {
            failures += 1;
        }
    }
    let counters = compactor.counters();
    cell.copied = counters.pgmigrate_success;
    cell.split = counters.thp_migration_split;
    cell.damaged = arena.damaged();
    cell
}

/// What this thread has used of a processor: on a machine with other work, elapsed
/// time says little.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    Duration::from_secs(part(now.tv_sec)) + Duration::from_nanos(part(now.tv_nsec))
}
