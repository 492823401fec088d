//! Single rules of folio compaction that random operations would not pin down.

mod support;

use support::{Arena, order, pfn};
use zfolio_mm::compaction::{
    Compactor, Counters, Evacuate, Folios, Goal, NotBegun, Outcome, Policy, Request, Step, variants,
};
use zfolio_mm::{Kind, Order};

const HUGE: Request = Request {
    order: Order::HUGE,
    goal: Goal::OneBlock,
};

const EVERYTHING: Request = Request {
    order: Order::HUGE,
    goal: Goal::Everything,
};

/// Runs a request and checks the arena.
fn run<P: Policy>(arena: &mut Arena, request: Request) -> (Outcome, Counters) {
    let mut compactor = Compactor::<P>::new(arena.slots());
    compactor.begin_unasked(arena, request);
    let outcome = compactor.run(arena);
    arena.check(&compactor);
    (outcome, *compactor.counters())
}

/// The first pageblock has single pages to move; free is one order-9 block that is
/// not a target, and in the third pageblock one block of order 8 and no single page.
fn early_abort() -> Arena {
    let mut arena = Arena::backed(3);
    for slot in (0..512).step_by(2) {
        arena.alloc_at(slot, 1);
    }
    for block in [1, 2] {
        arena.alloc_at(block * 512, 256);
    }
    arena
}

fn outcome_of<P: Policy>(mut arena: Arena) -> (&'static str, Outcome, u64) {
    let (outcome, counters) = run::<P>(&mut arena, HUGE);
    (P::NAME, outcome, counters.pgmigrate_success)
}

#[test]
fn only_migrate_whole_aborts_while_larger_blocks_are_free() {
    let mut arena = early_abort();
    let (outcome, counters) = run::<variants::MigrateWhole>(&mut arena, HUGE);
    assert_eq!(outcome, Outcome::NoFreePage);
    assert_eq!(counters.pgmigrate_success, 0);
    assert_eq!(arena.free_blocks(order(8)), 2, "and yet there was room");

    let others = [
        outcome_of::<variants::Base>(early_abort()),
        outcome_of::<variants::SplitFolios>(early_abort()),
        outcome_of::<variants::SplitFree>(early_abort()),
        outcome_of::<variants::SortSources>(early_abort()),
        outcome_of::<Evacuate>(early_abort()),
    ];
    for (name, outcome, moved) in others {
        assert_eq!((outcome, moved), (Outcome::Success, 256), "{name}");
    }
}

/// Three pageblocks with `used` folios of `pages` each at their starts.
fn rows(blocks: usize, used: usize, pages: usize) -> Arena {
    let mut arena = Arena::backed(blocks);
    let step = 512 / used;
    for at in (0..blocks * 512).step_by(step) {
        arena.alloc_at(at, pages);
    }
    arena
}

#[test]
fn folios_are_moved_as_each_variant_says() {
    let counters = |run: fn(&mut Arena) -> (Outcome, Counters)| run(&mut rows(4, 16, 4));
    let (outcome, base) = counters(|arena| run::<variants::Base>(arena, HUGE));
    assert_eq!(outcome, Outcome::Complete, "there are no single pages");
    assert_eq!(base.pgmigrate_success, 0);

    let (outcome, split) = counters(|arena| run::<variants::SplitFolios>(arena, HUGE));
    assert_eq!(outcome, Outcome::Success);
    assert_eq!(
        (split.pgmigrate_success, split.thp_migration_split),
        (64, 16)
    );

    for (outcome, whole) in [
        counters(|arena| run::<variants::SplitFree>(arena, HUGE)),
        counters(|arena| run::<variants::SortSources>(arena, HUGE)),
        counters(|arena| run::<Evacuate>(arena, HUGE)),
    ] {
        assert_eq!(outcome, Outcome::Success);
        assert_eq!(whole.pgmigrate_success, 64);
        assert_eq!(
            (whole.thp_migration_success, whole.thp_migration_split),
            (16, 0)
        );
    }
}

#[test]
fn the_emptiest_pageblock_is_emptied_into_the_fullest() {
    let mut arena = Arena::backed(4);
    for (block, used) in [(0, 300), (1, 40), (2, 100), (3, 400)] {
        for at in 0..used {
            arena.alloc_at(block * 512 + at, 1);
        }
    }
    let (outcome, counters) = run::<Evacuate>(&mut arena, HUGE);
    assert_eq!(
        (outcome, counters.pgmigrate_success),
        (Outcome::Success, 40)
    );
    let used: Vec<usize> = (0..4).map(|b| arena.pageblock(b).used()).collect();
    assert_eq!(used, [300, 0, 100, 440]);
    // By position the first pageblock is emptied, and into the last.
    let mut arena = Arena::backed(4);
    for (block, used) in [(0, 300), (1, 40), (2, 100), (3, 400)] {
        for at in 0..used {
            arena.alloc_at(block * 512 + at, 1);
        }
    }
    let (outcome, counters) = run::<variants::SplitFree>(&mut arena, HUGE);
    assert_eq!(
        (outcome, counters.pgmigrate_success),
        (Outcome::Success, 300)
    );
}

#[test]
fn a_pageblock_that_cannot_come_free_is_not_begun() {
    // The second pageblock is by far the emptiest.
    let fill = |arena: &mut Arena| {
        for at in 0..100 {
            arena.alloc_at(at, 1);
            arena.alloc_at(1024 + at, 1);
        }
        arena.alloc_at(512, 4);
    };
    let mut immovable = Arena::backed(3);
    fill(&mut immovable);
    immovable.folio_mut(512).movable = false;
    let mut hole = Arena::holes(3);
    for _ in 0..512 + 511 {
        hole.populate(Order::PAGE);
    }
    hole.populate(Order::HUGE);
    fill(&mut hole);
    assert_eq!(hole.pageblock(1).holes, 1);
    for mut arena in [immovable, hole] {
        let (outcome, counters) = run::<Evacuate>(&mut arena, HUGE);
        assert_eq!(
            (outcome, counters.pgmigrate_success),
            (Outcome::Success, 100)
        );
        assert!(arena.folios.contains_key(&512));
    }
}

#[test]
fn the_cheapest_region_of_a_pageblock_is_emptied() {
    // By regions of 64: full, 3 pages, 2 pages but pinned, 5 pages, full, ...
    let mut arena = Arena::backed(2);
    for region in [0, 4, 5, 6, 7] {
        arena.alloc_at(region * 64, 64);
    }
    for (at, pages) in [(64, 2), (100, 1), (130, 1), (160, 1), (200, 4), (220, 1)] {
        arena.alloc_at(at, pages);
    }
    arena.folio_mut(160).movable = false;
    for at in (512..1024).step_by(16) {
        arena.alloc_at(at, 12);
    }
    let request = Request {
        order: order(6),
        goal: Goal::OneBlock,
    };
    let (outcome, counters) = run::<Evacuate>(&mut arena, request);
    assert_eq!((outcome, counters.pgmigrate_success), (Outcome::Success, 3));
    assert_eq!(arena.alloc(64), Some(pfn(64)));
}

#[test]
fn pageblocks_that_are_no_sources_are_targets_all_the_same() {
    let mut arena = Arena::backed(3);
    // The emptiest is pinned, the fullest has no room for the middle one.
    arena.alloc_at(0, 4);
    arena.folio_mut(0).movable = false;
    for at in (512..1024).step_by(2) {
        arena.alloc_at(at, 1);
    }
    arena.alloc_at(1024, 500);
    let (outcome, counters) = run::<Evacuate>(&mut arena, HUGE);
    assert_eq!(
        (outcome, counters.pgmigrate_success),
        (Outcome::Success, 256)
    );
    assert_eq!(arena.alloc(512), Some(pfn(512)));
}

/// Two pageblocks: single pages free between single pages in one, folios of two in
/// the other, which is the emptier one. Not one of them fits.
fn pairs_and_singles() -> Arena {
    let mut arena = Arena::backed(2);
    for at in (4..512).step_by(4) {
        arena.alloc_at(at, 2);
    }
    for at in (512..1024).step_by(2) {
        arena.alloc_at(at, 1);
    }
    arena
}

#[test]
fn a_region_without_room_is_not_begun() {
    let mut arena = pairs_and_singles();
    // No room for the single pages in the other pageblock either.
    for at in (513..1024).step_by(4) {
        arena.alloc_at(at, 1);
    }
    for folio in arena.folios.values_mut() {
        folio.splittable = false;
    }
    let (outcome, counters) = run::<Evacuate>(&mut arena, HUGE);
    assert_eq!(outcome, Outcome::Complete);
    assert_eq!(
        counters.pgmigrate_success, 0,
        "nothing was copied for nothing"
    );
}

#[test]
fn a_region_that_fits_is_found_behind_one_that_does_not() {
    let mut arena = pairs_and_singles();
    // A third pageblock: a little fuller, but of single pages.
    let mut larger = Arena::backed(4);
    for (at, folio) in &arena.folios {
        larger.alloc_at(*at, folio.pages);
    }
    for block in [2, 3] {
        for at in (0..512).step_by(2) {
            larger.alloc_at(block * 512 + at, 1);
        }
    }
    arena = larger;
    for folio in arena.folios.values_mut() {
        folio.splittable = false;
    }
    let (outcome, counters) = run::<Evacuate>(&mut arena, HUGE);
    assert_eq!(
        (outcome, counters.pgmigrate_success),
        (Outcome::Success, 256)
    );
    assert!(counters.compact_free_scanned <= 3 * 512, "{counters:?}");
}

#[test]
fn folios_are_cut_only_as_far_as_the_rest_needs() {
    let mut arena = pairs_and_singles();
    let (outcome, counters) = run::<Evacuate>(&mut arena, HUGE);
    assert_eq!(
        (outcome, counters.thp_migration_split),
        (Outcome::Success, 127)
    );
    // With room for ten of them as they are.
    let mut arena = pairs_and_singles();
    for nth in 0..10 {
        arena.free(512 + 4 * nth);
        arena.free(4 + 8 * nth);
        arena.free(8 + 8 * nth);
    }
    let (outcome, counters) = run::<Evacuate>(&mut arena, HUGE);
    assert_eq!(
        (outcome, counters.thp_migration_split),
        (Outcome::Success, 97)
    );
    assert_eq!(counters.thp_migration_success, 10);
}

#[test]
fn the_rest_of_a_pageblock_is_its_last_target() {
    let mut arena = Arena::backed(2);
    arena.alloc_at(512, 512);
    for at in (0..512).step_by(2) {
        arena.alloc_at(at, 1);
    }
    let request = Request {
        order: order(6),
        goal: Goal::OneBlock,
    };
    let (outcome, counters) = run::<Evacuate>(&mut arena, request);
    assert_eq!(
        (outcome, counters.pgmigrate_success),
        (Outcome::Success, 32)
    );
}

#[test]
fn a_busy_folio_is_tried_twice_and_the_region_left() {
    let mut arena = rows(3, 32, 1);
    for block in 0..3 {
        arena.folio_mut(block * 512 + 16).busy = true;
    }
    let (outcome, counters) = run::<Evacuate>(&mut arena, HUGE);
    assert_eq!(outcome, Outcome::Complete);
    assert_eq!(counters.pgmigrate_fail, 2 * 2, "two regions, twice each");

    // In between it is let go.
    let mut arena = rows(3, 32, 1);
    arena.folio_mut(16).busy = true;
    let mut compactor = Compactor::<Evacuate>::new(arena.slots());
    compactor.begin_unasked(&arena, HUGE);
    while compactor.counters().pgmigrate_fail == 0 {
        assert_eq!(compactor.step(&mut arena, 1), Step::More);
        arena.check(&compactor);
    }
    arena.folio_mut(16).busy = false;
    let outcome = compactor.run(&mut arena);
    assert_eq!(outcome, Outcome::Success);
    assert_eq!(compactor.counters().pgmigrate_success, 32);
}

#[test]
fn what_comes_free_of_the_region_between_steps_is_claimed() {
    let mut arena = rows(3, 32, 1);
    let mut compactor = Compactor::<Evacuate>::new(arena.slots());
    compactor.begin_unasked(&arena, HUGE);
    let mut freed = false;
    let outcome = loop {
        if let Step::Done(outcome) = compactor.step(&mut arena, 1) {
            break outcome;
        }
        if compactor.counters().pgmigrate_success == 10 && !freed {
            // One that is listed, and allocations that must not land in the region.
            arena.free(31 * 16);
            assert!((0..20).all(|_| arena.alloc(1).is_some()));
            freed = true;
        }
    };
    assert!(freed);
    assert_eq!(outcome, Outcome::Success);
    assert_eq!(arena.pageblock(0).free, 512);
    arena.check(&compactor);
}

#[test]
fn held_pages_come_back_when_the_run_is_stopped() {
    let mut arena = rows(3, 32, 1);
    let free = arena.free_pages();
    let mut compactor = Compactor::<Evacuate>::new(arena.slots());
    compactor.begin_unasked(&arena, HUGE);
    while compactor.counters().pgmigrate_success < 5 {
        assert_eq!(compactor.step(&mut arena, 1), Step::More);
    }
    assert!(
        compactor.held_pages() > 480,
        "the region, and room for the rest"
    );
    assert_eq!(arena.free_pages() + compactor.held_pages(), free);
    compactor.stop(&mut arena);
    assert_eq!((compactor.held_pages(), arena.free_pages()), (0, free));
    arena.check(&compactor);
}

#[test]
fn a_step_is_bounded() {
    fn longest<P: Policy>() -> u64 {
        let mut arena = rows(16, 64, 3);
        let mut compactor = Compactor::<P>::new(arena.slots());
        compactor.begin_unasked(&arena, EVERYTHING);
        let work =
            |c: &Counters| c.compact_migrate_scanned + c.compact_free_scanned + c.pgmigrate_success;
        let (mut last, mut longest) = (0, 0);
        while compactor.step(&mut arena, 64) == Step::More {
            let now = work(compactor.counters());
            longest = longest.max(now - last);
            last = now;
        }
        assert!(compactor.counters().pgmigrate_success > 0, "{}", P::NAME);
        longest
    }
    // The budget, a unit of at most a pageblock looked at twice, a folio.
    let limit = 64 + 2 * 512 + 8;
    for longest in [
        longest::<Evacuate>(),
        longest::<variants::SplitFree>(),
        longest::<variants::SplitFolios>(),
    ] {
        assert!(longest <= limit, "{longest}");
    }
}

#[test]
fn runs_of_any_length_keep_their_tails_free() {
    // Zspages of three pages, cut from blocks of four.
    let mut arena = rows(4, 16, 3);
    let (outcome, counters) = run::<Evacuate>(&mut arena, EVERYTHING);
    assert_eq!(outcome, Outcome::Complete);
    assert_eq!(counters.thp_migration_split, 0);
    // 64 of them are 256 slots of four.
    assert_eq!(arena.free_blocks(Order::HUGE), 3);
    assert_eq!(arena.free_pages(), 4 * 512 - 64 * 3);
}

#[test]
fn positions_are_kept_until_the_scanners_have_met() {
    let mut arena = rows(6, 16, 1);
    let mut compactor = Compactor::<variants::SplitFree>::new(arena.slots());
    compactor.begin_unasked(&arena, HUGE);
    assert_eq!(compactor.run(&mut arena), Outcome::Success);
    let first = *compactor.counters();
    assert_eq!(arena.alloc(512), Some(pfn(0)));
    compactor.begin_unasked(&arena, HUGE);
    assert_eq!(compactor.run(&mut arena), Outcome::Success);
    let second = compactor.counters().since(&first);
    assert!(
        second.compact_migrate_scanned <= 512,
        "the first pageblock is not looked at again: {second:?}"
    );
    assert_eq!(arena.alloc(512), Some(pfn(512)));
    let mut ends = Vec::new();
    for _ in 0..8 {
        compactor.begin_unasked(&arena, HUGE);
        ends.push(compactor.run(&mut arena));
        arena.alloc(512);
    }
    let partial = ends.iter().position(|end| *end == Outcome::Partial);
    let complete = ends.iter().position(|end| *end == Outcome::Complete);
    assert!(partial < complete && partial.is_some(), "{ends:?}");
}

#[test]
fn after_thirty_two_pages_of_a_pageblock_its_rest_is_taken_at_once() {
    let mut arena = rows(4, 128, 1);
    let mut compactor = Compactor::<variants::SplitFree>::new(arena.slots());
    compactor.begin_unasked(&arena, HUGE);
    let mut batches = Vec::new();
    let mut scanned = 0;
    while compactor.step(&mut arena, 1) == Step::More {
        let now = compactor.counters().compact_migrate_scanned;
        if now != scanned {
            batches.push(now - scanned);
            scanned = now;
        }
    }
    // Every fourth slot is in use: 32 pages are found in 125 slots.
    assert_eq!(batches, [125, 387]);
}

#[test]
fn contention_ends_a_run_with_nothing_held() {
    let mut arena = rows(4, 16, 1);
    let mut compactor = Compactor::<Evacuate>::new(arena.slots());
    compactor
        .begin_direct(&arena, Order::HUGE)
        .expect("worth it");
    assert_eq!(compactor.step(&mut arena, 600), Step::More);
    arena.contended = true;
    let step = compactor.step(&mut arena, 600);
    assert_eq!(step, Step::Done(Outcome::Contended));
    arena.check(&compactor);
    let counters = compactor.counters();
    assert_eq!((counters.compact_stall, counters.compact_fail), (1, 1));
    arena.contended = false;
    compactor
        .begin_direct(&arena, Order::HUGE)
        .expect("contention is no failure");
    assert_eq!(compactor.run(&mut arena), Outcome::Success);
    assert_eq!(compactor.counters().compact_success, 1);
    assert_eq!(
        compactor.begin_direct(&arena, Order::HUGE),
        Err(NotBegun::NotNeeded)
    );
}

#[test]
fn failures_put_further_attempts_off() {
    let mut arena = rows(2, 128, 1);
    for folio in arena.folios.values_mut() {
        folio.movable = false;
    }
    let mut compactor = Compactor::<Evacuate>::new(arena.slots());
    let mut skipped = Vec::new();
    for _ in 0..8 {
        let mut deferred = 0;
        while compactor.begin_direct(&arena, Order::HUGE) == Err(NotBegun::Deferred) {
            deferred += 1;
        }
        skipped.push(deferred);
        assert_eq!(compactor.run(&mut arena), Outcome::Complete);
    }
    assert_eq!(skipped, [0, 1, 3, 7, 15, 31, 63, 63]);
    assert_eq!(compactor.counters().compact_stall, 8);
    // A smaller order is another matter.
    arena.alloc_at(1, 1);
    for at in (0..1024).step_by(4) {
        arena.alloc_at(at + 2, 1);
    }
    assert_eq!(compactor.begin_direct(&arena, order(3)), Ok(()));
    compactor.stop(&mut arena);
}

#[test]
fn a_score_is_a_goal() {
    let mut arena = rows(8, 16, 2);
    let request = Request {
        order: Order::HUGE,
        goal: Goal::Score(40),
    };
    let (outcome, _) = run::<Evacuate>(&mut arena, request);
    assert_eq!(outcome, Outcome::Success);
    let free = arena.frames.free_pages(Kind::Backed);
    let huge = arena.free_blocks(Order::HUGE) * 512;
    assert!((free - huge) * 100 <= free * 40);
    assert!((free - huge + 512) * 100 > free * 40, "and no further");
}

#[test]
fn everything_moves_folios_larger_than_the_order_wanted() {
    let mut arena = Arena::backed(3);
    for block in 0..3 {
        arena.alloc_at(block * 512, 128);
    }
    let request = |goal| Request {
        order: order(6),
        goal,
    };
    let mut small = request(Goal::Score(0));
    let (_, counters) = run::<variants::SplitFree>(&mut arena, small);
    assert_eq!(counters.pgmigrate_success, 0, "order 7 is not below 6");
    small = request(Goal::Everything);
    let (_, counters) = run::<variants::SplitFree>(&mut arena, small);
    assert!(counters.thp_migration_success > 0);
}

/// As the kernel's own test of compaction: most memory pinned, a part freed; the
/// blocks obtained are at least a third of what is free.
#[test]
fn a_third_of_the_free_memory_comes_in_huge_blocks() {
    let mut arena = Arena::backed(32);
    let folios: Vec<usize> = (0..32 * 512 / 4)
        .map(|_| arena.alloc(4).expect("free").index())
        .collect();
    // Two of three are freed; of the rest every pageblock of four has pinned ones.
    for (n, at) in folios.iter().enumerate() {
        if n % 3 != 0 {
            arena.free(*at);
        } else if at / 512 % 4 == 0 {
            arena.folio_mut(*at).movable = false;
        }
    }
    let free = arena.free_pages();
    let (outcome, _) = run::<Evacuate>(&mut arena, EVERYTHING);
    assert_eq!(outcome, Outcome::Complete);
    let huge = arena.free_blocks(Order::HUGE) * 512;
    assert!(huge * 3 >= free, "{huge} of {free} pages");
}
