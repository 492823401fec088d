//! `zfolio bench pool`: the same pages in our zsmalloc pool and in the kernel's.
//!
//! The kernel's is reached through a zram device: a page written there is
//! compressed and stored, a discarded one freed, and `compact` compacts. Both
//! sides compress with lz4 (the kernel's copy of it and ours may differ by
//! some bytes), keep what does not compress as it is, and are asked for the
//! same pages in the same order. What is compared is the memory of zspages
//! (`mem_used_total` there): tables of handles and entries count on neither side.

mod interface;
mod kernel;
mod ours;

use crate::args::BenchPool;
use crate::corpus::Corpus;
use crate::keeper::Keeper;
use crate::output::ministat::Summary;
use crate::output::plot::{self, Series};
use crate::output::progress::Progress;
use crate::output::results::Results;
use crate::output::table::Table;
use crate::sequence::Sequence;
use interface::{Pool, State};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;
use zfolio_host::exit::{Failure, Status};
use zfolio_mm::PAGE_SIZE;
use zfolio_zsmalloc::ZsPool;
use zfolio_zsmalloc::class::DEFAULT_CHAIN;

/// The stages of a run: percent of the pages freed so far, compacted or not.
const STAGES: [(u32, bool); 5] = [(0, false), (50, false), (50, true), (75, false), (75, true)];

/// A pool's states at the stages, a run each.
struct Side {
    name: String,
    runs: Vec<[State; STAGES.len()]>,
}

/// Our pools: as `zfolio run` has it, and with zspages laid out as the kernel's.
const OURS: [(&str, Made); 2] = [
    ("zfolio", ZsPool::new),
    ("zfolio, the kernel's layout", || {
        ZsPool::with_chain(DEFAULT_CHAIN)
    }),
];

/// Makes an empty pool.
type Made = fn() -> ZsPool;

/// What was measured, or why the kernel was not.
struct Outcome {
    sides: Vec<Side>,
    left_out: Option<String>,
}

/// Runs the experiment.
///
/// # Errors
/// When there are no pages, a file cannot be written, or a page was damaged.
pub(crate) fn pool(args: &BenchPool) -> Result<ExitCode, Failure> {
    let results = Results::open("pool", &args.files)?;
    let corpus = Corpus::gather(args.corpus.as_deref(), args.pages, args.seed).map_err(|why| {
        Failure::new(
            Status::CannotCreate,
            "bench pool: no pages",
            why,
            "name a file of pages by --corpus",
        )
    })?;
    let outcome = run(args, &corpus).map_err(|why| {
        Failure::new(
            Status::Internal,
            "bench pool",
            why,
            "run it again with the same --seed and report this",
        )
    })?;
    let text = report(args, &corpus, &outcome);
    results.finish(&text, &to_json(args, &corpus, &outcome), || draw(&outcome))?;
    Ok(ExitCode::SUCCESS)
}

fn run(args: &BenchPool, corpus: &Corpus) -> Result<Outcome, String> {
    let mut sides: Vec<Side> = OURS
        .iter()
        .map(|(name, _)| Side {
            name: (*name).to_owned(),
            runs: Vec::new(),
        })
        .collect();
    let beside = if args.no_kernel {
        Err("--no-kernel was given".to_owned())
    } else {
        Keeper::start().and_then(|mut keeper| {
            let offered = keeper.zram_algorithms()?;
            if offered.iter().any(|name| name == kernel::ALGORITHM) {
                Ok(keeper)
            } else {
                Err(format!("this kernel's zram has no {}", kernel::ALGORITHM))
            }
        })
    };
    let (mut keeper, left_out) = match beside {
        Ok(keeper) => (Some(keeper), None),
        Err(why) => (None, Some(why)),
    };
    if keeper.is_some() {
        sides.push(Side {
            name: "kernel (zram)".to_owned(),
            runs: Vec::new(),
        });
    }
    let steps = sides.len() as u64 * u64::from(args.runs);
    let progress = Progress::new("storing, freeing, compacting", steps);
    for run in 0..args.runs {
        let order = order_of_freeing(corpus.pages.len(), args.seed, run);
        for ((_, pool), side) in OURS.iter().zip(&mut sides) {
            let mut ours = ours::Ours::new(pool(), corpus.pages.len())?;
            side.runs.push(measure(&mut ours, corpus, &order)?);
            progress.step();
        }
        if let Some(keeper) = &mut keeper {
            let mut kernel = kernel::Kernel::new(keeper, corpus.pages.len())?;
            let measured = measure(&mut kernel, corpus, &order);
            kernel.end(keeper)?;
            sides[OURS.len()].runs.push(measured?);
            progress.step();
        }
    }
    Ok(Outcome { sides, left_out })
}

/// The pages in the order in which they are freed: a shuffle (Fisher and Yates).
fn order_of_freeing(pages: usize, seed: u64, run: u32) -> Vec<usize> {
    let mut random = Sequence::named(&[seed, u64::from(run), pages as u64]);
    let mut order: Vec<usize> = (0..pages).collect();
    for last in (1..pages).rev() {
        #[allow(clippy::cast_possible_truncation, reason = "below `last`, a usize")]
        let other = (random.next() % (last as u64 + 1)) as usize;
        order.swap(last, other);
    }
    order
}

/// One run over all stages, with every page left checked in the end.
fn measure(
    pool: &mut impl Pool,
    corpus: &Corpus,
    order: &[usize],
) -> Result<[State; STAGES.len()], String> {
    for (at, page) in corpus.pages.iter().enumerate() {
        pool.store(at, page)?;
    }
    let mut states = [State::default(); STAGES.len()];
    let mut freed = 0;
    for ((percent, compact), state) in STAGES.iter().zip(&mut states) {
        let until = order.len() * *percent as usize / 100;
        for at in &order[freed..until] {
            pool.free(*at)?;
        }
        freed = until;
        if *compact {
            pool.compact()?;
        }
        *state = pool.state()?;
    }
    for at in &order[freed..] {
        if !pool.is_intact(*at, &corpus.pages[*at])? {
            return Err(format!("page {at} was damaged"));
        }
    }
    Ok(states)
}

fn stage_name((percent, compacted): (u32, bool)) -> String {
    match (percent, compacted) {
        (0, _) => "all stored".to_owned(),
        (percent, false) => format!("{percent} % freed"),
        (percent, true) => format!("{percent} % freed, compacted"),
    }
}

impl Side {
    /// The median over the runs of a figure at a stage.
    fn median(&self, stage: usize, figure: impl Fn(&State) -> u64) -> f64 {
        let all: Vec<f64> = self
            .runs
            .iter()
            .map(|run| figure(&run[stage]) as f64)
            .collect();
        Summary::of(&all).map_or(0.0, |summary| summary.median)
    }
}

fn kib(bytes: f64) -> String {
    format!("{:.0}", bytes / 1024.0)
}

fn report(args: &BenchPool, corpus: &Corpus, outcome: &Outcome) -> String {
    let mut text = format!(
        "The same pages in both pools, lz4, {} run(s) from seed {}; medians.\n{}\n",
        args.runs,
        args.seed,
        corpus.told()
    );
    text.push_str(
        "used: memory of zspages, KiB; packed: compressed bytes, KiB; overhead: used over packed.\n\
         change: our memory used against the kernel's, negative is less.\n\n",
    );
    let mut table = Table::new([
        "stage",
        "pool",
        "packed",
        "used",
        "overhead",
        "objects copied",
        "change",
    ]);
    for (stage, which) in STAGES.iter().enumerate() {
        for side in &outcome.sides {
            let (packed, used) = (
                side.median(stage, |s| s.compressed),
                side.median(stage, |s| s.used),
            );
            let moved = side.runs[0][stage].moved;
            let kernel = outcome.sides.get(OURS.len());
            let kernel = kernel.map(|kernel| kernel.median(stage, |s| s.used));
            // The kernel does not say how often it copies: only ours do.
            let change = kernel.filter(|_| moved.is_some());
            table.row([
                stage_name(*which),
                side.name.clone(),
                kib(packed),
                kib(used),
                format!("{:.3}", used / packed.max(1.0)),
                moved.map_or("-".to_owned(), |_| {
                    format!("{:.0}", side.median(stage, |s| s.moved.unwrap_or(0)))
                }),
                change.map_or(String::new(), |kernel| {
                    format!("{:+.2} %", (used / kernel.max(1.0) - 1.0) * 100.0)
                }),
            ]);
        }
    }
    text.push_str(&table.text());
    if let Some(why) = &outcome.left_out {
        let _ = writeln!(text, "\nOur side alone: {why}.");
    }
    text
}

fn to_json(args: &BenchPool, corpus: &Corpus, outcome: &Outcome) -> Value {
    let sides: Vec<Value> = outcome
        .sides
        .iter()
        .map(|side| {
            let runs = side.runs.iter().map(|run| {
                let stages = STAGES.iter().zip(run).map(|((percent, compacted), state)| {
                    json!({
                        "freed_percent": percent,
                        "compacted": compacted,
                        "compr_data_size": state.compressed,
                        "mem_used_total": state.used,
                        "objs_moved": state.moved,
                    })
                });
                stages.collect::<Vec<_>>()
            });
            json!({ "name": side.name, "runs": runs.collect::<Vec<_>>() })
        })
        .collect();
    json!({
        "seed": args.seed,
        "runs": args.runs,
        "codec": kernel::ALGORITHM,
        "pages": corpus.pages.len(),
        "page_bytes": PAGE_SIZE,
        "sources": corpus.sources.iter().map(|(name, pages)| json!({ "name": name, "pages": pages })).collect::<Vec<_>>(),
        "sides": sides,
        "left_out": outcome.left_out,
    })
}

fn draw(outcome: &Outcome) -> Result<String, String> {
    let series: Vec<Series> = outcome
        .sides
        .iter()
        .map(|side| Series {
            name: side.name.clone(),
            points: (0..STAGES.len())
                .map(|stage| (stage as f64, side.median(stage, |s| s.used) / 1_048_576.0))
                .collect(),
        })
        .collect();
    plot::lines(
        "Memory used for the same pages: stored, 50 % freed, compacted, 75 % freed, compacted",
        "stage",
        "MiB",
        &series,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Page;

    /// Random pages of all degrees of compressibility.
    fn corpus(pages: usize) -> Corpus {
        let mut random = Sequence(5);
        let page = |_| {
            let mut page = Page([0; PAGE_SIZE]);
            #[allow(clippy::cast_possible_truncation, reason = "below a page")]
            let noise = (random.next() % (PAGE_SIZE as u64 / 8)) as usize;
            for chunk in page.0.chunks_exact_mut(8).take(noise + 1) {
                chunk.copy_from_slice(&random.next().to_le_bytes());
            }
            page
        };
        Corpus {
            pages: (0..pages).map(page).collect(),
            sources: vec![("made up".to_owned(), pages)],
        }
    }

    #[test]
    fn our_pool_shrinks_and_keeps_every_page() {
        let corpus = corpus(600);
        let order = order_of_freeing(600, 1, 0);
        let mut pool = ours::Ours::new(ZsPool::new(), 600).expect("an arena");
        let states = measure(&mut pool, &corpus, &order).expect("sound");
        assert!(states[0].used >= states[0].compressed);
        assert!(states[1].compressed < states[0].compressed);
        assert_eq!(states[1].compressed, states[2].compressed);
        assert!(states[2].used < states[1].used, "{states:?}");
        assert!(states[4].used <= states[3].used, "{states:?}");
        assert!(states[4].moved > Some(0));
    }

    #[test]
    fn freeing_is_a_shuffle_that_follows_from_the_seed() {
        let order = order_of_freeing(100, 3, 1);
        assert_eq!(order, order_of_freeing(100, 3, 1));
        assert_ne!(order, order_of_freeing(100, 3, 2));
        let mut sorted = order;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..100));
    }

    #[test]
    fn without_a_kernel_our_side_stands_alone() {
        let corpus = corpus(40);
        let args = BenchPool {
            seed: 1,
            runs: 2,
            pages: 40,
            corpus: None,
            no_kernel: true,
            files: crate::args::BenchFiles {
                json: None,
                plot: None,
            },
        };
        let outcome = run(&args, &corpus).expect("sound");
        let text = report(&args, &corpus, &outcome);
        assert!(
            text.contains("Our side alone: --no-kernel was given."),
            "{text}"
        );
        assert_eq!(
            to_json(&args, &corpus, &outcome)["sides"][0]["runs"][1][4]["freed_percent"],
            75
        );
        assert!(draw(&outcome).is_ok());
    }
}
