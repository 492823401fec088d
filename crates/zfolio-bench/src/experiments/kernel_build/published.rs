//! Ours beside the series' kernel build (v9: allmodconfig with 32 jobs in 2 GiB), where codec and
//! folio are the same. Machine and project differ: what can be compared are the changes from one
//! codec to the other, and how much of what went out came back.

use super::plan::Measured;
use crate::experiments::usemem::{change, percent};
use crate::output::table::{Table, shown};
use crate::rig::Ran;

/// Codec, size of folio, and what was published of it: seconds of real and sys time with
/// batching, pages out and in before it (they were not told for after).
type Published = (&'static str, &'static str, [Option<f64>; 4]);

const SERIES: [Published; 3] = [
    (
        "zstd",
        "64K",
        [Some(852.2), Some(4704.0), Some(76.4e6), Some(22.1e6)],
    ),
    (
        "deflate-iaa",
        "64K",
        [Some(837.8), Some(3643.0), Some(89.8e6), Some(26.4e6)],
    ),
    ("zstd", "2M", [None, Some(5582.0), None, None]),
];

/// A figure of a run of ours.
type Figure = fn(&Ran) -> Option<f64>;

/// What is compared, and its digits.
const COMPARED: [(&str, Figure, usize); 4] = [
    ("real (s)", |ran| Some(ran.wall), 2),
    ("sys (s)", |ran| Some(ran.sys), 2),
    ("zswpout", |ran| counter(ran, "zswpout"), 0),
    ("zswpin", |ran| counter(ran, "zswpin"), 0),
];

fn counter(ran: &Ran, name: &str) -> Option<f64> {
    ran.stats["total"]["counters"][name].as_f64()
}

/// The table, or nothing where no column is one of the series'.
pub(super) fn beside_published(all: &[Measured]) -> String {
    let mut heads = vec!["beside the series".to_owned()];
    for (name, ..) in COMPARED {
        heads.extend([format!("{name}, here"), "published".to_owned()]);
    }
    heads.extend(["in / out, here".to_owned(), "published".to_owned()]);
    let mut table = Table::new(heads);
    let mut both = Vec::new();
    for (codec, folio, published) in SERIES {
        let column = all.iter().find(|m| m.column.ours == Some((codec, folio)));
        let Some(column) = column.filter(|m| !m.runs.is_empty()) else {
            continue;
        };
        let here = COMPARED.map(|(_, figure, _)| column.median(figure));
        let mut cells = vec![column.column.name()];
        for (at, (.., digits)) in COMPARED.into_iter().enumerate() {
            cells.push(shown(here[at], digits));
            cells.push(shown(published[at], 0));
        }
        for of in [here, published] {
            let back = of[3].zip(of[2].filter(|out| *out > 0.0));
            cells.push(shown(back.map(|(back, out)| back / out), 2));
        }
        table.row(cells);
        if folio == "64K" {
            both.push((here, published));
        }
    }
    if let [(zstd, published_zstd), (deflate, published)] = &both[..] {
        let mut cells = vec!["64K: deflate-iaa against zstd".to_owned()];
        for at in 0..COMPARED.len() {
            cells.push(percent(change(deflate[at], zstd[at])));
            cells.push(percent(change(published[at], published_zstd[at])));
        }
        cells.extend(["-".to_owned(), "-".to_owned()]);
        table.row(cells);
    }
    if table.is_empty() {
        return String::new();
    }
    format!(
        "\n{}published: v9 with batching, allmodconfig, 32 jobs in 2 GiB on 112 cores, accelerator \
         for deflate-iaa; zswpout and zswpin before batching. Compare changes and in / out.\n",
        table.text()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::kernel_build::plan::Column;
    use crate::rig::Side;
    use serde_json::json;

    fn measured(ours: Option<(&'static str, &'static str)>, wall: f64) -> Measured {
        let ran = Ran {
            wall,
            sys: 2.0 * wall,
            stats: json!({ "total": { "counters": { "zswpout": 400, "zswpin": 100 } } }),
            ..Ran::default()
        };
        Measured {
            column: Column {
                side: Side::Run,
                ours,
            },
            limit: 1 << 20,
            runs: vec![ran],
            failed: None,
            broken: false,
        }
    }

    #[test]
    fn columns_of_the_series_have_its_figures_beside_them() {
        let all = [
            measured(Some(("lz4", "64K")), 1.0),
            measured(Some(("deflate-iaa", "64K")), 15.0),
            measured(Some(("zstd", "64K")), 10.0),
        ];
        let text = beside_published(&all);
        let words = |begin: &str| {
            let line = text.lines().find(|line| line.starts_with(begin));
            let words = line.expect("a row").split_whitespace();
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        let zstd = "run-zstd-64K 10.00 852 20.00 4704 400 76400000 100 22100000 0.25 0.29";
        assert_eq!(words("run-zstd-64K").join(" "), zstd);
        let change = "64K: deflate-iaa against zstd +50.0 % -1.7 % +50.0 % -22.6 % +0.0 % +17.5 % \
                      +0.0 % +19.5 % - -";
        assert_eq!(words("64K:").join(" "), change);
        assert!(!text.contains("lz4"), "{text}");
        assert_eq!(beside_published(&all[..1]), "");
        assert_eq!(beside_published(&[measured(None, 1.0)]), "");
    }
}
