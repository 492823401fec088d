//! What the choices of the pool are worth: memory for the same data, copies per
//! page freed, time of a malloc and free.
//!
//! `cargo run --release -p zfolio-zsmalloc --example layouts [FILE]`
//!
//! Takes the sizes that lz4 makes of the pages of FILE (a memory image, say), or
//! of made-up pages, in random order. For pools of several sizes and each
//! layout:
//!
//! | column | |
//! |---|---|
//! | pages | of all zspages, once everything is stored |
//! | of it | payload bytes, % of these pages |
//! | churned | pages after as many random replacements as there are objects |
//! | half, quarter | pages after freeing down to that at random and compacting |
//! | copies | per page freed by these two compactions |
//! | ns | of a free and a malloc, while churning |
//!
//! Then units of several pages, compressed with zstd as one object each, kept whole
//! and, for comparison, cut into pieces of a page.
//!
//! `kernel 8` is what the Linux kernel does with these sizes: its classes, its
//! groups, its compaction. Everything but the times follows from the sizes.

use std::time::Instant;

use zfolio_compress::{Codec, CompressUnit, fill, sample};
use zfolio_mm::{Frames, Kind, Order, PAGE_SIZE};
use zfolio_sys::arena::{ArenaMap, discard};
use zfolio_zsmalloc::variants::{Exact, PlainTenths};
use zfolio_zsmalloc::{Grouping, Handle, Layout, Tenths, ZsPool};

/// Pools of so many objects.
const POOLS: [usize; 4] = [2_000, 10_000, 50_000, 200_000];

fn main() {
    let image = std::env::args().nth(1).map_or_else(
        || {
            let mut made = vec![0; 20_000 * PAGE_SIZE];
            sample::records(&mut made, 1, 0);
            made
        },
        |path| std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")),
    );
    let sizes = compressed(&image, "lz4", 1);
    let sum: usize = sizes.iter().sum();
    println!(
        "{} pages, {} bytes each on average",
        sizes.len(),
        sum / sizes.len()
    );
    let plain = Layout::kernel(8);
    let with = |chain, powers, guests| Layout {
        chain,
        powers,
        guests,
        ..Layout::ARENA
    };
    for objects in POOLS {
        heading(&format!("{objects} objects"));
        row::<PlainTenths>("kernel 4", Layout::kernel(4), &sizes, objects);
        row::<PlainTenths>("kernel 8", plain, &sizes, objects);
        row::<PlainTenths>("kernel 16", Layout::kernel(16), &sizes, objects);
        row::<Tenths>("8", plain, &sizes, objects);
        row::<Exact>("8, exact groups", plain, &sizes, objects);
        for chain in [4, 8, 12, 16] {
            row::<Tenths>(
                &format!("{chain}, guests"),
                with(chain, false, true),
                &sizes,
                objects,
            );
        }
        for chain in [8, 16] {
            row::<Tenths>(
                &format!("{chain}, powers"),
                with(chain, true, false),
                &sizes,
                objects,
            );
            row::<Tenths>(
                &format!("{chain}, powers, guests"),
                with(chain, true, true),
                &sizes,
                objects,
            );
        }
    }
    units(&image);
}

/// Units kept whole, and cut into pieces of a page at most.
fn units(image: &[u8]) {
    for pages in [2, 4, 16] {
        let whole = compressed(image, "zstd", pages);
        let objects = whole.len().min(20_000);
        let cut = |size: &usize| {
            let (full, rest) = (*size / PAGE_SIZE, *size % PAGE_SIZE);
            core::iter::repeat_n(PAGE_SIZE, full).chain((rest > 0).then_some(rest))
        };
        let pieces: Vec<usize> = whole[..objects].iter().flat_map(cut).collect();
        heading(&format!("{objects} units of {pages}"));
        row::<Tenths>("whole", Layout::ARENA, &whole, objects);
        row::<Tenths>("in pieces", Layout::ARENA, &pieces, pieces.len());
    }
}

fn heading(what: &str) {
    println!(
        "\n{what:<22} {:>8} {:>6} {:>8} {:>8} {:>8} {:>7} {:>6}",
        "pages", "of it", "churned", "half", "quarter", "copies", "ns"
    );
}

/// What each unit of so many pages compresses to, its own length if that is not
/// less; units of one word are left out, they are no objects.
fn compressed(image: &[u8], codec: &str, pages: usize) -> Vec<usize> {
    let codec = Codec::parse(codec).expect("a codec").compressor();
    let mut context = codec.context().expect("memory");
    let mut buffer = vec![0; pages * PAGE_SIZE];
    let mut sizes = Vec::new();
    for unit in image.chunks_exact(pages * PAGE_SIZE) {
        if fill::same_filled(unit).is_some() {
            continue;
        }
        let mut batch = [CompressUnit::new(unit, &mut buffer)];
        let _ = context.compress_batch(&mut batch);
        sizes.push(batch[0].result.unwrap_or(unit.len()));
    }
    // Neighbours are alike; whoever is stored next to them need not be.
    let mut random = Random(99);
    for n in (1..sizes.len()).rev() {
        sizes.swap(n, random.below(n + 1));
    }
    sizes
}

/// A fixed sequence (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((word ^ word >> 31) % bound as u64).expect("below the bound")
    }
}

struct Bed<'a, G> {
    memory: ArenaMap,
    frames: Frames,
    pool: ZsPool<G>,
    /// Each object and the size it has.
    live: Vec<(Handle, usize)>,
    sizes: core::iter::Cycle<core::slice::Iter<'a, usize>>,
    /// What does not fit in more than this is kept raw, as zram and zswap do.
    useful: usize,
    random: Random,
}

impl<G: Grouping> Bed<'_, G> {
    fn malloc(&mut self) {
        let size = *self.sizes.next().expect("a cycle");
        let raw = (self.useful..PAGE_SIZE).contains(&(size - 1));
        let size = if raw { PAGE_SIZE } else { size };
        let handle = self.pool.malloc(size, &self.memory, &mut self.frames);
        self.live.push((handle.expect("room"), size));
    }

    fn free(&mut self) {
        let victim = self.random.below(self.live.len());
        let (handle, _) = self.live.swap_remove(victim);
        self.pool
            .free(handle, &self.memory, &mut self.frames)
            .expect("live");
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn row<G: Grouping>(name: &str, layout: Layout, sizes: &[usize], objects: usize) {
    let bytes: usize = sizes.iter().cycle().take(objects).sum();
    let slots = (bytes / PAGE_SIZE * 3 / 2 + 8192).next_multiple_of(512);
    let mut frames = Frames::new(slots);
    while let Some((at, order)) = frames.take_free(Kind::Hole, Order::HUGE) {
        frames.free(Kind::Backed, at, order);
    }
    let pool = ZsPool::<G>::with_layout(layout);
    let mut bed = Bed {
        useful: pool.classes().huge_class_size() - 1,
        memory: ArenaMap::reserve(slots).expect("address space"),
        frames,
        pool,
        live: Vec::new(),
        sizes: sizes.iter().cycle(),
        random: Random(3),
    };
    (0..objects).for_each(|_| bed.malloc());
    let pages = bed.pool.pages_used();
    let bytes: usize = bed.live.iter().map(|(_, size)| size).sum();
    let start = Instant::now();
    for _ in 0..objects {
        bed.free();
        bed.malloc();
    }
    let ns = start.elapsed().as_nanos() as f64 / objects as f64;
    let churned = bed.pool.pages_used();
    let after = [2, 4].map(|share| {
        (objects / share..bed.live.len()).for_each(|_| bed.free());
        bed.pool.compact(&bed.memory, &mut bed.frames);
        bed.pool.pages_used()
    });
    let freed = bed.pool.pages_compacted().max(1);
    println!(
        "{name:<22} {pages:>8} {:>6.1} {churned:>8} {:>8} {:>8} {:>7.2} {ns:>6.0}",
        bytes as f64 * 100.0 / (pages * PAGE_SIZE) as f64,
        after[0],
        after[1],
        bed.pool.objs_moved() as f64 / freed as f64,
    );
    // An arena is never unmapped: address space is plentiful, memory is not.
    let arena = bed.memory.range();
    discard(arena.start, arena.len()).expect("an arena");
}
