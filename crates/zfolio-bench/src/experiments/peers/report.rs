//! How the rows are shown.

use super::plan::{Compared, Plan, Row};
use super::workload::more_is_better;
use crate::output::ministat::Summary;
use crate::output::plot::{self, Series};
use crate::output::table::Table;
use serde_json::{Value, json};
use std::fmt::Write as _;
use zfolio_host::machine;

/// What the others are compared with, where it is there.
const REFERENCE: &str = "zram-lz4";

pub(super) struct Report<'a> {
    pub(super) plan: &'a Plan,
    pub(super) left_out: &'a [String],
    pub(super) group_version: u8,
    pub(super) all: &'a [Compared],
}

impl Report<'_> {
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{}, {} round(s), rows in turn; {} processors, Linux {}, \
             control groups of version {}.\n\
             used: most memory charged and the kernel's pool outside it. Figures are medians, \
             spread is least..most.\n\
             x: times as fast as {REFERENCE} in the same round (native where that is not); \
             above 1 is faster, whatever the unit.\n",
            self.plan.what(),
            self.plan.runs,
            machine::cpus(),
            machine::kernel_release(),
            match self.group_version {
                0 => "no".to_owned(),
                version => version.to_string(),
            },
        );
        for compared in self.all {
            text.push('\n');
            text.push_str(&compared.text());
        }
        for why in self.left_out {
            let _ = writeln!(text, "\nLeft out: {why}.");
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "cgroup_version": self.group_version,
            "size": self.plan.own.is_empty().then_some(self.plan.size),
            "runs": self.plan.runs,
            "seed": self.plan.seed,
            "faults": self.plan.faults,
            "left_out": self.left_out,
            "workloads": self.all.iter().map(Compared::json).collect::<Vec<_>>(),
        })
    }

    /// A line a side: how fast it is, workload by workload.
    pub(super) fn plot(&self) -> Result<String, String> {
        let mut series: Vec<Series> = Vec::new();
        let mut names = Vec::new();
        for compared in self.all {
            let reference = compared.reference();
            for (phase, unit) in compared.shown() {
                let at = names.len() as f64;
                names.push(phase.clone());
                for row in &compared.rows {
                    let Some(ratio) = ratio(row, reference, &phase, &unit) else {
                        continue;
                    };
                    let point = (at, ratio.median);
                    let name = row.side.name();
                    match series.iter_mut().find(|line| line.name == name) {
                        Some(line) => line.points.push(point),
                        None => series.push(Series {
                            name,
                            points: vec![point],
                        }),
                    }
                }
            }
        }
        plot::lines(
            &format!("Times as fast as {REFERENCE}: {}", names.join(", ")),
            "phase",
            "times as fast",
            &series,
        )
    }
}

impl Compared {
    /// The row the others are compared with.
    fn reference(&self) -> Option<&Row> {
        let named = |name: &str| {
            let mut rows = self.rows.iter();
            rows.find(|row| row.side.name() == name && !row.figures.is_empty())
        };
        named(REFERENCE).or_else(|| named("native"))
    }

    /// The phases that are the point of it, with their units.
    fn shown(&self) -> Vec<(String, String)> {
        let of = self.workload.phases;
        let shown = |(phase, _): &&(String, String)| of.is_empty() || of.contains(&phase.as_str());
        self.units.iter().filter(shown).cloned().collect()
    }

    fn text(&self) -> String {
        let name = self.workload.name;
        if let Some(why) = &self.left_out {
            return format!("{name}: left out: {why}\n");
        }
        let mib = |bytes: u64| bytes >> 20;
        let mut text = format!(
            "{name}: needs {} MiB, each row may use {} MiB\n",
            mib(self.need),
            mib(self.total)
        );
        let shown = self.shown();
        let mut columns: Vec<String> = ["row", "limit", "pool", "used"].map(String::from).into();
        for (phase, unit) in &shown {
            columns.extend([
                format!("{phase} {unit}"),
                "spread".into(),
                "x".into(),
                "spread".into(),
            ]);
        }
        let mut table = Table::new(columns);
        for row in self.rows.iter().filter(|row| !row.figures.is_empty()) {
            let most = |all: &[u64]| all.iter().max().map_or("-".into(), |n| mib(*n).to_string());
            let mut cells = vec![
                row.side.name(),
                row.limit.map_or("-".into(), |limit| mib(limit).to_string()),
                most(&row.pool),
                most(&row.used),
            ];
            for (phase, unit) in &shown {
                let figures = row.figures.get(phase).and_then(|all| Summary::of(all));
                let ratio = ratio(row, self.reference(), phase, unit);
                for (summary, digits) in [(figures, 3), (ratio, 2)] {
                    cells.extend(match summary {
                        None => ["-".to_owned(), "-".to_owned()],
                        Some(s) => [
                            rounded(s.median, digits),
                            format!("{}..{}", rounded(s.min, digits), rounded(s.max, digits)),
                        ],
                    });
                }
            }
            table.row(cells);
        }
        text.push_str(&table.text());
        for row in &self.rows {
            if let Some(why) = &row.failed {
                let _ = writeln!(text, "{}: {why}", row.side.name());
            }
        }
        text
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let shown = self.units.iter().map(|(phase, unit)| {
                let ratio = ratio(row, self.reference(), phase, unit);
                json!({
                    "phase": phase,
                    "unit": unit,
                    "figures": row.figures.get(phase),
                    "times_as_fast": ratio.map(|r| json!({ "median": r.median, "min": r.min, "max": r.max })),
                })
            });
            json!({
                "name": row.side.name(),
                "limit": row.limit,
                "used": row.used,
                "pool_outside": row.pool,
                "elapsed_s": row.wall,
                "sys_s": row.sys,
                "phases": shown.collect::<Vec<_>>(),
                "failed": row.failed,
            })
        });
        json!({
            "name": self.workload.name,
            "need": self.need,
            "total": self.total,
            "reference": self.reference().map(|row| row.side.name()),
            "rows": rows.collect::<Vec<_>>(),
            "left_out": self.left_out,
        })
    }
}

/// How many times as fast `row` is as `reference`, over the rounds both have.
fn ratio(row: &Row, reference: Option<&Row>, phase: &str, unit: &str) -> Option<Summary> {
    let (own, other) = (row.figures.get(phase)?, reference?.figures.get(phase)?);
    let ratios = own.iter().zip(other).map(|(own, other)| {
        if more_is_better(unit) {
            own / other
        } else {
            other / own
        }
    });
    Summary::of(&ratios.collect::<Vec<f64>>())
}

/// With so many figures that count, but whole numbers in full.
fn rounded(value: f64, figures: i32) -> String {
    let whole = if value.abs() < 1.0 {
        0.0
    } else {
        value.abs().log10().floor()
    };
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 3"
    )]
    let decimals = (f64::from(figures) - 1.0 - whole).max(0.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::super::workload::WORKLOADS;
    use super::*;
    use crate::rig::Side;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn row(side: Side, phase: &str, figures: &[f64]) -> Row {
        Row {
            side,
            limit: Some(100 << 20),
            figures: BTreeMap::from([(phase.to_owned(), figures.to_vec())]),
            used: vec![120 << 20],
            pool: vec![20 << 20],
            wall: vec![1.0],
            sys: vec![0.5],
            failed: None,
            broken: false,
        }
    }

    #[test]
    fn faster_is_above_one_whatever_the_unit() {
        let zram = || Side::Zram("lz4".to_owned());
        let (run, base) = (
            row(Side::Run, "p", &[2.0, 4.0]),
            row(zram(), "p", &[1.0, 1.0]),
        );
        let more = ratio(&run, Some(&base), "p", "MB/s").expect("figures");
        assert_eq!((more.min, more.max), (2.0, 4.0));
        let less = ratio(&run, Some(&base), "p", "us").expect("figures");
        assert_eq!((less.min, less.max), (0.25, 0.5));
        assert_eq!(ratio(&run, None, "p", "us"), None);
        assert_eq!(ratio(&run, Some(&base), "q", "us"), None);
    }

    #[test]
    fn figures_that_count() {
        for (value, figures, text) in [
            (1234.56, 3, "1235"),
            (123.4, 3, "123"),
            (12.34, 3, "12.3"),
            (1.234, 2, "1.2"),
            (0.123, 2, "0.1"),
        ] {
            assert_eq!(rounded(value, figures), text);
        }
    }

    #[test]
    fn every_form_has_every_row() {
        let plan = Plan {
            size: 1 << 30,
            share: None,
            runs: 2,
            seed: 1,
            timeout: Duration::from_secs(1),
            workloads: Vec::new(),
            own: Vec::new(),
            only: Vec::new(),
            faults: "auto".to_owned(),
            quick: false,
        };
        let named = |name: &str| WORKLOADS.iter().find(|of| of.name == name);
        let mut slow = row(Side::SwapFile, "fill", &[]);
        slow.figures.clear();
        slow.failed = Some("it was ended after 1 s".to_owned());
        let all = [
            Compared {
                workload: named("fill").expect("one of them"),
                need: 200 << 20,
                total: 120 << 20,
                units: vec![("fill".to_owned(), "MB/s".to_owned())],
                rows: vec![
                    row(Side::Run, "fill", &[300.0, 310.0]),
                    row(Side::Zram("lz4".to_owned()), "fill", &[200.0, 200.0]),
                    slow,
                ],
                left_out: None,
            },
            Compared {
                workload: named("redis").expect("one of them"),
                need: 0,
                total: 0,
                units: Vec::new(),
                rows: Vec::new(),
                left_out: Some("redis-server is not installed".to_owned()),
            },
        ];
        let report = Report {
            plan: &plan,
            left_out: &["zswap: none".to_owned()],
            group_version: 1,
            all: &all,
        };
        let text = report.text();
        for part in [
            "run",
            "zram-lz4",
            "1.5",
            "file: it was ended after 1 s",
            "redis: left out: redis-server is not installed",
            "Left out: zswap: none.",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let json = report.json();
        assert_eq!(
            json["workloads"][0]["rows"][2]["failed"],
            "it was ended after 1 s"
        );
        assert_eq!(json["workloads"][0]["reference"], "zram-lz4");
        assert!(report.plot().expect("drawn").contains("zram-lz4"));
    }
}
