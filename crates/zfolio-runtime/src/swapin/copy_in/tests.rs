//! A page or two come out of the pool by copies, on the fake kernel.

use crate::address_space::place::Place;
use crate::page_fault::Outcome;
use crate::pager::Access;
use crate::rig::Rig;
use zfolio_fake_kernel::plan::{self, Call};
use zfolio_fake_kernel::program;
use zfolio_sys::syscall::Errno;

const TOUCHED: usize = 5;

fn rigs() -> impl Iterator<Item = Rig> {
    Rig::both(2048, 64).map(|mut rig| {
        rig.write_all(0..16);
        rig.swap_out(0..16);
        rig
    })
}

fn serve(rig: &Rig) -> Outcome {
    rig.try_fault(TOUCHED, Access::Write, 0)
}

fn is_stored(rig: &Rig) -> bool {
    matches!(rig.place(TOUCHED), Place::Stored(_))
}

#[test]
fn a_page_alone_is_copied_and_its_slot_is_free() {
    for mut rig in rigs() {
        let (copies, moves) = (plan::made(Call::Copy), plan::made(Call::Move));
        assert!(matches!(serve(&rig), Outcome::Served(_)));
        assert_eq!(plan::made(Call::Copy) - copies, 1);
        assert_eq!(plan::made(Call::Move), moves);
        assert_eq!(rig.place(TOUCHED), Place::Present);
        rig.validate();
        assert_eq!(rig.manager.zswap.snapshot().stored_pages, 15);
        rig.write(TOUCHED, 7);
        rig.read_all();
        rig.validate();
    }
}

#[test]
fn a_page_said_to_be_there_that_is_not_stays_in_the_pool() {
    for rig in rigs() {
        // (As a run, then alone.)
        plan::fail(Call::Copy, 1, Errno::EXIST);
        plan::fail(Call::Copy, 2, Errno::EXIST);
        assert_eq!(serve(&rig), Outcome::Defer);
        assert!(is_stored(&rig));
        assert_eq!(plan::clear(), 0);
        rig.validate();
        rig.read_all();
        rig.validate();
    }
}

#[test]
fn without_memory_for_a_copy_the_page_stays_in_the_pool() {
    for rig in rigs() {
        for times in 1..4 {
            plan::fail(Call::Copy, 1, Errno::NOMEM);
            plan::fail(Call::Copy, 2, Errno::NOMEM);
            assert_eq!(serve(&rig), Outcome::Defer, "{times}");
            assert!(is_stored(&rig));
            rig.validate();
        }
        rig.read_all();
        rig.validate();
    }
}

#[test]
fn nothing_comes_while_an_event_is_in_flight() {
    let mut rig = Rig::of_process(2048, 64);
    rig.write_all(0..48);
    rig.swap_out(0..16);
    program::discard(rig.address(40)..rig.address(48));
    assert_eq!(serve(&rig), Outcome::Defer);
    assert!(is_stored(&rig));
    rig.validate_but(40..48);
    rig.settle();
    rig.model[40..48].fill(0);
    assert!(matches!(serve(&rig), Outcome::Served(_)));
    rig.read_all();
    rig.validate();
}

#[test]
fn what_is_discarded_while_it_waits_comes_as_zeros() {
    let mut rig = Rig::of_process(2048, 64);
    rig.write_all(0..16);
    rig.swap_out(0..16);
    program::discard(rig.address(0)..rig.address(8));
    assert_eq!(serve(&rig), Outcome::Defer);
    rig.settle();
    rig.model[0..8].fill(0);
    rig.validate();
    rig.read_all();
    rig.validate();
}
