//! Folios stored whole against folios split to pages first, beside the series' own change from
//! its case 1 to what it proposes (v8: usemem, 30 processes of 10 GiB in 150 GiB).

use super::plan::{Column, Compared, How, Measured};
use super::rows::{ROWS, Row};
use crate::output::ministat::{explained, mark};
use crate::output::table::Table;

/// Size of folio, codec, and the changes of total throughput, elapsed and sys time, %.
const SERIES: [(&str, &str, [f64; 3]); 4] = [
    ("64K", "zstd", [19.2, -9.4, -11.0]),
    ("64K", "deflate-iaa", [11.7, -11.5, -13.7]),
    ("2M", "zstd", [9.6, -2.7, -8.3]),
    ("2M", "deflate-iaa", [20.4, -14.8, -17.4]),
];
/// Rows of [`ROWS`] that are compared: throughput, elapsed, sys.
const COMPARED: [(usize, &str); 3] = [(0, "throughput"), (2, "elapsed"), (3, "sys")];

/// The table, or nothing where no column was run both ways.
pub(super) fn against_split(all: &[Compared]) -> String {
    let mut heads = vec!["whole against split".to_owned()];
    for (_, name) in COMPARED {
        heads.extend([format!("{name}, here"), "published".to_owned()]);
    }
    let mut table = Table::new(heads);
    let mut rows = 0;
    for compared in all {
        for whole in &compared.columns {
            let (codec, Some(split)) = (whole.column.codec, split_of(compared, &whole.column))
            else {
                continue;
            };
            let published = SERIES
                .iter()
                .find(|(folio, name, _)| *folio == compared.folio.option && codec == Some(*name));
            let mut cells = vec![format!(
                "{}, {}",
                compared.folio.option,
                whole.column.name()
            )];
            for (at, (row, _)) in COMPARED.into_iter().enumerate() {
                let of = |measured: &Measured, row: &Row| measured.median(row, compared.folio);
                let here = change(of(whole, &ROWS[row]), of(split, &ROWS[row]));
                let all = |measured: &Measured| measured.summary(&ROWS[row], compared.folio);
                cells.push(percent(here) + mark(all(split).as_ref(), all(whole).as_ref()));
                cells.push(percent(published.map(|(.., found)| found[at])));
            }
            table.row(cells);
            rows += 1;
        }
    }
    if rows == 0 {
        return String::new();
    }
    format!("\n{}{}", table.text(), explained("split folios"))
}

/// `figure` less `base`, in % of `base`.
pub(in crate::experiments) fn change(figure: Option<f64>, base: Option<f64>) -> Option<f64> {
    let (figure, base) = (figure?, base.filter(|base| *base > 0.0)?);
    Some((figure / base - 1.0) * 100.0)
}

/// The column of the same codec with split folios.
fn split_of<'a>(compared: &'a Compared, whole: &Column) -> Option<&'a Measured> {
    let mut columns = compared.columns.iter();
    columns.find(|measured| {
        whole.how == How::Plain
            && measured.column.how == How::Split
            && measured.column.codec == whole.codec
    })
}

/// As tables show it.
pub(in crate::experiments) fn percent(change: Option<f64>) -> String {
    change.map_or("-".to_owned(), |change| format!("{change:+.1} %"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::usemem::plan::FOLIOS;
    use crate::rig::{Ran, Side};

    fn measured(how: How, kb: u64, wall: f64, sys: f64) -> Measured {
        Measured {
            column: Column {
                side: Side::Run,
                codec: Some("zstd"),
                how,
            },
            limit: 1 << 20,
            runs: vec![Ran {
                stdout: format!("1 bytes / 1 usecs = {kb} KB/s\n"),
                wall,
                sys,
                ..Ran::default()
            }],
            failed: None,
            broken: false,
        }
    }

    #[test]
    fn whole_folios_are_set_beside_split_ones_and_the_series() {
        let compared = Compared {
            folio: FOLIOS[1],
            columns: vec![
                measured(How::Plain, 120, 9.0, 5.0),
                measured(How::Split, 100, 10.0, 10.0),
            ],
        };
        let text = against_split(&[compared]);
        let row = text.lines().find(|line| line.contains("64K, run-zstd"));
        let words: Vec<&str> = row.expect("a row").split_whitespace().collect();
        let numbers = words.iter().filter_map(|word| word.parse::<f64>().ok());
        let expected = [20.0, 19.2, -10.0, -9.4, -50.0, -11.0];
        assert_eq!(numbers.collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(against_split(&[]), "");
    }

    #[test]
    fn the_changes_of_the_series_are_those_of_its_figures() {
        // Total KB/s, elapsed and sys seconds of case 1, and of what is proposed.
        let figures = [
            [(5_222_213.0, 6_227_367.0), (120.5, 109.2), (2930.0, 2609.0)],
            [(5_652_608.0, 6_315_000.0), (102.9, 91.1), (2247.0, 1939.0)],
            [(5_895_500.0, 6_460_111.0), (108.8, 105.9), (2657.0, 2436.0)],
            [(6_286_587.0, 7_569_560.0), (96.2, 82.0), (2141.0, 1768.0)],
        ];
        for ((.., published), figures) in SERIES.iter().zip(figures) {
            for (found, (before, after)) in published.iter().zip(figures) {
                let computed = change(Some(after), Some(before)).expect("a number");
                assert!((computed - found).abs() < 0.06, "{computed} and {found}");
            }
        }
    }
}
