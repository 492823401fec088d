//! `zfolio bench zsmalloc`: what zspage compaction costs, seven ways.
//!
//! For each size class with several objects to a zspage: a pool of its own,
//! filled with [`OBJECTS`] objects of which a pseudo-random part is freed, and
//! compacted. Counted are the objects copied until nothing is freeable. Every
//! configuration gets the same pattern and ends with the same number of pages;
//! that, the pool's invariants and the objects' bytes are checked each time.

use crate::args::BenchZsmalloc;
use crate::output::ministat::{self, Difference, Summary};
use crate::output::plot::{self, Series};
use crate::output::progress::Progress;
use crate::output::results::Results;
use crate::output::table::Table;
use crate::sequence::Sequence;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};
use zfolio_mm::{Frames, Kind, Memory, Order, PAGE_SIZE};
use zfolio_sys::arena::ArenaMap;
use zfolio_zsmalloc::variants::{
    Algorithm, Coarse, CoarseFullerFirst, Exact, FreshDestination, KeptDestination, PlainTenths,
};
use zfolio_zsmalloc::{ClassTable, Grouping, Handle, SizeClass, Tenths, ZsPool};

/// Objects allocated in each class.
const OBJECTS: usize = 8192;

/// Slots of the arena: what a zspage per block of eight slots needs in the largest
/// class, and more.
const SLOTS: usize = 16_384;

/// A way of sorting zspages and one of compacting them.
struct Configuration {
    name: &'static str,
    measure: fn(ArenaMap, &Case) -> Result<Measured, String>,
}

/// The seed's three, what the pool does, the best a choice by slots in use can be, and the
/// first two with the rule that the series took out of the old lists.
const CONFIGURATIONS: [Configuration; 7] = [
    Configuration {
        name: "old groups, old algorithm",
        measure: measure::<Coarse, FreshDestination>,
    },
    Configuration {
        name: "old groups, new algorithm",
        measure: measure::<Coarse, KeptDestination>,
    },
    Configuration {
        name: "new groups, new algorithm",
        measure: measure::<PlainTenths, KeptDestination>,
    },
    Configuration {
        name: "ours: new groups, members compared",
        measure: measure::<Tenths, KeptDestination>,
    },
    Configuration {
        name: "a list per slot in use",
        measure: measure::<Exact, KeptDestination>,
    },
    Configuration {
        name: "old groups, fuller first, old algorithm",
        measure: measure::<CoarseFullerFirst, FreshDestination>,
    },
    Configuration {
        name: "old groups, fuller first, new algorithm",
        measure: measure::<CoarseFullerFirst, KeptDestination>,
    },
];

const WAYS: usize = CONFIGURATIONS.len();

/// The differences from old/old that the kernel's developers published.
const PUBLISHED: [Option<f64>; WAYS] = [None, Some(-18.8), Some(-34.0), None, None, None, None];

/// One class and one pattern.
struct Case {
    position: usize,
    class: SizeClass,
    pattern: Sequence,
    keep: u32,
    /// Most pages of a zspage.
    chain: usize,
}

/// What compaction did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Measured {
    copies: u64,
    pages_freed: u64,
}

/// A class and what was measured there, over all patterns.
struct Row {
    class: SizeClass,
    /// Per configuration, per pattern.
    measured: [Vec<Measured>; WAYS],
}

impl Row {
    fn copies(&self, way: usize) -> u64 {
        self.measured[way].iter().map(|m| m.copies).sum()
    }

    fn pages_freed(&self, way: usize) -> u64 {
        self.measured[way].iter().map(|m| m.pages_freed).sum()
    }
}

/// Runs the experiment.
///
/// # Errors
/// When a file cannot be written, or compaction breaks something.
pub(crate) fn zsmalloc(args: &BenchZsmalloc) -> Result<ExitCode, Failure> {
    let results = Results::open("zsmalloc", &args.files)?;
    let rows = run(args).map_err(|why| {
        Failure::new(
            Status::Internal,
            "bench zsmalloc",
            why,
            "run it again with the same --seed and report this",
        )
    })?;
    results.finish(&report(args, &rows), &to_json(args, &rows), || {
        draw(args, &rows)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn run(args: &BenchZsmalloc) -> Result<Vec<Row>, String> {
    let table = ClassTable::new(PAGE_SIZE, args.chain());
    let classes = table.classes().iter().enumerate();
    let classes: Vec<_> = classes.filter(|(_, class)| !class.is_huge()).collect();
    let arena = ArenaMap::reserve(SLOTS).map_err(|error| format!("no arena: {error:?}"))?;
    let steps = classes.len() as u64 * u64::from(args.runs);
    let progress = Progress::new("compacting", steps);
    let mut rows = Vec::with_capacity(classes.len());
    for (position, class) in classes {
        let mut row = Row {
            class: *class,
            measured: Default::default(),
        };
        for run in 0..args.runs {
            let case = Case {
                position,
                class: *class,
                pattern: Sequence::named(&[args.seed, u64::from(run), class.size as u64]),
                keep: args.keep,
                chain: args.chain(),
            };
            for (way, configuration) in CONFIGURATIONS.iter().enumerate() {
                let measured = (configuration.measure)(arena, &case).map_err(|why| {
                    format!("class {}, {}: {why}", class.size, configuration.name)
                })?;
                row.measured[way].push(measured);
            }
            progress.step();
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Fills, frees, compacts and checks one class.
fn measure<G: Grouping, A: Algorithm>(arena: ArenaMap, case: &Case) -> Result<Measured, String> {
    let mut frames = Frames::new(SLOTS);
    while let Some((at, order)) = frames.take_free(Kind::Hole, Order::HUGE) {
        frames.free(Kind::Backed, at, order);
    }
    let mut pool = ZsPool::<G>::with_grouping(case.chain);
    let mut pattern = case.pattern;
    let size = case.class.capacity();
    let error = |error| format!("{error}");
    let mut objects = Vec::with_capacity(OBJECTS);
    for _ in 0..OBJECTS {
        objects.push(pool.malloc(size, &arena, &mut frames).map_err(error)?);
    }
    let mut kept = Vec::new();
    for handle in objects {
        if pattern.chance(case.keep) {
            write(&pool, &arena, handle);
            kept.push(handle);
        } else {
            pool.free(handle, &arena, &mut frames).map_err(error)?;
        }
    }
    let (pages, freeable) = (pool.pages_used(), pool.freeable_pages());
    A::compact_class(&mut pool, case.position, &arena, &mut frames);
    pool.validate(&arena)?;
    let freed = pages - pool.pages_used();
    if pool.freeable_pages() != 0 || freed != freeable {
        return Err(format!("{freed} pages freed of {freeable}"));
    }
    if !kept.iter().all(|handle| is_intact(&pool, &arena, *handle)) {
        return Err("an object's bytes changed".to_owned());
    }
    Ok(Measured {
        copies: pool.objs_moved(),
        pages_freed: pool.pages_compacted(),
    })
}

/// The bytes of the object of `handle`.
fn bytes(handle: Handle, len: usize) -> impl Iterator<Item = u8> {
    let mut sequence = Sequence(u64::from(handle.as_u32()));
    std::iter::from_fn(move || Some(sequence.next().to_le_bytes()))
        .flatten()
        .take(len)
}

fn write<G: Grouping>(pool: &ZsPool<G>, arena: &ArenaMap, handle: Handle) {
    let place = pool.location(handle);
    arena.with_mut(place.at, place.offset, place.capacity, |object| {
        for (to, from) in object.iter_mut().zip(bytes(handle, place.capacity)) {
            *to = from;
        }
    });
}

fn is_intact<G: Grouping>(pool: &ZsPool<G>, arena: &ArenaMap, handle: Handle) -> bool {
    let place = pool.location(handle);
    arena.with(place.at, place.offset, place.capacity, |object| {
        object.iter().copied().eq(bytes(handle, place.capacity))
    })
}

/// Copies per class and pattern of one configuration.
fn samples(rows: &[Row], way: usize) -> Vec<f64> {
    let all = rows.iter().flat_map(|row| &row.measured[way]);
    all.map(|measured| measured.copies as f64).collect()
}

fn summaries(rows: &[Row]) -> Vec<(&'static str, Summary)> {
    let summary = |way: usize| {
        let summary = Summary::of(&samples(rows, way))?;
        Some((CONFIGURATIONS[way].name, summary))
    };
    (0..WAYS).filter_map(summary).collect()
}

fn total(rows: &[Row], of: impl Fn(&Row) -> u64) -> u64 {
    rows.iter().map(of).sum()
}

fn report(args: &BenchZsmalloc, rows: &[Row]) -> String {
    let mut text = format!(
        "Zspage compaction, each of {} classes (chain {}) alone: {OBJECTS} objects, {} % kept, {} pattern(s) from seed {}.\n\
         Object copies until nothing is freeable; fewer is better. All ways free the same pages.\n\n",
        rows.len(),
        args.chain,
        args.keep,
        args.runs,
        args.seed
    );
    for (way, configuration) in CONFIGURATIONS.iter().enumerate() {
        let _ = writeln!(text, "  [{way}] {}", configuration.name);
    }
    text.push('\n');
    let names = ["size", "objs", "pages", "freed"].map(str::to_owned);
    let ways = (0..WAYS).map(|way| format!("[{way}]"));
    let mut table = Table::new(names.into_iter().chain(ways));
    for row in rows {
        let class = &row.class;
        let left = [
            class.size as u64,
            class.objs as u64,
            class.pages as u64,
            row.pages_freed(0),
        ];
        let copies = (0..WAYS).map(|way| row.copies(way));
        table.row(left.into_iter().chain(copies).map(|n| n.to_string()));
    }
    text.push_str(&table.text());
    text.push('\n');
    text.push_str(&totals(rows));
    text.push_str(
        "The published figures are from another pattern, which was not published whole; \
         how far the ways differ depends on --keep.\n",
    );
    text.push_str("\nPer class and pattern:\n");
    let summaries = summaries(rows);
    text.push_str(&ministat::text(&summaries));
    if let [_, _, (_, new), (_, ours), ..] = &summaries[..] {
        let _ = write!(
            text,
            "Ours against [2]:\n{}",
            ministat::difference(new, ours)
        );
    }
    text
}

/// Sums over the classes, beside what was published.
fn totals(rows: &[Row]) -> String {
    let base = total(rows, |row| row.copies(0));
    let mut table = Table::new([
        "configuration",
        "copies",
        "pages freed",
        "copies/page",
        "change",
        "published",
    ]);
    for (way, configuration) in CONFIGURATIONS.iter().enumerate() {
        let copies = total(rows, |row| row.copies(way));
        let pages = total(rows, |row| row.pages_freed(way));
        let change = (copies as f64 / base.max(1) as f64 - 1.0) * 100.0;
        let published = PUBLISHED[way].map_or("-".to_owned(), |p| format!("{p:+.1} %"));
        table.row([
            configuration.name.to_owned(),
            copies.to_string(),
            pages.to_string(),
            format!("{:.3}", copies as f64 / pages.max(1) as f64),
            format!("{change:+.1} %"),
            published,
        ]);
    }
    table.text()
}

fn to_json(args: &BenchZsmalloc, rows: &[Row]) -> Value {
    let summaries = summaries(rows);
    let configurations: Vec<Value> = (0..WAYS)
        .zip(&summaries)
        .map(|(way, (name, summary))| {
            let difference = Difference::between(&summaries[0].1, summary).filter(|_| way > 0);
            json!({
                "name": name,
                "copies": total(rows, |row| row.copies(way)),
                "pages_freed": total(rows, |row| row.pages_freed(way)),
                "n": summary.n,
                "min": summary.min,
                "max": summary.max,
                "median": summary.median,
                "avg": summary.avg,
                "stddev": summary.stddev,
                "difference": difference.map(|d| json!({
                    "by": d.by,
                    "error": d.error,
                    "percent": d.percent,
                    "percent_error": d.percent_error,
                    "pooled_stddev": d.pooled,
                    "proven": d.is_proven(),
                })),
                "published_percent": PUBLISHED[way],
            })
        })
        .collect();
    let classes: Vec<Value> = rows
        .iter()
        .map(|row| {
            let copies = |way: &Vec<Measured>| way.iter().map(|m| m.copies).collect::<Vec<_>>();
            json!({
                "size": row.class.size,
                "objs_per_zspage": row.class.objs,
                "pages_per_zspage": row.class.pages,
                "pages_freed": row.pages_freed(0),
                "copies": row.measured.each_ref().map(copies),
            })
        })
        .collect();
    json!({
        "seed": args.seed,
        "runs": args.runs,
        "objects": OBJECTS,
        "keep_percent": args.keep,
        "chain": args.chain,
        "configurations": configurations,
        "classes": classes,
    })
}

fn draw(args: &BenchZsmalloc, rows: &[Row]) -> Result<String, String> {
    let runs = f64::from(args.runs);
    let series: Vec<Series> = CONFIGURATIONS
        .iter()
        .enumerate()
        .map(|(way, configuration)| Series {
            name: configuration.name.to_owned(),
            points: rows
                .iter()
                .map(|row| (row.class.size as f64, row.copies(way) as f64 / runs))
                .collect(),
        })
        .collect();
    let title = format!(
        "Zspage compaction: {OBJECTS} objects, {} % kept, seed {}",
        args.keep, args.seed
    );
    plot::lines(&title, "class size, bytes", "objects copied", &series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_zsmalloc::class::DEFAULT_CHAIN;

    /// One class, each way twice: the same figures again, the same pages freed
    /// by each way, and the order that is published.
    #[test]
    fn the_ways_differ_in_copies_only() {
        let table = ClassTable::new(PAGE_SIZE, DEFAULT_CHAIN);
        let position = table.lookup(88).expect("a class");
        let case = Case {
            position,
            class: table.classes()[position],
            pattern: Sequence::named(&[1, 0, 96]),
            keep: 33,
            chain: DEFAULT_CHAIN,
        };
        let arena = ArenaMap::reserve(SLOTS).expect("address space");
        let all = || {
            let measured = CONFIGURATIONS.iter().map(|way| (way.measure)(arena, &case));
            measured.collect::<Result<Vec<_>, _>>().expect("sound")
        };
        let measured = all();
        assert_eq!(measured, all());
        assert!(
            measured
                .iter()
                .all(|m| m.pages_freed == measured[0].pages_freed)
        );
        let published = &measured[..4];
        assert!(
            published.is_sorted_by(|a, b| a.copies >= b.copies),
            "{measured:?}"
        );
        assert!(measured[3].copies < measured[0].copies);
    }

    /// The series ran with 140 classes that have several objects: chains of 10 pages.
    #[test]
    fn a_chain_of_ten_has_the_classes_of_the_series() {
        let several = |chain| {
            let table = ClassTable::new(PAGE_SIZE, chain);
            table
                .classes()
                .iter()
                .filter(|class| !class.is_huge())
                .count()
        };
        assert_eq!([4, 8, 10, 16].map(several), [68, 118, 140, 191]);
    }
}
