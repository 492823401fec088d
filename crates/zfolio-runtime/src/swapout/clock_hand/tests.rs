//! Pages leave, on the fake kernel.

use crate::address_space::place::Place;
use crate::rig::Rig;
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
