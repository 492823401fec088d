//! Random operations of a program, compared with a model of its memory.

extern crate std;

use super::{Rig, content};
use crate::page_fault::Outcome;
use crate::pager::{Access, RegionEngine};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use proptest::prelude::*;
use zfolio_fake_kernel::plan::{self, Call, Failure};
use zfolio_fake_kernel::program;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::Limits;

/// What the program may use, and what it has, pages.
const HIGH: usize = 512;
const PAGES: usize = 640;

/// What happens.
#[derive(Clone, Debug)]
enum Op {
    Write(Range<usize>, u32),
    Read(Range<usize>),
    Discard(Range<usize>),
    MoveOut(Range<usize>),
    Store,
    Relieve,
    Compact,
    /// Present pages of a range are pinned by the kernel, or shared with a child.
    Pin(Range<usize>),
    Unpin,
    Share(Range<usize>),
    /// The pool takes nothing more, or as much as it likes.
    PoolIsFull(bool),
    /// A call fails, once, after some others.
    Fail(Call, usize, Failure),
    /// As `Discard`, and what the kernel does meanwhile comes between.
    DiscardSlowly(Range<usize>, Vec<usize>),
}

fn pages() -> impl Strategy<Value = Range<usize>> {
    let len = prop_oneof![4 => 1..4_usize, 3 => 4..40_usize, 1 => 40..300_usize];
    (0..PAGES, len).prop_map(|(from, len)| from..(from + len).min(PAGES))
}

fn failure() -> impl Strategy<Value = Op> {
    let errno = prop_oneof![
        Just(Errno::AGAIN),
        Just(Errno::NOMEM),
        Just(Errno::BUSY),
        Just(Errno::EXIST)
    ];
    let call = prop_oneof![Just(Call::Move), Just(Call::Copy)];
    (call, 1..6_usize, 0..20_usize, errno, 0..8_u8).prop_map(|(call, nth, done, errno, how)| {
        // (COPY knows nothing of pages that are busy; and MOVE says that pages are there
        // already of those alone that it has moved.)
        let errno = match (call, errno) {
            (Call::Copy, Errno::BUSY) => Errno::AGAIN,
            _ => errno,
        };
        let untold = call == Call::Move && errno == Errno::EXIST;
        let done = match how {
            _ if untold => done + 1,
            0..4 => done,
            _ => 0,
        };
        let failure = Failure {
            done,
            errno,
            untold,
        };
        Op::Fail(call, nth, failure)
    })
}

fn step() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (pages(), 0..64_u32).prop_map(|(pages, kind)| Op::Write(pages, kind)),
        6 => pages().prop_map(Op::Read),
        2 => pages().prop_map(Op::Discard),
        4 => pages().prop_map(Op::MoveOut),
        3 => Just(Op::Store),
        3 => Just(Op::Relieve),
        1 => Just(Op::Compact),
        1 => pages().prop_map(Op::Pin),
        1 => Just(Op::Unpin),
        1 => pages().prop_map(Op::Share),
        1 => any::<bool>().prop_map(Op::PoolIsFull),
        6 => failure(),
        2 => (pages(), prop::collection::vec(0..PAGES, 0..6))
            .prop_map(|(pages, touched)| Op::DiscardSlowly(pages, touched)),
    ]
}

/// Does a step.
fn take(rig: &mut Rig, step: Op) {
    let present = |rig: &Rig, pages: Range<usize>| -> Vec<usize> {
        let addresses = pages.map(|page| rig.address(page));
        addresses.filter(|at| program::is_present(*at)).collect()
    };
    match step {
        Op::Write(pages, kind) => pages.for_each(|page| rig.write(page, kind)),
        Op::Read(pages) => pages.for_each(|page| rig.read(page)),
        Op::Discard(pages) => {
            // (madvise takes a page from under a pin, which this kernel does not.)
            rig.discard(pages);
        }
        Op::MoveOut(pages) => {
            let _ = rig.move_out(pages);
        }
        Op::Store => rig.store_all(),
        Op::Relieve => rig.relieve(),
        Op::Compact => {
            let manager = rig.manager;
            manager.compact(&mut manager.compacting.lock(), true);
        }
        Op::Pin(pages) => present(rig, pages)
            .iter()
            .for_each(|at| program::pin(*at, true)),
        Op::Unpin => present(rig, 0..PAGES)
            .iter()
            .for_each(|at| program::pin(*at, false)),
        Op::Share(pages) => present(rig, pages)
            .iter()
            .for_each(|at| program::share(*at)),
        Op::PoolIsFull(full) => rig.manager.zswap.set_limits(Limits {
            max_pool_pages: full.then_some(0),
            ..Limits::default()
        }),
        Op::Fail(call, nth, failure) => plan::fail_as(call, nth, failure),
        Op::DiscardSlowly(pages, touched) if rig.manager.scope.has_events() => {
            program::discard(rig.address(pages.start)..rig.address(pages.end));
            for page in touched {
                // Before the event is applied nothing comes and nothing goes.
                if !program::is_present(rig.address(page)) {
                    let outcome = rig.try_fault(page, Access::Read, 0);
                    assert!(!matches!(outcome, Outcome::Served(_)), "{outcome:?}");
                }
                let _ = rig.move_out(page..PAGES.min(page + 9));
            }
            rig.settle();
            rig.model[pages].fill(0);
        }
        Op::DiscardSlowly(pages, _) => {
            let range = rig.address(pages.start)..rig.address(pages.end);
            rig.manager.advise_cold(&range);
        }
    }
}

fn live(mut rig: Rig, steps: Vec<Op>) {
    for step in steps {
        take(&mut rig, step);
        rig.validate();
    }
    plan::clear();
    take(&mut rig, Op::Unpin);
    rig.read_all();
    rig.validate();
    rig.discard(0..PAGES);
    rig.read_all();
    rig.validate();
}

/// Of the usual number of cases a part: each is some hundred calls.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig {
        cases: (usual.cases / 16).max(1),
        max_shrink_iters: 2000,
        failure_persistence: None,
        ..usual
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_program_with_regions_finds_what_it_wrote(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        live(Rig::of_regions(HIGH, PAGES), steps);
    }

    #[test]
    fn a_process_finds_what_it_wrote(steps in prop::collection::vec(step(), 1..60)) {
        live(Rig::of_process(HIGH, PAGES), steps);
    }
}

#[test]
fn no_two_kinds_of_page_are_alike() {
    for kind in 1..64 {
        assert!(
            (0..kind).all(|other| content(other) != content(kind)),
            "{kind}"
        );
    }
}
