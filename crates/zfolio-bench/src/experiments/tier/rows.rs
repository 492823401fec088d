//! The figures of a run, and the rows of the tables.

use serde_json::Value;

const MIB: f64 = 1_048_576.0;

/// A run that succeeded.
#[derive(Clone, Debug, Default)]
pub(super) struct Ran {
    pub(super) seed: u64,
    /// While it was idle: seconds since it was filled, and bytes resident.
    pub(super) resident: Vec<(f64, f64)>,
    /// A random read, us.
    pub(super) read: f64,
    /// What `--stats` wrote.
    pub(super) stats: Value,
}

impl Ran {
    /// Reads what the workload printed.
    ///
    /// # Errors
    /// When something is missing.
    pub(super) fn of(seed: u64, stdout: &str, stats: Value) -> Result<Self, String> {
        let mut ran = Self {
            seed,
            stats,
            ..Self::default()
        };
        let mut read = None;
        for line in stdout.lines() {
            let Ok(line) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            match (line["phase"].as_str(), line["value"].as_f64()) {
                (Some("idle"), Some(bytes)) => {
                    ran.resident
                        .push((line["at"].as_f64().unwrap_or(0.0), bytes));
                }
                (Some("rand"), Some(us)) => read = Some(us),
                _ => {}
            }
        }
        ran.read = read.ok_or("the workload did not tell how long reads took")?;
        if ran.resident.is_empty() {
            return Err("the workload did not tell what is resident".to_owned());
        }
        Ok(ran)
    }
}

/// A row: its name, what it shows of a run, with how many digits after the point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) label: &'static str,
    /// `None` where there is nothing to divide by.
    pub(super) of: fn(&Ran) -> Option<f64>,
    digits: usize,
}

impl Row {
    const fn new(label: &'static str, digits: usize, of: fn(&Ran) -> Option<f64>) -> Self {
        Self { label, of, digits }
    }

    /// As the table shows it.
    pub(super) fn shown(&self, figure: f64) -> String {
        format!("{figure:.*}", self.digits)
    }
}

pub(super) const ROWS: [Row; 16] = [
    Row::new("resident after 1 s (MiB)", 1, |ran| {
        let first = ran.resident.iter().find(|(at, _)| *at >= 1.0);
        first.map(|(_, bytes)| bytes / MIB)
    }),
    Row::new("resident at the end of the idle time (MiB)", 1, |ran| {
        ran.resident.last().map(|(_, bytes)| bytes / MIB)
    }),
    Row::new("random reads afterwards (us)", 2, |ran| Some(ran.read)),
    Row::new("recompressed_pages", 0, |ran| {
        counter(ran, "recompressed_pages")
    }),
    Row::new("recompress_poor", 0, |ran| counter(ran, "recompress_poor")),
    Row::new("recompress_saved_bytes (MiB)", 1, |ran| {
        Some(counter(ran, "recompress_saved_bytes")? / MIB)
    }),
    Row::new("bytes saved of a page recompressed", 0, |ran| {
        let pages = counter(ran, "recompressed_pages")?;
        ratio(counter(ran, "recompress_saved_bytes")?, pages)
    }),
    Row::new("CPU of a page tried (us)", 1, |ran| {
        let pages = counter(ran, "recompressed_pages")? + counter(ran, "recompress_poor")?;
        let others = counter(ran, "dictionary_cpu_ns")?;
        ratio((counter(ran, "recompress_cpu_ns")? - others) / 1e3, pages)
    }),
    Row::new("dictionary_trainings", 1, |ran| {
        counter(ran, "dictionary_trainings")
    }),
    Row::new("dictionary_installed", 1, |ran| {
        counter(ran, "dictionary_installed")
    }),
    Row::new("dictionary_pages", 0, |ran| {
        counter(ran, "dictionary_pages")
    }),
    Row::new("dictionary_saved_bytes (MiB)", 1, |ran| {
        Some(counter(ran, "dictionary_saved_bytes")? / MIB)
    }),
    Row::new("units_made", 0, |ran| counter(ran, "units_made")),
    Row::new("dictionary_cpu_ns (ms)", 1, |ran| {
        Some(counter(ran, "dictionary_cpu_ns")? / 1e6)
    }),
    Row::new("recompress_cpu_ns (s)", 2, |ran| {
        Some(counter(ran, "recompress_cpu_ns")? / 1e9)
    }),
    Row::new("manager_cpu_ns (s)", 2, |ran| {
        Some(counter(ran, "manager_cpu_ns")? / 1e9)
    }),
];

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

    #[test]
    fn figures_are_of_what_was_printed_and_counted() {
        let printed = "{\"phase\":\"fill\",\"value\":1.0}\n\
                       {\"phase\":\"idle\",\"value\":3145728,\"at\":0.4}\nnot JSON\n\
                       {\"phase\":\"idle\",\"value\":2097152,\"at\":1.2}\n\
                       {\"phase\":\"idle\",\"value\":1048576,\"at\":9.0}\n\
                       {\"phase\":\"rand\",\"value\":12.5}\n";
        let stats = json!({ "total": { "counters": {
            "recompressed_pages": 30, "recompress_poor": 10,
            "recompress_cpu_ns": 500_000, "dictionary_cpu_ns": 100_000,
            "recompress_saved_bytes": 6000,
        } } });
        let ran = Ran::of(1, printed, stats).unwrap();
        for (label, expected) in [
            ("resident after 1 s (MiB)", Some(2.0)),
            ("resident at the end of the idle time (MiB)", Some(1.0)),
            ("random reads afterwards (us)", Some(12.5)),
            ("bytes saved of a page recompressed", Some(200.0)),
            ("CPU of a page tried (us)", Some(10.0)),
            ("dictionary_pages", None),
        ] {
            let row = ROWS.iter().find(|row| row.label == label).expect("a row");
            assert_eq!((row.of)(&ran), expected, "{label}");
        }
        for missing in ["", "{\"phase\":\"rand\",\"value\":1}"] {
            assert!(Ran::of(1, missing, Value::Null).is_err());
        }
    }
}
