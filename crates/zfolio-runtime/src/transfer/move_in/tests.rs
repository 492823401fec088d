//! Pages come back by MOVE, on the fake kernel: 16 that stand by, of which page 3 is touched.

use crate::address_space::place::Place;
use crate::page_fault::Outcome;
use crate::pager::Access;
use crate::rig::Rig;
use zfolio_fake_kernel::plan::{self, Call, Failure};
use zfolio_fake_kernel::program;
use zfolio_sys::syscall::Errno;

const TOUCHED: usize = 3;

fn rigs() -> impl Iterator<Item = Rig> {
    Rig::both(2048, 64).map(|mut rig| {
        rig.write_all(0..16);
        assert_eq!(rig.move_out(0..16), Ok(16));
        rig
    })
}

fn serve(rig: &Rig) -> Outcome {
    rig.try_fault(TOUCHED, Access::Read, 0)
}

fn came(rig: &Rig) -> usize {
    program::present(&(rig.address(0)..rig.address(16)))
}

fn ends_well(rig: &Rig) {
    rig.validate();
    rig.read_all();
    rig.validate();
    assert_eq!(came(rig), 16);
    let holding = rig.manager.core.lock().pages.extents.kept();
    assert_eq!(holding, 0, "nothing is kept of what is back");
}

#[test]
fn what_stands_by_beside_it_comes_along_with_one_move() {
    for rig in rigs() {
        let before = plan::made(Call::Move);
        assert!(matches!(serve(&rig), Outcome::Served(_)));
        assert_eq!((plan::made(Call::Move) - before, came(&rig)), (1, 16));
        ends_well(&rig);
    }
}

#[test]
fn a_move_that_stops_halfway_is_gone_on_with() {
    for rig in rigs() {
        plan::stop_after(Call::Move, 1, 2);
        assert!(matches!(serve(&rig), Outcome::Served(_)));
        assert_eq!((plan::clear(), came(&rig)), (0, 16));
        ends_well(&rig);
    }
}

#[test]
fn what_is_refused_stays_and_is_had_later() {
    for rig in rigs() {
        plan::stop_after(Call::Move, 1, 2);
        plan::fail(Call::Move, 2, Errno::AGAIN);
        assert_eq!(serve(&rig), Outcome::Defer);
        assert_eq!(came(&rig), 2);
        assert!((2..16).all(|page| matches!(rig.place(page), Place::Standby(_))));
        ends_well(&rig);
    }
}

#[test]
fn of_pages_the_touched_one_decides() {
    for rig in rigs() {
        plan::stop_after(Call::Move, 1, 5);
        plan::fail(Call::Move, 2, Errno::AGAIN);
        assert!(matches!(serve(&rig), Outcome::Served(_)));
        assert_eq!(came(&rig), 5);
        ends_well(&rig);
    }
}

#[test]
fn who_waits_is_woken_for_pages_that_moved_untold() {
    for rig in rigs() {
        let lie = Failure {
            done: 6,
            errno: Errno::EXIST,
            untold: true,
        };
        plan::fail_as(Call::Move, 1, lie);
        let _ = program::woken();
        assert!(matches!(serve(&rig), Outcome::Served(_)));
        let woken = program::woken();
        assert!((0..16).all(|page| woken.contains(&rig.address(page))));
        ends_well(&rig);
    }
}

#[test]
fn there_already_is_believed_if_it_is_there() {
    for rig in rigs() {
        // What the kernel says of the first page is not so: it must not be lost.
        plan::fail(Call::Move, 1, Errno::EXIST);
        assert!(matches!(serve(&rig), Outcome::Served(_)));
        assert!(matches!(rig.place(0), Place::Standby(_)));
        assert_eq!(came(&rig), 15);
        ends_well(&rig);
    }
}

#[test]
fn a_frame_that_is_shared_with_a_child_is_copied() {
    for rig in rigs() {
        let Place::Standby(at) = rig.place(5) else {
            panic!("it stands by");
        };
        program::share(rig.manager.address(at));
        assert!(matches!(serve(&rig), Outcome::Served(_)));
        assert!(
            program::is_present(rig.manager.address(at)),
            "the frame is ours"
        );
        ends_well(&rig);
    }
}

#[test]
fn a_run_that_crosses_mappings_comes_page_by_page() {
    for rig in rigs() {
        plan::fail(Call::Move, 1, Errno::INVAL);
        let before = plan::made(Call::Move);
        assert!(matches!(serve(&rig), Outcome::Served(_)));
        assert_eq!((plan::made(Call::Move) - before, came(&rig)), (17, 16));
        ends_well(&rig);
    }
}
