//! The rules one by one: limits, damage, codecs that fail, what happens in the
//! middle of a batch.

mod support;

use std::sync::{Arc, Mutex};
use support::{Content, MARK, Puppet, Strings, TestArena, fill_pages, gauges, store};
use zfolio_compress::{Codec, CodecError};
use zfolio_mm::{Memory, Order, PAGE_SIZE};
use zfolio_zswap::{
    Limits, LoadError, LoadFault, PlainArena, Slot, StoreError, WorkContext, Zswap,
};

fn records(count: u64) -> Vec<Content> {
    (0..count).map(Content::Records).collect()
}

fn plain(codec: Codec) -> Zswap<TestArena> {
    Zswap::new(TestArena::new(), codec, Limits::default())
}

fn puppet(batch: usize, limits: Limits) -> (Arc<Zswap<TestArena>>, Arc<Mutex<Strings>>) {
    let strings = Arc::new(Mutex::new(Strings::default()));
    let compressor = Box::new(Puppet {
        strings: strings.clone(),
        batch,
    });
    (
        Arc::new(Zswap::with_compressor(TestArena::new(), compressor, limits)),
        strings,
    )
}

#[test]
fn nothing_goes_in_at_limit_0_and_some_once_lifted() {
    let none = Limits {
        max_pool_pages: Some(0),
        ..Limits::default()
    };
    let zswap = Zswap::new(TestArena::new(), Codec::LZ4, none);
    assert_eq!(store(&zswap, &records(16)), Err(StoreError::PoolFull));
    let now = zswap.stats().snapshot();
    assert_eq!(
        (
            now.zswpout,
            now.pool_limit_hit,
            now.order_swpout_fallback[4]
        ),
        (0, 1, 1)
    );
    zswap.set_limits(Limits::default());
    store(&zswap, &records(16)).unwrap();
    assert_eq!(zswap.stats().snapshot().zswpout, 16);
}

#[test]
fn a_full_pool_waits_for_the_threshold() {
    // More than two zspages between the threshold and the limit.
    let max = 200;
    let limits = Limits {
        max_pool_pages: Some(max),
        ..Limits::default()
    };
    let zswap = Zswap::new(TestArena::new(), Codec::LZ4, limits);
    let mut folios = Vec::new();
    while let Ok(slots) = store(&zswap, &records(4)) {
        folios.push(slots);
    }
    assert!(zswap.pool_pages() >= max);
    assert_eq!(zswap.stats().snapshot().pool_limit_hit, 1);
    // Pages that need no object still go in.
    store(&zswap, &[Content::Zero, Content::Same(7)]).unwrap();
    let (mut refused, mut hits) = (0, 1);
    while zswap.pool_pages() > max * 90 / 100 {
        assert_eq!(store(&zswap, &records(1)), Err(StoreError::PoolFull));
        refused += 1;
        hits += u64::from(zswap.pool_pages() >= max);
        zswap.invalidate(&folios.pop().expect("more folios"));
    }
    assert!(refused > hits, "it was refused below the limit too");
    assert_eq!(zswap.stats().snapshot().pool_limit_hit, hits);
    store(&zswap, &records(1)).unwrap();
    zswap.validate().unwrap();
}

#[test]
fn a_limit_below_the_pool_only_stops_stores() {
    let zswap = plain(Codec::LZ4);
    let slots = store(&zswap, &records(64)).unwrap();
    let pages = zswap.pool_pages();
    let quarter = Limits {
        max_pool_pages: Some(pages / 4),
        ..Limits::default()
    };
    zswap.set_limits(quarter);
    assert_eq!(zswap.limits(), quarter);
    assert_eq!(zswap.pool_pages(), pages);
    assert_eq!(store(&zswap, &records(1)), Err(StoreError::PoolFull));
    let mut context = zswap.context().unwrap();
    let frames = zswap.arena().take(64);
    zswap.load_exclusive(&mut context, &slots, &frames).unwrap();
    store(&zswap, &records(1)).unwrap();
}

#[test]
fn what_does_not_compress_is_kept_or_refused() {
    let folio = [
        Content::Same(3),
        Content::Records(1),
        Content::Noise(1),
        Content::Zero,
    ];
    for codec in [Codec::LZ4, Codec::ZSTD] {
        let zswap = plain(codec);
        store(&zswap, &folio).unwrap();
        let now = zswap.stats().snapshot();
        assert_eq!((now.stored_pages, now.stored_incompressible_pages), (3, 1));
        let again = store(&zswap, &folio).unwrap();
        zswap.invalidate(&again);
        let now = zswap.stats().snapshot();
        assert_eq!(
            (now.stored_incompressible_pages, now.huge_pages_since),
            (1, 2)
        );
        zswap.stats().restart();
        let now = zswap.stats().snapshot();
        assert_eq!(
            (now.stored_incompressible_pages, now.huge_pages_since),
            (1, 0)
        );

        let refuse = Limits {
            reject_poor: true,
            ..Limits::default()
        };
        let zswap = Zswap::new(TestArena::new(), codec, refuse);
        assert_eq!(store(&zswap, &folio), Err(StoreError::Poor));
        let now = zswap.stats().snapshot();
        assert_eq!((now.reject_compress_poor, now.reject_compress_fail), (1, 0));
        assert_eq!(gauges(&now), [0; 5]);
        zswap.validate().unwrap();
    }
}

/// The second batch fails: the first has to be taken out again.
#[test]
fn a_late_poor_page_takes_the_whole_folio_with_it() {
    let refuse = Limits {
        reject_poor: true,
        ..Limits::default()
    };
    let zswap = Zswap::new(TestArena::new(), Codec::LZ4, refuse);
    let mut folio = records(32);
    folio[3] = Content::Same(1);
    folio[29] = Content::Noise(1);
    assert_eq!(store(&zswap, &folio), Err(StoreError::Poor));
    let now = zswap.stats().snapshot();
    assert_eq!(gauges(&now), [0; 5]);
    assert_eq!(
        (
            now.zswpout,
            now.order_zswpout[5],
            now.order_swpout_fallback[5]
        ),
        (0, 0, 1)
    );
    assert_eq!(zswap.arena().used_pages(), 0);
}

#[test]
fn a_codec_without_compression_keeps_pages_as_they_are() {
    let zswap = plain(Codec::Noop);
    let slots = store(&zswap, &records(8)).unwrap();
    assert_eq!(zswap.stats().snapshot().stored_incompressible_pages, 8);
    assert_eq!(zswap.pool_pages(), 8);
    let mut context = zswap.context().unwrap();
    let mut page = vec![0; PAGE_SIZE];
    for (slot, content) in slots.iter().zip(records(8)) {
        zswap.load_into(&mut context, *slot, &mut page).unwrap();
        assert!(page == content.bytes());
    }
}

/// Any byte of the pool may be damaged: a load gives the page or an error,
/// never other bytes.
#[test]
fn damage_is_noticed_wherever_it_is() {
    for codec in [Codec::LZ4, Codec::ZSTD, Codec::Noop] {
        let zswap = plain(codec);
        let mut folio = records(6);
        folio.extend([Content::Noise(4), Content::Tail(1, 1000)]);
        let slots = store(&zswap, &folio).unwrap();
        let arena = zswap.arena();
        let frames = arena.take(slots.len());
        let mut context = zswap.context().unwrap();
        let runs = arena.runs.lock().unwrap().clone();
        let mut faults = [0_u64; 2];
        for (at, pages) in runs {
            // Object headers are at multiples of 16 in every class met here:
            // half of them are hit.
            for offset in (0..pages * PAGE_SIZE).step_by(32) {
                arena.flip(at, offset, 0x10);
                let result = zswap.load_batch(&mut context, &slots, &frames);
                let mut bad = None;
                for (index, (frame, content)) in frames.iter().zip(&folio).enumerate() {
                    let page = arena.page(*frame);
                    if page != content.bytes() {
                        assert!(page.iter().all(|byte| *byte == 0), "other bytes came out");
                        assert_eq!(bad.replace(index), None, "one byte, two pages");
                    }
                }
                assert_eq!(result.err().map(|error| error.index), bad);
                match result {
                    Err(LoadError {
                        fault: LoadFault::Owner,
                        ..
                    }) => faults[0] += 1,
                    Err(LoadError {
                        fault: LoadFault::Checksum,
                        ..
                    }) => faults[1] += 1,
                    Err(other) => panic!("{other}"),
                    Ok(()) => {}
                }
                if let Some(index) = bad {
                    let alone = zswap.load_page(&mut context, slots[index], frames[index]);
                    assert_eq!(
                        alone.map_err(|error| error.fault),
                        Err(result.unwrap_err().fault)
                    );
                    let mut page = vec![1; PAGE_SIZE];
                    zswap
                        .load_into(&mut context, slots[index], &mut page)
                        .unwrap_err();
                    assert!(page.iter().all(|byte| *byte == 0));
                }
                arena.flip(at, offset, 0x10);
            }
        }
        assert!(faults[1] > 100, "{faults:?}");
        assert!(faults[0] > 0 || codec == Codec::Noop, "{faults:?}");
        assert_eq!(
            zswap.stats().snapshot().decompress_fail,
            3 * (faults[0] + faults[1])
        );
        zswap.validate().unwrap();
        zswap.load_exclusive(&mut context, &slots, &frames).unwrap();
    }
}

#[test]
fn a_codec_that_fails_to_decompress_yields_no_bytes() {
    let (zswap, strings) = puppet(1, Limits::default());
    let slots = store(&zswap, &records(2)).unwrap();
    let frames = zswap.arena().take(2);
    let mut context = zswap.context().unwrap();
    for (result, fault) in [
        (Err(CodecError::Corrupt), CodecError::Corrupt),
        (Err(CodecError::Workspace), CodecError::Workspace),
        (Ok(PAGE_SIZE - 1), CodecError::Corrupt),
    ] {
        strings.lock().unwrap().on_decompress = Some(result);
        let error = zswap
            .load_exclusive(&mut context, &slots, &frames)
            .unwrap_err();
        assert_eq!(
            error,
            LoadError {
                index: 0,
                fault: LoadFault::Codec(fault)
            }
        );
        for frame in &frames {
            assert!(zswap.arena().page(*frame).iter().all(|byte| *byte == 0));
        }
    }
    assert_eq!(zswap.stats().snapshot().decompress_fail, 6);
    assert_eq!(zswap.stats().snapshot().zswpin, 0);
    // A failed exclusive load frees nothing.
    strings.lock().unwrap().on_decompress = None;
    zswap.load_exclusive(&mut context, &slots, &frames).unwrap();
    assert_eq!(gauges(&zswap.stats().snapshot()), [0; 5]);
}

#[test]
fn a_codec_that_fails_to_compress_costs_only_the_room() {
    for result in [
        Err(CodecError::Workspace),
        Err(CodecError::DoesNotFit),
        Ok(0),
        Ok(5000),
    ] {
        for reject_poor in [false, true] {
            let (zswap, strings) = puppet(
                1,
                Limits {
                    reject_poor,
                    ..Limits::default()
                },
            );
            strings.lock().unwrap().on_mark = Some(result);
            let pages = fill_pages(zswap.arena(), &records(8));
            zswap
                .arena()
                .with_mut(pages[5], 0, 1, |bytes| bytes[0] = MARK);
            let wanted = zswap.arena().page(pages[5]);
            let mut slots = [Slot::ZERO; 8];
            let mut context = zswap.context().unwrap();
            let order = Order::new(3).unwrap();
            let stored = zswap.store_folio(&mut context, order, &pages, &mut slots);
            let now = zswap.stats().snapshot();
            zswap.validate().unwrap();
            if reject_poor {
                let failed = result == Err(CodecError::Workspace);
                let error = if failed {
                    StoreError::CompressFailed(CodecError::Workspace)
                } else {
                    StoreError::Poor
                };
                assert_eq!(stored, Err(error));
                assert_eq!(now.reject_compress_fail, u64::from(failed));
                assert_eq!(now.reject_compress_poor, u64::from(!failed));
                assert_eq!(gauges(&now), [0; 5]);
            } else {
                let report = stored.unwrap();
                assert_eq!(
                    (report.compressed_pages, report.incompressible_pages),
                    (7, 1)
                );
                assert_eq!(now.stored_incompressible_pages, 1);
                zswap.load_page(&mut context, slots[5], pages[0]).unwrap();
                assert!(zswap.arena().page(pages[0]) == wanted);
            }
        }
    }
}

#[test]
fn batches_follow_the_codec_between_8_and_32() {
    for (size, expected) in [
        (1, vec![8, 8, 8, 8]),
        (12, vec![12, 12, 8]),
        (16, vec![16, 16]),
        (100, vec![32]),
    ] {
        let (zswap, strings) = puppet(size, Limits::default());
        store(&zswap, &records(32)).unwrap();
        assert_eq!(strings.lock().unwrap().batches, expected);
    }
}

/// Would hang, were the pool lock held over the codec.
#[test]
fn the_pool_can_be_used_while_a_batch_is_in_the_codec() {
    let (zswap, strings) = puppet(1, Limits::default());
    let first = store(&zswap, &records(1)).unwrap();
    let (other, seen) = (zswap.clone(), Arc::new(Mutex::new(false)));
    let done = seen.clone();
    strings.lock().unwrap().before_compress = Some(Box::new(move || {
        other.validate().unwrap();
        assert_eq!(other.invalidate(&first), 1);
        *done.lock().unwrap() = true;
    }));
    store(&zswap, &records(1)).unwrap();
    assert!(*seen.lock().unwrap());
    assert_eq!(zswap.stats().snapshot().stored_pages, 1);
}

/// A page invalidated while it is being loaded is gone for everybody else at
/// once, and its memory with the load's end.
#[test]
fn invalidating_during_a_load_waits_for_the_load() {
    let (zswap, strings) = puppet(1, Limits::default());
    let slots = store(&zswap, &records(1)).unwrap();
    let frames = zswap.arena().take(1);
    let (other, slot, seen) = (zswap.clone(), slots[0], Arc::new(Mutex::new(0)));
    let done = seen.clone();
    strings.lock().unwrap().before_decompress = Some(Box::new(move || {
        assert_eq!(other.invalidate(&[slot]), 1);
        assert_eq!(other.invalidate(&[slot]), 0);
        let mut context = other.context().unwrap();
        let error = other
            .load_into(&mut context, slot, &mut [0; PAGE_SIZE])
            .unwrap_err();
        assert_eq!(error.fault, LoadFault::NoEntry);
        // Its bytes are still being read: still charged.
        assert_eq!(other.stats().snapshot().stored_pages, 1);
        other.validate().unwrap();
        *done.lock().unwrap() += 1;
    }));
    let mut context = zswap.context().unwrap();
    zswap.load_batch(&mut context, &slots, &frames).unwrap();
    assert_eq!(*seen.lock().unwrap(), 1);
    assert!(zswap.arena().page(frames[0]) == Content::Records(0).bytes());
    assert_eq!(gauges(&zswap.stats().snapshot()), [0; 5]);
    zswap.validate().unwrap();
}

#[test]
fn slots_that_name_nothing_are_told() {
    let zswap = plain(Codec::LZ4);
    let slots = store(&zswap, &records(2)).unwrap();
    assert_eq!(
        zswap.invalidate(&[slots[1], slots[1], Slot::ZERO, Slot::from_u32(999)]),
        1
    );
    let frames = zswap.arena().take(2);
    let mut context = zswap.context().unwrap();
    let error = zswap.load_batch(&mut context, &slots, &frames).unwrap_err();
    assert_eq!(
        error,
        LoadError {
            index: 1,
            fault: LoadFault::NoEntry
        }
    );
    assert_eq!(error.to_string(), "page 1: its slot names nothing");
    assert!(zswap.arena().page(frames[0]) == Content::Records(0).bytes());
    assert!(zswap.arena().page(frames[1]).iter().all(|byte| *byte == 0));
    let now = zswap.stats().snapshot();
    assert_eq!((now.decompress_fail, now.zswpin), (0, 1));
}

#[test]
fn the_first_failure_of_a_long_load_has_its_own_index() {
    let zswap = plain(Codec::LZ4);
    let slots = store(&zswap, &records(64)).unwrap();
    zswap.invalidate(&[slots[37], slots[41]]);
    let frames = zswap.arena().take(64);
    let mut context = zswap.context().unwrap();
    let error = zswap.load_batch(&mut context, &slots, &frames).unwrap_err();
    assert_eq!(
        error,
        LoadError {
            index: 37,
            fault: LoadFault::NoEntry
        }
    );
    assert_eq!(zswap.stats().snapshot().zswpin, 62);
}

#[test]
fn counters_by_order() {
    let zswap = plain(Codec::LZ4);
    store(&zswap, &records(16)).unwrap();
    store(&zswap, &[Content::Zero; 16]).unwrap();
    zswap.count_load(Order::K64, false);
    zswap.count_load(Order::K64, true);
    zswap.count_load(Order::HUGE, true);
    zswap.count_load_fallback(Order::HUGE);
    zswap.count_split(Order::K64, true);
    zswap.count_split(Order::K64, false);
    zswap.count_split(Order::HUGE, false);
    let now = zswap.stats().snapshot();
    // A folio of zeros never reaches the pool.
    assert_eq!((now.order_zswpout[4], now.order_zswpin[4]), (1, 1));
    assert_eq!((now.order_swpin[4], now.order_swpin[9]), (1, 1));
    assert_eq!(now.order_swpin_fallback.iter().sum::<u64>(), 1);
    assert_eq!((now.order_split[4], now.order_split_failed[4]), (1, 1));
    assert_eq!((now.order_split[9], now.order_split_failed[9]), (0, 1));
    assert_eq!((now.zswpout, now.swpout_zero), (16, 16));
    assert_eq!(now.pool_total_size(), zswap.pool_pages() as u64 * 4096);
    let named: Vec<_> = now.named().collect();
    assert!(named.contains(&("stored_pages", 16)) && named.contains(&("pswpout", 0)));
    let objects = zswap.class_stats().total().obj_used;
    assert_eq!(objects as u64, now.stored_pages);
}

#[test]
#[should_panic(expected = "a folio has all its pages")]
fn a_folio_of_the_wrong_length_is_a_contract_violation() {
    let zswap = plain(Codec::LZ4);
    let pages = zswap.arena().take(3);
    let mut context = zswap.context().unwrap();
    let _ = zswap.store_folio(&mut context, Order::K64, &pages, &mut [Slot::ZERO; 3]);
}

/// Threads with folios of their own, in one pool: stores, whole and partial
/// loads, invalidations, compaction and validation in between.
#[test]
fn threads_share_a_pool() {
    let zswap = Zswap::new(
        PlainArena::new(8 * 512).unwrap(),
        Codec::LZ4,
        Limits::default(),
    );
    std::thread::scope(|scope| {
        let zswap = &zswap;
        let threads: Vec<_> = (0..4_u64)
            .map(|thread| scope.spawn(move || churn(zswap, thread)))
            .collect();
        while !threads.iter().all(|thread| thread.is_finished()) {
            zswap.validate().unwrap();
            let run = zswap.begin_compaction().expect("no other");
            while zswap.compaction_step(&run).is_some() {
                std::thread::yield_now();
            }
        }
    });
    zswap.validate().unwrap();
    assert!(zswap.stats().snapshot().objs_moved > 0);
    assert_eq!(gauges(&zswap.stats().snapshot()), [0; 5]);
    assert_eq!(zswap.arena().used_pages(), 0);
}

fn churn(zswap: &Zswap<PlainArena>, thread: u64) {
    use zfolio_zswap::Arena;
    let arena = zswap.arena();
    let mut context: WorkContext = zswap.context().unwrap();
    let at = arena.alloc_frames(16).unwrap();
    let pages: Vec<_> = (0..16).map(|i| at.offset(i)).collect();
    let content = |round: u64, page: usize| match page % 5 {
        0 => Content::Zero,
        1 => Content::Same(round + 1),
        2 => Content::Noise(thread << 32 | round << 8 | page as u64),
        _ => Content::Records(thread << 32 | round << 8 | page as u64),
    };
    let mut folios: Vec<(u64, [Slot; 16])> = Vec::new();
    let check = |context: &mut WorkContext, (round, slots): (u64, [Slot; 16])| {
        zswap.load_exclusive(context, &slots, &pages).unwrap();
        for (index, page) in pages.iter().enumerate() {
            let same = arena.with(*page, 0, PAGE_SIZE, |page| {
                page == content(round, index).bytes()
            });
            assert!(same, "thread {thread} round {round} page {index}");
        }
    };
    for round in 0..60 {
        for (index, page) in pages.iter().enumerate() {
            let bytes = content(round, index).bytes();
            arena.with_mut(*page, 0, PAGE_SIZE, |page| page.copy_from_slice(&bytes));
        }
        let mut slots = [Slot::ZERO; 16];
        zswap
            .store_folio(&mut context, Order::K64, &pages, &mut slots)
            .unwrap();
        folios.push((round, slots));
        if round % 3 == 2 {
            check(&mut context, folios.swap_remove(folios.len() / 2));
        }
        if round % 7 == 6 {
            let (_, slots) = folios.swap_remove(0);
            zswap.invalidate(&slots);
        }
    }
    // Every other folio goes, so that zspages are half empty whatever came before, and stay so:
    // who compacts has its turn before all are gone, however long it waits for a processor.
    let mut index = 0;
    folios.retain(|(_, slots)| {
        index += 1;
        if index % 2 == 1 {
            zswap.invalidate(slots);
        }
        index % 2 == 0
    });
    let begin = std::time::Instant::now();
    while zswap.stats().snapshot().objs_moved == 0 {
        let waited = begin.elapsed();
        assert!(
            waited < std::time::Duration::from_secs(300),
            "nothing is moved"
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    for folio in folios {
        check(&mut context, folio);
    }
    arena.free_frames(at, 16);
}
