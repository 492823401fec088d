//! Threads store, load and drop pages while one compacts zspages, one carries them
//! about and one compresses what is in them again: every page read must be the page stored, every invariant hold at
//! any moment, and nothing be left over.
//!
//! Runs for some seconds; `ZFOLIO_STRESS_SECONDS=1800 cargo test --release -p
//! zfolio-zswap --test relocate` for half an hour.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use zfolio_compress::{Codec, sample};
use zfolio_mm::compaction::{
    Compactor, Evacuate, Folios, Found, Goal, PageblockCounts, Refused, Request, Step,
};
use zfolio_mm::{Frames, Kind, Memory, Order, PAGE_SIZE, Pfn};
use zfolio_sys::arena::ArenaMap;
use zfolio_zswap::{Arena, Learning, Limits, Slot, Zswap};

/// Slots of the arena: what is stored takes a quarter to a half.
const SLOTS: usize = 8 * 512;
/// Threads that store and load.
const THREADS: u64 = 2;
/// How much longer it takes at most until everything has happened.
const LONGEST: Duration = Duration::from_secs(120);
/// Folios each of them keeps at most.
const KEPT: usize = 100;

/// An arena all of whose slots have frames.
struct Backed {
    map: ArenaMap,
    frames: Mutex<Frames>,
}

impl Backed {
    fn new() -> Self {
        let mut frames = Frames::new(SLOTS);
        while let Some((at, order)) = frames.take_free(Kind::Hole, Order::HUGE) {
            frames.free(Kind::Backed, at, order);
        }
        Self {
            map: ArenaMap::reserve(SLOTS).expect("address space"),
            frames: Mutex::new(frames),
        }
    }

    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock().expect("no panic under it")
    }
}

impl Memory for Backed {
    fn with<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        self.map.with(at, offset, len, f)
    }

    fn with_mut<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.map.with_mut(at, offset, len, f)
    }
}

impl Arena for Backed {
    fn alloc_frames(&self, pages: usize) -> Option<Pfn> {
        self.frames().alloc_exact(Kind::Backed, pages)
    }

    fn free_frames(&self, at: Pfn, pages: usize) {
        // Whoever reads these after now reads what is not theirs.
        self.with_mut(at, 0, pages * PAGE_SIZE, |bytes| bytes.fill(0xd5));
        self.frames().free_range(Kind::Backed, at, pages);
    }
}

/// The arena as folio compaction sees it.
struct View<'a> {
    zswap: &'a Zswap<Backed>,
    random: Random,
}

impl Folios for View<'_> {
    fn slots(&self) -> usize {
        SLOTS
    }

    fn look(&self, at: Pfn) -> Found {
        let free = self.zswap.arena().frames().of(Kind::Backed).block_at(at);
        match (free, self.zswap.zspage_at(at)) {
            (Some(order), _) => Found::Free(order),
            (None, Some((pages, pinned))) => Found::Folio {
                pages,
                movable: !pinned,
            },
            (None, None) => Found::Other { pages: 1 },
        }
    }

    fn free_blocks(&self, order: Order) -> usize {
        self.zswap.arena().frames().free_blocks(Kind::Backed, order)
    }

    fn free_pages(&self) -> usize {
        self.zswap.arena().frames().free_pages(Kind::Backed)
    }

    fn pageblock(&self, block: usize) -> PageblockCounts {
        let frames = self.zswap.arena().frames();
        PageblockCounts {
            free: frames.of(Kind::Backed).free_in_pageblock(block),
            holes: 0,
        }
    }

    fn isolate(&mut self, at: Pfn) -> Option<Order> {
        self.zswap.arena().frames().take_block(Kind::Backed, at)
    }

    fn give(&mut self, at: Pfn, pages: usize) {
        self.zswap.arena().free_frames(at, pages);
    }

    fn migrate(&mut self, from: Pfn, to: Pfn, pages: usize) -> Result<(), Refused> {
        let arena = self.zswap.arena();
        // Now and then it cannot be done.
        let able = self.random.below(20) != 0;
        self.zswap.relocate(from, to, pages, || {
            if able {
                arena.with(from, 0, pages * PAGE_SIZE, |bytes| {
                    arena.with_mut(to, 0, pages * PAGE_SIZE, |copy| copy.copy_from_slice(bytes));
                });
            }
            able
        })
    }
}

/// A sequence (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % bound
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below the bound")
    }
}

/// A page that compresses to some part of itself, or to nothing, or not at all; a
/// quarter of them are worth a dictionary.
fn page(seed: u64, bytes: &mut [u8]) {
    if seed.is_multiple_of(4) {
        let mut random = Random(seed);
        for record in bytes.chunks_mut(64) {
            sample::noise(record, random.below(40));
            record[0] = seed.to_le_bytes()[2];
        }
        return;
    }
    sample::records(bytes, seed, 0);
    let noise = Random(seed).index(2 * PAGE_SIZE);
    match noise {
        0..256 => bytes.fill(seed.to_le_bytes()[0]),
        // Some do not compress at all.
        _ => sample::noise(&mut bytes[..noise.min(PAGE_SIZE) / 8 * 8], seed),
    }
}

/// A folio stored, and the seeds of its pages.
struct Kept {
    slots: Vec<Slot>,
    seeds: Vec<u64>,
}

fn store_and_load(zswap: &Zswap<Backed>, seed: u64, stop: &AtomicBool, loads: &AtomicU64) {
    let arena = zswap.arena();
    let mut random = Random(seed);
    let mut context = zswap.context().expect("memory");
    let mut kept: Vec<Kept> = Vec::new();
    let frames: Vec<Pfn> = (0..16)
        .map(|_| arena.alloc_frames(1).expect("a frame"))
        .collect();
    let mut expected = vec![0; PAGE_SIZE];
    let mut check = |random: &mut Random, context: &mut _, folio: &Kept| {
        let first = random.index(folio.slots.len());
        let slots = &folio.slots[first..];
        zswap
            .load_batch(context, slots, &frames[..slots.len()])
            .expect("what was stored");
        for (at, seed) in frames.iter().zip(&folio.seeds[first..]) {
            page(*seed, &mut expected);
            arena.with(*at, 0, PAGE_SIZE, |bytes| assert_eq!(bytes, expected));
        }
        loads.fetch_add(slots.len() as u64, Relaxed);
    };
    while !stop.load(Relaxed) {
        let wanted = kept.len() < KEPT / 2 || random.below(3) == 0;
        if wanted && kept.len() < KEPT {
            let order = Order::new([0, 0, 2, 4][random.index(4)]).expect("at most 9");
            let seeds: Vec<u64> = (0..order.pages()).map(|_| random.below(1 << 40)).collect();
            for (at, seed) in frames.iter().zip(&seeds) {
                arena.with_mut(*at, 0, PAGE_SIZE, |bytes| page(*seed, bytes));
            }
            let mut slots = vec![Slot::ZERO; seeds.len()];
            // Refused now and then: compaction may hold all that is free.
            if zswap
                .store_folio(&mut context, order, &frames[..seeds.len()], &mut slots)
                .is_ok()
            {
                kept.push(Kept { slots, seeds });
            }
        } else {
            let folio = kept.swap_remove(random.index(kept.len()));
            check(&mut random, &mut context, &folio);
            zswap.invalidate(&folio.slots);
        }
        if let Some(folio) = kept.get(random.index(KEPT)) {
            check(&mut random, &mut context, folio);
        }
    }
    for folio in kept {
        check(&mut random, &mut context, &folio);
        zswap.invalidate(&folio.slots);
    }
    for at in frames {
        arena.free_frames(at, 1);
    }
}

/// Compacts zspages, over and over; how many objects moved.
fn compact(zswap: &Zswap<Backed>, stop: &AtomicBool) -> usize {
    let mut moved = 0;
    while !stop.load(Relaxed) {
        if let Some(run) = zswap.begin_compaction() {
            while let Some(step) = zswap.compaction_step(&run) {
                moved += step.objs_moved;
            }
        }
        std::thread::yield_now();
    }
    moved
}

/// Compresses again, round after round, with dictionaries that come and go; how many
/// pages became shorter.
fn recompress(zswap: &Zswap<Backed>, stop: &AtomicBool) -> usize {
    let learning = Learning {
        sample: 32,
        shown: 64,
        least_bytes: 1,
        few: u64::MAX,
        rest: 1,
        units: true,
    };
    let context = zswap.tier_context_that(learning).expect("memory");
    let mut context = context.expect("a codec that has a denser form");
    let dictionaries = zswap.dictionaries().expect("it has");
    let (mut recompressed, mut rounds) = (0, 0);
    while !stop.load(Relaxed) {
        while zswap.dictionary_step(&mut context) {}
        let done = zswap.recompress_step(&mut context, 8);
        recompressed += done.recompressed;
        rounds += usize::from(done.ended);
        if done.ended && rounds.is_multiple_of(16) {
            dictionaries.retire_current();
        }
    }
    recompressed
}

/// Empties blocks, over and over; how many pages were carried.
fn carry(zswap: &Zswap<Backed>, stop: &AtomicBool) -> u64 {
    let mut compactor = Compactor::<Evacuate>::new(SLOTS);
    let mut view = View {
        zswap,
        random: Random(11),
    };
    while !stop.load(Relaxed) {
        let order = Order::new([2, 4, 9][view.random.index(3)]).expect("at most 9");
        let goal = Goal::Everything;
        compactor.begin_unasked(&view, Request { order, goal });
        let mut steps = view.random.index(64);
        while compactor.step(&mut view, 256) == Step::More {
            steps = steps.saturating_sub(1);
            if steps == 0 {
                compactor.stop(&mut view);
                break;
            }
        }
        compactor.validate().expect("the compactor's invariants");
        assert_eq!(compactor.held_pages(), 0);
        std::thread::yield_now();
    }
    compactor.counters().pgmigrate_success
}

#[test]
fn pages_keep_their_bytes_while_their_zspages_are_carried_about() {
    let seconds = std::env::var("ZFOLIO_STRESS_SECONDS").map_or(3, |text| {
        text.parse().expect("ZFOLIO_STRESS_SECONDS: a number")
    });
    let arena = Backed::new();
    assert_eq!(arena.frames().used_pages(), 0);
    let zswap = Zswap::new(
        arena,
        Codec::parse("auto").expect("a codec"),
        Limits::default(),
    );
    let (stop, loads) = (AtomicBool::new(false), AtomicU64::new(0));
    let stop_for_good = Stop(&stop);
    let (moved, recompressed, carried) = std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let (zswap, stop, loads) = (&zswap, &stop, &loads);
            scope.spawn(move || {
                let _stop = Stop(stop);
                store_and_load(zswap, seed, stop, loads);
            });
        }
        let compacting = scope.spawn(|| compact(&zswap, &stop));
        let recompressing = scope.spawn(|| {
            let _stop = Stop(&stop);
            recompress(&zswap, &stop)
        });
        let carrying = scope.spawn(|| {
            let _stop = Stop(&stop);
            carry(&zswap, &stop)
        });
        let end = Instant::now() + Duration::from_secs(seconds);
        // At least as long as it takes for something to have happened.
        let happened = || {
            let now = zswap.snapshot();
            let made = now.dictionary_pages > 0 && now.unit_split_pages > 0;
            made && loads.load(Relaxed) >= 1000 || Instant::now() > end + LONGEST
        };
        while !stop.load(Relaxed) && (Instant::now() < end || !happened()) {
            std::thread::sleep(Duration::from_millis(50));
            zswap.validate().expect("the invariants");
            zswap.arena().frames().validate().expect("the frames'");
        }
        drop(stop_for_good);
        let moved = compacting.join().expect("no panic");
        let recompressed = recompressing.join().expect("no panic");
        (moved, recompressed, carrying.join().expect("no panic"))
    });
    println!(
        "{} pages loaded, {moved} objects moved, {recompressed} made denser, {carried} pages carried",
        loads.load(Relaxed)
    );
    zswap.validate().expect("the invariants");
    assert_eq!(zswap.pool_pages(), 0);
    assert_eq!(
        zswap.arena().frames().used_pages(),
        0,
        "all frames are back"
    );
    assert!(loads.load(Relaxed) > 0 && recompressed > 0);
    let now = zswap.snapshot();
    println!(
        "{} dictionaries, {} pages made with them, {} drained",
        now.dictionary_installed, now.dictionary_pages, now.dictionary_drained_pages
    );
    println!(
        "{} units, {} pages taken out",
        now.units_made, now.unit_split_pages
    );
    assert!(now.dictionary_installed > 0 && now.dictionary_pages > 0);
    assert!(now.units_made > 0 && now.unit_split_pages > 0);
    assert_eq!(now.dictionary_units, 0);
    let dictionaries = zswap.dictionaries().expect("it has");
    dictionaries.retire_current();
    dictionaries.collect();
    assert_eq!(dictionaries.bytes(), 0, "nothing is under way");
}

/// Whoever panics lets the others end.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
