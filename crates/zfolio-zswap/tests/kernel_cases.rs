//! The kernel's own test cases of zswap (its selftests), as cases of this
//! engine: each is named after what it is called there. Where the kernel's
//! works on a program in a control group, here is a pool under that group's limits. What
//! several groups leave for it is tested where that is worked out
//! (`zfolio-runtime/tests/kernel_groups.rs`).

mod support;

use support::{Content, TestArena, backed, content_of, store};
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_zswap::{Charged, GroupLimits, Limits, Slot, StoreError, Zswap};

const MIB: u64 = 1 << 20;

fn engine(megabytes: u64) -> Zswap<TestArena> {
    backed(Limits::default(), megabytes * MIB).0
}

fn limited(limits: GroupLimits) -> Zswap<TestArena> {
    let zswap = engine(64);
    zswap.set_group_limits(limits);
    zswap
}

/// `pages` pages in folios of 64 KiB, and what they hold.
fn reclaim(
    zswap: &Zswap<TestArena>,
    pages: u64,
    content: impl Fn(u64) -> Content,
) -> Result<Vec<(Slot, Content)>, StoreError> {
    let mut held = Vec::new();
    let folio = Order::K64.pages() as u64;
    for first in (0..pages).step_by(Order::K64.pages()) {
        let contents: Vec<_> = (first..(first + folio).min(pages)).map(&content).collect();
        let slots = store(zswap, &contents)?;
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
    // What compressed pages take is charged, and no less.
    let zswap = engine(64);
    let held = reclaim(&zswap, 1024, half_page).unwrap();
    let (now, charged) = (zswap.stats().snapshot(), zswap.charged());
    assert_eq!(charged.zswap, now.compressed_bytes);
    assert!(charged.zswap > 1024 * PAGE_SIZE as u64 / 2);
    assert_eq!(charged.swap, 1024 * PAGE_SIZE as u64);
    verify(&zswap, &held);
    let slots: Vec<_> = held.iter().map(|(slot, _)| *slot).collect();
    zswap.invalidate(&slots);
    assert_eq!(zswap.charged(), Charged::default());
}

#[test]
fn test_swapin_nozswap() {
    // 32M under a cap of 8M, zswap not allowed: what went out is read back
    // from elsewhere. Here a folio that may not be stored stays with its owner.
    let zswap = limited(GroupLimits {
        zswap_max: Some(0),
        ..GroupLimits::default()
    });
    let refused = reclaim(&zswap, 16, Content::Records).unwrap_err();
    assert_eq!(refused, StoreError::GroupFull);
    assert_eq!(
        (zswap.stats().snapshot().zswpout, zswap.charged().zswapped),
        (0, 0)
    );
}

#[test]
fn test_zswapin() {
    // 32M, of which 8M may stay: at least 24M come back, all of them right.
    let zswap = engine(64);
    let held = reclaim(&zswap, 32 * MIB / PAGE_SIZE as u64, half_page).unwrap();
    let out = (24 << 20) / PAGE_SIZE;
    verify(&zswap, &held[..out]);
    assert!(zswap.stats().snapshot().zswpin * PAGE_SIZE as u64 >= 24 * MIB);
}

#[test]
fn test_zswap_usage() {
    // Nothing goes to zswap at limit 0, some does once it is lifted.
    let zswap = limited(GroupLimits {
        zswap_max: Some(0),
        ..GroupLimits::default()
    });
    assert!(reclaim(&zswap, 64, Content::Records).is_err());
    assert_eq!(zswap.stats().snapshot().zswpout, 0);
    zswap.set_group_limits(GroupLimits::default());
    let held = reclaim(&zswap, 64, Content::Records).unwrap();
    assert_eq!(zswap.stats().snapshot().zswpout, 64);
    verify(&zswap, &held);
}

fn writeback_case(limits: GroupLimits) -> u64 {
    let zswap = limited(limits);
    let held = reclaim(&zswap, 1024, half_page).unwrap();
    verify(&zswap, &held);
    assert_eq!(zswap.stats().snapshot().zswpwb, 0);
    // The limit is cut to a quarter of what it has; more is to go out.
    zswap.set_group_limits(GroupLimits {
        zswap_max: Some(zswap.charged().zswap / 4),
        ..limits
    });
    let more = reclaim(&zswap, 1024, |page| half_page(page + 5000));
    verify(&zswap, &held);
    zswap.validate().unwrap();
    let now = zswap.stats().snapshot();
    match more {
        Ok(more) => {
            verify(&zswap, &more);
            assert_eq!(now.reject_reclaim_fail, 0);
        }
        Err(error) => {
            assert_eq!(error, StoreError::GroupFull);
            assert!(now.reject_reclaim_fail > 0);
        }
    }
    now.zswpwb
}

#[test]
fn test_zswap_writeback_enabled() {
    assert!(writeback_case(GroupLimits::default()) > 0);
}

#[test]
fn test_zswap_writeback_disabled() {
    let no = GroupLimits {
        writeback: false,
        ..GroupLimits::default()
    };
    assert_eq!(writeback_case(no), 0);
}

#[test]
fn test_zswap_incompressible() {
    let zswap = engine(64);
    assert_eq!(zswap.charged().zswap_incomp, 0);
    let held = reclaim(&zswap, 4 * MIB / PAGE_SIZE as u64, Content::Noise).unwrap();
    assert_eq!(zswap.charged().zswap_incomp, 4 * MIB);
    assert_eq!(zswap.stats().snapshot().stored_incompressible_pages, 1024);
    verify(&zswap, &held);
}
