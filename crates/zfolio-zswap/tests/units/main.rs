//! Units of several pages in the second tier: each page is had alone, dropped alone, and
//! what is left goes on.

#[path = "../support/mod.rs"]
mod support;
mod tiered;

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use support::{Content, TestArena, content_of, store};
use tiered::{PLAIN, Tiered, phrases, set, store_all, tiered};
use zfolio_compress::Codec;
use zfolio_mm::{Memory, PAGE_SIZE};
use zfolio_sys::secret::KeyPage;
use zfolio_zswap::TIER_STEP as STEP;
use zfolio_zswap::{Charged, Learning, Limits, LoadFault, MemoryBacking, Slot, Zswap};

#[test]
fn four_neighbours_become_one_object_and_each_is_had_alone() {
    let mut tiered = tiered();
    let contents = phrases(0..40);
    let slots = store_all(&tiered.zswap, &contents);
    let before = tiered.zswap.snapshot();
    assert_eq!(tiered.round().recompressed, 0, "too young");
    assert_eq!(tiered.round().recompressed, 40);
    let now = tiered.zswap.snapshot();
    assert_eq!((now.units_made, now.units, now.unit_pages), (10, 10, 40));
    assert_eq!(now.stored_pages, 40);
    let saved = before.compressed_bytes - now.compressed_bytes;
    assert_eq!(saved, now.recompress_saved_bytes);
    assert!(saved * 4 > before.compressed_bytes, "{saved}");
    assert!(now.pool_pages < before.pool_pages);
    tiered.assert_contents(&slots, &contents);
    assert_eq!(tiered.round().recompressed, 0, "once");

    // Many at a time, in whatever order, some twice.
    let zswap = &tiered.zswap;
    let order: Vec<usize> = (0..40).map(|n| n * 7 % 40).chain([0, 1, 0, 2]).collect();
    let wanted: Vec<Slot> = order.iter().map(|at| slots[*at]).collect();
    let frames = zswap.arena().take(wanted.len());
    let mut work = zswap.context().unwrap();
    zswap.load_batch(&mut work, &wanted, &frames).unwrap();
    for (at, frame) in order.iter().zip(&frames) {
        assert!(zswap.arena().page(*frame) == contents[*at].bytes());
    }
    zswap
        .load_exclusive(&mut work, &slots[5..6], &frames[..1])
        .unwrap();
    assert!(zswap.arena().page(frames[0]) == contents[5].bytes());
    zswap.arena().give(&frames);
    zswap.validate().unwrap();
    assert_eq!(content_of(zswap, slots[5]), Err(LoadFault::NoEntry));
    tiered.assert_contents(&slots[6..], &contents[6..]);
    assert_eq!(tiered.zswap.invalidate(&slots), 39);
    tiered.assert_empty();
}

#[test]
fn what_is_dropped_leaves_the_others_and_the_object_goes_with_the_last() {
    let mut tiered = tiered();
    let (slots, contents) = tiered.units(4);
    for (dropped, at) in [2, 0, 3, 1].into_iter().enumerate() {
        let zswap = tiered.zswap.clone();
        let bytes = zswap.snapshot().compressed_bytes;
        assert_eq!(zswap.invalidate(&[slots[at]]), 1);
        zswap.validate().unwrap();
        let now = zswap.snapshot();
        assert_eq!(now.stored_pages, 3 - dropped as u64);
        let left = if dropped == 3 { 0 } else { bytes };
        assert_eq!(now.compressed_bytes, left);
        for gone in [2, 0, 3, 1].into_iter().take(dropped + 1) {
            assert_eq!(content_of(&zswap, slots[gone]), Err(LoadFault::NoEntry));
        }
        for there in [2, 0, 3, 1].into_iter().skip(dropped + 1) {
            assert!(content_of(&zswap, slots[there]).unwrap() == contents[there].bytes());
            zswap.validate().unwrap();
        }
    }
    tiered.assert_empty();
}

#[test]
fn a_unit_with_few_pages_left_is_taken_apart() {
    let mut tiered = tiered();
    let (slots, contents) = tiered.units(12);
    // Three, two and one are left.
    let gone = [0, 5, 6, 8, 9, 11];
    for at in gone {
        assert_eq!(tiered.zswap.invalidate(&[slots[at]]), 1);
    }
    tiered.rounds(3);
    let now = tiered.zswap.snapshot();
    assert_eq!((now.units, now.unit_pages), (1, 3));
    assert_eq!(now.unit_split_pages, 3);
    for at in (0..12).filter(|at| !gone.contains(at)) {
        assert!(content_of(&tiered.zswap, slots[at]).unwrap() == contents[at].bytes());
    }
    assert_eq!(tiered.zswap.invalidate(&slots), 6);
    tiered.assert_empty();
}

#[test]
fn what_is_dropped_while_a_unit_is_made_is_gone_and_there_is_no_unit() {
    let mut tiered = tiered();
    let contents = phrases(0..8);
    let slots = store_all(&tiered.zswap, &contents);
    tiered.round();
    let (zswap, gone) = (tiered.zswap.clone(), slots[1]);
    set(&tiered.hooks.unit, move || {
        assert_eq!(zswap.invalidate(&[gone]), 1);
    });
    tiered.round();
    let now = tiered.zswap.snapshot();
    assert_eq!((now.units, now.stored_pages), (1, 7));
    assert_eq!(content_of(&tiered.zswap, slots[1]), Err(LoadFault::NoEntry));
    tiered.rounds(3);
    tiered.assert_contents(&slots[2..], &contents[2..]);
    tiered.assert_contents(&slots[..1], &contents[..1]);
    assert_eq!(tiered.zswap.invalidate(&slots), 7);
    tiered.assert_empty();
}

#[test]
fn what_is_read_while_a_unit_is_made_stays_as_it_is_for_now() {
    let mut tiered = tiered();
    let contents = phrases(0..4);
    let slots = store_all(&tiered.zswap, &contents);
    tiered.round();
    // A load begins, in the middle of which the tier makes its round.
    let Tiered {
        zswap,
        context,
        hooks,
    } = tiered;
    let context = Arc::new(Mutex::new(context));
    let (other, tier) = (zswap.clone(), context.clone());
    set(&hooks.load, move || {
        let mut context = tier.lock().unwrap();
        while !other.recompress_step(&mut context, STEP).ended {}
        other.validate().unwrap();
        assert_eq!(other.snapshot().units, 0);
    });
    assert!(content_of(&zswap, slots[2]).unwrap() == contents[2].bytes());
    let context = Arc::into_inner(context).unwrap().into_inner().unwrap();
    let mut tiered = Tiered {
        zswap,
        context,
        hooks,
    };
    tiered.assert_contents(&slots, &contents);
    assert_eq!(tiered.zswap.invalidate(&slots), 4);
    tiered.round();
    tiered.assert_empty();
}

#[test]
fn a_load_that_begins_while_a_unit_is_made_has_what_it_looks_at() {
    let mut tiered = tiered();
    let contents = phrases(0..4);
    let slots = store_all(&tiered.zswap, &contents);
    tiered.round();
    let (began, begins) = channel();
    let (end, ends) = channel::<()>();
    set(&tiered.hooks.load, move || {
        began.send(()).unwrap();
        // Until the tier is done.
        ends.recv().unwrap();
    });
    let (zswap, slot) = (tiered.zswap.clone(), slots[1]);
    let loading = Arc::new(Mutex::new(None));
    let thread = loading.clone();
    set(&tiered.hooks.unit, move || {
        let zswap = zswap.clone();
        let load = std::thread::spawn(move || content_of(&zswap, slot).unwrap());
        *thread.lock().unwrap() = Some(load);
        begins.recv().unwrap();
    });
    tiered.round();
    assert_eq!(tiered.zswap.snapshot().units, 0);
    end.send(()).unwrap();
    let loaded = loading.lock().unwrap().take().unwrap().join().unwrap();
    assert!(loaded == contents[1].bytes());
    tiered.zswap.validate().unwrap();
    tiered.round();
    assert_eq!(tiered.zswap.snapshot().units, 1, "now nobody does");
    tiered.assert_contents(&slots, &contents);
    assert_eq!(tiered.zswap.invalidate(&slots), 4);
    tiered.assert_empty();
}

#[test]
fn a_unit_that_is_read_while_its_pages_are_dropped_goes_after_that() {
    let mut tiered = tiered();
    let (slots, contents) = tiered.units(8);
    let (zswap, all) = (tiered.zswap.clone(), slots.clone());
    set(&tiered.hooks.load, move || {
        assert_eq!(zswap.invalidate(&all[..4]), 4);
        zswap.validate().unwrap();
        let now = zswap.snapshot();
        assert_eq!((now.units, now.unit_pages), (2, 4), "it is being read");
        // Their slots are others' now.
        let more = phrases(100..104);
        let anew = store_all(&zswap, &more);
        for (slot, content) in anew.iter().zip(&more) {
            assert!(content_of(&zswap, *slot).unwrap() == content.bytes());
        }
        assert_eq!(zswap.invalidate(&anew), 4);
    });
    assert!(content_of(&tiered.zswap, slots[3]).unwrap() == contents[3].bytes());
    tiered.zswap.validate().unwrap();
    assert_eq!(tiered.zswap.snapshot().units, 1);
    tiered.assert_contents(&slots[4..], &contents[4..]);
    assert_eq!(tiered.zswap.invalidate(&slots), 4);
    tiered.assert_empty();
}

#[test]
fn a_page_dropped_while_it_is_taken_out_is_gone_and_its_slot_anothers() {
    let mut tiered = tiered();
    let (slots, contents) = tiered.units(4);
    assert_eq!(tiered.zswap.invalidate(&slots[..2]), 2);
    tiered.round();
    let more = phrases(100..103);
    let (zswap, gone, new) = (tiered.zswap.clone(), slots[2], more.clone());
    let anew = Arc::new(Mutex::new(Vec::new()));
    let kept = anew.clone();
    set(&tiered.hooks.page, move || {
        assert_eq!(zswap.invalidate(&[gone]), 1);
        for content in &new {
            kept.lock()
                .unwrap()
                .extend(store(&zswap, &[*content]).unwrap());
        }
    });
    tiered.rounds(3);
    let anew = anew.lock().unwrap().clone();
    assert!(anew.contains(&slots[2]), "the case is about that");
    tiered.assert_contents(&anew, &more);
    tiered.assert_contents(&slots[3..], &contents[3..]);
    assert_eq!(tiered.zswap.snapshot().units, 0);
    assert_eq!(tiered.zswap.invalidate(&anew), 3);
    assert_eq!(tiered.zswap.invalidate(&slots[3..]), 1);
    tiered.assert_empty();
}

#[test]
fn without_frames_nothing_changes() {
    let mut tiered = tiered();
    let contents = phrases(0..8);
    let slots = store_all(&tiered.zswap, &contents);
    tiered.round();
    tiered
        .zswap
        .arena()
        .budget
        .store(0, std::sync::atomic::Ordering::Relaxed);
    tiered.round();
    assert_eq!(tiered.zswap.snapshot().units, 0);
    tiered.assert_contents(&slots, &contents);
    let all = usize::MAX;
    tiered
        .zswap
        .arena()
        .budget
        .store(all, std::sync::atomic::Ordering::Relaxed);
    tiered.round();
    assert_eq!(tiered.zswap.snapshot().units, 2);
    // Nor when one is to be taken apart.
    assert_eq!(tiered.zswap.invalidate(&slots[..3]), 3);
    tiered
        .zswap
        .arena()
        .budget
        .store(0, std::sync::atomic::Ordering::Relaxed);
    tiered.rounds(2);
    tiered.assert_contents(&slots[3..], &contents[3..]);
    tiered
        .zswap
        .arena()
        .budget
        .store(all, std::sync::atomic::Ordering::Relaxed);
    tiered.rounds(2);
    assert_eq!(tiered.zswap.snapshot().units, 1);
    tiered.assert_contents(&slots[3..], &contents[3..]);
    assert_eq!(tiered.zswap.invalidate(&slots), 5);
    tiered.assert_empty();
}

#[test]
fn damage_is_every_page_s_of_the_unit_and_no_other_s() {
    let mut tiered = tiered();
    let (slots, contents) = tiered.units(8);
    // One of the two units.
    let runs = tiered.zswap.arena().runs.lock().unwrap().clone();
    let (at, _) = runs[0];
    tiered
        .zswap
        .arena()
        .with_mut(at, 0, PAGE_SIZE, |page| page[700] ^= 4);
    let loaded: Vec<_> = slots
        .iter()
        .map(|slot| content_of(&tiered.zswap, *slot))
        .collect();
    let bad: Vec<usize> = (0..8).filter(|at| loaded[*at].is_err()).collect();
    assert!(bad == [0, 1, 2, 3] || bad == [4, 5, 6, 7], "{bad:?}");
    for (loaded, content) in loaded.iter().zip(&contents) {
        match loaded {
            Ok(bytes) => assert!(*bytes == content.bytes()),
            Err(fault) => assert_eq!(*fault, LoadFault::Checksum),
        }
    }
    // It is not taken apart either.
    assert_eq!(tiered.zswap.invalidate(&[slots[bad[0]], slots[bad[1]]]), 2);
    tiered.rounds(3);
    assert_eq!(tiered.zswap.snapshot().unit_split_pages, 0);
    let still = content_of(&tiered.zswap, slots[bad[2]]);
    assert_eq!(still, Err(LoadFault::Checksum));
    assert_eq!(tiered.zswap.invalidate(&slots), 6);
    tiered.assert_empty();
}

#[test]
fn a_damaged_page_is_in_no_unit() {
    let mut tiered = tiered();
    let contents = phrases(0..4);
    let slots = store_all(&tiered.zswap, &contents);
    tiered.round();
    let runs = tiered.zswap.arena().runs.lock().unwrap().clone();
    let (at, _) = runs[0];
    tiered
        .zswap
        .arena()
        .with_mut(at, 0, PAGE_SIZE, |page| page[700] ^= 4);
    tiered.rounds(2);
    assert_eq!(tiered.zswap.snapshot().units, 0);
    let mut bad = 0;
    for (slot, content) in slots.iter().zip(&contents) {
        match content_of(&tiered.zswap, *slot) {
            Ok(bytes) => assert!(bytes == content.bytes()),
            Err(fault) => {
                assert_eq!(fault, LoadFault::Checksum);
                bad += 1;
            }
        }
    }
    assert_eq!(bad, 1);
    assert_eq!(tiered.zswap.invalidate(&slots), 4);
    tiered.assert_empty();
}

#[test]
fn charges_of_units_unwind() {
    let mut tiered = tiered();
    let zswap = tiered.zswap.clone();
    let contents = phrases(0..16);
    let slots = store_all(&zswap, &contents);
    tiered.rounds(2);
    assert!(zswap.snapshot().units > 1);
    assert_eq!(zswap.charged().zswap, zswap.snapshot().compressed_bytes);
    assert_eq!(zswap.invalidate(&slots[5..9]), 4);
    tiered.rounds(3);
    let at = [&slots[..5], &slots[9..]].concat();
    let of = [&contents[..5], &contents[9..]].concat();
    tiered.assert_contents(&at, &of);
    assert_eq!(zswap.invalidate(&slots), 12);
    assert_eq!(zswap.charged(), Charged::default());
    drop(zswap);
    tiered.assert_empty();
}

#[test]
fn with_a_backing_there_are_none() {
    let zswap = Zswap::new(TestArena::new(), Codec::Auto, Limits::default());
    let backing = Arc::new(MemoryBacking::new(64 << 20));
    zswap.attach(backing, KeyPage::random().expect("a key"));
    let mut context = zswap.tier_context_that(PLAIN).unwrap().unwrap();
    let contents: Vec<_> = (0..16).map(Content::Records).collect();
    let slots = store_all(&zswap, &contents);
    let mut recompressed = 0;
    for _ in 0..3 {
        loop {
            let done = zswap.recompress_step(&mut context, STEP);
            recompressed += done.recompressed;
            if done.ended {
                break;
            }
        }
    }
    let now = zswap.snapshot();
    assert_eq!((recompressed, now.units_made), (16, 0));
    let mut work = zswap.context().unwrap();
    while zswap.backing_pages() < 16 {
        assert!(!zswap.shrink_step(&mut work).is_stuck());
    }
    for (slot, content) in slots.iter().zip(&contents) {
        assert!(content_of(&zswap, *slot).unwrap() == content.bytes());
    }
}

#[test]
fn a_child_of_a_fork_has_them() {
    let mut tiered = tiered();
    let (slots, contents) = tiered.units(8);
    tiered.zswap.reset_in_fork_child();
    tiered.zswap.stats().restart();
    tiered.zswap.validate().unwrap();
    tiered.assert_contents(&slots, &contents);
    assert_eq!(tiered.zswap.invalidate(&slots), 8);
    tiered.assert_empty();
}

#[test]
fn they_are_made_with_a_dictionary_once_there_is_one() {
    let zswap = Zswap::new(TestArena::new(), Codec::Auto, Limits::default());
    let learning = Learning {
        sample: 32,
        shown: 64,
        least_bytes: 64 << 10,
        few: 3,
        ..PLAIN
    };
    let mut context = zswap.tier_context_that(learning).unwrap().unwrap();
    let contents = phrases(0..400);
    let slots = store_all(&zswap, &contents);
    let mut round = || {
        loop {
            while zswap.dictionary_step(&mut context) {}
            let done = zswap.recompress_step(&mut context, STEP);
            zswap.validate().unwrap();
            if done.ended {
                break;
            }
        }
    };
    (0..5).for_each(|_| round());
    let now = zswap.snapshot();
    assert_eq!(now.dictionary_installed, 1);
    assert!(now.units > 20, "{}", now.units);
    let alone = now.stored_pages - now.unit_pages;
    assert!(now.dictionary_units >= now.units && now.dictionary_units <= now.units + alone);
    for (slot, content) in slots.iter().zip(&contents) {
        assert!(content_of(&zswap, *slot).unwrap() == content.bytes());
    }
    zswap.reset_in_fork_child();
    zswap.validate().unwrap();
    assert_eq!(zswap.invalidate(&slots), 400);
    (0..3).for_each(|_| round());
    let now = zswap.snapshot();
    assert_eq!((now.dictionary_units, now.dictionary_bytes), (0, 0));
    assert_eq!(zswap.arena().used_pages(), 0);
}
