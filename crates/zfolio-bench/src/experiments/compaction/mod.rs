//! `zfolio bench compaction`: the five variants of the Linux series, and ours, on the
//! same arenas.
//!
//! Each cell asks for blocks of one order until as many were asked for as the free
//! memory is worth; bytes are copied and verified. Everything but the times is
//! determined by the seed.

use crate::args::BenchCompaction;
use crate::output::progress::Progress;
use crate::output::results::Results;
use grid::{BLOCKS, Experiment, FILLS, ORDERS, Row};
use measure::{Cell, VARIANTS};
use serde_json::{Value, json};
use std::process::ExitCode;
use workload::WORKLOADS;
use zfolio_host::exit::{Failure, Status};
use zfolio_mm::{Order, PAGE_SIZE};

mod arena;
mod grid;
mod measure;
mod plot;
mod summary;
mod table;
mod workload;

/// Runs the experiment and prints it.
///
/// # Errors
/// When a file cannot be written, or a page was damaged.
pub(crate) fn compaction(args: &BenchCompaction) -> Result<ExitCode, Failure> {
    let results = Results::open("compaction", &args.files)?;
    let experiment = Experiment {
        seed: args.seed,
        runs: args.runs,
        blocks: BLOCKS,
    };
    let rows = experiment.run();
    if let Some(row) = rows
        .iter()
        .find(|row| row.cells.iter().any(|c| c.damaged > 0))
    {
        return Err(Failure::new(
            Status::Internal,
            "bench compaction",
            format!("{} damaged pages of {}", row.variant, row.workload),
            "report this with the seed",
        ));
    }
    let text = table::tables(&experiment, &rows);
    let json = document(&experiment, &rows);
    results.finish(&text, &json, || plot::svg(&rows))?;
    Ok(ExitCode::SUCCESS)
}

impl Experiment {
    /// Every cell, in a fixed order.
    fn run(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut bytes = vec![0; self.blocks * Order::HUGE.bytes()];
        let total = WORKLOADS.len() * FILLS.len();
        let progress = Progress::new("compaction", total as u64);
        for (workload, fill) in WORKLOADS
            .iter()
            .flat_map(|workload| FILLS.map(|fill| (workload, fill)))
        {
            let first = rows.len();
            for order in ORDERS {
                rows.extend(VARIANTS.map(|variant| Row {
                    workload: workload.name,
                    fill,
                    order,
                    variant: variant.name,
                    cells: Vec::new(),
                }));
            }
            for run in 0..self.runs {
                let layout = workload.build(self.blocks, fill, self.seed.wrapping_add(run));
                let orders = ORDERS.iter().filter_map(|order| Order::new(*order));
                let cells = orders.flat_map(|order| VARIANTS.map(|variant| (order, variant)));
                for (row, (order, variant)) in rows[first..].iter_mut().zip(cells) {
                    let cell = (variant.measure)(layout.clone(), &mut bytes, order);
                    row.cells.push(cell);
                }
            }
            progress.step();
        }
        rows
    }
}

fn document(experiment: &Experiment, rows: &[Row]) -> Value {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let cells: Vec<Value> = row.cells.iter().map(cell_json).collect();
            json!({
                "workload": row.workload,
                "fill_percent": row.fill,
                "order": row.order,
                "variant": row.variant,
                "runs": cells,
            })
        })
        .collect();
    let workloads: Vec<Value> = WORKLOADS
        .iter()
        .map(|w| json!({ "name": w.name, "about": w.about }))
        .collect();
    json!({
        "seed": experiment.seed,
        "runs": experiment.runs,
        "arena_bytes": experiment.blocks * Order::HUGE.bytes(),
        "page_bytes": PAGE_SIZE,
        "workloads": workloads,
        "rows": rows,
    })
}

fn cell_json(cell: &Cell) -> Value {
    json!({
        "blocks_wanted": cell.wanted,
        "blocks_got": cell.got,
        "blocks_made": cell.made,
        "pages_copied": cell.copied,
        "folios_split": cell.split,
        "ended_success": cell.ends.success,
        "ended_scanners_met": cell.ends.met,
        "ended_no_free_page": cell.ends.no_free_page,
        "of_these_larger_free": cell.ends.early,
        "cpu_ns": u64::try_from(cell.took.as_nanos()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests;
