//! An arena that can run out, pages to store, a compressor that misbehaves.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "each test binary uses a part"
)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use zfolio_compress::{
    BatchOutcome, Codec, CodecError, CompressUnit, Compressor, Context, DecompressUnit, sample,
};
use zfolio_mm::{Memory, PAGE_SIZE, Pfn};
use zfolio_sys::secret::KeyPage;
use zfolio_zswap::{
    Arena, Limits, LoadFault, MemoryBacking, PlainArena, Slot, Snapshot, StoreError, Zswap,
};

/// A plain arena that gives the pool only so many frames, and remembers which.
pub struct TestArena {
    plain: PlainArena,
    /// Frames the pool may still take.
    pub budget: AtomicUsize,
    /// Runs the pool has.
    pub runs: Mutex<Vec<(Pfn, usize)>>,
}

impl TestArena {
    pub fn new() -> Self {
        let plain = PlainArena::new(16 * 512).expect("address space");
        Self {
            plain,
            budget: AtomicUsize::new(usize::MAX),
            runs: Mutex::default(),
        }
    }

    /// Frames outside the pool.
    pub fn take(&self, pages: usize) -> Vec<Pfn> {
        (0..pages)
            .map(|_| self.plain.alloc_frames(1).expect("frames"))
            .collect()
    }

    pub fn give(&self, pages: &[Pfn]) {
        for page in pages {
            self.plain.free_frames(*page, 1);
        }
    }

    /// Changes a byte.
    pub fn flip(&self, at: Pfn, offset: usize, bits: u8) {
        self.with_mut(at, offset, 1, |bytes| bytes[0] ^= bits);
    }

    pub fn page(&self, at: Pfn) -> Vec<u8> {
        self.with(at, 0, PAGE_SIZE, <[u8]>::to_vec)
    }

    pub fn used_pages(&self) -> usize {
        self.plain.used_pages()
    }
}

impl Memory for TestArena {
    fn with<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&[u8]) -> R) -> R {
        self.plain.with(at, offset, len, f)
    }

    fn with_mut<R>(&self, at: Pfn, offset: usize, len: usize, f: impl FnOnce(&mut [u8]) -> R) -> R {
        self.plain.with_mut(at, offset, len, f)
    }
}

impl Arena for TestArena {
    fn alloc_frames(&self, pages: usize) -> Option<Pfn> {
        let left = self.budget.load(Relaxed).checked_sub(pages)?;
        let at = self.plain.alloc_frames(pages)?;
        if left < usize::MAX / 2 {
            self.budget.store(left, Relaxed);
        }
        self.runs.lock().unwrap().push((at, pages));
        Some(at)
    }

    fn free_frames(&self, at: Pfn, pages: usize) {
        let mut runs = self.runs.lock().unwrap();
        let run = runs
            .iter()
            .position(|run| *run == (at, pages))
            .expect("a run the pool has");
        runs.swap_remove(run);
        self.plain.free_frames(at, pages);
    }
}

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    Zero,
    Same(u64),
    Records(u64),
    Noise(u64),
    /// Zeros, then noise from this byte on.
    Tail(u64, usize),
    /// Strings that recur from page to page, of one kind or another.
    Phrases(u64, u64),
}

impl Content {
    pub fn bytes(self) -> Vec<u8> {
        let mut page = vec![0; PAGE_SIZE];
        match self {
            Self::Zero => {}
            Self::Same(word) => zfolio_compress::fill::fill(&mut page, word),
            Self::Records(seed) => sample::records(&mut page, seed, 0),
            Self::Noise(seed) => sample::noise(&mut page, seed),
            Self::Tail(seed, from) => sample::noise(&mut page[from..], seed),
            Self::Phrases(kind, seed) => phrases(&mut page, kind, seed),
        }
        page
    }
}

/// Fills a page with strings of a kind: for a dictionary.
pub fn phrases(page: &mut [u8], kind: u64, seed: u64) {
    let mut random = sample::Rng::new(seed);
    for record in page.chunks_mut(56) {
        let pick = random.word() % 40;
        let (text, tail) = record.split_at_mut(record.len().min(48));
        sample::noise(text, kind * 1000 + pick);
        for (byte, word) in tail.iter_mut().zip(random.word().to_le_bytes()) {
            *byte = word & 15;
        }
    }
}

/// Puts pages with `contents` into the arena.
pub fn fill_pages(arena: &TestArena, contents: &[Content]) -> Vec<Pfn> {
    let pages = arena.take(contents.len());
    for (page, content) in pages.iter().zip(contents) {
        let bytes = content.bytes();
        arena.with_mut(*page, 0, PAGE_SIZE, |page| page.copy_from_slice(&bytes));
    }
    pages
}

/// An engine with memory behind it, and what is behind it.
pub fn backed(limits: Limits, capacity: u64) -> (Zswap<TestArena>, Arc<MemoryBacking>) {
    let zswap = Zswap::new(TestArena::new(), Codec::LZ4, limits);
    let backing = Arc::new(MemoryBacking::new(capacity));
    zswap.attach(backing.clone(), KeyPage::random().expect("a key"));
    (zswap, backing)
}

/// What a slot holds.
pub fn content_of(zswap: &Zswap<TestArena>, slot: Slot) -> Result<Vec<u8>, LoadFault> {
    let mut page = vec![1; PAGE_SIZE];
    let mut context = zswap.context().unwrap();
    let loaded = zswap.load_into(&mut context, slot, &mut page);
    loaded.map(|()| page).map_err(|error| error.fault)
}

/// The gauges: what a failed store must leave alone.
pub fn gauges(now: &Snapshot) -> [u64; 5] {
    [
        now.pool_pages,
        now.stored_pages,
        now.stored_incompressible_pages,
        now.same_filled_pages,
        now.compressed_bytes,
    ]
}

/// A folio of `contents`, stored; the source frames are given back.
pub fn store(zswap: &Zswap<TestArena>, contents: &[Content]) -> Result<Vec<Slot>, StoreError> {
    let order = zfolio_mm::Order::holding(contents.len()).expect("a folio");
    let pages = fill_pages(zswap.arena(), contents);
    let mut slots = vec![Slot::from_u32(77); contents.len()];
    let mut context = zswap.context().unwrap();
    let result = zswap.store_folio(&mut context, order, &pages, &mut slots);
    zswap.arena().give(&pages);
    match result {
        Ok(report) => {
            assert_eq!(
                report.zero_pages
                    + report.same_filled_pages
                    + report.compressed_pages
                    + report.incompressible_pages,
                contents.len()
            );
            Ok(slots)
        }
        Err(error) => {
            assert!(
                slots.iter().all(|slot| *slot == Slot::ZERO),
                "a failed store leaves no slots"
            );
            Err(error)
        }
    }
}

/// Something to do in the middle of a batch.
pub type Hook = Box<dyn FnMut() + Send>;

/// What a [`Puppet`] does besides what lz4 does.
#[derive(Default)]
pub struct Strings {
    /// Result of units that begin with [`MARK`], instead of lz4's.
    pub on_mark: Option<Result<usize, CodecError>>,
    /// Result of every decompressed unit, instead of lz4's.
    pub on_decompress: Option<Result<usize, CodecError>>,
    pub before_compress: Option<Hook>,
    pub before_decompress: Option<Hook>,
    /// Units per batch call, in order.
    pub batches: Vec<usize>,
}

/// First byte of pages a puppet treats by its strings.
pub const MARK: u8 = 0xfe;

/// lz4 with strings attached.
pub struct Puppet {
    pub strings: Arc<Mutex<Strings>>,
    pub batch: usize,
}

struct PuppetContext {
    inner: Box<dyn Context + Send>,
    strings: Arc<Mutex<Strings>>,
}

impl Compressor for Puppet {
    fn name(&self) -> &'static str {
        "puppet"
    }

    fn batch_size(&self) -> usize {
        self.batch
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        let inner = Codec::LZ4.compressor().context()?;
        Ok(Box::new(PuppetContext {
            inner,
            strings: self.strings.clone(),
        }))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        Codec::LZ4.compressor().max_compressed_len(unit)
    }
}

impl Context for PuppetContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        // A hook may come back here with another context: not while locked.
        let hook = self.strings.lock().unwrap().before_compress.take();
        if let Some(mut hook) = hook {
            hook();
        }
        let outcome = self.inner.compress_batch(units);
        let mut strings = self.strings.lock().unwrap();
        strings.batches.push(units.len());
        if let Some(result) = strings.on_mark {
            for unit in units.iter_mut().filter(|unit| unit.src[0] == MARK) {
                unit.result = result;
            }
        }
        outcome
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        let hook = self.strings.lock().unwrap().before_decompress.take();
        if let Some(mut hook) = hook {
            hook();
        }
        let outcome = self.inner.decompress_batch(units);
        if let Some(result) = self.strings.lock().unwrap().on_decompress {
            for unit in units {
                unit.result = result;
            }
        }
        outcome
    }
}
