//! The kernel's own test cases of zswap (its selftests), as cases of this
//! engine: each is named after what it is called there. Where the kernel's
//! works on a program in a control group, here are pages of a group.

mod support;

use support::{Content, TestArena, backed, content_of, store_of};
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_zswap::{GroupId, GroupLimits, Limits, Slot, StoreError, Zswap};

const MIB: u64 = 1 << 20;

fn engine(megabytes: u64) -> Zswap<TestArena> {
    backed(Limits::default(), megabytes * MIB).0
}

fn group(zswap: &Zswap<TestArena>, parent: GroupId, limits: GroupLimits) -> GroupId {
    zswap.add_group(parent, limits).expect("a group")
}

/// `pages` pages of a group in folios of 64 KiB, and what they hold.
fn reclaim(
    zswap: &Zswap<TestArena>,
    group: GroupId,
    pages: u64,
    content: impl Fn(u64) -> Content,
) -> Result<Vec<(Slot, Content)>, StoreError> {
    let mut held = Vec::new();
    let folio = Order::K64.pages() as u64;
    for first in (0..pages).step_by(Order::K64.pages()) {
        let contents: Vec<_> = (first..(first + folio).min(pages)).map(&content).collect();
        let slots = store_of(zswap, group, &contents)?;
        held.extend(slots.into_iter().zip(contents));
    }
    Ok(held)
}

fn verify(zswap: &Zswap<TestArena>, held: &[(Slot, Content)]) {
    for (slot, content) in held {
        assert!(
            content_of(zswap, *slot).unwrap() == content.bytes(),
            "{content:?}"
        );
    }
}

/// Half of a page zeros, half of it not compressible.
fn half_page(seed: u64) -> Content {
    Content::Tail(seed, PAGE_SIZE / 2)
}

#[test]
fn test_no_kmem_bypass() {
    // What compressed pages take is charged to whose they are, and no less.
    let zswap = engine(64);
    let of = group(&zswap, GroupId::ROOT, GroupLimits::default());
    let held = reclaim(&zswap, of, 1024, half_page).unwrap();
    let (now, figures) = (zswap.stats().snapshot(), zswap.group(of));
    assert_eq!(
        (figures.memory, figures.zswap),
        (now.compressed_bytes, now.compressed_bytes)
    );
    assert!(figures.zswap > 1024 * PAGE_SIZE as u64 / 2);
    assert_eq!(zswap.group(GroupId::ROOT).memory, figures.memory);
    verify(&zswap, &held);
    let slots: Vec<_> = held.iter().map(|(slot, _)| *slot).collect();
    zswap.invalidate(&slots);
    assert_eq!(zswap.group(of).memory, 0);
}

#[test]
fn test_swapin_nozswap() {
    // 32M under a cap of 8M, zswap not allowed: what went out is read back
    // from elsewhere. Here a folio that may not be stored stays with its owner.
    let zswap = engine(64);
    let none = GroupLimits {
        zswap_max: Some(0),
        ..GroupLimits::default()
    };
    let of = group(&zswap, GroupId::ROOT, none);
    let refused = reclaim(&zswap, of, 16, Content::Records).unwrap_err();
    assert!(matches!(refused, StoreError::GroupFull(over) if over.group == of));
    assert_eq!(
        (zswap.stats().snapshot().zswpout, zswap.group(of).zswapped),
        (0, 0)
    );
}

#[test]
fn test_zswapin() {
    // 32M, of which 8M may stay: at least 24M come back, all of them right.
    let zswap = engine(64);
    let of = group(&zswap, GroupId::ROOT, GroupLimits::default());
    let held = reclaim(&zswap, of, 32 * MIB / PAGE_SIZE as u64, half_page).unwrap();
    let out = (24 << 20) / PAGE_SIZE;
    verify(&zswap, &held[..out]);
    assert!(zswap.stats().snapshot().zswpin * PAGE_SIZE as u64 >= 24 * MIB);
}

#[test]
fn test_zswap_usage() {
    // Nothing goes to zswap at limit 0, some does once it is lifted.
    let zswap = engine(64);
    let of = group(
        &zswap,
        GroupId::ROOT,
        GroupLimits {
            zswap_max: Some(0),
            ..GroupLimits::default()
        },
    );
    assert!(reclaim(&zswap, of, 64, Content::Records).is_err());
    assert_eq!(zswap.stats().snapshot().zswpout, 0);
    zswap.set_group_limits(of, GroupLimits::default());
    let held = reclaim(&zswap, of, 64, Content::Records).unwrap();
    assert_eq!(zswap.stats().snapshot().zswpout, 64);
    verify(&zswap, &held);
}

fn writeback_case(limits: GroupLimits, parent: GroupLimits) -> u64 {
    let zswap = engine(64);
    let above = group(&zswap, GroupId::ROOT, parent);
    let of = group(&zswap, above, limits);
    let held = reclaim(&zswap, of, 1024, half_page).unwrap();
    verify(&zswap, &held);
    assert_eq!(zswap.stats().snapshot().zswpwb, 0);
    // The limit is cut to a quarter of what it has; more is to go out.
    let quarter = zswap.group(of).zswap / 4;
    zswap.set_group_limits(
        of,
        GroupLimits {
            zswap_max: Some(quarter),
            ..limits
        },
    );
    let more = reclaim(&zswap, of, 1024, |page| half_page(page + 5000));
    verify(&zswap, &held);
    zswap.validate().unwrap();
    let now = zswap.stats().snapshot();
    match more {
        Ok(more) => {
            verify(&zswap, &more);
            assert_eq!(now.reject_reclaim_fail, 0);
        }
        Err(error) => {
            assert!(matches!(error, StoreError::GroupFull(over) if over.group == of));
            assert!(now.reject_reclaim_fail > 0);
        }
    }
    now.zswpwb
}

#[test]
fn test_zswap_writeback_enabled() {
    assert!(writeback_case(GroupLimits::default(), GroupLimits::default()) > 0);
}

#[test]
fn test_zswap_writeback_disabled() {
    let no = GroupLimits {
        writeback: false,
        ..GroupLimits::default()
    };
    assert_eq!(writeback_case(no, GroupLimits::default()), 0);
    // Disabled above, it is disabled below, even where that allows it.
    assert_eq!(writeback_case(GroupLimits::default(), no), 0);
}

#[test]
fn test_no_invasive_cgroup_shrink() {
    // Only the group over its limit is written back.
    let zswap = engine(64);
    let limited = GroupLimits {
        zswap_max: Some(MIB / 2),
        ..GroupLimits::default()
    };
    let wb = group(&zswap, GroupId::ROOT, limited);
    let control = group(&zswap, GroupId::ROOT, GroupLimits::default());
    let kept = reclaim(&zswap, control, 256, half_page).unwrap();
    let before = zswap.group(control);
    let held = reclaim(&zswap, wb, 1024, |page| half_page(page + 9000)).unwrap();
    assert!(zswap.stats().snapshot().zswpwb > 0);
    assert_eq!(zswap.group(control), before);
    assert!(kept.iter().all(|(slot, _)| !zswap.is_in_backing(*slot)));
    assert!(
        zswap.group(wb).zswap <= MIB / 2 + 16 * PAGE_SIZE as u64,
        "a folio at most above it"
    );
    verify(&zswap, &kept);
    verify(&zswap, &held);
}

#[test]
fn test_zswap_incompressible() {
    let zswap = engine(64);
    let of = group(&zswap, GroupId::ROOT, GroupLimits::default());
    assert_eq!(zswap.group(of).zswap_incomp, 0);
    let held = reclaim(&zswap, of, 4 * MIB / PAGE_SIZE as u64, Content::Noise).unwrap();
    assert_eq!(zswap.group(of).zswap_incomp, 4 * MIB);
    assert_eq!(zswap.stats().snapshot().stored_incompressible_pages, 1024);
    verify(&zswap, &held);
}
