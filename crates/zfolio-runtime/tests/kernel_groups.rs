//! The kernel's own test cases of zswap (its selftests) that are about several groups, on the
//! tree that a run uses: each group is one of the control segment's, each program in it a
//! member with a pool of its own, which is given what the groups above it leave.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zfolio_compress::Codec;
use zfolio_mm::{Memory, Order, PAGE_SIZE, Pfn};
use zfolio_runtime::fair_share::{Having, Membership};
use zfolio_runtime::segment::run_group::named;
use zfolio_runtime::segment::{Segment, run_group};
use zfolio_sys::secret::KeyPage;
use zfolio_zswap::{
    Arena, GroupLimits, Limits, MemoryBacking, PlainArena, Slot, StoreError, Zswap,
};

const MIB: u64 = 1 << 20;
/// `high` of the run, pages.
const HIGH: usize = 1 << 16;

/// The segment of a run whose processes share.
fn segment() -> Box<Segment> {
    let layout = Layout::new::<Segment>();
    // SAFETY: the layout is not empty; all of a segment are atomic words, for which zeros are
    // values; and a box frees with this layout.
    let segment = unsafe {
        let new = alloc_zeroed(layout);
        if new.is_null() {
            handle_alloc_error(layout);
        }
        Box::from_raw(new.cast::<Segment>())
    };
    segment.config().limits.shared.store(1, Ordering::Relaxed);
    segment
}

/// A group of a run, by its name.
fn group(segment: &Segment, name: &str) -> u32 {
    named(segment, name).expect("a group")
}

/// Sets `zswap.max` of a group; `None` for no limit.
fn limit(segment: &Segment, group: u32, zswap_max: Option<u64>) {
    let word = zswap_max.map_or(0, |max| max + 1);
    let of = &segment.groups[group as usize];
    of.zswap_max.store(word, Ordering::Relaxed);
}

fn disable_writeback(segment: &Segment, group: u32) {
    let of = &segment.groups[group as usize];
    of.no_writeback.store(1, Ordering::Relaxed);
}

/// A program in a group.
struct Program<'a> {
    segment: &'a Segment,
    membership: Membership,
    owner: u64,
    zswap: Zswap<PlainArena>,
}

impl<'a> Program<'a> {
    fn new(segment: &'a Segment, group: u32) -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(1);
        let arena = PlainArena::new(1 << 14).expect("address space");
        let zswap = Zswap::new(arena, Codec::LZ4, Limits::default());
        let backing = Arc::new(MemoryBacking::new(64 * MIB));
        zswap.attach(backing, KeyPage::random().expect("a key"));
        let program = Self {
            segment,
            membership: Membership::of(group),
            owner: OWNERS.fetch_add(1, Ordering::Relaxed),
            zswap,
        };
        program.publish();
        program
    }

    /// Says what it has and takes what it may have, as a manager does.
    fn publish(&self) -> GroupLimits {
        let charged = self.zswap.charged();
        let having = Having {
            owner: self.owner,
            resident: HIGH / 8,
            needs: HIGH / 8,
            zswap_bytes: charged.zswap,
            swap_bytes: charged.swap,
            backing_bytes: self.zswap.stats().snapshot().backing_used(),
        };
        let allowed = self.membership.update(self.segment, having, HIGH);
        self.zswap.set_group_limits(allowed.limits);
        allowed.limits
    }

    /// Folios of 64 KiB of which half compresses to nothing and half not at all, stored.
    fn reclaim(&self, folios: u64) -> Result<Vec<Slot>, StoreError> {
        let (mut context, mut all) = (self.zswap.context().expect("memory"), Vec::new());
        let arena = self.zswap.arena();
        let frame = |_| arena.alloc_frames(1).expect("a frame");
        let pages: Vec<Pfn> = (0..16).map(frame).collect();
        for folio in 0..folios {
            for (page, at) in (0..).zip(&pages) {
                let seed = folio * 16 + page;
                arena.with_mut(*at, 0, PAGE_SIZE, |bytes| fill(bytes, seed));
            }
            let mut slots = [Slot::ZERO; 16];
            self.publish();
            let stored = self
                .zswap
                .store_folio(&mut context, Order::K64, &pages, &mut slots);
            stored?;
            all.extend(slots);
        }
        self.publish();
        Ok(all)
    }

    fn verify(&self, slots: &[Slot]) {
        let mut context = self.zswap.context().expect("memory");
        let (mut page, mut expected) = ([0; PAGE_SIZE], [0; PAGE_SIZE]);
        for (seed, slot) in (0..).zip(slots) {
            self.zswap
                .load_into(&mut context, *slot, &mut page)
                .expect("it is there");
            fill(&mut expected, seed);
            assert!(page == expected, "page {seed}");
        }
    }

    fn written_back(&self) -> u64 {
        self.zswap.stats().snapshot().zswpwb
    }
}

fn fill(bytes: &mut [u8], seed: u64) {
    bytes.fill(0);
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in bytes[PAGE_SIZE / 2..].chunks_exact_mut(8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        chunk.copy_from_slice(&word.to_le_bytes());
    }
}

#[test]
fn test_zswap_usage() {
    // Nothing goes to zswap at limit 0, however far above it is, some does once it is lifted.
    let segment = segment();
    let above = group(&segment, "above");
    let program = Program::new(&segment, group(&segment, "above/below"));
    limit(&segment, above, Some(0));
    assert_eq!(program.reclaim(4), Err(StoreError::GroupFull));
    assert_eq!(program.zswap.stats().snapshot().zswpout, 0);
    limit(&segment, above, None);
    let slots = program.reclaim(4).expect("no limit");
    program.verify(&slots);
}

#[test]
fn test_zswap_writeback_disabled() {
    // Disabled above, it is disabled below, even where that allows it.
    for disabled in [false, true] {
        let segment = segment();
        let above = group(&segment, "above");
        let below = group(&segment, "above/below");
        let program = Program::new(&segment, below);
        if disabled {
            disable_writeback(&segment, above);
        }
        let slots = program.reclaim(64).expect("no limit");
        let quarter = program.zswap.charged().zswap / 4;
        limit(&segment, below, Some(quarter));
        let more = program.reclaim(64);
        assert_eq!(more.is_err(), disabled);
        assert_eq!(program.written_back() > 0, !disabled);
        program.verify(&slots);
        program.zswap.validate().expect("the invariants");
    }
}

#[test]
fn test_no_invasive_cgroup_shrink() {
    // Only the group over its limit is written back.
    let segment = segment();
    let limited = group(&segment, "limited");
    let program = Program::new(&segment, limited);
    let control = Program::new(&segment, group(&segment, "control"));
    limit(&segment, limited, Some(MIB / 2));
    let kept = control.reclaim(16).expect("no limit");
    let before = control.zswap.charged();
    let slots = program.reclaim(64).expect("it is written back");
    assert!(program.written_back() > 0);
    control.publish();
    assert_eq!(
        (control.zswap.charged(), control.written_back()),
        (before, 0)
    );
    let charged = program.zswap.charged().zswap;
    assert!(
        charged <= MIB / 2 + 16 * PAGE_SIZE as u64,
        "a folio at most above it: {charged}"
    );
    control.verify(&kept);
    program.verify(&slots);
}

#[test]
fn members_of_one_group_share_its_limit() {
    let segment = segment();
    let both = group(&segment, "both");
    limit(&segment, both, Some(MIB));
    let (one, other) = (Program::new(&segment, both), Program::new(&segment, both));
    let slots = one.reclaim(16).expect("less than the limit");
    let left = other.publish().zswap_max.expect("a limit");
    assert_eq!(left, MIB - one.zswap.charged().zswap);
    let outside = Program::new(&segment, run_group::RUN);
    assert_eq!(outside.publish(), GroupLimits::default());
    one.verify(&slots);
}

/// Not the kernel's: `high` of a run that was changed, or that somebody wrote anything to.
#[test]
fn a_run_has_what_it_is_given_within_what_its_tables_are_made_for() {
    let segment = segment();
    let alone = Membership::of(run_group::RUN);
    let allowed = |bytes: u64| {
        segment.groups[0].high.store(bytes, Ordering::Relaxed);
        let all = Having {
            owner: 7,
            resident: HIGH,
            needs: 8 * HIGH,
            ..Having::default()
        };
        alone.update(&segment, all, HIGH).high
    };
    let bytes = |pages: usize| (pages * PAGE_SIZE) as u64;
    for shared in [1, 0] {
        segment
            .config()
            .limits
            .shared
            .store(shared, Ordering::Relaxed);
        assert_eq!(allowed(0), HIGH, "what it began with");
        for pages in [HIGH / 2, HIGH, 3 * HIGH, 4 * HIGH] {
            assert_eq!(allowed(bytes(pages)), pages);
        }
        assert_eq!(allowed(u64::MAX), 4 * HIGH);
        assert_eq!(allowed(1), 2048, "the least");
    }
}

/// Not the kernel's: `max` of a group, whatever the run's is.
#[test]
fn a_group_has_a_max_of_its_own() {
    let segment = segment();
    let small = group(&segment, "small");
    let (within, outside) = (
        Membership::of(group(&segment, "small/er")),
        Membership::of(run_group::RUN),
    );
    let allowed = |of: &Membership, owner| {
        let having = Having {
            owner,
            resident: HIGH / 8,
            needs: HIGH / 8,
            ..Having::default()
        };
        let allowed = of.update(&segment, having, HIGH);
        (allowed.max, allowed.max_alone)
    };
    let none = (usize::MAX, usize::MAX);
    assert_eq!((allowed(&within, 1), allowed(&outside, 2)), (none, none));
    let of_group = &segment.groups[small as usize].max;
    of_group.store(64 * MIB, Ordering::Relaxed);
    let pages = |mib: u64| usize::try_from(mib * MIB).expect("a number") / PAGE_SIZE;
    let narrow = (pages(64), pages(64));
    assert_eq!((allowed(&within, 1), allowed(&outside, 2)), (narrow, none));
    let has = |of: &Membership| of.has_max(&segment);
    assert_eq!((has(&within), has(&outside)), (true, false));
    // The run's leaves more than that: the other has a half of it, resident.
    segment
        .config()
        .limits
        .max
        .store(128 * MIB, Ordering::Relaxed);
    let rest = (pages(128) - HIGH / 8, usize::MAX);
    assert_eq!((allowed(&within, 1), allowed(&outside, 2)), (narrow, rest));
    assert!(has(&outside));
    // And now it leaves less; whoever has more than that is not alone too large.
    segment
        .config()
        .limits
        .max
        .store(80 * MIB, Ordering::Relaxed);
    let rest = pages(80) - HIGH / 8;
    assert_eq!(allowed(&within, 1), (rest, pages(64)));
}
