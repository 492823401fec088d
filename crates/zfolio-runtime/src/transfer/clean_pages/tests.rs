//! Pages that are with the program and in the pool, on the fake kernel.

use crate::address_space::place::Place;
use crate::pager::RegionEngine;
use crate::rig::Rig;
use crate::segment::Counter;
use zfolio_fake_kernel::plan::{self, Call};
use zfolio_fake_kernel::program;
use zfolio_sys::syscall::Errno;

/// Pages read, far from each other.
const READ: [usize; 4] = [3, 70, 33, 100];

/// A region whose pages were stored long ago, and some of them read.
fn rig() -> Rig {
    let mut rig = Rig::of_regions(4096, 128);
    rig.write_all(0..128);
    rig.swap_out(0..128);
    rig.manager.core.lock().history.advance_clock(3);
    READ.into_iter().for_each(|page| rig.read(page));
    assert_eq!(clean(&rig), READ.len(), "they came clean");
    rig.validate();
    rig
}

fn clean(rig: &Rig) -> usize {
    let clean = |page: &usize| matches!(rig.place(*page), Place::Clean(_));
    (0..rig.model.len()).filter(clean).count()
}

fn drop_all(rig: &Rig) {
    rig.manager.drop_clean_of(&rig.vpns(0..128));
}

#[test]
fn they_leave_as_they_came() {
    let rig = rig();
    let stored = rig.manager.zswap.snapshot().stored_pages;
    assert_eq!(stored, 128, "the pool has them too");
    let moves = plan::made(Call::Move);
    drop_all(&rig);
    assert_eq!(plan::made(Call::Move), moves, "nothing is moved");
    assert_eq!(rig.manager.counter(Counter::SwpoutClean), 4);
    for page in READ {
        assert!(matches!(rig.place(page), Place::Stored(_)));
        assert!(!program::is_present(rig.address(page)));
    }
    rig.validate();
    rig.read_all();
    rig.validate();
}

#[test]
fn one_that_is_written_to_is_the_programs_own() {
    let mut rig = rig();
    rig.write(33, 9);
    assert_eq!(rig.place(33), Place::Present);
    assert!(!program::is_protected(rig.address(33)));
    assert_eq!(rig.manager.zswap.snapshot().stored_pages, 127);
    rig.validate();
    drop_all(&rig);
    assert!(program::is_present(rig.address(33)), "it would be lost");
    rig.swap_out(33..34);
    rig.validate();
    rig.read_all();
    rig.validate();
}

#[test]
fn where_the_kernel_stops_the_others_stay_clean() {
    let rig = rig();
    // (Together; then the rest one by one.)
    plan::fail(Call::Discard, 3, Errno::AGAIN);
    plan::fail(Call::Discard, 4, Errno::AGAIN);
    drop_all(&rig);
    assert_eq!(plan::clear(), 0);
    assert_eq!(clean(&rig), 2);
    rig.validate();
    drop_all(&rig);
    assert_eq!(clean(&rig), 0);
    rig.validate();
    rig.read_all();
    rig.validate();
}

#[test]
fn a_pin_makes_them_the_programs_own() {
    let rig = rig();
    let range = rig.address(64)..rig.address(80);
    rig.manager.pin(range.clone()).expect("a pin");
    assert_eq!(rig.place(70), Place::Present);
    assert!(!program::is_protected(rig.address(70)));
    assert_eq!(clean(&rig), 3);
    rig.validate();
    drop_all(&rig);
    assert!(program::is_present(rig.address(70)), "it is pinned");
    rig.manager.unpin(&range);
    rig.read_all();
    rig.validate();
}

#[test]
fn one_discarded_behind_our_back_is_in_the_pool_yet() {
    let rig = rig();
    program::lose(rig.address(70));
    rig.read_all();
    let lost = !program::is_present(rig.address(70));
    assert!(!lost, "it came out of the pool");
}

#[test]
fn what_the_program_discards_leaves_no_slot() {
    let mut rig = rig();
    rig.discard(64..128);
    rig.validate();
    assert_eq!(rig.manager.zswap.snapshot().stored_pages, 64);
    rig.read_all();
    rig.validate();
}
