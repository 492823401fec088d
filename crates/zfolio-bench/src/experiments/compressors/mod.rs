//! `zfolio bench compressors`: codecs, unit sizes, batching and engines over
//! the pages of real programs.
//!
//! A *way* is a codec, a unit size, how many units go into a call, and who
//! compresses them ([`Workers`]). Each way compresses the
//! whole corpus and decompresses it again, and every unit is compared with what
//! it was. Ways take turns, round by round, so that what else the machine does
//! meets them all; a figure is the median of the rounds, and a comparison the
//! median of the rounds' ratios. Then loads of some pages together ([`mod@loads`]).

use crate::args::BenchCompressors;
use crate::output::plot::{self, Series};
use crate::output::progress::Progress;
use crate::output::results::Results;
use crate::output::table::Table;
use corpus::Corpus;
use loads::Loads;
use measure::{Round, Way, Workers, median};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};

mod corpus;
mod loads;
mod measure;

/// One way and its rounds.
struct Row {
    way: Way,
    rounds: Vec<Round>,
}

/// What a way came to: medians over the rounds.
struct Figures {
    ratio: f64,
    in_mb_s: f64,
    out_mb_s: f64,
    in_p99_us: f64,
    out_p99_us: f64,
}

impl Row {
    fn figures(&self) -> Figures {
        let of = |figure: fn(&Round) -> f64| median(self.rounds.iter().map(figure).collect());
        Figures {
            ratio: of(|round| round.ratio),
            in_mb_s: of(|round| round.in_mb_s),
            out_mb_s: of(|round| round.out_mb_s),
            in_p99_us: of(|round| round.in_p99_us),
            out_p99_us: of(|round| round.out_p99_us),
        }
    }

    /// Times the throughput of `base`, round by round.
    fn against(&self, base: &Self, figure: fn(&Round) -> f64) -> f64 {
        let pairs = self.rounds.iter().zip(&base.rounds);
        median(
            pairs
                .map(|(own, base)| figure(own) / figure(base))
                .collect(),
        )
    }
}

/// Runs the experiment.
///
/// # Errors
/// When there are no pages to be had, a file cannot be written, or a unit does
/// not come back.
pub(crate) fn compressors(args: &BenchCompressors) -> Result<ExitCode, Failure> {
    let results = Results::open("compressors", &args.files)?;
    let limit =
        usize::try_from(args.pages.bytes(zfolio_host::machine::mem_total())).unwrap_or(usize::MAX);
    let corpora = match &args.input {
        Some(path) => vec![Corpus::of_file(path, limit)?],
        None => corpus::of_live_programs(limit)?,
    };
    let ways = ways(args);
    let steps = ways.len() as u64 * u64::from(args.runs) * corpora.len() as u64;
    let progress = Progress::new("compressing", steps);
    let mut measured = Vec::new();
    for corpus in corpora {
        let rows = run(args, &ways, &corpus, &progress)?;
        measured.push((corpus, rows));
    }
    drop(progress);
    let loaded = loads(args, &measured)?;
    let mut text: String = measured
        .iter()
        .map(|(corpus, rows)| report(corpus, rows))
        .collect();
    text.push_str(&Loads::text(&loaded));
    let mut document = document(args, &measured);
    document["loads"] = loaded.iter().map(Loads::json).collect();
    results.finish(&text, &document, || draw(&measured))?;
    Ok(ExitCode::SUCCESS)
}

/// Loads of the pages of the first corpus, by codec.
fn loads(args: &BenchCompressors, measured: &[(Corpus, Vec<Row>)]) -> Result<Vec<Loads>, Failure> {
    let Some((corpus, _)) = measured.first() else {
        return Ok(Vec::new());
    };
    let codecs = args.compressors.iter();
    let each = codecs.map(|codec| Loads::measure(codec.0, corpus, args.runs));
    let all: Result<_, String> = each.collect();
    all.map_err(|why| {
        Failure::new(
            Status::Internal,
            "bench compressors: loads",
            why,
            "report this",
        )
    })
}

/// Every combination asked for.
fn ways(args: &BenchCompressors) -> Vec<Way> {
    let mut ways = Vec::new();
    for codec in &args.compressors {
        for unit in &args.units {
            let one = Way {
                codec: codec.0,
                unit: unit.bytes(),
                batch: 1,
                workers: Workers::Caller,
            };
            let batch = args.batch as usize;
            ways.extend([one, Way { batch, ..one }]);
            // As many as go to the engines at once.
            let batch = batch.max(64);
            for count in args.engines.iter().map(|count| *count as usize) {
                let kinds: &[Workers] = match count {
                    0 => &[],
                    1 => &[Workers::Engines(1), Workers::Assisted(1)],
                    _ => &[Workers::Engines(count), Workers::Callers(count)],
                };
                ways.extend(kinds.iter().map(|workers| Way {
                    batch,
                    workers: *workers,
                    ..one
                }));
            }
        }
    }
    ways
}

fn run(
    args: &BenchCompressors,
    ways: &[Way],
    corpus: &Corpus,
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let mut rows: Vec<Row> = ways
        .iter()
        .map(|way| Row {
            way: *way,
            rounds: Vec::new(),
        })
        .collect();
    for _ in 0..args.runs {
        for row in &mut rows {
            let round = row.way.measure(corpus.bytes()).map_err(|why| {
                Failure::new(
                    Status::Internal,
                    format!("bench compressors: {} on {}", row.way.name(), corpus.name()),
                    why,
                    "report this",
                )
            })?;
            row.rounds.push(round);
            progress.step();
        }
    }
    Ok(rows)
}

fn report(corpus: &Corpus, rows: &[Row]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}: {} pages; {} zero and {} same-filled left out",
        corpus.name(),
        corpus.pages(),
        corpus.zero,
        corpus.same_filled
    );
    let mut table = Table::new([
        "codec",
        "unit",
        "batch",
        "engines",
        "ratio",
        "in MB/s",
        "p99 us",
        "out MB/s",
        "p99 us",
        "in vs 1x1",
        "out vs 1x1",
        "in vs 1 engine",
    ]);
    for row in rows {
        let shown = row.figures();
        let same =
            |other: &&Row| other.way.codec == row.way.codec && other.way.unit == row.way.unit;
        let find = |batch: Option<usize>, workers: Workers| {
            rows.iter().filter(same).find(|other| {
                other.way.workers == workers && batch.is_none_or(|batch| other.way.batch == batch)
            })
        };
        let times = |base: Option<&Row>, figure: fn(&Round) -> f64| {
            base.map_or_else(
                || "-".to_owned(),
                |base| format!("{:.2}", row.against(base, figure)),
            )
        };
        let one = find(Some(1), Workers::Caller);
        let engine = if row.way.workers.engines() > 1 {
            find(None, Workers::Engines(1))
        } else {
            None
        };
        table.row([
            row.way.codec.to_string(),
            format!("{}K", row.way.unit >> 10),
            row.way.batch.to_string(),
            row.way.workers.to_string(),
            format!("{:.2}", shown.ratio),
            format!("{:.0}", shown.in_mb_s),
            format!("{:.1}", shown.in_p99_us),
            format!("{:.0}", shown.out_mb_s),
            format!("{:.1}", shown.out_p99_us),
            times(one, |round| round.in_mb_s),
            times(one, |round| round.out_mb_s),
            times(engine, |round| round.in_mb_s),
        ]);
    }
    text.push_str(&table.text());
    text.push_str(
        "MB: 10^6 plain bytes. p99: of a call, divided by its units. vs: times the throughput\n\
         of the same codec and unit one by one (1x1), or on one engine; above 1 is faster.\n\
         1+caller: the caller does what the engine has not begun. (2 callers): two threads, each\n\
         with its own part and no engine between: what these processors can.\n\n",
    );
    text
}

fn document(args: &BenchCompressors, measured: &[(Corpus, Vec<Row>)]) -> Value {
    let corpora: Vec<Value> = measured
        .iter()
        .map(|(corpus, rows)| {
            let rows: Vec<Value> = rows.iter().map(row_json).collect();
            json!({
                "corpus": corpus.name(),
                "pages": corpus.pages(),
                "zero_pages": corpus.zero,
                "same_filled_pages": corpus.same_filled,
                "rows": rows,
            })
        })
        .collect();
    json!({
        "runs": args.runs,
        "processors": zfolio_sys::thread::processors(),
        "corpora": corpora,
    })
}

fn row_json(row: &Row) -> Value {
    let rounds: Vec<Value> = row
        .rounds
        .iter()
        .map(|round| {
            json!({
                "ratio": round.ratio,
                "compress_mb_s": round.in_mb_s,
                "decompress_mb_s": round.out_mb_s,
                "compress_p99_us_per_unit": round.in_p99_us,
                "decompress_p99_us_per_unit": round.out_p99_us,
                "units_inline": round.inline,
                "units_taken_back": round.taken_back,
            })
        })
        .collect();
    json!({
        "codec": row.way.codec.to_string(),
        "unit_bytes": row.way.unit,
        "batch": row.way.batch,
        "engines": row.way.workers.engines(),
        "workers": row.way.workers.to_string(),
        "rounds": rounds,
    })
}

/// Ratio against speed, a line per codec and unit through its ways.
fn draw(measured: &[(Corpus, Vec<Row>)]) -> Result<String, String> {
    let mut series: Vec<Series> = Vec::new();
    // One picture: the first corpus, which is all pages together where there
    // are several.
    let Some((corpus, rows)) = measured.first() else {
        return Err("nothing was measured".to_owned());
    };
    for row in rows {
        let name = format!("{} {}K", row.way.codec, row.way.unit >> 10);
        let shown = row.figures();
        let point = (shown.in_mb_s, shown.ratio);
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series {
                name,
                points: vec![point],
            }),
        }
    }
    for series in &mut series {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let title = format!(
        "{}: each line is a codec's ways to be called",
        corpus.name()
    );
    plot::lines(&title, "compress, MB/s", "ratio", &series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::BenchFiles;
    use zfolio_host::compressor::Compressor;
    use zfolio_host::size::Size;
    use zfolio_mm::Order;
    use zfolio_runtime::options::Codec;

    #[test]
    fn every_way_brings_every_page_back_and_is_reported() {
        let args = BenchCompressors {
            compressors: vec![Compressor(Codec::LZ4), Compressor(Codec::ZSTD)],
            units: vec![Order::PAGE, Order::K64],
            batch: 8,
            engines: vec![1, 2],
            runs: 2,
            input: None,
            pages: Size::parse("1M").expect("a size"),
            files: BenchFiles {
                json: None,
                plot: None,
            },
        };
        let mut made = vec![0; 100 << 12];
        zfolio_compress::sample::records(&mut made, 1, 0);
        made[..4096].fill(0);
        made[4096..8192].fill(7);
        let corpus = Corpus::of_pages("made up", made.chunks(4096), usize::MAX);
        assert_eq!(
            (corpus.zero, corpus.same_filled, corpus.pages()),
            (1, 1, 98)
        );
        let ways = ways(&args);
        assert_eq!(ways.len(), 2 * 2 * 6);
        let progress = Progress::new("test", 1);
        let rows =
            run(&args, &ways, &corpus, &progress).unwrap_or_else(|_| panic!("a unit is lost"));
        for row in &rows {
            let shown = row.figures();
            assert_eq!(row.rounds.len(), 2);
            assert!(shown.ratio > 1.5 && shown.in_mb_s > 0.0 && shown.out_p99_us > 0.0);
        }
        let text = report(&corpus, &rows);
        assert_eq!(text.lines().count(), 1 + 1 + 24 + 5);
        let measured = [(corpus, rows)];
        let json = document(&args, &measured);
        assert_eq!(
            json["corpora"][0]["rows"].as_array().map(Vec::len),
            Some(24)
        );
        assert!(draw(&measured).expect("drawn").contains("zstd 64K"));
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
