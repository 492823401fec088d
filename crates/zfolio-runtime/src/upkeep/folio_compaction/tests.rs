//! What compaction sees of standby, and how it is cut.

use super::*;
use crate::rig::Rig;
use core::sync::atomic::Ordering;

/// Where page 0 of a rig stands by.
fn stands_at(rig: &Rig) -> Pfn {
    match rig.place(0) {
        Place::Standby(at) => at,
        place => panic!("{place:?}"),
    }
}

#[test]
fn a_run_in_standby_is_cut_and_goes_page_by_page() {
    for mut rig in Rig::both(4096, 64) {
        rig.write_all(0..16);
        assert_eq!(rig.move_out(0..16), Ok(16));
        let at = stands_at(&rig);
        let space: &Space = rig.manager;
        let mut evacuating = Evacuating::new(space.arena().map().slots());
        evacuating.list_standby(space);
        let (_, mut view) = evacuating.view(space, 0);
        let folio = |pages| Found::Folio {
            pages,
            movable: true,
        };
        assert_eq!(view.look(at), folio(16));
        assert!(view.split(at));
        for page in 0..16 {
            assert_eq!(view.look(at.offset(page)), folio(1), "page {page}");
        }
        assert!(!view.split(at), "a page is not cut");
        // One of them moves, and the others stay where they are.
        let to = space.arena().take_holes(Order::PAGE).expect("a hole");
        view.note(to, Kind::Hole);
        assert_eq!(view.migrate(at.offset(5), to, 1), Ok(()));
        assert_eq!(rig.place(5), Place::Standby(to));
        assert_eq!(rig.place(6), Place::Standby(at.offset(6)));
        let left = view.is_backed(at.offset(5));
        view.give(at.offset(5), 1);
        assert!(!left, "its frame went with it");
        rig.validate();
        rig.read_all();
    }
}

/// A run of compaction sees what is whole as whole again.
#[test]
fn cuts_are_of_one_run_of_compaction() {
    let mut rig = Rig::of_regions(4096, 64);
    rig.write_all(0..16);
    assert_eq!(rig.move_out(0..16), Ok(16));
    let at = stands_at(&rig);
    let space: &Space = rig.manager;
    let mut evacuating = Evacuating::new(space.arena().map().slots());
    for _ in 0..2 {
        evacuating.list_standby(space);
        let (_, mut view) = evacuating.view(space, 0);
        assert!(view.split(at));
    }
    rig.validate();
}

#[test]
fn a_folio_that_misses_a_block_of_its_order_wants_one() {
    let rig = Rig::of_regions(4096, 64);
    let space: &Space = rig.manager;
    space.want_block(Order::K64);
    let mut evacuating = Evacuating::new(space.arena().map().slots());
    evacuating.evacuate(space, 1_000_000);
    // There are blocks: nothing is done, and nothing wanted any more.
    assert_eq!(space.wanted_block(), None);
    assert_eq!(
        space
            .stats()
            .counter(Counter::CompactStall)
            .load(Ordering::Relaxed),
        0
    );
}

/// Two blocks of 2 MiB with a run of 16 pages each: one run is carried into the other's block.
#[test]
fn a_planned_evacuation_counts_what_it_does() {
    for mut rig in Rig::both(4096, 64) {
        rig.write_all(0..32);
        assert_eq!(rig.move_out(0..16), Ok(16));
        assert_eq!(rig.move_out(16..32), Ok(16));
        let space: &Space = rig.manager;
        let mut evacuating = Evacuating::new(space.arena().map().slots());
        evacuating.list_standby(space);
        let (_, mut view) = evacuating.view(space, 0);
        let blocks = [0, 16].map(|page| {
            let Place::Standby(from) = rig.place(page) else {
                panic!("{:?}", rig.place(page))
            };
            let block = space.arena().take_holes(Order::HUGE).expect("a block");
            (0..BLOCK_SLOTS).for_each(|slot| view.note(block.offset(slot), Kind::Hole));
            assert_eq!(view.migrate(from, block, 16), Ok(()));
            view.give(from, 16);
            view.give(block.offset(16), BLOCK_SLOTS - 16);
            block
        });
        rig.validate();
        evacuating.request();
        evacuating.evacuate(space, 1_000_000_000);
        // The second block is as empty as the first: the first is emptied. Its free slots are
        // claimed, the run in it is listed, and one free block of its order taken in the other.
        let (free, run) = ((BLOCK_SLOTS - 16) as u64, 16);
        for (counter, expected) in [
            // A block is looked at to choose it, then the region (of the same size) to list it.
            (Counter::CompactMigrateScanned, 2 * BLOCK_SLOTS as u64),
            // In the other block: the run there, and the free block behind it.
            (Counter::CompactFreeScanned, 2 * run),
            (Counter::CompactIsolated, free + run + run),
            (Counter::PgmigrateSuccess, run),
            (Counter::PgmigrateFail, 0),
            (Counter::ThpMigrationSuccess, 1),
            (Counter::ThpMigrationFail, 0),
            (Counter::ThpMigrationSplit, 0),
            (Counter::CompactDaemonWake, 1),
            (Counter::CompactStall, 0),
        ] {
            let counted = space.stats().counter(counter).load(Ordering::Relaxed);
            assert_eq!(counted, expected, "{counter:?}");
        }
        assert_eq!(rig.place(16), Place::Standby(blocks[1]));
        assert_eq!(rig.place(0), Place::Standby(blocks[1].offset(16)));
        rig.validate();
        rig.read_all();
    }
}
