//! What the figures mean, as the tables of docs/statistics.md say it.

/// The document that says it for people.
const DOCUMENT: &str = include_str!("../../../docs/statistics.md");

/// What the document says of a figure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Help {
    /// `pages`, `bytes`, `ns` ...; empty where the table has none.
    pub(crate) unit: String,
    /// A line of plain text.
    pub(crate) meaning: String,
}

/// Of the figure `name` in the tables of these sections; of the first that has it.
pub(crate) fn of(name: &str, sections: &[&str]) -> Option<Help> {
    let mut section = "";
    for line in DOCUMENT.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title;
        }
        if !sections.contains(&section) || !line.starts_with("| `") {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let names: Vec<&str> = cells[0]
            .split(", ")
            .map(|name| name.trim_matches('`'))
            .collect();
        let Some(at) = names.iter().position(|known| *known == name) else {
            continue;
        };
        return Some(match cells[..] {
            [_, units, meaning] => {
                let units: Vec<&str> = units.split(", ").collect();
                let unit = units.get(at).or(units.last()).copied().unwrap_or_default();
                Help {
                    unit: unit.to_owned(),
                    meaning: plain(meaning),
                }
            }
            [_, meaning, ..] => Help {
                unit: String::new(),
                meaning: plain(meaning),
            },
            _ => return None,
        });
    }
    None
}

/// Without the marks of the document: code, and links but for their words.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == '['
            && let Some((words, after)) = rest[1..].split_once("](")
            && let Some((_, after)) = after.split_once(')')
        {
            out.push_str(words);
            rest = after;
            continue;
        }
        if c != '`' {
            out.push(c);
        }
        rest = &rest[c.len_utf8()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_several_figures_has_the_unit_of_each() {
        let of = |name| of(name, &["Gauges"]).expect("a row");
        assert_eq!(of("backing_pages").unit, "pages");
        assert_eq!(of("backing_bytes").unit, "bytes");
        assert_eq!(of("program_peak_bytes").unit, "bytes");
        assert_eq!(of("standby_pages").meaning, "moved out, not compressed");
        assert_eq!(super::of("zswpout", &["Gauges"]), None);
    }

    #[test]
    fn marks_are_left_out() {
        assert_eq!(plain("as `x` in [a b](c.md#d), [e"), "as x in a b, [e");
    }
}
