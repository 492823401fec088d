//! Measures what storing and loading a page costs, against the codec alone.
//!
//! `cargo run --release -p zfolio-zswap --example pages [FILE]`
//!
//! ns per page, best of five passes over made-up pages or those of a file: the
//! codec alone (from arena pages into one buffer), a 64 KiB folio stored,
//! loaded page by page and as a folio, and invalidated.

use std::time::Instant;
use zfolio_compress::{Codec, CompressUnit, Context, DecompressUnit, sample};
use zfolio_mm::{Memory, Order, PAGE_SIZE, Pfn};
use zfolio_zswap::{Arena, Limits, PlainArena, Slot, Zswap};

/// Made-up pages: 32 MiB, larger than the cache of a core.
const PAGES: usize = 8192;
const PASSES: usize = 5;

fn main() {
    let source = match std::env::args().nth(1) {
        Some(path) => std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")),
        None => {
            let mut made = vec![0; PAGES * PAGE_SIZE];
            sample::records(&mut made, 1, 0);
            made
        }
    };
    let folios = source.len() / Order::K64.bytes();
    println!(
        "{:<8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "codec", "codec in", "store", "codec out", "load 1", "load 16", "inval.", "pool/page"
    );
    for name in ["none", "lz4", "zstd"] {
        let codec = Codec::parse(name).expect("a codec");
        measure(name, codec, &source[..folios * Order::K64.bytes()]);
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn measure(name: &str, codec: Codec, source: &[u8]) {
    let count = source.len() / PAGE_SIZE;
    let arena = PlainArena::new((count * 3).next_multiple_of(512)).expect("address space");
    let pages: Vec<Pfn> = (0..count / 16)
        .flat_map(|_| {
            let at = arena.alloc_frames(16).expect("frames");
            (0..16).map(move |i| at.offset(i))
        })
        .collect();
    for (page, bytes) in pages.iter().zip(source.chunks_exact(PAGE_SIZE)) {
        arena.with_mut(*page, 0, PAGE_SIZE, |page| page.copy_from_slice(bytes));
    }
    let zswap = Zswap::new(arena, codec, Limits::default());
    let mut context = zswap.context().expect("memory");
    let mut slots = vec![Slot::ZERO; count];
    let frame = || zswap.arena().alloc_frames(1).expect("frames");
    let dst: Vec<Pfn> = core::iter::repeat_with(frame).take(16).collect();

    let [mut codec_in, mut codec_out] = [f64::MAX; 2];
    let [mut store, mut load_one, mut load_folio, mut invalidate] = [f64::MAX; 4];
    let mut pool = 0;
    let mut bare = Bare::new(codec, count);
    for _ in 0..PASSES {
        let (compress, decompress) = bare.pass(zswap.arena(), &pages);
        codec_in = codec_in.min(compress);
        codec_out = codec_out.min(decompress);
        store = store.min(per_page(count, || {
            for (pages, slots) in pages.chunks(16).zip(slots.chunks_mut(16)) {
                zswap
                    .store_folio(&mut context, Order::K64, pages, slots)
                    .expect("room");
            }
        }));
        pool = zswap.pool_pages() * PAGE_SIZE / count;
        load_one = load_one.min(per_page(count, || {
            for slot in &slots {
                zswap
                    .load_page(&mut context, *slot, dst[0])
                    .expect("no damage");
            }
        }));
        load_folio = load_folio.min(per_page(count, || {
            for slots in slots.chunks(16) {
                zswap
                    .load_batch(&mut context, slots, &dst)
                    .expect("no damage");
            }
        }));
        invalidate = invalidate.min(per_page(count, || {
            for slots in slots.chunks(16) {
                assert_eq!(zswap.invalidate(slots), 16);
            }
        }));
    }
    println!(
        "{name:<8} {codec_in:>8.0} {store:>8.0} {codec_out:>9.0} {load_one:>8.0} {load_folio:>8.0} \
         {invalidate:>8.0} {pool:>8} B"
    );
}

/// The codec alone, batches of 8, from arena pages into its own buffers.
struct Bare {
    context: Box<dyn Context + Send>,
    capacity: usize,
    packed: Vec<u8>,
    plain: Vec<u8>,
}

impl Bare {
    fn new(codec: Codec, count: usize) -> Self {
        let compressor = codec.compressor();
        let capacity = compressor.max_compressed_len(PAGE_SIZE);
        Self {
            context: compressor.context().expect("memory"),
            capacity,
            // Touched, so that no pass pays for page faults.
            packed: vec![1; capacity * count],
            plain: vec![1; PAGE_SIZE * 8],
        }
    }

    fn pass(&mut self, arena: &PlainArena, pages: &[Pfn]) -> (f64, f64) {
        let Self {
            context,
            capacity,
            packed,
            plain,
        } = self;
        let capacity = *capacity;
        let mut lens = Vec::with_capacity(pages.len());
        let compress = per_page(pages.len(), || {
            for (pages, buffers) in pages.chunks(8).zip(packed.chunks_mut(capacity * 8)) {
                arena.with(pages[0], 0, PAGE_SIZE * 8, |bytes| {
                    let mut units: Vec<_> = bytes
                        .chunks(PAGE_SIZE)
                        .zip(buffers.chunks_mut(capacity))
                        .map(|(src, dst)| CompressUnit::new(src, dst))
                        .collect();
                    assert!(context.compress_batch(&mut units).all_ok());
                    lens.extend(units.iter().map(|unit| unit.result.unwrap_or(0)));
                });
            }
        });
        let decompress = per_page(pages.len(), || {
            for (packed, lens) in packed.chunks(capacity * 8).zip(lens.chunks(8)) {
                let mut units: Vec<_> = packed
                    .chunks(capacity)
                    .zip(lens)
                    .zip(plain.chunks_mut(PAGE_SIZE))
                    .map(|((src, len), dst)| DecompressUnit::new(&src[..*len], dst))
                    .collect();
                assert!(context.decompress_batch(&mut units).all_ok());
            }
        });
        (compress, decompress)
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn per_page(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}
