//! What is shown of the runs.

use super::plan::{Compared, Measured, Plan};
use super::published::{against_split, change, percent};
use super::rows::ROWS;
use super::store;
use crate::output::ministat::{explained, mark};
use crate::output::plot::{self, Series};
use crate::output::table::Table;
use crate::rig::{Ran, Rig};
use serde_json::{Value, json};
use std::fmt::Write as _;
use zfolio_host::machine;
use zfolio_host::size::short;

/// What the changes are against: zram with lz4, or the first.
fn base(compared: &Compared) -> Option<&Measured> {
    let done = || compared.columns.iter().filter(|m| !m.runs.is_empty());
    done()
        .find(|measured| measured.column.name() == "zram-lz4")
        .or_else(|| done().next())
}

pub(super) fn text(plan: &Plan, rig: &Rig, all: &[Compared], stored: &store::Stored) -> String {
    let mut text = format!(
        "usemem --init-time -w -O -b 1 -s 1 -n {} {}: all processes together may keep {} MiB of {}, \
         pools included.\n{} run(s), in turn; medians. Linux {}, {} processors, control groups of \
         version {}.\n\
         Sign: a change is the column less the one named, in % of that; + is more of the row, which is \
         better for throughput and worse for times.\n\
         run-CODEC compresses in batches, run-CODEC-engines on {} threads besides; run-CODEC-split \
         has split folios, huge pages too, to pages before: case 1 of the series.\n\
         Kernel counters are the whole machine's; - : not counted there.\n",
        plan.processes,
        short(plan.size),
        plan.total() >> 20,
        plan.need() >> 20,
        plan.runs,
        machine::kernel_release(),
        machine::cpus(),
        rig.group_version(),
        machine::cpus().min(16),
    );
    if let Some(series) = plan.series {
        let _ = writeln!(text, "Columns and options of series {}.", series.name());
    }
    if let Some(cluster) = plan.page_cluster {
        let _ = writeln!(text, "Read-ahead: page-cluster {cluster} in all columns.");
    }
    for compared in all {
        let _ = writeln!(text, "\n{} folios", compared.folio.option);
        text.push_str(&table(compared));
        for measured in &compared.columns {
            if let Some(why) = &measured.failed {
                let _ = writeln!(text, "{}: {why}", measured.column.name());
            }
        }
    }
    text.push_str(&against_published(all));
    text.push_str(&against_split(all));
    text.push_str(&stored.text());
    for why in &rig.left_out {
        let _ = writeln!(text, "\nLeft out: {why}.");
    }
    text
}

fn table(compared: &Compared) -> String {
    let done: Vec<&Measured> = compared
        .columns
        .iter()
        .filter(|measured| !measured.runs.is_empty())
        .collect();
    let base = base(compared);
    let names = done.iter().map(|measured| measured.column.name());
    let mut table = Table::new(["row".to_owned()].into_iter().chain(names));
    for row in &ROWS {
        let Some(name) = row.name(compared.folio.kernel) else {
            continue;
        };
        let cells = done.iter().map(|measured| {
            let Some(found) = measured.summary(row, compared.folio) else {
                return "-".to_owned();
            };
            let reference = base.and_then(|base| base.summary(row, compared.folio));
            row.shown(found.median) + mark(reference.as_ref(), Some(&found))
        });
        table.row([name].into_iter().chain(cells));
    }
    let mib = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |n| (n >> 20).to_string());
    for (name, of) in [
        (
            "limit (MiB)",
            (|m: &Measured| Some(m.limit)) as fn(&Measured) -> _,
        ),
        ("memory used (MiB)", |m| {
            m.runs.iter().filter_map(Ran::used).max()
        }),
    ] {
        let cells = done.iter().map(|measured| mib(of(measured)));
        table.row([name.to_owned()].into_iter().chain(cells));
    }
    if let Some(base) = base {
        let throughput = |m: &Measured| m.median(&ROWS[0], compared.folio);
        let cells = done.iter().map(|measured| {
            let of = |m: &Measured| m.summary(&ROWS[0], compared.folio);
            let mark = mark(of(base).as_ref(), of(measured).as_ref());
            percent(change(throughput(measured), throughput(base))) + mark
        });
        let name = format!("throughput against {}", base.column.name());
        table.row([name].into_iter().chain(cells));
    }
    table.text() + &base.map_or(String::new(), |base| explained(&base.column.name()))
}

/// Larger folios against pages, beside what the series found for zswap storing
/// them whole ("after" of its v8; pages: the same kernel).
fn against_published(all: &[Compared]) -> String {
    const PUBLISHED: [(&str, &str, f64); 2] = [("64K", "zstd", 29.4), ("2M", "zstd", 34.2)];
    let throughput = |option: &str, column: &str| {
        let compared = all
            .iter()
            .find(|compared| compared.folio.option == option)?;
        let measured = compared
            .columns
            .iter()
            .find(|m| m.column.name() == column)?;
        measured.median(&ROWS[0], compared.folio)
    };
    let mut table = Table::new(["throughput against 4K folios", "here", "published, zswap"]);
    let mut rows = 0;
    for folio in ["64K", "2M"] {
        let columns = all.first().map_or(&[][..], |first| &first.columns);
        for column in columns {
            let name = column.column.name();
            if let Some(here) = change(throughput(folio, &name), throughput("4K", &name)) {
                let published = PUBLISHED
                    .iter()
                    .find(|(size, codec, _)| *size == folio && column.column.codec == Some(codec));
                table.row([
                    format!("{folio}, {name}"),
                    format!("{here:+.1} %"),
                    published.map_or("-".to_owned(), |(.., found)| format!("{found:+.1} %")),
                ]);
                rows += 1;
            }
        }
    }
    if rows > 0 {
        format!("\n{}", table.text())
    } else {
        String::new()
    }
}

pub(super) fn to_json(plan: &Plan, rig: &Rig, all: &[Compared], stored: &store::Stored) -> Value {
    let folios = all.iter().map(|compared| {
        let columns = compared.columns.iter().map(|measured| {
            let rows = ROWS.iter().filter_map(|row| {
                let name = row.name(compared.folio.kernel)?;
                let figures = measured
                    .runs
                    .iter()
                    .map(|ran| row.of(ran, &measured.column.side, compared.folio.kernel));
                Some((name, json!(figures.collect::<Vec<_>>())))
            });
            json!({
                "name": measured.column.name(),
                "limit": measured.limit,
                "used": measured.runs.iter().map(Ran::used).collect::<Vec<_>>(),
                "pool_outside": measured.runs.iter().map(|ran| ran.pool).collect::<Vec<_>>(),
                "rows": rows.collect::<serde_json::Map<_, _>>(),
                "failed": measured.failed,
            })
        });
        json!({
            "folio": compared.folio.option,
            "columns": columns.collect::<Vec<_>>(),
        })
    });
    json!({
        "cgroup_version": rig.group_version(),
        "processes": plan.processes,
        "size": plan.size,
        "total": plan.total(),
        "runs": plan.runs,
        "page_cluster": plan.page_cluster,
        "series": plan.series.map(crate::args::KernelSeries::name),
        "left_out": rig.left_out,
        "folios": folios.collect::<Vec<_>>(),
        "store": stored.json(),
    })
}

pub(super) fn draw(all: &[Compared]) -> Result<String, String> {
    let mut series: Vec<Series> = Vec::new();
    for compared in all {
        for measured in &compared.columns {
            let Some(figure) = measured.median(&ROWS[0], compared.folio) else {
                continue;
            };
            let point = (f64::from(compared.folio.order.get()), figure / 1024.0);
            let name = measured.column.name();
            match series.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => series.push(Series {
                    name,
                    points: vec![point],
                }),
            }
        }
    }
    plot::lines(
        "usemem: throughput of all processes in half of their memory",
        "order of the folios",
        "MiB/s",
        &series,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::usemem::plan::{Column, FOLIOS, How};
    use crate::rig::Side;

    fn measured(side: Side, codec: Option<&'static str>, lines: &str) -> Measured {
        let ran = Ran {
            stdout: lines.to_owned(),
            wall: 2.0,
            ..Ran::default()
        };
        Measured {
            column: Column {
                side,
                codec,
                how: How::Plain,
            },
            limit: 1 << 20,
            runs: vec![ran],
            failed: None,
            broken: false,
        }
    }

    #[test]
    fn changes_have_the_sign_that_is_told() {
        assert_eq!(change(Some(150.0), Some(100.0)), Some(50.0));
        assert_eq!(change(Some(50.0), Some(100.0)), Some(-50.0));
        assert_eq!(change(Some(1.0), Some(0.0)), None);
        assert_eq!(change(None, Some(1.0)), None);
    }

    #[test]
    fn tables_have_the_rows_and_the_base() {
        let line = |kb: u64| format!("1 bytes / 1 usecs = {kb} KB/s\n");
        let compared = Compared {
            folio: FOLIOS[1],
            columns: vec![
                measured(Side::Run, Some("zstd"), &(line(100) + &line(200))),
                measured(Side::Zram("lz4".to_owned()), None, &line(200)),
            ],
        };
        let text = table(&compared);
        for part in [
            "Total throughput (KB/s)",
            "memcg_swap_fail",
            "64kB-swpout_fallback",
            "ZSWPOUT-64kB",
            "throughput against zram-lz4",
            "+50.0 %",
            "~ : no difference from zram-lz4",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains(" ~\n"), "one round marks nothing: {text}");
        let rounds = |kb: [u64; 3], side| {
            let mut measured = measured(side, Some("zstd"), "");
            measured.runs = kb
                .map(|kb| Ran {
                    stdout: line(kb),
                    ..Ran::default()
                })
                .into();
            measured
        };
        let close = Compared {
            folio: FOLIOS[1],
            columns: vec![
                rounds([100, 110, 120], Side::Run),
                rounds([104, 114, 124], Side::Run),
                rounds([200, 210, 220], Side::Run),
            ],
        };
        let text = table(&close);
        let against = text.lines().find(|line| line.starts_with("throughput"));
        let against = against.expect("a row").split_whitespace();
        let words: Vec<&str> = against.skip(3).collect();
        assert_eq!(words, ["+0.0", "%", "+3.6", "%", "~", "+90.9", "%"]);
        assert!(draw(&[compared]).expect("drawn").contains("run-zstd"));
    }
}
