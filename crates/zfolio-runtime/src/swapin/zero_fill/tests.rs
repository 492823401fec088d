//! Pages that are nowhere are filled, on the fake kernel.

use crate::address_space::place::Place;
use crate::page_fault::Outcome;
use crate::pager::Access;
use crate::rig::Rig;
use crate::segment::FaultKind;
use alloc::vec::Vec;
use zfolio_fake_kernel::plan::{self, Call};
use zfolio_fake_kernel::program;
use zfolio_mm::{Memory, PAGE_SIZE, Pfn};
use zfolio_sys::syscall::Errno;

#[test]
fn a_folio_partly_touched_keeps_what_is_there() {
    for mut rig in Rig::both(2048, 64) {
        // All of it has been touched but is nowhere, except page 5, which came meanwhile.
        rig.write_all(0..16);
        rig.discard(0..16);
        rig.write(5, 33);
        let frames = frames(&rig);
        let filled = rig.manager.publish_filled(&rig.vpns(0..16), &frames);
        assert_eq!(filled, Outcome::Served(FaultKind::Hole));
        let there = program::present(&(rig.address(0)..rig.address(16)));
        assert_eq!(there, 16);
        rig.validate();
        rig.read_all();
    }
}

/// 16 frames of zeros, as a fill takes them.
fn frames(rig: &Rig) -> Vec<Pfn> {
    let arena = rig.manager.arena();
    let first = arena.take_or_populate(16).expect("frames");
    arena.with_mut(first, 0, 16 * PAGE_SIZE, |bytes| bytes.fill(0));
    (0..16).map(|slot| first.offset(slot)).collect()
}

#[test]
fn a_fill_that_stops_halfway_is_none_of_what_did_not_come() {
    for mut rig in Rig::both(2048, 64) {
        rig.write_all(0..32);
        rig.discard(0..32);
        for call in [Call::Copy, Call::Move] {
            plan::stop_after(call, 1, 1);
            plan::fail(call, 2, Errno::AGAIN);
        }
        rig.read_all();
        plan::clear();
        rig.validate();
    }
}

/// A copy would go over a guard of the program's, which nobody waits for.
#[test]
fn only_the_page_somebody_waits_for_is_copied_where_none_can_be_moved() {
    for mut rig in Rig::both(2048, 64) {
        rig.write_all(0..16);
        rig.discard(0..16);
        let frames = frames(&rig);
        let copies = plan::made(Call::Copy);
        (1..=4).for_each(|nth| plan::fail(Call::Move, nth, Errno::INVAL));
        let filled = rig.manager.publish_filled(&rig.vpns(0..16), &frames);
        assert_eq!(filled, Outcome::Served(FaultKind::Hole));
        assert_eq!(plan::made(Call::Copy) - copies, 1);
        let there = program::present(&(rig.address(0)..rig.address(16)));
        assert_eq!(there, 1);
        plan::clear();
        rig.validate();
        rig.read_all();
        rig.validate();
    }
}

#[test]
fn without_memory_of_the_system_nothing_is_taken_for_filled() {
    let rig = Rig::of_regions(2048, 64);
    // Some frames come, the others do not: those are given back, and not counted.
    plan::fail(Call::Copy, 1, Errno::NOMEM);
    plan::stop_after(Call::Copy, 2, 1);
    (3..20).for_each(|nth| plan::fail(Call::Copy, nth, Errno::NOMEM));
    assert_eq!(rig.manager.arena().populate_run(1), None);
    assert_eq!(rig.manager.arena().populate_run(16), None);
    rig.validate();
    assert_eq!(rig.try_fault(7, Access::Write, 0), Outcome::NeedFrames);
    assert!(!program::is_present(rig.address(7)));
    rig.validate();
    plan::clear();
    rig.read_all();
    rig.validate();
}

#[test]
fn a_page_that_is_about_to_vanish_does_not_leave_and_is_filled_anew() {
    let mut rig = Rig::of_process(2048, 64);
    rig.write_all(0..16);
    program::discard(rig.address(0)..rig.address(16));
    let mut core = rig.manager.core.lock();
    rig.manager.pump(&mut core);
    drop(core);
    // The event was read, the pages are there yet.
    assert!((0..16).all(|page| rig.place(page) == Place::Gone));
    assert!(program::is_present(rig.address(3)));
    let moved = rig.move_out(0..16);
    assert!(moved == Ok(0) || moved == Err(Errno::AGAIN), "{moved:?}");
    assert_eq!(program::settle(), 0);
    rig.model.fill(0);
    rig.read_all();
    rig.validate();
    assert!((0..16).all(|page| rig.place(page) == Place::Present));
    assert_eq!(rig.move_out(0..16), Ok(16), "what was filled may leave");
    rig.validate();
}
