//! The store path alone, one thread: usemem's words into the engine, a folio's
//! pages one by one and in the engine's batches, in turn.

use crate::output::ministat::Summary;
use crate::output::table::Table;
use serde_json::{Value, json};
use std::time::Instant;
use zfolio_compress::Codec;
use zfolio_mm::{Memory, PAGE_SIZE, Pfn};
use zfolio_zswap::{Arena, Limits, PlainArena, Slot, Zswap};

/// Pages stored in a round: 16 MiB, larger than the cache of a core.
const PAGES: usize = 4096;
/// Rounds for each run asked for: they are short.
const ROUNDS: u32 = 5;

/// Changes that the series on batches published, of a whole usemem run.
const PUBLISHED: [(&str, &str, f64); 4] = [
    ("zstd", "64K", 1.0),
    ("zstd", "2M", 1.0),
    ("deflate-iaa", "64K", 67.0),
    ("deflate-iaa", "2M", 77.0),
];

struct Row {
    codec: &'static str,
    folio: super::plan::Folio,
    /// KB/s, a round each.
    single: Vec<f64>,
    batched: Vec<f64>,
}

/// What was measured.
pub(super) struct Stored(Vec<Row>);

/// Measures every codec and size of folio.
///
/// # Errors
/// When there is no memory for it, or a page cannot be stored.
pub(super) fn measure(runs: u32) -> Result<Stored, String> {
    let mut rows = Vec::new();
    for codec in super::plan::CODECS {
        let Ok(choice) = Codec::parse(codec) else {
            continue;
        };
        for folio in super::plan::FOLIOS {
            let mut row = Row {
                codec,
                folio,
                single: Vec::new(),
                batched: Vec::new(),
            };
            row.measure(choice, runs * ROUNDS)?;
            rows.push(row);
        }
    }
    Ok(Stored(rows))
}

impl Row {
    fn measure(&mut self, choice: Codec, rounds: u32) -> Result<(), String> {
        let arena = PlainArena::new(4 * PAGES).map_err(|error| format!("no arena: {error:?}"))?;
        let mut pages: Vec<Pfn> = Vec::new();
        for _ in 0..PAGES / self.folio.order.pages() {
            let at = arena.alloc_frames(self.folio.order.pages());
            let at = at.ok_or("no frames")?;
            pages.extend((0..self.folio.order.pages()).map(|page| at.offset(page)));
        }
        for (which, page) in pages.iter().enumerate() {
            arena.with_mut(*page, 0, PAGE_SIZE, |bytes| {
                let first = (which * PAGE_SIZE / 8) as u64;
                for (index, word) in (first..).zip(bytes.chunks_exact_mut(8)) {
                    word.copy_from_slice(&index.to_ne_bytes());
                }
            });
        }
        let zswap = Zswap::new(arena, choice, Limits::default());
        let mut context = zswap.context().map_err(|error| error.to_string())?;
        let mut slots = vec![Slot::ZERO; PAGES];
        // The first touches the pool's frames.
        for round in 0..=rounds * 2 {
            let single = round % 2 == 0;
            let begin = Instant::now();
            let folio = self.folio.order.pages();
            for (pages, slots) in pages.chunks(folio).zip(slots.chunks_mut(folio)) {
                let step = if single { 1 } else { folio };
                for (pages, slots) in pages.chunks(step).zip(slots.chunks_mut(step)) {
                    zswap
                        .store_pages(&mut context, pages, slots)
                        .map_err(|error| error.to_string())?;
                }
            }
            let kib = (PAGES * PAGE_SIZE / 1024) as f64;
            let figure = kib / begin.elapsed().as_secs_f64().max(1e-9);
            match (round, single) {
                (0, _) => {}
                (_, true) => self.single.push(figure),
                (_, false) => self.batched.push(figure),
            }
            zswap.invalidate(&slots);
        }
        Ok(())
    }

    /// The change by batches, %: median, least and most over the rounds.
    fn change(&self) -> Option<Summary> {
        let pairs = self.single.iter().zip(&self.batched);
        let changes = pairs.map(|(single, batched)| (batched / single - 1.0) * 100.0);
        Summary::of(&changes.collect::<Vec<f64>>())
    }
}

impl Stored {
    pub(super) fn text(&self) -> String {
        let mut table = Table::new([
            "codec",
            "folio",
            "one by one KB/s",
            "batched KB/s",
            "change",
            "spread",
            "published",
        ]);
        for row in &self.0 {
            let median = |all: &[f64]| {
                Summary::of(all).map_or("-".to_owned(), |s| format!("{:.0}", s.median))
            };
            let change = row.change();
            let published = PUBLISHED
                .iter()
                .find(|(codec, folio, _)| *codec == row.codec && *folio == row.folio.option);
            table.row([
                row.codec.to_owned(),
                row.folio.option.to_owned(),
                median(&row.single),
                median(&row.batched),
                change.map_or("-".into(), |c| format!("{:+.1} %", c.median)),
                change.map_or("-".into(), |c| format!("{:+.1}..{:+.1}", c.min, c.max)),
                published.map_or("-".into(), |(.., found)| format!("{found:+.1} %")),
            ]);
        }
        format!(
            "\nThe store path alone, one thread, rounds in turn; change: batched against one by one, + \
             is faster\n(a page is a batch of its own at 4K). Published: whole runs on the series' machine.\n{}",
            table.text()
        )
    }

    pub(super) fn json(&self) -> Value {
        let rows = self.0.iter().map(|row| {
            json!({
                "codec": row.codec,
                "folio": row.folio.option,
                "one_by_one_kb_s": row.single,
                "batched_kb_s": row.batched,
                "change_percent": row.change().map(|c| c.median),
            })
        });
        Value::Array(rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_are_measured_as_often() {
        let mut row = Row {
            codec: "lz4",
            folio: super::super::plan::FOLIOS[1],
            single: Vec::new(),
            batched: Vec::new(),
        };
        row.measure(Codec::LZ4, 2).expect("room");
        assert_eq!((row.single.len(), row.batched.len()), (2, 2));
        assert!(row.change().is_some());
        let text = Stored(vec![row]).text();
        assert!(text.contains("lz4") && text.contains("64K"), "{text}");
    }
}
