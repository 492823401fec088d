//! Choosing what goes into a dictionary.
//!
//! The cover heuristic of Liao, Petri, Moffat and Wirth ("Effective construction
//! of relative Lempel-Ziv dictionaries", WWW 2016), with hashed counts: the sample
//! is cut into as many epochs as segments fit, and of each epoch the segment goes
//! in whose 8-byte strings are the most frequent of the sample, counting none
//! twice. The dictionary is its content alone, without entropy tables: making
//! those would need the library's trainer, which uses libc's heap.

use crate::CodecError;
use crate::sample::Rng;
use alloc::vec::Vec;

/// Longest dictionary, bytes.
pub const MAX_DICTIONARY: usize = 32 << 10;
/// Pages of a sample, where no other number is asked for.
pub const SAMPLE_PAGES: usize = 256;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Bytes of a segment.
const SEGMENT: usize = 128;
/// Bytes of the strings counted.
const STRING: usize = 8;
const HASH_BITS: u32 = 16;
/// Bytes of the sample that a step of training goes over: some 100 us.
const STEP: usize = 32 << 10;

/// Keeps a sample of the pages it is shown and makes a dictionary of it. All its
/// memory, 1.1 MiB with [`SAMPLE_PAGES`], is taken when it is made.
#[derive(Debug)]
pub struct Trainer {
    /// Pages, one after the other.
    sample: Vec<u8>,
    /// Pages of a full one.
    pages: usize,
    /// Pages shown.
    shown: u64,
    random: Rng,
    /// How often each string occurs in the sample, by hash.
    counts: Vec<u16>,
    /// Segments chosen.
    chosen: Vec<(u32, u32)>,
    stage: Stage,
}

/// How far training has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Not begun.
    Sampling,
    /// Strings before this one are counted.
    Counting(usize),
    /// Epochs before this one have a segment.
    Choosing(usize),
}

impl Trainer {
    /// An empty sample of [`SAMPLE_PAGES`]; the same seed keeps the same pages.
    ///
    /// # Errors
    /// [`CodecError::Workspace`] when the memory cannot be had.
    pub fn new(seed: u64) -> Result<Self, CodecError> {
        Self::with_pages(seed, SAMPLE_PAGES)
    }

    /// The same for another number of pages.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_pages(seed: u64, pages: usize) -> Result<Self, CodecError> {
        let mut made = Self {
            sample: Vec::new(),
            pages,
            shown: 0,
            random: Rng::new(seed),
            counts: Vec::new(),
            chosen: Vec::new(),
            stage: Stage::Sampling,
        };
        let workspace = |_| CodecError::Workspace;
        made.sample
            .try_reserve_exact(pages * PAGE)
            .map_err(workspace)?;
        made.counts
            .try_reserve_exact(1 << HASH_BITS)
            .map_err(workspace)?;
        made.counts.resize(1 << HASH_BITS, 0);
        made.chosen
            .try_reserve_exact(MAX_DICTIONARY / SEGMENT)
            .map_err(workspace)?;
        Ok(made)
    }

    /// Shows a page of 4 KiB; others are passed over. Of all that were shown each
    /// is kept with the same chance (Vitter's reservoir). Once training has begun no
    /// more are looked at.
    pub fn show(&mut self, page: &[u8]) {
        if page.len() != PAGE || self.stage != Stage::Sampling {
            return;
        }
        self.shown += 1;
        if self.sample.len() < self.pages * PAGE {
            self.sample.extend_from_slice(page);
            return;
        }
        let at = usize::try_from(self.random.word() % self.shown).unwrap_or(usize::MAX);
        if at < self.pages {
            self.sample[at * PAGE..][..PAGE].copy_from_slice(page);
        }
    }

    /// Whether the sample is full.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.sample.len() == self.pages * PAGE
    }

    /// Pages shown.
    #[must_use]
    pub fn shown(&self) -> u64 {
        self.shown
    }

    /// Forgets the sample.
    pub fn clear(&mut self) {
        self.sample.clear();
        self.shown = 0;
        self.stage = Stage::Sampling;
    }

    /// The sample's pages.
    pub fn pages(&self) -> impl Iterator<Item = &[u8]> {
        self.sample.chunks_exact(PAGE)
    }

    /// Writes a dictionary of the first three quarters of the sample into `out`
    /// and returns its length; [`Self::held_out`] is what it may be judged by.
    pub fn train(&mut self, out: &mut [u8]) -> usize {
        loop {
            if let Some(len) = self.train_step(out) {
                return len;
            }
        }
    }

    /// A step of [`Self::train`], some 100 us; `None` until the last one. `out` must be as
    /// long at each of them.
    pub fn train_step(&mut self, out: &mut [u8]) -> Option<usize> {
        let len = self.training();
        let segments = (out.len().min(MAX_DICTIONARY) / SEGMENT).min(len / SEGMENT);
        match self.stage {
            Stage::Sampling => {
                self.counts.fill(0);
                self.chosen.clear();
                self.stage = Stage::Counting(0);
            }
            Stage::Counting(from) => {
                let strings = len.saturating_sub(STRING - 1);
                let to = strings.min(from + STEP);
                let sample = &self.sample[..len];
                for at in from..to {
                    let count = &mut self.counts[hash(sample, at)];
                    *count = count.saturating_add(1);
                }
                self.stage = if to == strings {
                    Stage::Choosing(0)
                } else {
                    Stage::Counting(to)
                };
            }
            Stage::Choosing(from) if from < segments => {
                let to = segments.min(from + (STEP * segments / len).max(1));
                (from..to).for_each(|epoch| self.choose(epoch, len / segments));
                self.stage = Stage::Choosing(to);
            }
            Stage::Choosing(_) => {
                self.stage = Stage::Sampling;
                return Some(self.gather(out));
            }
        }
        None
    }

    /// Chooses a segment of an epoch of `span` bytes.
    #[allow(clippy::cast_possible_truncation, reason = "offsets in a sample")]
    fn choose(&mut self, epoch: usize, span: usize) {
        let len = self.training();
        let sample = &self.sample[..len];
        let start = epoch * span;
        let mut best = (0, start);
        let mut score = 0_u64;
        let strings = SEGMENT - STRING + 1;
        for at in start..(start + span).min(len - STRING + 1) {
            score += u64::from(self.counts[hash(sample, at)]);
            if at - start >= strings {
                score -= u64::from(self.counts[hash(sample, at - strings)]);
            }
            if at + 1 - start >= strings && score > best.0 {
                best = (score, at + 1 - strings);
            }
        }
        let (score, at) = best;
        for at in at..(at + strings).min(len - STRING + 1) {
            self.counts[hash(sample, at)] = 0;
        }
        let score = (score / strings as u64).min(u64::from(u32::MAX)) as u32;
        self.chosen.push((score, at as u32));
    }

    /// Puts what was chosen together.
    fn gather(&mut self, out: &mut [u8]) -> usize {
        // The best come last: what is nearest is cheapest to refer to. A string
        // that occurs once is in no other page.
        self.chosen.sort_unstable();
        let mut filled = 0;
        for (score, at) in &self.chosen {
            if *score >= 2 {
                let at = *at as usize;
                out[filled..filled + SEGMENT].copy_from_slice(&self.sample[at..at + SEGMENT]);
                filled += SEGMENT;
            }
        }
        filled
    }

    /// The last quarter of the sample, which [`Self::train`] does not look at.
    pub fn held_out(&self) -> impl Iterator<Item = &[u8]> {
        self.sample[self.training()..].chunks_exact(PAGE)
    }

    fn training(&self) -> usize {
        self.sample.len() / PAGE * 3 / 4 * PAGE
    }
}

fn hash(bytes: &[u8], at: usize) -> usize {
    let word = bytes[at..].first_chunk::<STRING>();
    let word = word.map_or(0, |word| u64::from_le_bytes(*word));
    let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HASH_BITS);
    usize::try_from(mixed).unwrap_or(0)
}
