//! Is it worth trying? Fragmentation index, suitability, score.
//!
//! The formulas are the Linux kernel's (mm/vmstat.c, mm/compaction.c, as facts).

use super::folios::Folios;
use crate::types::Order;

/// An index of at most this says that an allocation fails for lack of memory rather
/// than for fragmentation (the kernel's `extfrag_threshold`).
pub const EXTFRAG_THRESHOLD: i64 = 500;

/// The largest order whose allocation is not thought costly: up to it, compaction
/// is tried whatever the index says.
pub const COSTLY_ORDER: u8 = 3;

/// What can be expected of compaction for one order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suitability {
    /// A large enough block is free already.
    NotNeeded,
    /// Not enough memory is free, or what is free is in few blocks.
    Skip,
    /// Worth trying.
    Continue,
}

/// The fragmentation index for `order`, in thousandths: -1000 when a block of that
/// order is free, 0 when nothing is; else towards 0 for lack of memory, towards 1000
/// for fragmentation.
#[must_use]
pub fn fragmentation_index(owner: &impl Folios, order: Order) -> i64 {
    let mut blocks = 0;
    for at in Order::all() {
        let free = owner.free_blocks(at);
        if at >= order && free != 0 {
            return -1000;
        }
        blocks += free;
    }
    if blocks == 0 {
        return 0;
    }
    let wide = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let requested = wide(order.pages());
    1000 - (1000 + wide(owner.free_pages()) * 1000 / requested) / wide(blocks)
}

/// Whether compaction for `order` is worth trying.
///
/// The kernel wants twice the block free besides its reserves; here it is the block's
/// own size, below which no amount of moving can make one.
#[must_use]
pub fn suitability(owner: &impl Folios, order: Order) -> Suitability {
    let index = fragmentation_index(owner, order);
    if index == -1000 {
        Suitability::NotNeeded
    } else if owner.free_pages() < order.pages()
        || order.get() > COSTLY_ORDER && (0..=EXTFRAG_THRESHOLD).contains(&index)
    {
        Suitability::Skip
    } else {
        Suitability::Continue
    }
}

/// The share of free memory that is not in blocks of order 9, in percent. `held` are
/// free pages that compaction has isolated.
#[must_use]
pub fn score(owner: &impl Folios, held: usize) -> usize {
    let free = owner.free_pages() + held;
    let huge = owner.free_blocks(Order::HUGE) * Order::HUGE.pages();
    ((free - huge) * 100).checked_div(free).unwrap_or(0)
}

/// Where compaction unasked stops and where it starts, as scores in percent.
/// `proactiveness` is the kernel's tunable, 0 ..= 100 (20 there).
#[must_use]
pub fn thresholds(proactiveness: usize) -> (usize, usize) {
    let low = 100_usize.saturating_sub(proactiveness).max(5);
    (low, (low + 10).min(100))
}
