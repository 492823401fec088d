//! What a pool costs per object, on real arena memory whose pages are present.
//!
//! `cargo bench -p zfolio-zsmalloc`. Times are per object: divan divides by the
//! items it is told of. `general.rs` draws the same sizes from a general
//! allocator. Sizes are drawn from 200 ..= 3700 bytes, about what a
//! fast codec makes of a 4 KiB page, by a fixed sequence.

mod sequence;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use sequence::Sequence;
use zfolio_mm::{Frames, Kind, Memory, Order, PAGE_SIZE, Pfn};
use zfolio_sys::arena::ArenaMap;

use zfolio_zsmalloc::variants::Exact;
use zfolio_zsmalloc::{Grouping, Handle, Layout, Tenths, ZsPool};

/// Operations per sample.
const ROUNDS: usize = 10_000;

fn main() {
    divan::main();
}

/// An arena with all slots backed, a pool in it, and its live objects.
struct Bed<G> {
    memory: ArenaMap,
    frames: Frames,
    pool: ZsPool<G>,
    live: Vec<Handle>,
    sequence: Sequence,
}

impl<G: Grouping> Bed<G> {
    fn new(slots: usize) -> Self {
        let memory = ArenaMap::reserve(slots).expect("address space");
        for slot in 0..slots {
            memory.with_mut(Pfn(0).offset(slot), 0, PAGE_SIZE, |page| page[0] = 1);
        }
        Self::over(memory, slots)
    }

    /// An empty pool over an arena of `slots` slots.
    fn over(memory: ArenaMap, slots: usize) -> Self {
        let mut frames = Frames::new(slots);
        while let Some((at, order)) = frames.take_free(Kind::Hole, Order::HUGE) {
            frames.free(Kind::Backed, at, order);
        }
        Self {
            memory,
            frames,
            pool: ZsPool::with_layout(Layout::ARENA),
            live: Vec::new(),
            sequence: Sequence(88_172),
        }
    }

    /// `objects` objects, after as many random replacements, so that free lists
    /// and groups look used.
    fn filled(objects: usize) -> Self {
        let mut bed = Self::new((objects * 5 / 4).next_multiple_of(512));
        for _ in 0..objects {
            bed.malloc();
        }
        for _ in 0..objects {
            bed.replace();
        }
        bed
    }

    fn malloc(&mut self) {
        let size = self.sequence.size();
        let handle = self
            .pool
            .malloc(size, &self.memory, &mut self.frames)
            .expect("room");
        self.live.push(handle);
    }

    fn replace(&mut self) {
        let victim = self.sequence.below(self.live.len());
        let handle = self.live.swap_remove(victim);
        self.pool
            .free(handle, &self.memory, &mut self.frames)
            .expect("a live handle");
        self.malloc();
    }
}

/// One free of a random object and one malloc of a random size, at a steady
/// number of objects: the pair's time.
#[divan::bench(args = [1_000, 30_000, 300_000], types = [Tenths, Exact])]
fn free_and_malloc<G: Grouping>(bencher: Bencher, objects: usize) {
    let mut bed = Bed::<G>::filled(objects);
    bencher.counter(ItemsCount::new(ROUNDS)).bench_local(|| {
        for _ in 0..ROUNDS {
            bed.replace();
        }
    });
}

/// The same choice of a victim and a size without touching the pool: what the
/// benchmark itself costs, to be subtracted.
#[divan::bench(args = [1_000, 30_000, 300_000])]
fn nothing(bencher: Bencher, objects: usize) {
    let mut live: Vec<usize> = (0..objects).collect();
    let mut sequence = Sequence(88_172);
    bencher.counter(ItemsCount::new(ROUNDS)).bench_local(|| {
        for _ in 0..ROUNDS {
            let victim = sequence.below(live.len());
            let handle = live.swap_remove(victim);
            live.push(black_box(handle + sequence.size()));
        }
    });
}

/// Mallocs into an empty pool: every zspage, record and cell is new.
#[divan::bench(types = [Tenths, Exact])]
fn malloc_from_empty<G: Grouping>(bencher: Bencher) {
    // One arena for all samples: it is never unmapped.
    let memory = Bed::<G>::new(16_384).memory;
    bencher
        .counter(ItemsCount::new(ROUNDS))
        .with_inputs(|| Bed::<G>::over(memory, 16_384))
        .bench_local_refs(|bed| {
            for _ in 0..ROUNDS {
                bed.malloc();
            }
        });
}

/// Looking up where a random object is, and checking its header.
#[divan::bench(args = [1_000, 30_000, 300_000])]
fn location_and_check(bencher: Bencher, objects: usize) {
    let bed = Bed::<Tenths>::filled(objects);
    let mut sequence = Sequence(77);
    bencher.counter(ItemsCount::new(ROUNDS)).bench_local(|| {
        for _ in 0..ROUNDS {
            let handle = bed.live[sequence.below(bed.live.len())];
            assert!(bed.pool.check_owner(handle, &bed.memory));
            black_box(bed.pool.location(handle));
        }
    });
}

/// A pool of which three quarters of the objects were freed at random, over an
/// arena of 16,384 slots.
fn sparse<G: Grouping>(memory: ArenaMap) -> Bed<G> {
    let mut bed = Bed::<G>::over(memory, 16_384);
    for _ in 0..20_000 {
        bed.malloc();
    }
    for _ in 0..15_000 {
        let victim = bed.sequence.below(bed.live.len());
        let handle = bed.live.swap_remove(victim);
        bed.pool
            .free(handle, &bed.memory, &mut bed.frames)
            .expect("a live handle");
    }
    bed
}

/// Compaction of such a pool, all classes: the time per object moved.
#[divan::bench(types = [Tenths, Exact])]
fn compact<G: Grouping>(bencher: Bencher) {
    let memory = Bed::<G>::new(16_384).memory;
    let mut bed = sparse::<G>(memory);
    let pages = bed.pool.compact(&bed.memory, &mut bed.frames);
    let moved = usize::try_from(bed.pool.objs_moved()).expect("fits");
    assert!(moved > 0 && pages > 0);
    bencher
        .counter(ItemsCount::new(moved))
        .with_inputs(|| sparse::<G>(memory))
        .bench_local_refs(|bed| {
            black_box(bed.pool.compact(&bed.memory, &mut bed.frames));
        });
}
