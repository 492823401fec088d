//! Which metrics there are: their names by the conventions, units, kinds and help.
//!
//! A counter of the control segment has its own name with `zfolio_` before it and the base unit
//! behind: bytes, and seconds where we count nanoseconds; what only grows ends in `_total`.

use crate::help;
use prometheus_client::registry::Unit;
use zfolio_runtime::segment::Counter;

/// Sections of docs/statistics.md whose tables say what a counter means.
const SECTIONS: [&str; 5] = [
    "Gauges",
    "Movement",
    "Engines",
    "Refusals and damage",
    "Events",
];

/// What is as it is now, and may become less; all other counters only grow.
const GAUGES: [Counter; 32] = [
    Counter::ProgramBytes,
    Counter::ProgramPeak,
    Counter::ResidentBytes,
    Counter::ResidentPeak,
    Counter::ResidentPeakSteady,
    Counter::PoolBytes,
    Counter::PoolPeak,
    Counter::StoredPages,
    Counter::StoredIncompressible,
    Counter::SameFilled,
    Counter::CompressedBytes,
    Counter::StandbyPages,
    Counter::FreeFrames,
    Counter::ManagerHeap,
    Counter::ManagerHeapPeak,
    Counter::StaysShared,
    Counter::StaysFile,
    Counter::StaysExecutable,
    Counter::StaysReadOnly,
    Counter::StaysNoAccess,
    Counter::StaysApart,
    Counter::BackingPages,
    Counter::BackingStorePages,
    Counter::BackingBytes,
    Counter::BackingStoreBytes,
    Counter::BackingRefused,
    Counter::Units,
    Counter::UnitPages,
    Counter::DictionaryUnits,
    Counter::DictionaryBytes,
    Counter::FreeHugeBlocks,
    Counter::ArenaAnonThp,
];

/// A metric that a counter of the control segment is.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    /// Which.
    pub(crate) counter: Counter,
    /// Name without unit and `_total`.
    pub(crate) name: String,
    /// Bytes or seconds, if it is either.
    pub(crate) unit: Option<Unit>,
    /// What it means.
    pub(crate) help: String,
    /// It may become less.
    pub(crate) is_gauge: bool,
}

impl Family {
    fn of(counter: Counter) -> Self {
        let plain = counter.name();
        let (name, unit) = match counter {
            Counter::PoolBytes => ("pool", Some(Unit::Bytes)),
            Counter::ArenaAnonThp => ("arena_anon_thp", Some(Unit::Bytes)),
            Counter::HighEvents => ("high_events", None),
            Counter::MaxEvents => ("max_events", None),
            _ => match (plain.strip_suffix("_bytes"), plain.strip_suffix("_ns")) {
                (Some(name), _) => (name, Some(Unit::Bytes)),
                (_, Some(name)) => (name, Some(Unit::Seconds)),
                _ => (plain, None),
            },
        };
        let said = help::of(plain, &SECTIONS);
        let help = said.map_or(plain.to_owned(), |said| {
            if unit.is_some() || said.unit.is_empty() {
                said.meaning
            } else {
                format!("{} (in {})", said.meaning, said.unit)
            }
        });
        Self {
            counter,
            name: format!("zfolio_{name}"),
            unit,
            help,
            is_gauge: GAUGES.contains(&counter),
        }
    }

    /// Of every counter.
    pub(crate) fn all() -> Vec<Self> {
        Counter::ALL.iter().map(|which| Self::of(*which)).collect()
    }

    /// A value in its unit where that is seconds.
    #[allow(clippy::cast_precision_loss, reason = "a span to some digits")]
    pub(crate) fn seconds(value: u64) -> f64 {
        value as f64 / 1e9
    }

    /// What folios of a size count, by the table of folios.
    pub(crate) fn help_of_folios(name: &str) -> String {
        help::of(name, &["Folios by size"]).map_or(name.to_owned(), |said| said.meaning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn full(family: &Family) -> String {
        let unit = match &family.unit {
            Some(unit) => format!("_{}", unit.as_str()),
            None => String::new(),
        };
        let total = if family.is_gauge { "" } else { "_total" };
        format!("{}{unit}{total}", family.name)
    }

    #[test]
    fn names_keep_to_the_conventions_and_are_distinct() {
        let all = Family::all();
        let names: HashSet<String> = all.iter().map(full).collect();
        assert_eq!(names.len(), Counter::COUNT);
        for name in &names {
            let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(good), "{name}");
            assert!(!name.contains("_ns") && !name.contains("_kb"), "{name}");
        }
        for name in [
            "zfolio_pool_bytes",
            "zfolio_pages_out_total",
            "zfolio_high_stall_seconds_total",
            "zfolio_recompress_saved_bytes_total",
            "zfolio_standby_pages",
        ] {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn every_counter_is_in_a_table_of_the_document() {
        for which in Counter::ALL {
            let said = help::of(which.name(), &SECTIONS);
            let said = said.unwrap_or_else(|| panic!("docs/statistics.md lacks {}", which.name()));
            assert!(!said.meaning.is_empty(), "{}", which.name());
        }
    }

    #[test]
    fn gauges_of_the_document_are_gauges_here() {
        for family in Family::all() {
            let name = family.counter.name();
            if help::of(name, &["Gauges"]).is_some() {
                assert!(family.is_gauge, "{name} stands among the gauges");
            }
        }
    }
}
