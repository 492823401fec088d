//! What stands by is stored, or put back, on the fake kernel.

use super::*;
use crate::rig::Rig;
use crate::segment::run_group::{RUN, named};
use core::sync::atomic::Ordering;
use zfolio_fake_kernel::program;
use zfolio_zswap::{GroupLimits, Limits};

/// A program of which 32 pages stand by.
fn rigs() -> impl Iterator<Item = Rig> {
    Rig::both(2048, 64).map(|mut rig| {
        rig.write_all(0..32);
        assert_eq!(rig.move_out(0..32), Ok(32));
        rig
    })
}

fn standing_by(rig: &Rig) -> usize {
    let by = |page: &usize| matches!(rig.place(*page), Place::Standby(_));
    (0..rig.model.len()).filter(by).count()
}

fn full(rig: &Rig, is: bool) {
    rig.manager.zswap.set_limits(Limits {
        max_pool_pages: is.then_some(0),
        ..Limits::default()
    });
}

fn ends_well(rig: &Rig) {
    rig.validate();
    rig.store_all();
    assert_eq!(standing_by(rig), 0, "all of it could be stored in the end");
    rig.validate();
    rig.read_all();
    rig.validate();
}

#[test]
fn what_a_full_pool_refuses_is_put_back() {
    for rig in rigs() {
        full(&rig, true);
        let mut worker = rig.manager.workers[0].lock();
        for enough in [1, 32] {
            let stored = rig.manager.store_coldest(&mut worker, enough);
            assert!(!matches!(stored, Stored::Pages(_)), "{stored:?}");
            assert_eq!(standing_by(&rig), 32);
            rig.validate();
        }
        drop(worker);
        full(&rig, false);
        ends_well(&rig);
    }
}

#[test]
fn what_was_put_back_can_be_touched() {
    for rig in rigs() {
        full(&rig, true);
        rig.store_all();
        (0..32).for_each(|page| rig.read(page));
        assert_eq!(standing_by(&rig), 0);
        rig.validate();
        full(&rig, false);
        ends_well(&rig);
    }
}

#[test]
fn a_folio_that_is_refused_whole_goes_as_far_as_it_can() {
    for mut rig in Rig::both(2048, 64) {
        rig.write_all(0..16);
        // Nothing compresses this one.
        rig.write(5, 4);
        assert_eq!(rig.move_out(0..16), Ok(16));
        rig.manager.zswap.set_limits(Limits {
            reject_poor: true,
            ..Limits::default()
        });
        let mut worker = rig.manager.workers[0].lock();
        assert_eq!(rig.manager.store_coldest(&mut worker, 1), Stored::Pages(5));
        drop(worker);
        assert!((0..5).all(|page| matches!(rig.place(page), Place::Stored(_))));
        assert_eq!(standing_by(&rig), 11);
        rig.validate();
        full(&rig, false);
        ends_well(&rig);
    }
}

/// Claims the coldest folio, as a store does that is under way then.
fn begin(rig: &Rig, worker: &mut Worker) -> StandbyRun {
    let mut core = rig.manager.core.lock();
    let folio = claim(&mut core, Order::K64, 1000).expect("a folio");
    rig.manager.begin(&core);
    worker.folios.clear();
    worker.folios.push(folio);
    worker.frames.clear();
    let frames = (0..folio.pages).map(|index| folio.at.offset(index));
    worker.frames.extend(frames);
    worker.slots.clear();
    worker.slots.resize(folio.pages, Slot::ZERO);
    folio
}

#[test]
fn a_page_touched_while_it_is_compressed_comes_back_and_its_slot_is_free() {
    for mut rig in rigs() {
        let manager = rig.manager;
        let mut worker = manager.workers[0].lock();
        let folio = begin(&rig, &mut worker);
        let first = folio.vpn - rig.vpn(0);
        let touched = [first, first + 3];
        rig.write(touched[0], 9);
        rig.read(touched[1]);
        rig.discard(first + 7..first + 8);
        manager
            .store_claimed(&mut worker)
            .expect("room in the pool");
        manager.publish_stored(&[folio], &mut worker.slots);
        let left = worker.slots.iter().filter(|slot| **slot != Slot::ZERO);
        assert_eq!(left.count(), 3, "their slots are nobody's");
        manager.zswap.invalidate(&worker.slots);
        manager.end();
        drop(worker);
        assert!(
            touched
                .iter()
                .all(|page| rig.place(*page) == Place::Present)
        );
        assert!(!program::is_present(rig.address(first + 7)));
        ends_well(&rig);
    }
}

#[test]
fn of_a_folio_that_is_put_back_the_touched_page_is_left_out() {
    for mut rig in rigs() {
        let manager = rig.manager;
        let mut worker = manager.workers[0].lock();
        let folio = begin(&rig, &mut worker);
        let first = folio.vpn - rig.vpn(0);
        rig.write(first + 2, 11);
        manager.put_back(folio);
        manager.end();
        drop(worker);
        assert_eq!(rig.place(first + 2), Place::Present);
        assert_eq!(standing_by(&rig), 31);
        ends_well(&rig);
    }
}

/// Each store that is refused is one `swap_fail` of the process's group and of those above it,
/// whether the pool is full or `swap.max` is reached, and none of another group.
#[test]
fn refused_stores_are_counted_one_by_one() {
    let mut rig = Rig::in_group("build/cc", 2048, 64);
    rig.write_all(0..32);
    assert_eq!(rig.move_out(0..32), Ok(32));
    let segment = rig.manager.segment();
    let other = named(segment, "other").expect("a group");
    let count = |group: u32, event: GroupEvent| {
        segment.groups[group as usize].events[event as usize].load(Ordering::Relaxed)
    };
    let of = |name| named(segment, name).expect("a group");
    let refused = |times: usize| {
        let mut worker = rig.manager.workers[0].lock();
        for _ in 0..times {
            let stored = rig.manager.store_coldest(&mut worker, 1);
            assert!(!matches!(stored, Stored::Pages(_)), "{stored:?}");
        }
    };
    full(&rig, true);
    refused(7);
    let (cc, build) = (of("build/cc"), of("build"));
    for group in [cc, build, RUN] {
        assert_eq!(count(group, GroupEvent::SwapFail), 7, "group {group}");
        assert_eq!(count(group, GroupEvent::SwapMax), 0, "group {group}");
    }
    full(&rig, false);
    let none_out = GroupLimits {
        swap_max: Some(0),
        ..GroupLimits::default()
    };
    rig.manager.zswap.set_group_limits(none_out);
    refused(5);
    for group in [cc, build, RUN] {
        assert_eq!(count(group, GroupEvent::SwapFail), 12, "group {group}");
    }
    // (Nobody has said whose limit that is: it is the run's.)
    assert_eq!(count(RUN, GroupEvent::SwapMax), 5);
    assert_eq!(count(other, GroupEvent::SwapFail), 0);
    rig.manager.zswap.set_group_limits(GroupLimits::default());
    // What is stored in the end is none.
    ends_well(&rig);
    assert_eq!(count(cc, GroupEvent::SwapFail), 12);
}
