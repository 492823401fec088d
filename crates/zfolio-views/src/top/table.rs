//! The columns of `zfolio top`, as text: the same on a screen and in a pipe.

use super::rows::Row;
use zfolio_host::size::human;

/// A column: its title, how wide it is, from which width of the screen on it is shown, and what
/// it says of a row.
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) width: u16,
    from: u16,
    /// Text stands to the left, numbers to the right.
    pub(crate) left: bool,
    pub(crate) of: fn(&Row) -> String,
}

/// Nanoseconds in a few letters.
fn short(ns: u64) -> String {
    match ns {
        0 => "-".into(),
        1..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}us", ns / 1_000),
        1_000_000..10_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ => format!("{}s", ns / 1_000_000_000),
    }
}

/// Bytes in six letters at most.
fn bytes(bytes: u64) -> String {
    human(bytes)
        .replace(" bytes", "")
        .replace("iB", "")
        .replace(' ', "")
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and shown with three figures"
)]
fn rate(bytes_a_second: f64) -> String {
    bytes(bytes_a_second.round() as u64)
}

/// All columns, most wanted first within the order they stand in.
pub(crate) const COLUMNS: [Column; 17] = [
    column("PID", 8, 0, |row| row.pid.clone()),
    Column {
        left: true,
        ..column("COMMAND", 15, 0, |row| {
            let indent = if row.key.turn.is_some() { " " } else { "" };
            format!("{indent}{}", row.name)
        })
    },
    Column {
        left: true,
        ..column("STATE", 9, 100, |row| row.state.to_owned())
    },
    Column {
        left: true,
        ..column("FAULTS BY", 9, 132, |row| row.faults_told_by.to_owned())
    },
    Column {
        left: true,
        ..column("CODEC", 8, 141, |row| row.codec.clone())
    },
    column("PROGRAM", 7, 0, |row| bytes(row.memory.program_bytes)),
    column("RESIDENT", 8, 0, |row| bytes(row.memory.resident_bytes)),
    column("STANDBY", 7, 116, |row| bytes(row.memory.standby_bytes)),
    column("POOL", 6, 0, |row| bytes(row.memory.pool_bytes)),
    column("TABLES", 6, 116, |row| bytes(row.memory.tables_bytes)),
    column("SAVED", 6, 0, |row| bytes(row.memory.saved())),
    column("OUT/s", 6, 90, |row| rate(row.moved_out)),
    column("IN/s", 6, 90, |row| rate(row.moved_in)),
    column("FAULT/s", 7, 0, |row| format!("{:.0}", row.faults)),
    column("P50", 5, 132, |row| short(row.p50_ns)),
    column("P99", 5, 0, |row| short(row.p99_ns)),
    column("STALL", 5, 90, |row| format!("{:.0}%", row.stall * 100.0)),
];

const fn column(title: &'static str, width: u16, from: u16, of: fn(&Row) -> String) -> Column {
    Column {
        title,
        width,
        from,
        left: false,
        of,
    }
}

/// Those that are shown on a screen so wide.
pub(crate) fn columns(width: u16) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(move |column| column.from <= width)
}

impl Column {
    /// A cell as wide as the column: what is too long is cut.
    pub(crate) fn cell(&self, text: &str) -> String {
        let width = usize::from(self.width);
        let cut: String = text.chars().take(width).collect();
        if self.left {
            format!("{cut:<width$}")
        } else {
            format!("{cut:>width$}")
        }
    }
}

/// A line of cells.
pub(crate) fn line(width: u16, of: impl Fn(&Column) -> String) -> String {
    let cells: Vec<String> = columns(width)
        .map(|column| column.cell(&of(column)))
        .collect();
    cells.join(" ")
}

/// The memory of a row by kind: in words where they fit in `width` columns, else as the table has it.
pub(crate) fn by_kind(row: &Row, width: usize) -> String {
    let memory = &row.memory;
    let kinds = [
        (memory.own(), "program"),
        (memory.standby_bytes, "standby"),
        (memory.pool_bytes, "pool"),
        (memory.tables_bytes, "tables"),
        (memory.free_bytes, "free"),
    ];
    let parts = |told: fn(u64) -> String| kinds.map(|(of, what)| format!("{} {what}", told(of)));
    let words = format!("resident is {}", parts(human).join(" + "));
    if words.len() <= width {
        return words;
    }
    format!("resident: {}", parts(bytes).join(" + "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_where_they_are_shown() {
        for width in [80_u16, 90, 100, 116, 132, 141, 160] {
            let line = line(width, |column| column.title.to_owned());
            assert!(
                line.chars().count() <= usize::from(width),
                "{width}: {line}"
            );
        }
        assert_eq!(columns(160).count(), COLUMNS.len());
    }

    #[test]
    fn cells_are_as_wide_as_their_columns() {
        for column in &COLUMNS {
            for text in ["", "ä", "a very long text that is cut somewhere"] {
                let cell = column.cell(text);
                assert_eq!(cell.chars().count(), usize::from(column.width), "{cell}");
            }
        }
        assert_eq!(short(999_999), "999us");
        assert_eq!(bytes(32 << 20), "32M");
    }
}
