//! Our deflate beside zlib-rs and libdeflate: pages of 4 KiB, each compressed alone, with a history of
//! 4 KiB. Ratio, throughput and the memory of a context.
//!
//!     cargo run --release --manifest-path bench/deflate/Cargo.toml [-- FILE...]
//!
//! Without a file the pages are those of a Python program and of an sqlite that are started for it.
//! Zero and same-filled pages are left out, as they never reach a codec. Contexts are made once; every
//! page is checked to come back. Rounds go through all ways in turn; the median of each is printed,
//! and its ratio to ours of the same kind of tables.

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use zfolio_compress::deflate::{Deflate, Tables};
use zfolio_compress::{CompressUnit, Compressor, Context, DecompressUnit};
use zlib_rs::{DeflateConfig, DeflateFlush, Inflate, InflateFlush, Method, Strategy};

const PAGE: usize = 4096;
/// Times through all ways.
const ROUNDS: usize = 5;
/// zlib's name of a history of 4 KiB.
const WINDOW_BITS: u8 = 12;

/// What the heap holds: the libraries' contexts are in it.
struct Counting;
static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator with a counter beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

/// One way to do it, with its contexts.
trait Way {
    /// Bytes of `to` that were used.
    fn compress(&mut self, page: &[u8], to: &mut [u8]) -> usize;
    /// `to` is as long as the page was.
    fn decompress(&mut self, from: &[u8], to: &mut [u8]);
}

struct Ours(Box<dyn Context + Send>);

impl Way for Ours {
    fn compress(&mut self, page: &[u8], to: &mut [u8]) -> usize {
        let mut units = [CompressUnit::new(page, to)];
        let _ = self.0.compress_batch(&mut units);
        units[0].result.expect("compressed")
    }
    fn decompress(&mut self, from: &[u8], to: &mut [u8]) {
        let mut units = [DecompressUnit::new(from, to)];
        let _ = self.0.decompress_batch(&mut units);
        assert_eq!(units[0].result, Ok(PAGE));
    }
}

struct ZlibRs(zlib_rs::Deflate, Inflate);

impl ZlibRs {
    fn new(level: i32, strategy: Strategy) -> Self {
        let config = DeflateConfig {
            level,
            method: Method::Deflated,
            window_bits: -i32::from(WINDOW_BITS),
            mem_level: 8,
            strategy,
        };
        Self(
            zlib_rs::Deflate::new_with_config(config),
            Inflate::new(false, WINDOW_BITS),
        )
    }
}

impl Way for ZlibRs {
    fn compress(&mut self, page: &[u8], to: &mut [u8]) -> usize {
        self.0.reset();
        let done = self.0.compress(page, to, DeflateFlush::Finish);
        assert!(matches!(done, Ok(zlib_rs::Status::StreamEnd)), "{done:?}");
        usize::try_from(self.0.total_out()).expect("of a page")
    }
    fn decompress(&mut self, from: &[u8], to: &mut [u8]) {
        self.1.reset(false);
        let done = self.1.decompress(from, to, InflateFlush::Finish);
        assert!(matches!(done, Ok(zlib_rs::Status::StreamEnd)), "{done:?}");
    }
}

struct Libdeflate(libdeflater::Compressor, libdeflater::Decompressor);

impl Libdeflate {
    fn new(level: i32) -> Self {
        let level = libdeflater::CompressionLvl::new(level).expect("a level");
        Self(
            libdeflater::Compressor::new(level),
            libdeflater::Decompressor::new(),
        )
    }
}

impl Way for Libdeflate {
    fn compress(&mut self, page: &[u8], to: &mut [u8]) -> usize {
        self.0.deflate_compress(page, to).expect("compressed")
    }
    fn decompress(&mut self, from: &[u8], to: &mut [u8]) {
        let done = self.1.deflate_decompress(from, to);
        assert_eq!(done, Ok(PAGE));
    }
}

/// Pages that would reach a codec.
fn worth_it(bytes: &[u8]) -> Vec<u8> {
    let pages = bytes.chunks_exact(PAGE);
    let varied = pages.filter(|page| page.chunks_exact(8).any(|word| word != &page[..8]));
    varied.flatten().copied().collect()
}

/// The private memory of a program that has filled it and waits.
fn memory_of(command: &[&str], input: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes())?;
    if command[0] == "python3" {
        drop(stdin); // It begins when it has all.
    } else {
        std::mem::forget(stdin); // It ends with its input.
    }
    let mut said = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut said)?;
    let maps = fs::read_to_string(format!("/proc/{}/maps", child.id()))?;
    let memory = File::open(format!("/proc/{}/mem", child.id()))?;
    let mut all = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let name = words.nth(3).unwrap_or("");
        if !rights.starts_with("rw-p") || !(name.is_empty() || name == "[heap]") {
            continue;
        }
        let (from, to) = range.split_once('-').ok_or("a range")?;
        let from = u64::from_str_radix(from, 16)?;
        let to = u64::from_str_radix(to, 16)?;
        let mut bytes = vec![0; usize::try_from(to - from)?];
        if memory.read_exact_at(&mut bytes, from).is_ok() {
            all.extend(worth_it(&bytes));
        }
    }
    child.kill()?;
    child.wait()?;
    Ok(all)
}

const PYTHON: &str = "\
rows = {i: {'id': i, 'name': 'user%d' % i, 'tags': [i % 7, i % 11, str(i)]} for i in range(12000)}
text = [('line %d of a log: status=%d' % (i, i % 5)).encode() for i in range(15000)]
print('up', flush=True)
import threading
threading.Event().wait(600)
";
const SQLITE: &str = "\
create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 40000)
insert into t select i, 'customer ' || i || ' ' || hex(i * 7919), i * 1.5 from n;
create index u on t(b);
select 'up';
";

/// One way's rows: bytes per second in and out, of each round.
struct Row {
    name: &'static str,
    ours: usize,
    context: usize,
    packed: usize,
    rates: Vec<(f64, f64)>,
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = of.collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let mut corpora = Vec::new();
    for file in &files {
        corpora.push((file.clone(), worth_it(&fs::read(file)?)));
    }
    if files.is_empty() {
        corpora.push(("CPython".into(), memory_of(&["python3", "-"], PYTHON)?));
        corpora.push((
            "sqlite".into(),
            memory_of(&["sqlite3", ":memory:"], SQLITE)?,
        ));
    }
    type Make = fn() -> Box<dyn Way>;
    // (The second is the row that it is compared with.)
    let ways: [(&'static str, usize, Make); 11] = [
        ("ours fixed", 0, || {
            Box::new(Ours(
                Deflate::new(Tables::Fixed).context().expect("a context"),
            ))
        }),
        ("ours dynamic", 1, || {
            Box::new(Ours(
                Deflate::new(Tables::Dynamic).context().expect("a context"),
            ))
        }),
        ("ours canned", 2, || {
            Box::new(Ours(
                Deflate::new(Tables::Canned).context().expect("a context"),
            ))
        }),
        ("zlib-rs 1 fixed", 0, || {
            Box::new(ZlibRs::new(1, Strategy::Fixed))
        }),
        ("zlib-rs 6 fixed", 0, || {
            Box::new(ZlibRs::new(6, Strategy::Fixed))
        }),
        ("zlib-rs 1", 1, || {
            Box::new(ZlibRs::new(1, Strategy::Default))
        }),
        ("zlib-rs 6", 1, || {
            Box::new(ZlibRs::new(6, Strategy::Default))
        }),
        ("zlib-rs 9", 1, || {
            Box::new(ZlibRs::new(9, Strategy::Default))
        }),
        ("libdeflate 1", 1, || Box::new(Libdeflate::new(1))),
        ("libdeflate 6", 1, || Box::new(Libdeflate::new(6))),
        ("libdeflate 9", 1, || Box::new(Libdeflate::new(9))),
    ];
    for (corpus, bytes) in corpora {
        println!("{corpus}: {} pages", bytes.len() / PAGE);
        let mut rows = Vec::new();
        let mut made = Vec::new();
        for (name, ours, make) in ways {
            let before = HELD.load(Ordering::Relaxed);
            made.push(make());
            rows.push(Row {
                name,
                ours,
                context: HELD.load(Ordering::Relaxed) - before,
                packed: 0,
                rates: Vec::new(),
            });
        }
        let mut packed = vec![0; PAGE * 2 + 64];
        let mut back = vec![0; PAGE];
        for _ in 0..ROUNDS {
            for (way, row) in made.iter_mut().zip(&mut rows) {
                let mut stored = Vec::with_capacity(bytes.len());
                let mut lengths = Vec::with_capacity(bytes.len() / PAGE);
                let begin = Instant::now();
                for page in bytes.chunks_exact(PAGE) {
                    let used = way.compress(page, &mut packed);
                    stored.extend_from_slice(&packed[..used]);
                    lengths.push(used);
                }
                let into = bytes.len() as f64 / begin.elapsed().as_secs_f64();
                row.packed = stored.len();
                let mut at = 0;
                let mut took = 0.0;
                for (page, length) in bytes.chunks_exact(PAGE).zip(lengths) {
                    let begin = Instant::now();
                    way.decompress(&stored[at..at + length], &mut back);
                    took += begin.elapsed().as_secs_f64();
                    assert_eq!(back, page, "{} made another page", row.name);
                    at += length;
                }
                row.rates.push((into, bytes.len() as f64 / took));
            }
        }
        println!(
            "way                ratio  in MB/s  out MB/s  in, of ours  out, of ours  context KB"
        );
        for row in &rows {
            let own = &rows[row.ours];
            let of = |pick: fn(&(f64, f64)) -> f64| {
                let ratio = row
                    .rates
                    .iter()
                    .zip(&own.rates)
                    .map(|(a, b)| pick(a) / pick(b));
                (median(row.rates.iter().map(pick)) / 1e6, median(ratio))
            };
            let (into, of_into) = of(|rate| rate.0);
            let (out, of_out) = of(|rate| rate.1);
            println!(
                "{:<17} {:>6.2} {into:>8.0} {out:>9.0} {of_into:>12.2} {of_out:>13.2} {:>11.0}",
                row.name,
                bytes.len() as f64 / row.packed as f64,
                row.context as f64 / 1e3,
            );
        }
    }
    Ok(())
}
