//! Measures codecs and checksums, on pages made up or from a file.
//!
//! `cargo run --release -p zfolio-compress --example codecs [FILE]`
//!
//! Each codec, at units of 4 KiB and 64 KiB, one by one and in batches of 8:
//! ratio, MB/s in, MB/s out (of plain bytes, MB = 10^6), best of three passes
//! over a source larger than the cache. Then checksums of 2 KiB inputs and the
//! same-filled check of pages, in ns.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use zfolio_compress::adaptive::{Adaptive, Density};
use zfolio_compress::dense;
use zfolio_compress::dictionary::Dictionaries;
use zfolio_compress::dictionary::coder::ZstdDictionary;
use zfolio_compress::dictionary::train::{MAX_DICTIONARY, Trainer};
use zfolio_compress::{
    Codec, CompressUnit, Compressor, DecompressUnit, checksum, fill, probe, sample,
};

/// Bytes of made-up pages.
const SIZE: usize = 64 << 20;
const PASSES: usize = 3;

fn main() {
    let source = match std::env::args().nth(1) {
        Some(path) => std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")),
        None => {
            let mut made = vec![0; SIZE];
            sample::records(&mut made, 1, 0);
            made
        }
    };
    println!(
        "{:<18} {:>6} {:>5} {:>7} {:>9} {:>9}",
        "codec", "unit", "batch", "ratio", "in MB/s", "out MB/s"
    );
    for name in [
        "none",
        "lz4",
        "lz4:4",
        "zstd:-3",
        "zstd",
        "zstd:3",
        "deflate-iaa",
        "deflate-iaa:dynamic",
        "deflate-iaa:canned",
    ] {
        let codec = Codec::parse(name).expect("a codec");
        for unit in [4096, 65_536] {
            for batch in [1, 8] {
                let row = measure(&*codec.compressor(), &source, unit, batch);
                println!(
                    "{name:<18} {unit:>6} {batch:>5} {:>7.2} {:>9.0} {:>9.0}",
                    row.ratio, row.compress, row.decompress
                );
            }
        }
    }
    let table = dictionaries(&source);
    for (table, what) in [
        (Adaptive::dictionaries(), "zstd 3"),
        (table, "the dictionary"),
    ] {
        let auto = Adaptive::with_dictionaries(Density::default(), table);
        let units = auto.dense_units().expect("it has");
        dense_units(&*units, &source, what);
    }
    checks();
}

/// Bytes a page with zstd 1 alone, and with a dictionary made from every tenth
/// page, over the others.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn dictionaries(source: &[u8]) -> Arc<Dictionaries> {
    let mut trainer = Trainer::new(1).expect("memory");
    let (mut shown, mut others) = (Vec::new(), Vec::new());
    for (index, page) in source.chunks_exact(4096).enumerate() {
        let pages = if index % 10 == 0 {
            &mut shown
        } else {
            &mut others
        };
        pages.push(page);
    }
    shown.iter().for_each(|page| trainer.show(page));
    let start = Instant::now();
    let mut content = vec![0; MAX_DICTIONARY];
    let len = trainer.train(&mut content);
    let took = start.elapsed().as_secs_f64() * 1e3;
    let table = Arc::new(Dictionaries::new(1));
    let start = Instant::now();
    let mut candidate = table.candidate(&content[..len]).expect("memory");
    let built = start.elapsed().as_secs_f64() * 1e3;
    for page in trainer.held_out() {
        candidate.judge(page).expect("room enough");
    }
    let judged = start.elapsed().as_secs_f64() * 1e3 - built;
    println!(
        "\ndictionary of {len} bytes, made in {took:.1} ms, built in {built:.1}, judged in \
         {judged:.1}, installed: {:?}, {} bytes of memory",
        table.install(candidate),
        table.bytes()
    );
    let total = |compressor: &dyn Compressor| -> f64 {
        let mut context = compressor.context().expect("memory");
        let mut buffer = vec![0; compressor.max_compressed_len(4096)];
        let lens = others.iter().map(|page| {
            let mut unit = [CompressUnit::new(page, &mut buffer)];
            assert!(context.compress_batch(&mut unit).all_ok());
            unit[0].result.expect("it went well")
        });
        lens.sum::<usize>() as f64 / others.len() as f64
    };
    let alone = total(&*Codec::ZSTD.compressor());
    let with = total(&ZstdDictionary::new(table.clone()));
    println!("bytes a page: {alone:.0} without, {with:.0} with\n");
    table
}

/// Bytes a page in units of four pages, and the time to load one page, us (median).
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn dense_units(compressor: &dyn Compressor, source: &[u8], what: &str) {
    let mut context = compressor.context().expect("memory");
    let mut buffer = vec![0; compressor.max_compressed_len(dense::UNIT)];
    let mut back = vec![0; dense::UNIT];
    let (mut total, mut pages, mut loads) = (0, 0, Vec::new());
    for group in source.chunks_exact(dense::UNIT) {
        let mut unit = [CompressUnit::new(group, &mut buffer)];
        assert!(context.compress_batch(&mut unit).all_ok());
        let len = unit[0].result.expect("room enough");
        total += len;
        let start = Instant::now();
        let mut unit = [DecompressUnit::new(&buffer[..len], &mut back)];
        assert!(context.decompress_batch(&mut unit).all_ok());
        loads.push(start.elapsed().as_secs_f64() * 1e6);
        assert!(back == group);
        pages += dense::PAGES;
    }
    loads.sort_by(f64::total_cmp);
    println!(
        "units of four pages, {what}: {:.0} bytes a page, {:.1} us to load one (median)",
        total as f64 / pages as f64,
        loads[loads.len() / 2]
    );
}

struct Row {
    ratio: f64,
    compress: f64,
    decompress: f64,
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn measure(compressor: &dyn Compressor, source: &[u8], unit: usize, batch: usize) -> Row {
    let source = &source[..source.len() / (unit * 8) * (unit * 8)];
    let mut context = compressor.context().expect("memory");
    let capacity = compressor.max_compressed_len(unit);
    let mut buffers = vec![0; capacity * 8];
    let mut pages = vec![0; unit * 8];
    let mut packed = vec![0; source.len() / unit * capacity];
    let (mut compress, mut decompress, mut total) = (f64::MAX, f64::MAX, 0);
    for _ in 0..PASSES {
        // Compressed bytes are kept, to be decompressed cold.
        let (mut at, mut lens) = (0, Vec::with_capacity(source.len() / unit));
        let mut spent = 0.0;
        for group in source.chunks_exact(unit * batch) {
            let mut units: Vec<_> = group
                .chunks_exact(unit)
                .zip(buffers.chunks_exact_mut(capacity))
                .map(|(src, dst)| CompressUnit::new(src, dst))
                .collect();
            let start = Instant::now();
            let outcome = context.compress_batch(&mut units);
            spent += start.elapsed().as_secs_f64();
            assert!(outcome.all_ok());
            for done in &units {
                let len = done.result.expect("all went well");
                packed[at..at + len].copy_from_slice(&done.dst[..len]);
                lens.push(len);
                at += len;
            }
        }
        compress = compress.min(spent);
        total = at;
        let (mut at, mut spent) = (0, 0.0);
        for (group, lens) in source
            .chunks_exact(unit * batch)
            .zip(lens.chunks_exact(batch))
        {
            let mut units: Vec<_> = lens
                .iter()
                .zip(pages.chunks_exact_mut(unit))
                .map(|(len, dst)| {
                    at += len;
                    DecompressUnit::new(&packed[at - len..at], dst)
                })
                .collect();
            let start = Instant::now();
            let outcome = context.decompress_batch(&mut units);
            spent += start.elapsed().as_secs_f64();
            assert!(outcome.all_ok());
            assert!(pages[..group.len()] == *group, "round trip");
        }
        decompress = decompress.min(spent);
    }
    let bytes = source.len() as f64;
    Row {
        ratio: bytes / total as f64,
        compress: bytes / compress / 1e6,
        decompress: bytes / decompress / 1e6,
    }
}

/// Nanoseconds per input of `f` over `inputs`, best of several passes.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn per_input<T>(inputs: &[&[u8]], f: impl Fn(&[u8]) -> T) -> f64 {
    let pass = || {
        let start = Instant::now();
        for input in inputs {
            black_box(f(black_box(input)));
        }
        start.elapsed().as_secs_f64() * 1e9 / inputs.len() as f64
    };
    (0..20).map(|_| pass()).fold(f64::MAX, f64::min)
}

fn checks() {
    let mut bytes = vec![0; 1 << 20];
    sample::noise(&mut bytes, 1);
    // Half a page at odd places; in the L2 cache, as after compressing.
    let inputs: Vec<_> = (0..256).map(|i| &bytes[i * 4096 + i..][..2048]).collect();
    println!("\nchecksum of 2 KiB, ns");
    println!(
        "folded multiply (used)  {:>7.1}",
        per_input(&inputs, checksum::checksum)
    );
    println!(
        "xxh3, low 32 bits       {:>7.1}",
        per_input(&inputs, xxhash_rust::xxh3::xxh3_64)
    );
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the instruction was just detected.
        let one = |bytes: &[u8]| unsafe { crc1(bytes) };
        // SAFETY: as above.
        let four = |bytes: &[u8]| unsafe { crc4(bytes) };
        println!("crc32c, one lane        {:>7.1}", per_input(&inputs, one));
        println!("crc32c, four lanes      {:>7.1}", per_input(&inputs, four));
    }

    let mut pages = vec![0; 1 << 20];
    sample::records(&mut pages, 1, 0);
    let real: Vec<_> = pages.chunks_exact(4096).collect();
    let zeros = vec![0; 1 << 18];
    let zero: Vec<_> = zeros.chunks_exact(4096).collect();
    println!("\nsame-filled check, ns");
    println!(
        "a page of records       {:>7.1}",
        per_input(&real, fill::same_filled)
    );
    println!(
        "a zero page             {:>7.1}",
        per_input(&zero, fill::same_filled)
    );
    let random: Vec<_> = bytes.chunks_exact(4096).collect();
    println!("\nlooks random, ns");
    println!(
        "a page of records       {:>7.1}",
        per_input(&real, probe::looks_random)
    );
    println!(
        "a page of noise         {:>7.1}",
        per_input(&random, probe::looks_random)
    );
}

#[target_feature(enable = "sse4.2")]
fn crc1(bytes: &[u8]) -> u64 {
    use std::arch::x86_64::_mm_crc32_u64;
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .fold(0, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)))
}

/// Four independent sums: what the instruction's latency allows at once.
#[target_feature(enable = "sse4.2")]
fn crc4(bytes: &[u8]) -> u64 {
    use std::arch::x86_64::_mm_crc32_u64;
    let mut lanes = [0; 4];
    for block in bytes.as_chunks::<32>().0 {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane = _mm_crc32_u64(*lane, u64::from_le_bytes(*word));
        }
    }
    lanes
        .into_iter()
        .fold(0, |crc, lane| _mm_crc32_u64(crc, lane))
}
