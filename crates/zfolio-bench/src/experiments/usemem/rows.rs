//! The rows of the series' tables.

use crate::rig::{Ran, Side};
use crate::workloads::usemem::throughput;
use serde_json::Value;

/// The group of a run that ours is in: its events are read of it.
pub(in crate::experiments) const GROUP: &str = "bench";

/// A row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::experiments) struct Row {
    /// `<size>` stands for the size of folio; a row that has it is left out for
    /// single pages.
    label: &'static str,
    figure: Figure,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Figure {
    Total,
    Average,
    Elapsed,
    Sys,
    /// A counter of the kernel's and of ours, by name.
    Counter(&'static str, Option<&'static str>),
    /// An event of the group: the kernel's name, and ours.
    Event(&'static str, &'static str),
    /// A counter by size: the kernel's, and ours.
    BySize(&'static str, Option<&'static str>),
}

const fn counter(label: &'static str, ours: Option<&'static str>) -> Row {
    Row {
        label,
        figure: Figure::Counter(label, ours),
    }
}

pub(in crate::experiments) const ROWS: [Row; 19] = [
    Row {
        label: "Total throughput (KB/s)",
        figure: Figure::Total,
    },
    Row {
        label: "Average throughput (KB/s)",
        figure: Figure::Average,
    },
    Row {
        label: "elapsed time (sec)",
        figure: Figure::Elapsed,
    },
    Row {
        label: "sys time (sec)",
        figure: Figure::Sys,
    },
    counter("memcg_high", Some("high")),
    // Of control groups of version 1 there is only this.
    counter("memcg_max", Some("max")),
    Row {
        label: "memcg_swap_fail",
        figure: Figure::Event("memcg_swap_fail", "swap_fail"),
    },
    counter("pswpout", Some("pswpout")),
    counter("pswpin", Some("pswpin")),
    counter("zswpout", Some("zswpout")),
    counter("zswpin", Some("zswpin")),
    counter("thp_swpout", Some("thp_swpout")),
    counter("thp_swpout_fallback", Some("thp_swpout_fallback")),
    Row {
        label: "<size>-swpout_fallback",
        figure: Figure::BySize("swpout_fallback", Some("swpout_fallback")),
    },
    counter("pgmajfault", Some("pgmajfault")),
    counter("swap_ra", Some("swap_ra")),
    counter("swap_ra_hit", Some("swap_ra_hit")),
    Row {
        label: "ZSWPOUT-<size>",
        figure: Figure::BySize("zswpout", Some("zswpout")),
    },
    Row {
        label: "SWPOUT-<size>",
        figure: Figure::BySize("swpout", None),
    },
];

/// Of these, the counters.
pub(in crate::experiments) const COUNTERS: &[Row] = ROWS.split_at(4).1;

impl Row {
    /// Its name for folios of `size`; `None` where there is no such row.
    pub(in crate::experiments) fn name(&self, size: Option<&str>) -> Option<String> {
        match (self.figure, size) {
            (Figure::BySize(..), None) => None,
            (_, size) => Some(self.label.replace("<size>", size.unwrap_or(""))),
        }
    }

    /// Its figure of a run; `None` where it is not counted.
    pub(in crate::experiments) fn of(
        &self,
        ran: &Ran,
        side: &Side,
        size: Option<&str>,
    ) -> Option<f64> {
        let processes: Vec<u64> = ran.stdout.lines().filter_map(throughput).collect();
        let total = processes.iter().sum::<u64>() as f64;
        let ours = *side == Side::Run;
        let number = |value: &Value| value.as_u64().map(|count| count as f64);
        match self.figure {
            Figure::Total => Some(total),
            Figure::Average => Some(total / processes.len().max(1) as f64),
            Figure::Elapsed => Some(ran.wall),
            Figure::Sys => Some(ran.sys),
            Figure::Counter(_, name) if ours => number(&ran.stats["total"]["counters"][name?]),
            Figure::Event(_, name) if ours => {
                let mut groups = ran.stats["groups"].as_array()?.iter();
                let group = groups.find(|group| group["name"] == GROUP)?;
                number(&group["events"][name])
            }
            Figure::Counter(name, _) | Figure::Event(name, _) => {
                ran.kernel.get(name).map(|count| *count as f64)
            }
            Figure::BySize(_, name) if ours => {
                let folios = &ran.stats["total"]["folios"];
                number(&folios[format!("hugepages-{}", size?)][name?])
            }
            Figure::BySize(name, _) => {
                let count = ran.kernel.get(&format!("{}-{name}", size?));
                count.map(|count| *count as f64)
            }
        }
    }

    /// As a table shows it.
    pub(in crate::experiments) fn shown(&self, figure: f64) -> String {
        match self.figure {
            Figure::Elapsed | Figure::Sys => format!("{figure:.2}"),
            _ => format!("{figure:.0}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn each_side_is_asked_for_its_own_counters() {
        let ran = Ran {
            stdout: "9 bytes / 1 usecs = 10 KB/s\nx\n9 bytes / 1 usecs = 30 KB/s\n".to_owned(),
            wall: 1.5,
            kernel: BTreeMap::from([
                ("zswpout".to_owned(), 7),
                ("64kB-zswpout".to_owned(), 3),
                ("memcg_swap_fail".to_owned(), 2),
            ]),
            stats: json!({ "groups": [
                { "name": "of the program", "events": { "swap_fail": 1 } },
                { "name": GROUP, "events": { "swap_fail": 8 } },
            ], "total": {
                "counters": { "zswpout": 100, "high": 12, "swap_ra_hit": 6 },
                "folios": { "hugepages-64kB": { "zswpout": 5, "swpout_fallback": 1 } },
            } }),
            ..Ran::default()
        };
        let kernel = Side::Zswap("lzo".to_owned());
        let figure = |label: &str, side: &Side| {
            let row = ROWS.iter().find(|row| row.label == label).expect("a row");
            row.of(&ran, side, Some("64kB"))
        };
        assert_eq!(figure("Total throughput (KB/s)", &kernel), Some(40.0));
        assert_eq!(figure("Average throughput (KB/s)", &kernel), Some(20.0));
        assert_eq!(figure("zswpout", &kernel), Some(7.0));
        assert_eq!(figure("zswpout", &Side::Run), Some(100.0));
        assert_eq!(figure("ZSWPOUT-<size>", &kernel), Some(3.0));
        assert_eq!(figure("ZSWPOUT-<size>", &Side::Run), Some(5.0));
        assert_eq!(figure("<size>-swpout_fallback", &Side::Run), Some(1.0));
        assert_eq!(figure("SWPOUT-<size>", &Side::Run), None);
        assert_eq!(figure("memcg_high", &kernel), None);
        assert_eq!(figure("memcg_high", &Side::Run), Some(12.0));
        assert_eq!(figure("swap_ra_hit", &Side::Run), Some(6.0));
        assert_eq!(figure("memcg_swap_fail", &Side::Run), Some(8.0));
        assert_eq!(figure("memcg_swap_fail", &kernel), Some(2.0));
    }

    #[test]
    fn rows_by_size_are_not_for_pages() {
        let named = ROWS.iter().filter(|row| row.name(None).is_some()).count();
        assert_eq!(named, ROWS.len() - 3);
    }
}
