//! Which pageblocks are emptied, and which filled.

use alloc::vec;
use alloc::vec::Vec;

use super::folios::Folios;
use crate::buddy::BLOCK_SLOTS;
use crate::types::Order;

/// Slots `at .. end` that a scanner has still to look at.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Span {
    /// The next slot.
    pub at: usize,
    /// The slot after the last.
    pub end: usize,
}

impl Span {
    /// All of a pageblock.
    #[must_use]
    pub fn of_block(block: usize) -> Self {
        Self {
            at: block * BLOCK_SLOTS,
            end: (block + 1) * BLOCK_SLOTS,
        }
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.at >= self.end
    }
}

/// The order in which pageblocks are looked at.
pub trait Scan {
    /// For an arena of `blocks` pageblocks.
    fn new(blocks: usize) -> Self;

    /// A run for `order` begins.
    fn begin(&mut self, owner: &impl Folios, order: Order);

    /// What to empty next; `None` when the scanners have met.
    fn next_source(&mut self, owner: &impl Folios) -> Option<Span>;

    /// The pageblock to fill next; `None` when the scanners have met.
    fn next_target(&mut self, owner: &impl Folios) -> Option<usize>;

    /// A run has ended: what is left of the source, and the highest slot of the
    /// targets that was isolated and not used.
    fn end(&mut self, source: Span, unused: Option<usize>, met: bool);

    /// Whether the run looks at the whole arena, rather than at what an earlier one
    /// has left.
    fn is_whole(&self) -> bool;
}

/// The emptiest pageblocks are emptied, the fullest filled: ours.
///
/// Emptying a pageblock costs as many page copies as it has pages in use, so the
/// emptiest is the cheapest; and what goes to the fullest leaves the other emptyish
/// ones to be emptied next. The kernel has no counters to ask, and scans by position.
/// Last of all the rest of the source's own pageblock is filled, where less than all of
/// it is to be emptied, and the emptier ones, which were found to be no sources.
///
/// The plan is made once a run from the counters of the buddy allocators: two passes
/// over them and a counting sort, 8 bytes read per 2 MiB of arena. It gets older with
/// every step: who uses it looks again, and an old plan costs copies, nothing else.
#[derive(Debug)]
pub struct Emptiest {
    /// Pageblocks with both used and free slots, emptiest first; the first
    /// `planned` count.
    plan: Vec<u32>,
    planned: usize,
    /// The next source: those before it are done.
    source: usize,
    /// Targets are taken from the end: those from here on are done.
    target: usize,
    /// Whole pageblocks are wanted: ones with holes are no sources.
    whole: bool,
}

impl Emptiest {
    /// How many slots of a plannable pageblock are in use.
    fn used(owner: &impl Folios, block: usize) -> Option<usize> {
        let counts = owner.pageblock(block);
        (counts.free > 0 && counts.used() > 0).then(|| counts.used())
    }
}

impl Scan for Emptiest {
    fn new(blocks: usize) -> Self {
        Self {
            plan: vec![0; blocks],
            planned: 0,
            source: 0,
            target: 0,
            whole: false,
        }
    }

    fn begin(&mut self, owner: &impl Folios, order: Order) {
        let blocks = self.plan.len();
        // Where the pageblocks with so many slots in use go.
        let mut starts = [0_u32; BLOCK_SLOTS + 1];
        for block in 0..blocks {
            if let Some(used) = Self::used(owner, block) {
                starts[used] += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += core::mem::replace(start, sum);
        }
        // The owner may answer from behind locks of its own: never trust two
        // passes to agree.
        let mut planned = 0;
        for block in 0..blocks {
            let Some(used) = Self::used(owner, block) else {
                continue;
            };
            let at = starts[used] as usize;
            if at < blocks && planned < sum {
                self.plan[at] = u32::try_from(block).unwrap_or(0);
                starts[used] += 1;
                planned += 1;
            }
        }
        self.planned = sum as usize;
        self.source = 0;
        self.target = self.planned;
        self.whole = order == Order::HUGE;
    }

    fn next_source(&mut self, owner: &impl Folios) -> Option<Span> {
        while self.source < self.target {
            let block = self.plan[self.source] as usize;
            self.source += 1;
            let counts = owner.pageblock(block);
            if counts.used() > 0 && !(self.whole && counts.holes > 0) {
                return Some(Span::of_block(block));
            }
        }
        None
    }

    fn next_target(&mut self, owner: &impl Folios) -> Option<usize> {
        while let Some(target) = self.target.checked_sub(1) {
            self.target = target;
            let block = self.plan[target] as usize;
            let counts = owner.pageblock(block);
            let is_source = self.whole && target + 1 == self.source;
            if counts.free > 0 && counts.used() > 0 && !is_source {
                return Some(block);
            }
        }
        None
    }

    fn end(&mut self, _source: Span, _unused: Option<usize>, _met: bool) {
        self.planned = 0;
    }

    fn is_whole(&self) -> bool {
        true
    }
}
