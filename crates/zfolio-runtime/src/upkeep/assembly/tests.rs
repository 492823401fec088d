//! Huge pages that came back in pieces, on the fake kernel.

use super::*;
use crate::rig::Rig;
use crate::segment::Counter::{ThpCollapseAlloc, ThpCollapseAllocFailed};
use zfolio_fake_kernel::plan::{self, Call};
use zfolio_fake_kernel::program;

/// A rig with 2 MiB that were a huge page, of which all has come back in pieces; the first
/// page of them.
fn come_back(mut rig: Rig) -> (Rig, usize) {
    let first = rig.vpn(0).next_multiple_of(EXTENT_PAGES) - rig.vpn(0);
    let pages = first..first + EXTENT_PAGES;
    rig.write_all(pages.clone());
    rig.move_out(pages.start..pages.start + 64).expect("moved");
    let vpn = rig.vpn(first);
    rig.manager
        .core
        .lock()
        .pages
        .extents
        .entry(vpn)
        .set_huge(true);
    pages.clone().for_each(|page| rig.read(page));
    (rig, first)
}

fn counts(rig: &Rig) -> [u64; 2] {
    let stats = rig.manager.stats();
    [ThpCollapseAlloc, ThpCollapseAllocFailed]
        .map(|counter| stats.counter(counter).load(Ordering::Relaxed))
}

fn assemble(rig: &Rig) {
    rig.manager.assembly_ns.store(0, Ordering::Relaxed);
    rig.manager.assemble_huge_pages();
    rig.validate();
    rig.read_all();
}

#[test]
fn a_huge_page_that_came_back_in_pieces_is_made_one_again() {
    for rig in Rig::both(4096, 2 * EXTENT_PAGES) {
        let (rig, _) = come_back(rig);
        rig.manager.assemble_some(rig.manager.watermarks().high);
        assert_eq!(plan::made(Call::Collapse), 0, "no room for the copy");
        assemble(&rig);
        assert_eq!((plan::made(Call::Collapse), counts(&rig)), (1, [1, 0]));
        assemble(&rig);
        assert_eq!(plan::made(Call::Collapse), 1, "it is remembered once");
    }
}

#[test]
fn what_the_kernel_refuses_stays_as_it_is() {
    for (errno, again) in [(Errno::AGAIN, 2), (Errno::INVAL, 1), (Errno::NOMEM, 2)] {
        let (rig, first) = come_back(Rig::of_regions(4096, 2 * EXTENT_PAGES));
        plan::fail(Call::Collapse, 1, errno);
        assemble(&rig);
        assert_eq!(counts(&rig), [0, 1]);
        assert_eq!(plan::made(Call::Collapse), 1);
        rig.manager
            .core
            .lock()
            .history
            .note_complete(rig.vpn(first));
        assemble(&rig);
        assert_eq!(plan::made(Call::Collapse), again, "{errno:?}");
    }
}

#[test]
fn what_is_shared_or_pinned_or_away_is_left_alone() {
    let (rig, first) = come_back(Rig::of_process(4096, 2 * EXTENT_PAGES));
    program::share(rig.address(first + 7));
    assemble(&rig);
    assert_eq!(plan::made(Call::Collapse), 0, "shared with a child");

    let (rig, first) = come_back(Rig::of_process(4096, 2 * EXTENT_PAGES));
    program::pin(rig.address(first + 7), true);
    assemble(&rig);
    assert_eq!(counts(&rig), [0, 1], "the kernel refuses");

    let (rig, first) = come_back(Rig::of_process(4096, 2 * EXTENT_PAGES));
    rig.move_out(first + 32..first + 33).expect("moved");
    rig.manager.assemble_huge_pages();
    assert_eq!(plan::made(Call::Collapse), 0, "one page is out");
    rig.validate();
    rig.read_all();
}
