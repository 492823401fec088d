//! The parts of folio compaction by themselves: index, score, back-off, isolated
//! blocks, claims.

mod support;

use proptest::prelude::*;
use support::{Arena, order, pfn};
use zfolio_mm::Order;
use zfolio_mm::compaction::backoff::{Defer, Proactive};
use zfolio_mm::compaction::claim::Claim;
use zfolio_mm::compaction::freepages::{FreePages, Merging};
use zfolio_mm::compaction::suitability::{
    Suitability, fragmentation_index, score, suitability, thresholds,
};
use zfolio_mm::compaction::variants::{Singles, Splitting, Unsplit};

/// An arena in which every `step`-th slot is free, of `blocks` pageblocks.
fn comb(blocks: usize, step: usize) -> Arena {
    let mut arena = Arena::backed(blocks);
    for at in (0..blocks * 512).filter(|at| at % step != 0) {
        arena.alloc_at(at, 1);
    }
    arena
}

#[test]
fn the_index_tells_fragmentation_from_lack() {
    let arena = Arena::backed(2);
    assert_eq!(fragmentation_index(&arena, Order::HUGE), -1000);
    assert_eq!(suitability(&arena, Order::HUGE), Suitability::NotNeeded);
    assert_eq!(fragmentation_index(&Arena::holes(2), order(1)), 0);
    assert_eq!(suitability(&Arena::holes(2), order(1)), Suitability::Skip);

    // 1024 single pages: 1000 - (1000 + 1024 * 1000 / 512) / 1024 = 1000 - 2.
    let arena = comb(4, 2);
    assert_eq!(fragmentation_index(&arena, Order::HUGE), 998);
    assert_eq!(suitability(&arena, Order::HUGE), Suitability::Continue);
    // 256 pages are free: not enough for a block, at whatever index.
    let arena = comb(1, 2);
    assert_eq!(fragmentation_index(&arena, Order::HUGE), 995);
    assert_eq!(suitability(&arena, Order::HUGE), Suitability::Skip);

    // Three blocks of order 8, 768 pages: 1000 - (1000 + 1500) / 3 = 167: lack.
    let mut arena = Arena::backed(3);
    for block in 0..3 {
        arena.alloc_at(block * 512, 256);
    }
    assert_eq!(fragmentation_index(&arena, Order::HUGE), 167);
    assert_eq!(suitability(&arena, Order::HUGE), Suitability::Skip);
    // Up to order 3 the index is not asked: two blocks of order 2 for one of 3.
    let mut arena = Arena::backed(1);
    arena.alloc_at(0, 248);
    arena.alloc_at(252, 256);
    assert_eq!(fragmentation_index(&arena, order(3)), 0);
    assert_eq!(suitability(&arena, order(3)), Suitability::Continue);
}

#[test]
fn the_score_is_what_is_free_outside_huge_blocks() {
    assert_eq!(score(&Arena::holes(1), 0), 0, "nothing is free");
    assert_eq!(score(&Arena::backed(2), 0), 0);
    let mut arena = Arena::backed(2);
    arena.alloc_at(0, 256);
    assert_eq!(score(&arena, 0), 33);
    assert_eq!(score(&arena, 256), 50, "held pages are free and in pieces");
    assert_eq!(thresholds(20), (80, 90));
    assert_eq!(thresholds(0), (100, 100));
    assert_eq!(thresholds(98), (5, 15));
    assert_eq!(thresholds(100), (5, 15));
}

#[test]
fn a_failure_for_an_order_does_not_defer_smaller_ones() {
    let mut defer = Defer::default();
    assert!(!defer.is_deferred(order(9)));
    defer.failure(order(6));
    assert!(!defer.is_deferred(order(5)));
    assert!(defer.is_deferred(order(9)));
    assert!(!defer.is_deferred(order(6)), "the second attempt is made");
    defer.success(order(6));
    assert!(!defer.is_deferred(order(6)));
    // A success up to the largest order forgets everything.
    defer.failure(order(9));
    defer.success(order(9));
    assert_eq!(defer, Defer::default());
}

#[test]
fn unasked_runs_keep_their_distance() {
    let mut proactive = Proactive::default();
    assert_eq!(proactive.poll(0, 99, 0), None, "switched off");
    assert_eq!(proactive.poll(0, 90, 20), None, "not above the high mark");
    assert_eq!(proactive.poll(499, 99, 20), None, "too early");
    assert_eq!(proactive.poll(500, 91, 20), Some(80));
    proactive.ended(600, 79);
    assert_eq!(proactive.poll(1099, 99, 20), None);
    assert_eq!(proactive.poll(1100, 99, 20), Some(80));
    proactive.ended(1200, 99);
    assert_eq!(proactive.poll(1200 + 64 * 500 - 1, 99, 20), None);
    assert_eq!(proactive.poll(1200 + 64 * 500, 99, 20), Some(80));
}

#[test]
fn isolated_blocks_split_as_far_as_the_store_allows() {
    fn store<F: FreePages>() -> F {
        let mut store = F::new(512);
        store.put(pfn(8), order(3));
        store
    }
    let mut singles: Singles = store();
    assert_eq!(singles.blocks(order(0)), 8);
    assert_eq!(singles.take(order(1)), None);
    assert_eq!(singles.take(order(0)), Some(pfn(8)));

    let mut unsplit: Unsplit = store();
    assert_eq!(unsplit.take(order(0)), None);
    assert_eq!(unsplit.take(order(3)), Some(pfn(8)));

    let mut splitting: Splitting = store();
    assert_eq!(splitting.take(order(0)), Some(pfn(8)));
    assert_eq!(splitting.take(order(1)), Some(pfn(10)));
    splitting.put(pfn(8), order(0));
    splitting.put(pfn(10), order(1));
    assert_eq!(splitting.pop(), Some((pfn(12), order(2))), "never merged");

    let mut merging: Merging = store();
    assert_eq!(merging.take(order(0)), Some(pfn(8)));
    assert_eq!(merging.take(order(1)), Some(pfn(10)));
    merging.put(pfn(8), order(0));
    merging.put(pfn(10), order(1));
    assert_eq!(merging.pop(), Some((pfn(8), order(3))), "whole again");
}

#[test]
fn a_claim_is_whole_when_every_slot_is() {
    let mut claim = Claim::new(pfn(1024), order(4));
    claim.add(pfn(1024), 3);
    claim.add(pfn(1028), 12);
    claim.validate().expect("invariants");
    assert!(!claim.is_whole() && claim.holds(pfn(1026)) && !claim.holds(pfn(1027)));
    assert_eq!(claim.pop(), Some((pfn(1024), 3)));
    claim.add(pfn(1024), 4);
    assert!(claim.is_whole());
    assert_eq!(claim.pop(), Some((pfn(1024), 16)));
    assert_eq!((claim.pop(), claim.pages()), (None, 0));
    assert!(!claim.covers(pfn(1023), 2) && !claim.covers(pfn(1039), 2));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// What is said to fit is taken, large ones first, and what does not is not.
    #[test]
    fn short_of_is_exact(
        blocks in prop::collection::vec((0usize..32, 0u8..=4), 0..12),
        need in prop::array::uniform4(0usize..6),
    ) {
        let mut store = Merging::new(512);
        for (slot, o) in blocks {
            let at = pfn((slot * 16) >> o << o);
            if (0..1 << o).all(|page| !store.holds(at.offset(page))) {
                store.put(at, order(o));
            }
        }
        let mut wanted = [0; 10];
        wanted[..4].copy_from_slice(&need);
        let fits = store.short_of(&wanted, &[0; 10]).is_none();
        let orders = (0..4).rev().flat_map(|o| std::iter::repeat_n(order(o), need[usize::from(o)]));
        let taken = orders.map(|o| store.take(o)).all(|at| at.is_some());
        prop_assert_eq!(fits, taken);
    }
}
