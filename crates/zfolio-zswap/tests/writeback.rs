//! Writeback, rule by rule: what goes, in which order, and what happens when
//! the backing does not do what it should.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use support::{Content, TestArena, backed, content_of, gauges, store};
use zfolio_compress::Codec;
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::secret::KeyPage;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::backing::{CLUSTER, Call};
use zfolio_zswap::{
    FileBacking, GroupLimits, Limits, LoadFault, NullBacking, Shrunk, Slot, StoreError, Zswap,
};

const ROOM: u64 = 64 << 20;

fn records(count: u64) -> Vec<Content> {
    (0..count).map(Content::Records).collect()
}

/// Writes back until no entry is left that may go.
fn empty(zswap: &Zswap<TestArena>) -> usize {
    let mut context = zswap.context().unwrap();
    let mut written = 0;
    loop {
        let step = zswap.shrink_step(&mut context);
        written += step.written;
        if step.is_stuck() {
            assert_eq!((step.errno, step.full), (None, false));
            return written;
        }
    }
}

fn check(zswap: &Zswap<TestArena>, slots: &[Slot], contents: &[Content]) {
    zswap.validate().unwrap();
    for (slot, content) in slots.iter().zip(contents) {
        assert!(
            content_of(zswap, *slot).unwrap() == content.bytes(),
            "{content:?}"
        );
    }
}

#[test]
fn what_was_written_back_comes_back() {
    let (zswap, backing) = backed(Limits::default(), ROOM);
    let mut contents = records(256);
    contents[7] = Content::Noise(7);
    contents[8] = Content::Zero;
    contents[9] = Content::Same(9);
    let slots = store(&zswap, &contents).unwrap();
    assert_eq!(empty(&zswap), 254);
    let now = zswap.stats().snapshot();
    assert_eq!(
        (now.stored_pages, now.pool_pages, now.backing_pages),
        (1, 0, 254)
    );
    assert_eq!(
        [now.zswpwb, now.written_back_pages, now.pswpout, now.pswpin],
        [254, 254, 254, 0]
    );
    assert!(slots.iter().zip(&contents).all(|(slot, content)| {
        zswap.is_in_backing(*slot) == !matches!(content, Content::Zero | Content::Same(_))
    }));
    check(&zswap, &slots, &contents);
    assert_eq!(zswap.stats().snapshot().pswpin, 254);
    // Gone with the entries.
    zswap.invalidate(&slots);
    assert_eq!(gauges(&zswap.stats().snapshot()), [0; 5]);
    assert_eq!(zswap.stats().snapshot().backing_pages, 0);
    assert!(zswap.tend_backing() <= 4);
    assert!(
        backing.held() <= CLUSTER,
        "all but the open cluster are given back"
    );
    zswap.validate().unwrap();
}

#[test]
fn it_goes_in_few_long_writes_and_comes_in_few_reads() {
    let (zswap, backing) = backed(Limits::default(), ROOM);
    let slots = store(&zswap, &records(512)).unwrap();
    empty(&zswap);
    let (writes, _) = backing.calls();
    assert!(writes <= 512 / 32 + 4, "{writes} writes of 512 pages");
    let frames = zswap.arena().take(16);
    let mut context = zswap.context().unwrap();
    for (batch, slots) in slots.chunks(16).enumerate() {
        zswap.load_exclusive(&mut context, slots, &frames).unwrap();
        for (index, frame) in frames.iter().enumerate() {
            let content = Content::Records((batch * 16 + index) as u64);
            assert!(zswap.arena().page(*frame) == content.bytes());
        }
    }
    let (_, reads) = backing.calls();
    assert!(reads <= 512 / 16 * 2, "{reads} reads of 512 pages");
    assert_eq!(zswap.stats().snapshot().pswpin, 512);
    zswap.validate().unwrap();
}

#[test]
fn the_oldest_goes_first_and_what_is_referenced_has_a_second_chance() {
    let (zswap, _) = backed(Limits::default(), ROOM);
    let slots = store(&zswap, &records(64)).unwrap();
    let mut context = zswap.context().unwrap();
    let in_backing = || {
        slots
            .iter()
            .map(|slot| zswap.is_in_backing(*slot))
            .collect::<Vec<_>>()
    };
    // Stored is referenced: the first look at each takes that.
    for _ in 0..2 {
        let step = zswap.shrink_step(&mut context);
        assert_eq!(
            step,
            Shrunk {
                scanned: 32,
                ..Shrunk::default()
            }
        );
        assert_eq!(in_backing(), [false; 64]);
    }
    let step = zswap.shrink_step(&mut context);
    assert_eq!((step.scanned, step.written), (32, 32));
    let mut oldest = [false; 64];
    oldest[..32].fill(true);
    assert_eq!(in_backing(), oldest);
    zswap.validate().unwrap();
}

#[test]
fn a_full_pool_is_shrunk_to_the_threshold() {
    let limits = Limits::of_percent(20, 1000);
    assert_eq!(limits.max_pool_pages, Some(200));
    let (zswap, _) = backed(limits, ROOM);
    let mut context = zswap.context().unwrap();
    let mut stored = Vec::new();
    for seed in 0..400 {
        let contents: Vec<_> = (0..4)
            .map(|page| Content::Records(seed * 4 + page))
            .collect();
        loop {
            match store(&zswap, &contents) {
                Ok(slots) => break stored.extend(slots.into_iter().zip(contents)),
                Err(error) => {
                    assert_eq!(error, StoreError::PoolFull);
                    assert!(zswap.wants_shrinking());
                    let shrunk = zswap.shrink(&mut context, || false);
                    assert!(shrunk.written > 0 && !shrunk.is_stuck());
                    assert!(zswap.pool_pages() <= 180 && !zswap.wants_shrinking());
                }
            }
        }
    }
    assert!(zswap.stats().snapshot().pool_limit_hit > 1);
    assert_eq!(zswap.stats().snapshot().reject_reclaim_fail, 0);
    assert!(zswap.stats().snapshot().backing_pages > 500);
    let (slots, contents): (Vec<_>, Vec<_>) = stored.into_iter().unzip();
    check(&zswap, &slots, &contents);
}

#[test]
fn a_write_that_fails_leaves_all_in_the_pool() {
    for errno in [Errno::NOSPC, Errno::IO] {
        let (zswap, backing) = backed(Limits::default(), ROOM);
        let contents = records(64);
        let slots = store(&zswap, &contents).unwrap();
        let mut context = zswap.context().unwrap();
        zswap.shrink_step(&mut context);
        zswap.shrink_step(&mut context);
        let before = zswap.stats().snapshot();
        backing.fail(Call::Write, errno, 2);
        for _ in 0..2 {
            let step = zswap.shrink_step(&mut context);
            assert_eq!((step.written, step.errno), (0, Some(errno)));
            assert!(step.is_stuck());
        }
        let now = zswap.stats().snapshot();
        assert_eq!(gauges(&now), gauges(&before));
        assert_eq!(
            (now.backing_write_fail, now.zswpwb, now.backing_pages),
            (2, 0, 0)
        );
        check(&zswap, &slots, &contents);
        // It works again: nothing was lost, and no place written twice.
        assert_eq!(empty(&zswap), 64);
        check(&zswap, &slots, &contents);
    }
}

#[test]
fn a_full_pool_that_cannot_be_shrunk_is_counted() {
    let limits = Limits {
        max_pool_pages: Some(40),
        ..Limits::default()
    };
    let (zswap, backing) = backed(limits, ROOM);
    let mut context = zswap.context().unwrap();
    while store(&zswap, &records(4)).is_ok() {}
    for _ in 0..20 {
        zswap.shrink_step(&mut context); // second chances
    }
    while store(&zswap, &records(4)).is_ok() {}
    assert!(zswap.wants_shrinking());
    backing.fail(Call::Write, Errno::IO, 1000);
    let mut failed = 0;
    while failed == 0 {
        zswap.shrink(&mut context, || false);
        failed = zswap.stats().snapshot().reject_reclaim_fail;
    }
    assert!(zswap.wants_shrinking());
    zswap.validate().unwrap();
}

#[test]
fn a_full_backing_takes_no_more_and_loses_nothing() {
    let (zswap, _) = backed(Limits::default(), 2 * CLUSTER as u64);
    let contents: Vec<_> = (0..512).map(Content::Noise).collect();
    let slots = store(&zswap, &contents).unwrap();
    let mut context = zswap.context().unwrap();
    let mut written = 0;
    let last = loop {
        let step = zswap.shrink_step(&mut context);
        written += step.written;
        if step.is_stuck() {
            break step;
        }
    };
    assert!(last.full);
    // A raw page takes 65 granules of a cluster's 4096.
    assert_eq!(written, 2 * 63);
    assert_eq!(zswap.stats().snapshot().backing_full, 1);
    check(&zswap, &slots, &contents);
    // Room again, once what is there has gone.
    zswap.invalidate(&slots[..256]);
    assert!(zswap.shrink_step(&mut context).scanned > 0);
    check(&zswap, &slots[256..], &contents[256..]);
}

#[test]
fn a_device_that_fills_up_in_the_middle() {
    let (zswap, backing) = backed(Limits::default(), ROOM);
    let contents: Vec<_> = (0..256).map(Content::Noise).collect();
    let slots = store(&zswap, &contents).unwrap();
    backing.fill_up_after(300 << 10);
    let mut context = zswap.context().unwrap();
    let last = loop {
        let step = zswap.shrink_step(&mut context);
        if step.is_stuck() {
            break step;
        }
    };
    assert_eq!(last.errno, Some(Errno::NOSPC));
    assert_eq!(zswap.stats().snapshot().backing_pages, 64);
    check(&zswap, &slots, &contents);
}

#[test]
fn what_cannot_be_read_is_an_error_and_zeros() {
    let (zswap, backing) = backed(Limits::default(), ROOM);
    let slots = store(&zswap, &records(16)).unwrap();
    empty(&zswap);
    let frames = zswap.arena().take(16);
    let mut context = zswap.context().unwrap();
    // One bad read of a run is not every page's: they are read one by one.
    backing.fail(Call::Read, Errno::IO, 1);
    zswap.load_batch(&mut context, &slots, &frames).unwrap();
    backing.fail(Call::Read, Errno::IO, 2);
    let error = zswap.load_batch(&mut context, &slots, &frames).unwrap_err();
    assert_eq!(
        (error.index, error.fault),
        (0, LoadFault::Backing(Errno::IO))
    );
    assert!(zswap.arena().page(frames[0]) == [0; PAGE_SIZE]);
    assert!(zswap.arena().page(frames[1]) == Content::Records(1).bytes());
    let now = zswap.stats().snapshot();
    assert_eq!(
        (now.backing_read_fail, now.decompress_fail, now.pswpin),
        (1, 0, 31)
    );
    // It is still there.
    check(&zswap, &slots, &records(16));
}

#[test]
fn a_changed_byte_is_found_out() {
    let (zswap, backing) = backed(Limits::default(), ROOM);
    let slots = store(&zswap, &records(8)).unwrap();
    empty(&zswap);
    let len = backing
        .contents()
        .iter()
        .rposition(|byte| *byte != 0)
        .unwrap();
    let mut found = 0;
    for offset in (0..len as u64).step_by(97) {
        backing.flip(offset, 4);
        let wrong = slots.iter().zip(records(8)).filter(|(slot, content)| {
            match content_of(&zswap, **slot) {
                Ok(bytes) => {
                    assert!(bytes == content.bytes());
                    false
                }
                Err(fault) => {
                    assert_eq!(fault, LoadFault::Seal);
                    true
                }
            }
        });
        let wrong = wrong.count();
        assert!(wrong <= 1);
        found += wrong;
        backing.flip(offset, 4);
    }
    assert!(found > 20);
}

#[test]
fn nothing_readable_is_in_the_backing() {
    let zswap = Zswap::new(TestArena::new(), Codec::Noop, Limits::default());
    let backing = Arc::new(zfolio_zswap::MemoryBacking::new(ROOM));
    zswap.attach(backing.clone(), KeyPage::random().unwrap());
    let needle = b"the secret of the page";
    let mut content = vec![b'.'; PAGE_SIZE];
    for at in (0..PAGE_SIZE - needle.len()).step_by(100) {
        content[at..at + needle.len()].copy_from_slice(needle);
    }
    let pages = zswap.arena().take(64);
    for page in &pages {
        use zfolio_mm::Memory;
        zswap
            .arena()
            .with_mut(*page, 0, PAGE_SIZE, |page| page.copy_from_slice(&content));
    }
    let mut slots = [Slot::ZERO; 64];
    let mut context = zswap.context().unwrap();
    zswap.store_pages(&mut context, &pages, &mut slots).unwrap();
    assert_eq!(empty(&zswap), 64);
    let held = backing.contents();
    assert!(held.iter().filter(|byte| **byte != 0).count() > 64 * 4000);
    assert!(!held.windows(6).any(|window| window == &needle[..6]));
    assert!(
        slots
            .iter()
            .all(|slot| content_of(&zswap, *slot).unwrap() == content)
    );
}

#[test]
fn the_same_page_is_never_sealed_alike() {
    let (zswap, backing) = backed(Limits::default(), ROOM);
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..6 {
        let slots = store(&zswap, &[Content::Noise(1); 4]).unwrap();
        assert_eq!(empty(&zswap), 4);
        let held = backing.contents();
        for record in held
            .chunks(65 * 64)
            .take(1000)
            .filter(|part| part.iter().any(|b| *b != 0))
        {
            seen.insert(record[..64.min(record.len())].to_vec());
        }
        assert!(seen.len() >= 4 * (round + 1), "{round}: {}", seen.len());
        zswap.invalidate(&slots);
        zswap.tend_backing();
    }
}

#[test]
fn who_has_writeback_disabled_keeps_all_in_the_pool() {
    let (zswap, _) = backed(Limits::default(), ROOM);
    let no = GroupLimits {
        writeback: false,
        ..GroupLimits::default()
    };
    zswap.set_group_limits(no);
    let slots = store(&zswap, &records(64)).unwrap();
    let mut context = zswap.context().unwrap();
    assert_eq!(zswap.shrink_step(&mut context), Shrunk::default());
    assert_eq!(zswap.shrinker_count(), 0);
    assert_eq!(empty(&zswap), 0);
    zswap.set_group_limits(GroupLimits::default());
    assert_eq!(empty(&zswap), 64);
    check(&zswap, &slots, &records(64));
}

#[test]
fn the_shrinker_takes_its_part_and_is_held_back_by_what_was_read() {
    let (zswap, _) = backed(Limits::default(), ROOM);
    let slots = store(&zswap, &records(512)).unwrap();
    let now = zswap.stats().snapshot();
    let part = usize::try_from(512 * now.pool_pages / now.stored_pages).unwrap();
    assert!(part < 512);
    assert_eq!(zswap.shrinker_count(), part);
    let mut context = zswap.context().unwrap();
    let shrunk = zswap.shrinker_scan(&mut context, 512);
    assert_eq!((shrunk.scanned, shrunk.written), (512, 0), "second chances");
    let shrunk = zswap.shrinker_scan(&mut context, 100);
    assert_eq!((shrunk.scanned, shrunk.written), (100, 100));
    for slot in &slots[..90] {
        assert!(zswap.is_in_backing(*slot));
        content_of(&zswap, *slot).unwrap();
    }
    let now = zswap.stats().snapshot();
    let of = |entries: u64| usize::try_from(entries * now.pool_pages / now.stored_pages).unwrap();
    assert_eq!(zswap.shrinker_count(), of(412 - 90), "held back once");
    assert_eq!(zswap.shrinker_count(), of(412));
}

#[test]
fn a_call_of_the_shrinker_looks_at_what_the_last_did_not_come_to() {
    let (zswap, _) = backed(Limits::default(), ROOM);
    let slots = store(&zswap, &records(512)).unwrap();
    let mut context = zswap.context().unwrap();
    assert_eq!(
        zswap.shrinker_scan(&mut context, 512).written,
        0,
        "second chances"
    );
    let first = zswap.shrinker_count();
    let shrunk = zswap.shrinker_call(&mut context, 100);
    assert_eq!((shrunk.scanned, shrunk.written), (100, 100));
    for slot in &slots[..90] {
        content_of(&zswap, *slot).unwrap();
    }
    let now = zswap.stats().snapshot();
    let count = usize::try_from((412 - 90) * now.pool_pages / now.stored_pages).unwrap();
    let asked = (count + (first - 100)).min(2 * count).min(412);
    assert!(asked > count && count > 0);
    let shrunk = zswap.shrinker_call(&mut context, usize::MAX);
    assert_eq!((shrunk.scanned, shrunk.written), (asked, asked));
    zswap.validate().unwrap();
}

#[test]
fn a_call_of_the_shrinker_goes_round_again_after_second_chances() {
    let (zswap, _) = backed(Limits::default(), ROOM);
    store(&zswap, &records(64)).unwrap();
    let mut context = zswap.context().unwrap();
    let count = zswap.shrinker_count();
    assert!((32..64).contains(&count), "{count}");
    let shrunk = zswap.shrinker_call(&mut context, 512);
    // The second look begins with the entries that the first did not come to.
    assert_eq!(shrunk.scanned, 2 * count);
    assert_eq!(shrunk.written, 2 * count - 64);
}

#[test]
fn what_is_overwritten_does_not_go_out() {
    let (zswap, backing) = backed(Limits::default(), ROOM);
    let slots = store(&zswap, &records(4)).unwrap();
    let runs = zswap.arena().runs.lock().unwrap().clone();
    // Every byte of the pool: the objects' owners among them, or their bytes.
    for (at, pages) in runs {
        for page in 0..pages {
            for offset in (200..PAGE_SIZE).step_by(64) {
                zswap.arena().flip(at.offset(page), offset, 1);
            }
        }
    }
    assert_eq!(zswap.shrink_step(&mut zswap.context().unwrap()).scanned, 4);
    let step = zswap.shrink_step(&mut zswap.context().unwrap());
    assert_eq!(step.written, 0);
    assert_eq!(zswap.stats().snapshot().backing_pages, 0);
    assert!(backing.contents().iter().all(|byte| *byte == 0));
    for slot in slots {
        assert!(content_of(&zswap, slot).is_err());
    }
}

#[test]
fn a_child_of_a_fork_has_no_way_to_what_was_written_back() {
    let (zswap, backing) = backed(Limits::default(), ROOM);
    let slots = store(&zswap, &records(64)).unwrap();
    empty(&zswap);
    let more = store(&zswap, &records(32)).unwrap();
    // As in the child: the same tables, and nobody else.
    zswap.reset_in_fork_child();
    let (writes, reads) = backing.calls();
    zswap.validate().unwrap();
    assert_eq!(content_of(&zswap, slots[0]), Err(LoadFault::Lost));
    assert!(zswap.is_in_backing(slots[0]) || zswap.backing_pages() == 0);
    check(&zswap, &more, &records(32));
    // A backing and a key of its own; what is lost stays so.
    let own = Arc::new(zfolio_zswap::MemoryBacking::new(ROOM));
    zswap.attach(own.clone(), KeyPage::random().unwrap());
    assert_eq!(empty(&zswap), 32);
    check(&zswap, &more, &records(32));
    assert_eq!(content_of(&zswap, slots[5]), Err(LoadFault::Lost));
    assert_eq!(zswap.invalidate(&slots), 64);
    zswap.validate().unwrap();
    assert_eq!(
        backing.calls(),
        (writes, reads),
        "the parent's is not touched"
    );
    assert_eq!(zswap.charged().swap, 32 * PAGE_SIZE as u64);
}

#[test]
fn to_a_file() {
    let zswap = Zswap::new(TestArena::new(), Codec::LZ4, Limits::default());
    let dir = std::ffi::CString::new(std::env::temp_dir().to_str().unwrap()).unwrap();
    let file = FileBacking::create(&dir, ROOM).unwrap();
    zswap.attach(Arc::new(file), KeyPage::random().unwrap());
    let contents: Vec<_> = (0..512).map(|page| Content::Tail(page, 1000)).collect();
    let slots = store(&zswap, &contents).unwrap();
    assert_eq!(empty(&zswap), 512);
    check(&zswap, &slots, &contents);
    zswap.invalidate(&slots[..500]);
    assert!(zswap.tend_backing() > 3);
    check(&zswap, &slots[500..], &contents[500..]);
}

#[test]
fn nothing_comes_back_from_null() {
    let zswap = Zswap::new(TestArena::new(), Codec::LZ4, Limits::default());
    zswap.attach(Arc::new(NullBacking), KeyPage::random().unwrap());
    let slots = store(&zswap, &records(8)).unwrap();
    assert_eq!(empty(&zswap), 8);
    assert_eq!(
        content_of(&zswap, slots[3]),
        Err(LoadFault::Backing(Errno::IO))
    );
}

/// Loads, stores, invalidations and writeback at once: every load is right.
#[test]
fn beside_threads_that_load_and_drop() {
    let (zswap, _) = backed(Limits::default(), ROOM);
    let rounds = 15;
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (zswap, done) = (&zswap, &done);
            scope.spawn(move || {
                for round in 0.. {
                    // (Some must have been written back meanwhile.)
                    if round >= rounds && zswap.stats().snapshot().pswpout > 0 {
                        break;
                    }
                    let seed = (thread * 1000 + round) * 64;
                    let contents: Vec<_> = (seed..seed + 32).map(Content::Records).collect();
                    let slots = store(zswap, &contents).unwrap();
                    for _ in 0..2 {
                        for (slot, content) in slots.iter().zip(&contents) {
                            assert!(content_of(zswap, *slot).unwrap() == content.bytes());
                        }
                    }
                    assert_eq!(zswap.invalidate(&slots), 32);
                }
                done.fetch_add(1, Relaxed);
            });
        }
        let mut context = zswap.context().unwrap();
        while done.load(Relaxed) < 3 {
            zswap.shrink_step(&mut context);
            zswap.tend_backing();
        }
    });
    zswap.validate().unwrap();
    let now = zswap.stats().snapshot();
    assert_eq!(gauges(&now), [0; 5]);
    assert_eq!(
        (
            now.backing_pages,
            now.decompress_fail,
            now.backing_read_fail
        ),
        (0, 0, 0)
    );
    assert!(now.pswpout > 0);
}
