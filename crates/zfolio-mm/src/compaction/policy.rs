//! What is compacted how: the parts a compactor is put together from.
//!
//! A policy is a type, so the running system carries no branch of the others.

use super::freepages::{FreePages, Merging};
use super::scan::{Emptiest, Scan};

/// Which folios are moved, and as what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sources {
    /// Folios of one page; larger ones stay where they are.
    SinglePages,
    /// All, but cut into single pages first.
    Split,
    /// All, whole.
    Whole,
}

/// In what order the folios of a batch are moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// As they lie.
    AsFound,
    /// Small ones first: large free blocks are split late.
    SmallFirst,
    /// Large ones first: the best fit for each size.
    LargeFirst,
}

/// How far a run goes at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batch {
    /// 32 pages, the rest of the pageblock after that; what comes free is the
    /// owner's at once.
    Cluster,
    /// A region of the order wanted, all or nothing: not begun before there is room
    /// for all of it, and kept until it is whole.
    Region,
}

/// A way to compact.
pub trait Policy {
    /// Its name in tables.
    const NAME: &'static str;
    /// Which folios are moved.
    const SOURCES: Sources;
    /// In what order.
    const SORT: Sort;
    /// How far at a time.
    const BATCH: Batch;
    /// Isolated free blocks.
    type Free: FreePages;
    /// Which pageblocks.
    type Scan: Scan;
}

/// What the running system uses: empty the emptiest region into the fullest
/// pageblocks, all or nothing.
///
/// Beside what it takes over (whole folios, free blocks split on demand):
/// - pageblocks are chosen by how full they are ([`Emptiest`]);
/// - a region with something in it that cannot move is known before anything of it
///   is moved, and left alone;
/// - so is one whose folios find no room, by an exact test on the numbers of free
///   blocks ([`FreePages::short_of`]); only when there are the pages but not the blocks
///   are folios cut, one by one until the rest fits;
/// - folios are moved large ones first, so that the test holds;
/// - what comes free of the region is claimed until it is whole;
/// - isolated pages merge ([`Merging`]).
#[derive(Clone, Copy, Debug)]
pub struct Evacuate;

impl Policy for Evacuate {
    const NAME: &'static str = "evacuate";
    const SOURCES: Sources = Sources::Whole;
    const SORT: Sort = Sort::LargeFirst;
    const BATCH: Batch = Batch::Region;
    type Free = Merging;
    type Scan = Emptiest;
}
