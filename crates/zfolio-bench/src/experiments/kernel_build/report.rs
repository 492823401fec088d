//! What is shown of the runs.

use super::plan::{Column, Measured, Plan};
use super::published::beside_published;
use crate::experiments::usemem::{COUNTERS, Row};
use crate::output::ministat::{explained, mark};
use crate::output::plot::{self, Series};
use crate::output::table::{Table, shown};
use crate::rig::{Ran, Rig, Side};
use serde_json::{Value, json};
use std::fmt::Write as _;
use zfolio_host::machine;

/// A figure of a run.
type Figure = fn(&Ran) -> Option<f64>;

/// Rows before the counters, and their digits.
#[allow(clippy::cast_precision_loss, reason = "figures for people")]
const ROWS: [(&str, Figure, usize); 5] = [
    ("real (s)", |ran| Some(ran.wall), 2),
    ("user (s)", |ran| Some(ran.user), 2),
    ("sys (s)", |ran| Some(ran.sys), 2),
    (
        "max resident of a process (MiB)",
        |ran| Some((ran.high_water >> 20) as f64),
        0,
    ),
    (
        "memory used (MiB)",
        |ran| ran.used().map(|used| (used >> 20) as f64),
        0,
    ),
];

pub(super) fn text(plan: &Plan, rig: &Rig, all: &[Measured]) -> String {
    let mut text = format!(
        "{}: {} MiB without a limit; every column may use {} MiB, pools included.\n{} run(s), in \
         turn; medians. Linux {}, {} processors, control groups of version {}.\n\
         Each build begins with a fresh copy, and its object files are those of the build without a \
         limit.\nuser and sys: of zfolio's threads too, not of the kernel's own (kswapd, zswap's). \
         Kernel counters are the whole machine's; - : not counted there.\n\n",
        plan.what(),
        plan.need >> 20,
        plan.total >> 20,
        plan.runs,
        machine::kernel_release(),
        machine::cpus(),
        rig.group_version(),
    );
    let done: Vec<&Measured> = all.iter().filter(|m| !m.runs.is_empty()).collect();
    let base = base(&done);
    let mut table = Table::new(
        ["row".to_owned()]
            .into_iter()
            .chain(done.iter().map(|m| m.column.name())),
    );
    for (name, figure, digits) in ROWS {
        let cells = done
            .iter()
            .map(|m| cell(m, base, |_, ran| figure(ran), digits));
        table.row([name.to_owned()].into_iter().chain(cells));
    }
    for row in COUNTERS {
        let cells = done
            .iter()
            .map(|m| cell(m, base, |column, ran| counter(row, ran, column), 0));
        let name = row.name(Some("folio")).unwrap_or_default();
        table.row([name].into_iter().chain(cells));
    }
    text.push_str(&table.text());
    if let Some(base) = base {
        text.push_str(&explained(&base.column.name()));
    }
    text.push_str(&beside_published(all));
    for why in all
        .iter()
        .filter_map(|m| Some((m.column.name(), m.failed.as_ref()?)))
    {
        let _ = writeln!(text, "{}: {}", why.0, why.1);
    }
    for why in &rig.left_out {
        let _ = writeln!(text, "\nLeft out: {why}.");
    }
    text
}

/// What the marks are against: zram with lz4, or the first that has a limit.
fn base<'a>(done: &[&'a Measured]) -> Option<&'a Measured> {
    let named = |m: &&&Measured| m.column.name() == "zram-lz4";
    let limited = |m: &&&Measured| m.column.side != Side::Native;
    let found = done
        .iter()
        .find(named)
        .or_else(|| done.iter().find(limited));
    found.copied()
}

/// The median of a column's figures, marked where it is within the spread of the base.
fn cell(
    measured: &Measured,
    base: Option<&Measured>,
    of: impl Fn(&Column, &Ran) -> Option<f64>,
    digits: usize,
) -> String {
    let figures = |m: &Measured| m.summary(|ran| of(&m.column, ran));
    let found = figures(measured);
    let reference = base.and_then(figures);
    let median = found.as_ref().map(|found| found.median);
    shown(median, digits) + mark(reference.as_ref(), found.as_ref())
}

fn counter(row: &Row, ran: &Ran, column: &Column) -> Option<f64> {
    row.of(ran, &column.side, column.size())
}

pub(super) fn to_json(plan: &Plan, rig: &Rig, all: &[Measured]) -> Value {
    let columns = all.iter().map(|m| {
        let rows = ROWS.iter().map(|(name, figure, _)| {
            let figures: Vec<_> = m.runs.iter().map(figure).collect();
            ((*name).to_owned(), json!(figures))
        });
        let counters = COUNTERS.iter().filter_map(|row| {
            let of = |ran| counter(row, ran, &m.column);
            let figures: Vec<_> = m.runs.iter().map(of).collect();
            Some((row.name(Some("folio"))?, json!(figures)))
        });
        json!({
            "name": m.column.name(),
            "limit": m.limit,
            "rows": rows.chain(counters).collect::<serde_json::Map<_, _>>(),
            "failed": m.failed,
        })
    });
    json!({
        "what": plan.what(),
        "kernel": machine::kernel_release(),
        "cpus": machine::cpus(),
        "load_average": machine::line_of("/proc/loadavg"),
        "cgroup_version": rig.group_version(),
        "jobs": plan.jobs,
        "faults": plan.faults,
        "need": plan.need,
        "total": plan.total,
        "runs": plan.runs,
        "left_out": rig.left_out,
        "columns": columns.collect::<Vec<_>>(),
    })
}

/// Time, by column.
pub(super) fn draw(all: &[Measured]) -> Result<String, String> {
    let mut series: Vec<Series> = Vec::new();
    for (name, figure, _) in &ROWS[..3] {
        let points = all.iter().enumerate().filter_map(|(at, m)| {
            let at = u32::try_from(at).ok()?;
            Some((f64::from(at), m.median(figure)?))
        });
        series.push(Series {
            name: (*name).to_owned(),
            points: points.collect(),
        });
    }
    let names: Vec<String> = all.iter().map(|m| m.column.name()).collect();
    plot::lines(&names.join(", "), "column, from 0", "s", &series)
}
