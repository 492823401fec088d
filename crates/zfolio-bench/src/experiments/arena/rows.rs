//! The rows of the tables.

use super::run::{Look, Ran};

const MIB: f64 = 1_048_576.0;

/// A row: its name, what it shows of a run, with how many digits after the point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) label: &'static str,
    /// `None` where there is nothing to divide by.
    pub(super) of: fn(&Ran) -> Option<f64>,
    digits: usize,
}

impl Row {
    /// As the table shows it.
    pub(super) fn shown(&self, figure: f64) -> String {
        format!("{figure:.*}", self.digits)
    }
}

pub(super) const ROWS: [Row; 16] = [
    Row {
        label: "arena frames held (MiB)",
        of: |ran| mean(ran, |look| look.held / MIB),
        digits: 1,
    },
    Row {
        label: "pool bytes stored (MiB)",
        of: |ran| mean(ran, |look| look.stored / MIB),
        digits: 1,
    },
    Row {
        label: "held per stored",
        of: |ran| ratio(mean(ran, |look| look.held)?, mean(ran, |look| look.stored)?),
        digits: 2,
    },
    Row {
        label: "AnonHugePages of the arena (MiB)",
        of: |ran| mean(ran, |look| look.huge / MIB),
        digits: 2,
    },
    Row {
        label: "free_huge_blocks",
        of: |ran| mean(ran, |look| look.free_blocks),
        digits: 1,
    },
    Row {
        label: "looks without a free block (%)",
        of: |ran| mean(ran, |look| if look.free_blocks < 1.0 { 100.0 } else { 0.0 }),
        digits: 1,
    },
    Row {
        label: "thp_swpout",
        of: |ran| counter(ran, "thp_swpout"),
        digits: 0,
    },
    Row {
        label: "thp_swpout_fallback",
        of: |ran| counter(ran, "thp_swpout_fallback"),
        digits: 0,
    },
    Row {
        label: "huge pages out without splitting (%)",
        of: |ran| {
            let whole = counter(ran, "thp_swpout")?;
            let share = ratio(whole, whole + counter(ran, "thp_swpout_fallback")?)?;
            Some(share * 100.0)
        },
        digits: 1,
    },
    Row {
        label: "thp_swpin",
        of: |ran| counter(ran, "thp_swpin"),
        digits: 0,
    },
    Row {
        label: "compact_stall",
        of: |ran| counter(ran, "compact_stall"),
        digits: 0,
    },
    Row {
        label: "compact_success",
        of: |ran| counter(ran, "compact_success"),
        digits: 0,
    },
    Row {
        label: "compact_daemon_wake",
        of: |ran| counter(ran, "compact_daemon_wake"),
        digits: 0,
    },
    Row {
        label: "pgmigrate_success",
        of: |ran| counter(ran, "pgmigrate_success"),
        digits: 0,
    },
    Row {
        label: "manager CPU (s)",
        of: |ran| counter(ran, "manager_cpu_ns").map(|ns| ns / 1e9),
        digits: 2,
    },
    Row {
        label: "time of the program (s)",
        of: |ran| Some(ran.churn),
        digits: 2,
    },
];

fn mean(ran: &Ran, of: fn(&Look) -> f64) -> Option<f64> {
    ratio(ran.looks.iter().map(of).sum(), ran.looks.len() as f64)
}

fn ratio(over: f64, under: f64) -> Option<f64> {
    (under > 0.0).then(|| over / under)
}

fn counter(ran: &Ran, name: &str) -> Option<f64> {
    ran.stats["total"]["counters"][name].as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figure(ran: &Ran, label: &str) -> Option<f64> {
        let row = ROWS.iter().find(|row| row.label == label).expect("a row");
        (row.of)(ran)
    }

    #[test]
    fn figures_are_means_of_looks_and_counters() {
        let look = |held, stored, free_blocks| Look {
            held,
            stored,
            free_blocks,
            ..Look::default()
        };
        let ran = Ran {
            looks: vec![look(4.0 * MIB, MIB, 0.0), look(2.0 * MIB, 2.0 * MIB, 6.0)],
            stats: json!({ "total": { "counters": {
                "thp_swpout": 3, "thp_swpout_fallback": 1, "manager_cpu_ns": 1_500_000_000_u64,
            } } }),
            ..Ran::default()
        };
        for (label, expected) in [
            ("arena frames held (MiB)", 3.0),
            ("held per stored", 2.0),
            ("free_huge_blocks", 3.0),
            ("looks without a free block (%)", 50.0),
            ("huge pages out without splitting (%)", 75.0),
            ("manager CPU (s)", 1.5),
        ] {
            assert_eq!(figure(&ran, label), Some(expected), "{label}");
        }
        assert_eq!(figure(&ran, "thp_swpin"), None);
        let none =
            json!({ "total": { "counters": { "thp_swpout": 0, "thp_swpout_fallback": 0 } } });
        let ran = Ran {
            stats: none,
            ..Ran::default()
        };
        assert_eq!(figure(&ran, "huge pages out without splitting (%)"), None);
        assert_eq!(figure(&ran, "held per stored"), None);
    }
}
