//! The tables: totals by fill level and order, and each workload against the base.

use super::grid::{Experiment, FILLS, ORDERS, Row};
use super::measure::{Cell, VARIANTS};
use super::summary::{Metric, Summary, total};
use super::workload::WORKLOADS;
use std::fmt::Write;

/// Width of a column.
const COLUMN: usize = 16;

/// What the series published of vm-scalability's throughput, % over its base: of what moves
/// in compaction, the variants after the base in their order.
const PUBLISHED: [(&str, [f64; 4]); 9] = [
    ("mmap-xread-seq-mt", [16.1, 5.0, 6.7, 5.5]),
    ("mmap-pread-seq", [-1.0, -0.7, -0.3, -0.4]),
    ("lru-file-readtwice", [41.5, 31.6, 33.1, 30.7]),
    ("lru-file-mmap-read", [43.1, 26.0, 23.2, 22.8]),
    ("anon-r-rand", [-0.2, -0.5, 0.3, 1.0]),
    ("anon-w-rand", [0.3, 0.0, 2.3, 1.6]),
    ("anon-cow-rand", [1.2, 0.5, 2.6, 2.6]),
    ("msync", [78.7, 78.7, 77.2, 78.0]),
    ("msync-mt", [5.3, 5.3, 6.3, 5.3]),
];

/// Everything, as text.
pub(super) fn tables(experiment: &Experiment, rows: &[Row]) -> String {
    let mut text = format!(
        "Folio compaction: {} MiB of frames, {} workloads, {} runs, seed {}\n",
        experiment.blocks * 2,
        WORKLOADS.len(),
        experiment.runs,
        experiment.seed
    );
    for metric in Metric::ALL {
        let _ = writeln!(text, "\nAll workloads: {}", metric.title());
        head(&mut text, "order / fill");
        for order in ORDERS {
            for fill in FILLS {
                let _ = write!(text, "{:<20}", format!("{order} / {fill} %"));
                for variant in &VARIANTS {
                    let sum = total(rows, fill, order, variant.name);
                    cell(&mut text, metric.of(&sum).map(|x| format!("{x:.1}")));
                }
                text.push('\n');
            }
        }
    }
    ends(&mut text, rows);
    for (fill, metric) in FILLS
        .iter()
        .flat_map(|fill| Metric::ALL.map(|metric| (*fill, metric)))
    {
        against_base(&mut text, rows, fill, metric);
    }
    published(&mut text);
    text
}

/// The series' own figures. They are of a benchmark that uses memory while compaction runs,
/// ours of compaction itself, so only their order can be compared.
fn published(text: &mut String) {
    let _ = writeln!(
        text,
        "\nPublished (v1): throughput of vm-scalability, 8 processors, 16 GiB; % over base"
    );
    head(text, "workload");
    for (workload, figures) in PUBLISHED {
        let _ = write!(text, "{workload:<20}");
        cell(text, Some("0.0".into()));
        for figure in figures {
            cell(text, Some(format!("{figure:+.1}")));
        }
        cell(text, None);
        text.push('\n');
    }
}

fn head(text: &mut String, first: &str) {
    let _ = write!(text, "{first:<20}");
    for variant in &VARIANTS {
        let _ = write!(text, "{:>COLUMN$}", variant.name);
    }
    text.push('\n');
}

/// A figure, or a dash where there is none.
fn cell(text: &mut String, figure: Option<String>) {
    let figure = figure.unwrap_or_else(|| "-".into());
    let _ = write!(text, "{figure:>COLUMN$}");
}

/// A name and how it is counted.
type Kind = (&'static str, fn(&Cell) -> u64);

/// How runs ended, at all fill levels, for the largest order.
fn ends(text: &mut String, rows: &[Row]) {
    let _ = writeln!(text, "\nAll workloads and fill levels: how runs ended");
    head(text, "order");
    for order in ORDERS {
        let kinds: [Kind; 5] = [
            ("success", |c| c.ends.success),
            ("scanners met", |c| c.ends.met),
            ("no free page", |c| c.ends.no_free_page),
            ("with larger free", |c| c.ends.early),
            ("folios split", |c| c.split),
        ];
        for (name, of) in kinds {
            let _ = write!(text, "{:<20}", format!("{order} {name}"));
            for variant in &VARIANTS {
                let sum: u64 = FILLS
                    .iter()
                    .map(|fill| of(&total(rows, *fill, order, variant.name)))
                    .sum();
                cell(text, Some(sum.to_string()));
            }
            text.push('\n');
        }
    }
}

/// The form of the series' own table: the base's figure, then each variant's change
/// of it in percent; +- is the standard deviation in percent of the mean.
fn against_base(text: &mut String, rows: &[Row], fill: usize, metric: Metric) {
    let _ = writeln!(
        text,
        "\nOrder 9, {fill} % full: {}; change against base (+- %stddev)",
        metric.title()
    );
    head(text, "workload");
    for workload in WORKLOADS {
        let summary = |variant: &str| {
            let row = rows.iter().find(|row| {
                (row.workload, row.fill, row.order, row.variant)
                    == (workload.name, fill, 9, variant)
            })?;
            Summary::of_row(row, metric)
        };
        let _ = write!(text, "{:<20}", workload.name);
        let base = summary(VARIANTS[0].name);
        for (nth, variant) in VARIANTS.iter().enumerate() {
            let shown = summary(variant.name).map(|own| {
                let figure = match base {
                    _ if nth == 0 => format!("{:.1}", own.mean),
                    Some(base) if base.mean > 0.0 => {
                        format!("{:+.1}%", 100.0 * (own.mean / base.mean - 1.0))
                    }
                    // The base has nothing to compare with.
                    _ => format!("={:.1}", own.mean),
                };
                format!("{figure} +-{:.0}", own.deviation)
            });
            cell(text, shown);
        }
        text.push('\n');
    }
}
