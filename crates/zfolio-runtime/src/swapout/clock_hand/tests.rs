//! Pages leave, on the fake kernel.

use crate::address_space::place::Place;
use crate::rig::Rig;
use crate::swapout::clock_hand::HandStep;
use alloc::vec::Vec;
use zfolio_fake_kernel::plan::{self, Call};
use zfolio_fake_kernel::program;
use zfolio_sys::syscall::Errno;

/// Both scopes, with 32 pages written.
fn rigs() -> impl Iterator<Item = Rig> {
    Rig::both(2048, 64).map(|mut rig| {
        rig.write_all(0..32);
        rig
    })
}

fn stand_by(rig: &Rig) -> usize {
    let by = |page: &usize| matches!(rig.place(*page), Place::Standby(_));
    (0..rig.model.len()).filter(by).count()
}

/// What left comes back, by way of the pool.
fn comes_back(rig: &Rig) {
    rig.validate();
    rig.store_all();
    rig.validate();
    rig.read_all();
    rig.validate();
}

#[test]
fn a_pinned_page_stays_and_those_beside_it_leave() {
    for rig in rigs() {
        program::pin(rig.address(20), true);
        assert_eq!(rig.move_out(0..32), Ok(31));
        assert!(matches!(rig.place(20), Place::Present));
        assert_eq!(stand_by(&rig), 31);
        comes_back(&rig);
    }
}

#[test]
fn a_page_shared_with_a_child_is_made_own_and_leaves() {
    for rig in rigs() {
        program::share(rig.address(20));
        let before = plan::made(Call::Populate);
        assert_eq!(rig.move_out(0..32), Ok(32));
        assert!(plan::made(Call::Populate) > before, "somebody wrote to it");
        comes_back(&rig);
    }
}

#[test]
fn the_page_table_is_read_once_for_many_small_mappings() {
    const MAPPINGS: usize = 64;
    let mut rig = Rig::of_process(8192, 2048);
    for mapping in 0..MAPPINGS {
        rig.write_all(mapping * 32 + 3..mapping * 32 + 5);
    }
    // (What lies beside a page that is touched may be there as well.)
    let there = |page: &usize| page % 32 < 31 && program::is_present(rig.address(*page));
    let pages = (0..rig.model.len()).filter(there).count();
    let mut hand = rig.manager.hand.lock();
    let small = |mapping| rig.address(mapping * 32)..rig.address(mapping * 32 + 31);
    *hand.vmas.list_mut() = (0..MAPPINGS).map(small).collect();
    let before = plan::made(Call::Scan);
    let mut moved = 0;
    while let HandStep::Moved(pages) = rig.manager.step_hand(&mut hand) {
        moved += pages;
    }
    moved += rig.manager.move_gathered(&mut hand).expect("quiet");
    drop(hand);
    assert_eq!((moved, stand_by(&rig)), (pages, pages));
    let scans = plan::made(Call::Scan) - before;
    assert!(scans < MAPPINGS / 4, "{scans} readings of the page table");
    comes_back(&rig);
}

#[test]
fn what_left_or_came_since_the_page_table_was_read_is_as_words_say() {
    let mut rig = Rig::of_process(8192, 256);
    rig.write_all(0..192);
    let small = [0..64, 65..128, 129..192, 193..256];
    let vmas: Vec<_> = small
        .iter()
        .map(|pages| rig.address(pages.start)..rig.address(pages.end))
        .collect();
    *rig.manager.hand.lock().vmas.list_mut() = vmas;
    let step = |rig: &Rig| rig.manager.step_hand(&mut rig.manager.hand.lock());
    assert!(matches!(step(&rig), HandStep::Moved(_)));
    // The hand has seen all; some are discarded, some leave, some come anew.
    rig.discard(70..80);
    assert_eq!(rig.move_out(130..140), Ok(10));
    rig.write_all(200..210);
    while let HandStep::Moved(_) = step(&rig) {}
    let moved = rig.manager.move_gathered(&mut rig.manager.hand.lock());
    assert!(moved.is_ok());
    rig.validate();
    // A round later the hand comes upon those as well.
    while let HandStep::Moved(_) = step(&rig) {}
    let moved = rig.manager.move_gathered(&mut rig.manager.hand.lock());
    assert!(moved.is_ok());
    assert!((200..210).all(|page| matches!(rig.place(page), Place::Standby(_))));
    comes_back(&rig);
}

#[test]
fn a_page_that_is_nowhere_is_passed_over() {
    for mut rig in rigs() {
        rig.discard(10..11);
        assert!(!program::is_present(rig.address(10)));
        assert_eq!(rig.move_out(0..32), Ok(31));
        comes_back(&rig);
    }
}

#[test]
fn a_move_that_stops_halfway_is_gone_on_with() {
    for rig in rigs() {
        plan::stop_after(Call::Move, 1, 7);
        assert_eq!(rig.move_out(0..32), Ok(32));
        assert_eq!((plan::clear(), stand_by(&rig)), (0, 32));
        comes_back(&rig);
    }
}

#[test]
fn a_move_that_says_less_than_it_did_is_not_believed() {
    for rig in rigs() {
        let lie = plan::Failure {
            done: 9,
            errno: Errno::EXIST,
            untold: true,
        };
        plan::fail_as(Call::Move, 1, lie);
        assert_eq!(rig.move_out(0..32), Ok(32));
        assert_eq!(stand_by(&rig), 32);
        comes_back(&rig);
    }
}

#[test]
fn without_memory_for_page_tables_what_has_left_has_left() {
    for rig in rigs() {
        // (The first stops, the second is of what is left.)
        plan::stop_after(Call::Move, 1, 5);
        plan::fail(Call::Move, 2, Errno::NOMEM);
        assert_eq!(rig.move_out(0..32), Ok(5));
        assert_eq!((plan::clear(), stand_by(&rig)), (0, 5));
        comes_back(&rig);
    }
}

#[test]
fn nothing_leaves_while_an_event_is_in_flight() {
    let mut rig = Rig::of_process(2048, 64);
    rig.write_all(0..48);
    program::discard(rig.address(40)..rig.address(48));
    assert_eq!(rig.move_out(0..32), Err(Errno::AGAIN));
    assert_eq!(stand_by(&rig), 0);
    rig.settle();
    rig.model[40..48].fill(0);
    assert_eq!(rig.move_out(0..32), Ok(32));
    comes_back(&rig);
}

#[test]
fn an_event_that_begins_between_two_runs_ends_the_move() {
    let mut rig = Rig::of_process(2048, 64);
    rig.write_all(0..32);
    plan::stop_after(Call::Move, 1, 5);
    plan::fail(Call::Move, 2, Errno::AGAIN);
    assert_eq!(rig.move_out(0..32), Err(Errno::AGAIN));
    assert_eq!(stand_by(&rig), 5, "what has left stands by");
    comes_back(&rig);
}

#[test]
fn a_page_in_the_airlock_is_taken_over_in_the_end() {
    let mut rig = Rig::of_process(2048, 64);
    rig.write_all(0..32);
    // (The second is the one from the airlock to the arena.)
    plan::stop_after(Call::Move, 2, 3);
    plan::fail(Call::Move, 3, Errno::NOMEM);
    plan::fail(Call::Move, 4, Errno::BUSY);
    assert_eq!(rig.move_out(0..32), Ok(32));
    assert_eq!(plan::clear(), 0);
    comes_back(&rig);
}

#[test]
fn a_process_that_maps_anew_loses_nothing_and_keeps_nothing() {
    let mut rig = Rig::of_process(2048, 64);
    rig.write_all(0..64);
    rig.swap_out(0..16);
    assert_eq!(rig.move_out(16..24), Ok(8));
    let stored = rig.manager.zswap.snapshot().stored_pages;
    assert!(stored > 0);
    program::unmap(rig.address(0)..rig.address(32));
    rig.settle();
    let core = rig.manager.core.lock();
    assert!(
        !core
            .pages
            .registered
            .contains(&(rig.address(0)..rig.address(1)))
    );
    assert_eq!(
        (core.pages.standby.pages(), core.pages.extents.kept()),
        (0, 0)
    );
    drop(core);
    rig.manager.zswap.validate().expect("the pool");
    assert_eq!(rig.manager.zswap.snapshot().stored_pages, 0);
}
