//! An engine with a second tier, with hooks where something can happen in the middle of
//! what it does.

use crate::support::{Content, Hook, TestArena, content_of, gauges, store};
use std::sync::{Arc, Mutex};
use zfolio_compress::{
    BatchOutcome, Codec, CodecError, CompressUnit, Compressor, Context, DecompressUnit,
};
use zfolio_zswap::TIER_STEP as STEP;
use zfolio_zswap::{Learning, Limits, Recompressed, Slot, TierContext, Zswap};

/// No dictionaries.
pub(super) const PLAIN: Learning = Learning {
    sample: 8,
    shown: 8,
    least_bytes: u64::MAX,
    few: 0,
    rest: 1,
    units: true,
};

/// What is to be done once, in the middle of something.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) unit: Arc<Mutex<Option<Hook>>>,
    pub(super) page: Arc<Mutex<Option<Hook>>>,
    pub(super) load: Arc<Mutex<Option<Hook>>>,
}

pub(super) fn set(hook: &Mutex<Option<Hook>>, what: impl FnMut() + Send + 'static) {
    *hook.lock().unwrap() = Some(Box::new(what));
}

fn run(hook: &Mutex<Option<Hook>>) {
    let hook = hook.lock().unwrap().take();
    if let Some(mut hook) = hook {
        hook();
    }
}

/// `auto`, with hooks.
struct Hooked {
    inner: Box<dyn Compressor>,
    hooks: Hooks,
    /// Which it is, besides what loads.
    compresses: Option<Arc<Mutex<Option<Hook>>>>,
}

impl Hooked {
    fn of(&self, inner: Box<dyn Compressor>, hook: &Arc<Mutex<Option<Hook>>>) -> Box<Self> {
        Box::new(Self {
            inner,
            hooks: self.hooks.clone(),
            compresses: Some(hook.clone()),
        })
    }
}

struct HookedContext {
    inner: Box<dyn Context + Send>,
    compresses: Option<Arc<Mutex<Option<Hook>>>>,
    loads: Option<Arc<Mutex<Option<Hook>>>>,
}

impl Compressor for Hooked {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn batch_size(&self) -> usize {
        1
    }

    fn context(&self) -> Result<Box<dyn Context + Send>, CodecError> {
        let loads = self.compresses.is_none().then(|| self.hooks.load.clone());
        Ok(Box::new(HookedContext {
            inner: self.inner.context()?,
            compresses: self.compresses.clone(),
            loads,
        }))
    }

    fn max_compressed_len(&self, unit: usize) -> usize {
        self.inner.max_compressed_len(unit)
    }

    fn dense(&self) -> Option<Box<dyn Compressor>> {
        Some(self.of(self.inner.dense()?, &self.hooks.page))
    }

    fn dense_units(&self) -> Option<Box<dyn Compressor>> {
        Some(self.of(self.inner.dense_units()?, &self.hooks.unit))
    }
}

impl Context for HookedContext {
    fn compress_batch(&mut self, units: &mut [CompressUnit<'_>]) -> BatchOutcome {
        if let Some(hook) = &self.compresses {
            run(hook);
        }
        self.inner.compress_batch(units)
    }

    fn decompress_batch(&mut self, units: &mut [DecompressUnit<'_>]) -> BatchOutcome {
        let outcome = self.inner.decompress_batch(units);
        if let Some(hook) = &self.loads {
            run(hook);
        }
        outcome
    }
}

pub(super) struct Tiered {
    pub(super) zswap: Arc<Zswap<TestArena>>,
    pub(super) context: TierContext,
    pub(super) hooks: Hooks,
}

pub(super) fn tiered() -> Tiered {
    let hooks = Hooks::default();
    let compressor = Box::new(Hooked {
        inner: Codec::Auto.compressor(),
        hooks: hooks.clone(),
        compresses: None,
    });
    let zswap = Zswap::with_compressor(TestArena::new(), compressor, Limits::default());
    let context = zswap.tier_context_that(PLAIN).unwrap();
    Tiered {
        zswap: Arc::new(zswap),
        context: context.expect("auto has a denser form"),
        hooks,
    }
}

impl Tiered {
    /// Steps to the end of the round.
    pub(super) fn round(&mut self) -> Recompressed {
        let mut all = Recompressed::default();
        while !all.ended {
            let done = self.zswap.recompress_step(&mut self.context, STEP);
            all.recompressed += done.recompressed;
            all.poor += done.poor;
            all.split += done.split;
            all.ended = done.ended;
            self.zswap.validate().unwrap();
        }
        all
    }

    pub(super) fn rounds(&mut self, count: usize) {
        for _ in 0..count {
            self.round();
        }
    }

    /// Stores pages that are worth units, and has them made.
    pub(super) fn units(&mut self, pages: u64) -> (Vec<Slot>, Vec<Content>) {
        let contents = phrases(0..pages);
        let slots = store_all(&self.zswap, &contents);
        self.rounds(2);
        let now = self.zswap.snapshot();
        assert_eq!((now.units, now.unit_pages), (pages / 4, pages));
        (slots, contents)
    }

    pub(super) fn assert_contents(&self, slots: &[Slot], contents: &[Content]) {
        for (slot, content) in slots.iter().zip(contents) {
            assert!(content_of(&self.zswap, *slot).unwrap() == content.bytes());
        }
    }

    /// Nothing is left.
    pub(super) fn assert_empty(&self) {
        self.zswap.validate().unwrap();
        assert_eq!(gauges(&self.zswap.snapshot()), [0; 5]);
        let now = self.zswap.snapshot();
        assert_eq!((now.units, now.unit_pages), (0, 0));
        assert_eq!(self.zswap.charged().zswap, 0);
        assert_eq!(self.zswap.arena().used_pages(), 0);
    }
}

pub(super) fn phrases(seeds: std::ops::Range<u64>) -> Vec<Content> {
    seeds.map(|seed| Content::Phrases(1, seed)).collect()
}

pub(super) fn store_all(zswap: &Zswap<TestArena>, contents: &[Content]) -> Vec<Slot> {
    let folios = contents.chunks(4);
    folios
        .flat_map(|folio| store(zswap, folio).unwrap())
        .collect()
}
