//! Dictionaries of the second tier: made of what is in the pool, there as long as anything
//! needs them, and no longer.

mod support;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use support::{Content, Hook, TestArena, content_of, store};
use zfolio_compress::Codec;
use zfolio_sys::secret::KeyPage;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::TIER_STEP as STEP;
use zfolio_zswap::{
    Backing, Learning, Limits, LoadFault, MemoryBacking, Recompressed, Slot, TierContext, Zswap,
};

const LEARNING: Learning = Learning {
    sample: 32,
    shown: 64,
    least_bytes: 64 << 10,
    few: 20,
    rest: 1,
    units: false,
};

fn tiered(learning: Learning) -> (Arc<Zswap<TestArena>>, TierContext) {
    let zswap = Zswap::new(TestArena::new(), Codec::Auto, Limits::default());
    let context = zswap.tier_context_that(learning).unwrap();
    (Arc::new(zswap), context.expect("auto has a denser form"))
}

/// Steps to the end of the round.
fn round(zswap: &Zswap<TestArena>, context: &mut TierContext) -> Recompressed {
    let mut all = Recompressed::default();
    while !all.ended {
        while zswap.dictionary_step(context) {
            zswap.validate().unwrap();
        }
        let done = zswap.recompress_step(context, STEP);
        all.recompressed += done.recompressed;
        all.poor += done.poor;
        all.bytes_saved += done.bytes_saved;
        all.drained += done.drained;
        all.bytes_lost += done.bytes_lost;
        all.ended = done.ended;
        zswap.validate().unwrap();
    }
    all
}

fn rounds(zswap: &Zswap<TestArena>, context: &mut TierContext, count: usize) {
    for _ in 0..count {
        round(zswap, context);
    }
}

fn phrases(kind: u64, seeds: std::ops::Range<u64>) -> Vec<Content> {
    seeds.map(|seed| Content::Phrases(kind, seed)).collect()
}

fn store_all(zswap: &Zswap<TestArena>, contents: &[Content]) -> Vec<Slot> {
    let folios = contents.chunks(4);
    folios
        .flat_map(|folio| store(zswap, folio).unwrap())
        .collect()
}

fn assert_contents(zswap: &Zswap<TestArena>, slots: &[Slot], contents: &[Content]) {
    for (slot, content) in slots.iter().zip(contents) {
        assert!(content_of(zswap, *slot).unwrap() == content.bytes());
    }
}

#[test]
fn one_is_made_and_everything_becomes_denser_by_it_and_it_goes_with_them() {
    let (zswap, mut context) = tiered(LEARNING);
    let contents = phrases(1, 0..400);
    let slots = store_all(&zswap, &contents);
    // Marked, sampled and tried without, then with it.
    rounds(&zswap, &mut context, 1);
    assert_eq!(zswap.snapshot().dictionary_trainings, 0, "too young");
    rounds(&zswap, &mut context, 4);
    let now = zswap.snapshot();
    assert_eq!((now.dictionary_trainings, now.dictionary_installed), (1, 1));
    assert_eq!((now.dictionary_units, now.dictionary_pages), (400, 400));
    assert!(now.dictionary_bytes > 32 << 10, "{}", now.dictionary_bytes);
    assert!(now.dictionary_saved_bytes > 0);
    assert_contents(&zswap, &slots, &contents);

    // Against zstd 1 alone.
    let (without, mut plain) = tiered(Learning {
        least_bytes: u64::MAX,
        ..LEARNING
    });
    store_all(&without, &contents);
    rounds(&without, &mut plain, 5);
    let alone = without.snapshot();
    assert_eq!((alone.dictionary_trainings, alone.dictionary_units), (0, 0));
    let (with, alone) = (now.compressed_bytes, alone.compressed_bytes);
    assert!(with * 10 < alone * 9, "{with} against {alone}");

    // Too little is left for one: it goes, and its last units become longer.
    assert_eq!(zswap.invalidate(&slots[10..]), 390);
    zswap.validate().unwrap();
    assert_eq!(zswap.snapshot().dictionary_units, 10);
    rounds(&zswap, &mut context, 4);
    let now = zswap.snapshot();
    assert_eq!(now.dictionary_retired, 1);
    assert_eq!((now.dictionary_units, now.dictionary_bytes), (0, 0));
    assert_eq!(now.dictionary_drained_pages, 10);
    assert!(now.dictionary_drained_bytes > 0);
    assert_contents(&zswap, &slots[..10], &contents);
    assert_eq!(zswap.invalidate(&slots), 10);
    zswap.validate().unwrap();
    assert_eq!(zswap.arena().used_pages(), 0);
}

#[test]
fn what_was_compressed_in_vain_does_not_keep_it() {
    let (zswap, mut context) = tiered(LEARNING);
    let mut slots = store_all(&zswap, &phrases(1, 0..200));
    rounds(&zswap, &mut context, 5);
    assert_eq!(zswap.snapshot().dictionary_units, 200);
    let more = phrases(1, 200..300);
    let others = store_all(&zswap, &more);
    round(&zswap, &mut context);
    // Some find room where others were, then there is no frame for any.
    zswap.arena().budget.store(0, Relaxed);
    rounds(&zswap, &mut context, 3);
    assert!(
        zswap.snapshot().dictionary_units < 300,
        "the case is about that"
    );
    zswap.arena().budget.store(usize::MAX, Relaxed);
    assert_contents(&zswap, &others, &more);
    slots.extend(others);
    assert_eq!(zswap.invalidate(&slots), 300);
    rounds(&zswap, &mut context, 2);
    let now = zswap.snapshot();
    assert_eq!((now.dictionary_units, now.dictionary_bytes), (0, 0));
}

#[test]
fn one_that_does_not_pay_is_not_installed_and_tried_ever_more_rarely() {
    let (zswap, mut context) = tiered(LEARNING);
    let mut trainings = Vec::new();
    let mut kept = Vec::new();
    for fresh in 0..40 {
        let contents: Vec<_> = (0..80)
            .map(|seed| Content::Tail(fresh * 100 + seed, 2000))
            .collect();
        kept.push((store_all(&zswap, &contents), contents));
        rounds(&zswap, &mut context, 1);
        trainings.push(zswap.snapshot().dictionary_trainings);
    }
    let now = zswap.snapshot();
    assert_eq!((now.dictionary_installed, now.dictionary_bytes), (0, 0));
    let times = trainings[39];
    assert!((2..=6).contains(&times), "{trainings:?}");
    for (slots, contents) in kept {
        assert_contents(&zswap, &slots, &contents);
    }
}

#[test]
fn versions_lie_side_by_side() {
    let (zswap, mut context) = tiered(Learning { few: 0, ..LEARNING });
    let dictionaries = zswap.dictionaries().unwrap();
    let mut kept = Vec::new();
    for kind in 1..=5 {
        let contents = phrases(kind, 0..300);
        let slots = store_all(&zswap, &contents);
        kept.push((slots, contents));
        rounds(&zswap, &mut context, 6);
        // What there is of the one before has no use for this one, and stays.
        let installed = zswap.snapshot().dictionary_installed;
        assert_eq!(installed, kind.min(4), "there are four places");
        for (slots, contents) in &kept {
            assert_contents(&zswap, slots, contents);
        }
        dictionaries.retire_current();
    }
    assert!(!dictionaries.has_place());
    // A place becomes free.
    let (slots, _) = kept.remove(1);
    assert_eq!(zswap.invalidate(&slots), 300);
    rounds(&zswap, &mut context, 6);
    let contents = phrases(6, 0..300);
    kept.push((store_all(&zswap, &contents), contents));
    rounds(&zswap, &mut context, 6);
    assert!(zswap.snapshot().dictionary_installed >= 5);
    for (slots, contents) in &kept {
        assert_contents(&zswap, slots, contents);
        assert_eq!(zswap.invalidate(slots), 300);
    }
    zswap.validate().unwrap();
    assert_eq!(zswap.snapshot().dictionary_units, 0);
    dictionaries.retire_current();
    dictionaries.collect();
    assert_eq!(dictionaries.bytes(), 0, "nothing is under way for ever");
}

/// A backing that does something in the middle of a read.
struct Reading {
    inner: MemoryBacking,
    hook: Mutex<Option<Hook>>,
}

impl Backing for Reading {
    fn name(&self) -> &'static str {
        "reading"
    }

    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.inner.write(offset, bytes)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook();
        }
        self.inner.read(offset, into)
    }

    fn discard(&self, offset: u64, len: u64) {
        self.inner.discard(offset, len);
    }
}

/// What there is of pages that need a dictionary.
struct Needed {
    zswap: Arc<Zswap<TestArena>>,
    context: TierContext,
    backing: Arc<Reading>,
    slots: Vec<Slot>,
    contents: Vec<Content>,
}

/// All of it is in the backing.
fn written_back() -> Needed {
    let (zswap, mut context) = tiered(LEARNING);
    let backing = Arc::new(Reading {
        inner: MemoryBacking::new(64 << 20),
        hook: Mutex::default(),
    });
    zswap.attach(backing.clone(), KeyPage::random().expect("a key"));
    let contents = phrases(1, 0..200);
    let slots = store_all(&zswap, &contents);
    rounds(&zswap, &mut context, 5);
    assert_eq!(zswap.snapshot().dictionary_units, 200);
    let mut work = zswap.context().unwrap();
    while zswap.backing_pages() < 200 {
        assert!(!zswap.shrink_step(&mut work).is_stuck());
    }
    zswap.validate().unwrap();
    assert_eq!(zswap.snapshot().dictionary_units, 200);
    Needed {
        zswap,
        context,
        backing,
        slots,
        contents,
    }
}

#[test]
fn what_was_written_back_keeps_its_dictionary() {
    let Needed {
        zswap,
        mut context,
        slots,
        contents,
        ..
    } = written_back();
    // The pool is empty, and it is retired.
    rounds(&zswap, &mut context, 3);
    assert_eq!(zswap.dictionaries().unwrap().current(), 0);
    assert_contents(&zswap, &slots, &contents);
    assert_eq!(zswap.invalidate(&slots[1..]), 199);
    rounds(&zswap, &mut context, 3);
    assert_contents(&zswap, &slots[..1], &contents);
    assert_eq!(zswap.invalidate(&slots), 1);
    zswap.validate().unwrap();
    rounds(&zswap, &mut context, 1);
    let now = zswap.snapshot();
    assert_eq!((now.dictionary_units, now.dictionary_bytes), (0, 0));
}

#[test]
fn a_load_from_the_backing_keeps_the_dictionary_of_what_is_dropped_meanwhile() {
    let Needed {
        zswap,
        mut context,
        backing,
        slots,
        contents,
    } = written_back();
    assert_eq!(zswap.invalidate(&slots[1..]), 199);
    let (other, last) = (zswap.clone(), slots[0]);
    let dropping = move || {
        assert_eq!(other.invalidate(&[last]), 1);
        other.validate().unwrap();
        let dictionaries = other.dictionaries().unwrap();
        dictionaries.retire_current();
        assert_eq!(dictionaries.collect(), 0, "it is being used");
    };
    *backing.hook.lock().unwrap() = Some(Box::new(dropping));
    assert!(content_of(&zswap, last).unwrap() == contents[0].bytes());
    assert_eq!(content_of(&zswap, last), Err(LoadFault::NoEntry));
    rounds(&zswap, &mut context, 1);
    assert_eq!(zswap.snapshot().dictionary_bytes, 0);
}

#[test]
fn a_child_of_a_fork_counts_what_it_has() {
    let Needed {
        zswap,
        mut context,
        slots,
        contents,
        ..
    } = written_back();
    let more = phrases(1, 500..700);
    let kept = store_all(&zswap, &more);
    rounds(&zswap, &mut context, 3);
    assert_eq!(zswap.snapshot().dictionary_units, 400);
    // As it is in a child: what was in the backing is lost, and a load of it that was
    // under way is nobody's.
    zswap.dictionaries().unwrap().hold(1);
    zswap.reset_in_fork_child();
    zswap.stats().restart();
    zswap.validate().unwrap();
    assert_eq!(zswap.snapshot().dictionary_units, 200);
    assert_contents(&zswap, &kept, &more);
    assert_eq!(content_of(&zswap, slots[0]), Err(LoadFault::Lost));
    assert_eq!(zswap.invalidate(&slots), contents.len());
    assert_eq!(zswap.invalidate(&kept), 200);
    rounds(&zswap, &mut context, 2);
    let now = zswap.snapshot();
    assert_eq!((now.dictionary_units, now.dictionary_bytes), (0, 0));
}

#[test]
fn damage_in_a_page_is_found_and_the_count_is_none_the_worse() {
    let (zswap, mut context) = tiered(LEARNING);
    let contents = phrases(1, 0..200);
    let slots = store_all(&zswap, &contents);
    rounds(&zswap, &mut context, 5);
    assert_eq!(zswap.snapshot().dictionary_units, 200);
    let runs = zswap.arena().runs.lock().unwrap().clone();
    for (at, pages) in &runs {
        for page in 0..*pages {
            // Headers, tags, everything.
            zfolio_mm::Memory::with_mut(zswap.arena(), at.offset(page), 0, 4096, |bytes| {
                bytes.iter_mut().step_by(7).for_each(|byte| *byte ^= 3);
            });
        }
    }
    for slot in &slots {
        let loaded = content_of(&zswap, *slot);
        assert!(
            matches!(loaded, Err(LoadFault::Owner | LoadFault::Checksum)),
            "{loaded:?}"
        );
    }
    assert_eq!(zswap.invalidate(&slots), 200);
    assert_eq!(zswap.snapshot().dictionary_units, 0);
    while !zswap.recompress_step(&mut context, STEP).ended {}
    while !zswap.recompress_step(&mut context, STEP).ended {}
    assert_eq!(zswap.snapshot().dictionary_bytes, 0);
}
