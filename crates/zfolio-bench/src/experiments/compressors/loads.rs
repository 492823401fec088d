//! Loads: how long it takes to decompress some pages that somebody waits for, by whoever waits
//! and with engines, by how many pages come together.
//!
//! A load goes in batches of 32 pages, as those of `zfolio run` do. Ways take turns, load by load;
//! the figures are medians, which a thread that loses its processor now and then does not
//! change. `auto`: batches go to engines as `run --engines` has them go, where they were
//! seen to take less.

use super::corpus::Corpus;
use super::measure::{Threads, median};
use crate::output::table::Table;
use serde_json::{Value, json};
use std::time::Instant;
use zfolio_compress::engine::{Attributes, Decompress, Distribute, Engines, Parallel};
use zfolio_compress::{CompressUnit, Context, DecompressUnit};
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::options::Codec;

/// Pages of a load: a folio, batches, a huge page.
const SIZES: [usize; 5] = [16, 32, 64, 128, 512];
/// Pages of a batch.
const BATCH: usize = 32;
/// Loads of a size in a round.
const LOADS: usize = 50;

/// Who decompresses.
const WAYS: [(&str, usize, Decompress); 5] = [
    ("inline", 0, Decompress::Never),
    ("1 engine", 1, Decompress::Always),
    ("2 engines", 2, Decompress::Always),
    ("1, auto", 1, Decompress::Judged),
    ("2, auto", 2, Decompress::Judged),
];

/// One codec's loads: us each, by size and way.
pub(super) struct Loads {
    codec: Codec,
    took_us: Vec<[Vec<f64>; WAYS.len()]>,
}

/// A page, and what it was compressed to.
type Packed<'a> = (&'a [u8], Vec<u8>);

impl Loads {
    /// Loads pages of `corpus` in `rounds` rounds.
    ///
    /// # Errors
    /// A page does not come back.
    pub(super) fn measure(codec: Codec, corpus: &Corpus, rounds: u32) -> Result<Self, String> {
        let packed = pack(codec, corpus.bytes())?;
        let most = SIZES[SIZES.len() - 1].min(packed.len());
        let mut ways = Vec::new();
        for (_, engines, decompress) in WAYS {
            ways.push(Way::new(codec, engines, decompress)?);
        }
        let mut took_us = vec![[const { Vec::new() }; WAYS.len()]; SIZES.len()];
        let mut back = vec![1; most * PAGE_SIZE];
        let mut first = 0;
        for turn in 0..rounds as usize * LOADS {
            for (size, took) in SIZES.iter().zip(&mut took_us) {
                let count = (*size).min(most);
                // (Other pages each time: what is loaded was not in a cache.)
                first = (first + count) % (packed.len() - count + 1);
                let pages = &packed[first..first + count];
                // (Whoever is first finds the pages in no cache.)
                for at in 0..ways.len() {
                    let at = (turn + at) % ways.len();
                    took[at].push(ways[at].load(pages, &mut back)?);
                }
            }
        }
        Ok(Self { codec, took_us })
    }

    pub(super) fn text(all: &[Self]) -> String {
        let heads = ["codec", "pages", "inline us"];
        let ways = WAYS[1..].iter().map(|(name, ..)| *name);
        let mut table = Table::new(heads.into_iter().chain(ways));
        for loads in all {
            for (size, took) in SIZES.iter().zip(&loads.took_us) {
                let inline = median(took[0].clone());
                let mut cells = vec![
                    loads.codec.to_string(),
                    size.to_string(),
                    format!("{inline:.0}"),
                ];
                for took in &took[1..] {
                    cells.push(format!(
                        "{:+.0} %",
                        (median(took.clone()) / inline - 1.0) * 100.0
                    ));
                }
                table.row(cells);
            }
        }
        format!(
            "Loads of pages that come together, decompressed in batches of {BATCH}: us, and with engines the \
             change of that;\n- is less time. auto: where it was seen to take less.\n{}\n",
            table.text()
        )
    }

    pub(super) fn json(&self) -> Value {
        let sizes = SIZES.iter().zip(&self.took_us).map(|(size, took)| {
            let ways = WAYS.iter().zip(took);
            let ways = ways.map(|((name, ..), took)| ((*name).to_owned(), json!(took)));
            json!({ "pages": size, "us": ways.collect::<serde_json::Map<_, _>>() })
        });
        json!({ "codec": self.codec.to_string(), "loads": sizes.collect::<Vec<_>>() })
    }
}

/// One way, ready.
struct Way {
    context: Box<dyn Context + Send>,
    /// Serve as long as they are held.
    _threads: Option<Threads>,
}

impl Way {
    fn new(codec: Codec, engines: usize, decompress: Decompress) -> Result<Self, String> {
        let codec = codec.compressor();
        if engines == 0 {
            let context = codec.context().map_err(|error| error.to_string())?;
            return Ok(Self {
                context,
                _threads: None,
            });
        }
        let attributes = Attributes {
            decompress,
            distribute: Distribute::ALL,
            ..Attributes::for_engines(engines)
        };
        let setup = Engines::default();
        let replaced = setup.replace(attributes);
        replaced.map_err(|error| error.to_string())?;
        let group = setup.enable(engines, engines, &*codec);
        let group = group.map_err(|error| error.to_string())?;
        let parallel = Parallel::new(group, codec);
        let threads = Threads::start(&parallel, engines)?;
        let context = zfolio_compress::Compressor::context(&parallel);
        Ok(Self {
            context: context.map_err(|error| error.to_string())?,
            _threads: Some(threads),
        })
    }

    /// Loads `pages`; us.
    fn load(&mut self, pages: &[Packed<'_>], back: &mut [u8]) -> Result<f64, String> {
        let back = &mut back[..pages.len() * PAGE_SIZE];
        let start = Instant::now();
        let batches = pages.chunks(BATCH);
        for (pages, back) in batches.zip(back.chunks_mut(BATCH * PAGE_SIZE)) {
            let buffers = back.chunks_mut(PAGE_SIZE);
            let units = pages.iter().zip(buffers);
            let mut units: Vec<_> = units
                .map(|((_, packed), buffer)| DecompressUnit::new(packed, buffer))
                .collect();
            if !self.context.decompress_batch(&mut units).all_ok() {
                return Err("a page was not decompressed".to_owned());
            }
        }
        let took = start.elapsed().as_secs_f64() * 1e6;
        let mut both = pages.iter().zip(back.chunks(PAGE_SIZE));
        if both.all(|((page, _), back)| *page == back) {
            Ok(took)
        } else {
            Err("a page did not come back as it was".to_owned())
        }
    }
}

/// The pages of `plain` that compress.
fn pack(codec: Codec, plain: &[u8]) -> Result<Vec<Packed<'_>>, String> {
    let codec = codec.compressor();
    let mut context = codec.context().map_err(|error| error.to_string())?;
    let mut buffer = vec![0; codec.max_compressed_len(PAGE_SIZE)];
    let mut packed = Vec::new();
    for page in plain.chunks_exact(PAGE_SIZE) {
        let mut unit = [CompressUnit::new(page, &mut buffer)];
        let _ = context.compress_batch(&mut unit);
        if let Ok(len) = unit[0].result
            && len < PAGE_SIZE
        {
            packed.push((page, buffer[..len].to_vec()));
        }
    }
    if packed.is_empty() {
        return Err("no page compresses".to_owned());
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_loaded_every_way() {
        let mut made = vec![0; 600 * PAGE_SIZE];
        zfolio_compress::sample::records(&mut made, 1, 0);
        let corpus = Corpus::of_pages("made up", made.chunks(PAGE_SIZE), usize::MAX);
        let loads = Loads::measure(Codec::ZSTD, &corpus, 1).expect("all come back");
        let text = Loads::text(&[loads]);
        assert_eq!(text.lines().count(), 2 + 1 + SIZES.len() + 1, "{text}");
        for size in SIZES {
            assert!(text.contains(&format!(" {size} ")), "{text}");
        }
    }
}
