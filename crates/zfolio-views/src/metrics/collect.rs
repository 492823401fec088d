//! A look at a run as OpenMetrics text.
//!
//! A process that lives and is managed has series of its own, 256 such at most. All others, the ended
//! first of all, are in one row, `process="others"`: so a sum over all processes of what only grows only
//! grows. Gauges are of those that have series of their own.

use crate::look::{Place, Seen};
use crate::metrics::families::Family;
use crate::metrics::store;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use zfolio_host::exit::one_line;
use zfolio_host::histogram::Latency;
use zfolio_host::shown::{FoliosOfSize, Program};
use zfolio_host::statistics::{Figures, Process};
use zfolio_runtime::segment::FaultKind;

/// Most processes with series of their own.
const ROWS: usize = 256;
/// Bounds of the buckets of service times, ns: powers of two from a microsecond to a second.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=30;

/// What all series of a process are known by.
type Labels = [(&'static str, String); 3];

/// A look, ready to be told.
#[derive(Debug)]
struct Shown {
    seen: Seen,
    /// Those with series of their own: index in the tree, labels.
    rows: Vec<(usize, Labels)>,
    /// Of all but those.
    others: Figures,
}

/// The text of a look, `# EOF` at its end.
///
/// # Errors
/// Never, as long as there is memory.
pub(crate) fn text(seen: Seen) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Shown::new(seen)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Labels of a process.
fn labels(process: &Process, place: &Place) -> Labels {
    [
        ("process", process.pid.to_string()),
        ("command", process.comm.clone()),
        ("group", one_line(&place.group)),
    ]
}

impl Shown {
    fn new(seen: Seen) -> Self {
        let own: Vec<(usize, Labels)> = seen
            .processes()
            .enumerate()
            .filter(|(_, (process, place))| place.lives && process.was_managed())
            .map(|(at, (process, place))| (at, labels(process, place)))
            .take(ROWS)
            .collect();
        // (The shared slot, and one id in two namespaces: a series has one process.)
        let mut rows: Vec<(usize, Labels)> = Vec::new();
        for row in own {
            if rows.iter().all(|(_, labels)| labels[0] != row.1[0]) {
                rows.push(row);
            }
        }
        let own = rows.iter().map(|(at, _)| &seen.tree.processes[*at].figures);
        let others = seen.tree.total.less(own);
        Self { seen, rows, others }
    }

    /// The others, as labels.
    fn others() -> Labels {
        [
            ("process", "others".into()),
            ("command", String::new()),
            ("group", String::new()),
        ]
    }

    fn of(&self, row: usize) -> &Figures {
        &self.seen.tree.processes[row].figures
    }

    fn counter(&self, encoder: &mut DescriptorEncoder<'_>, family: &Family) -> fmt::Result {
        let kind = if family.is_gauge {
            MetricType::Gauge
        } else {
            MetricType::Counter
        };
        let in_seconds = matches!(family.unit, Some(Unit::Seconds));
        let mut metric =
            encoder.encode_descriptor(&family.name, &family.help, family.unit.as_ref(), kind)?;
        let others = (!family.is_gauge).then(|| (Self::others(), &self.others));
        let rows = self
            .rows
            .iter()
            .map(|(at, labels)| (labels.clone(), self.of(*at)));
        for (labels, figures) in rows.chain(others) {
            let value = figures.get(family.counter);
            let labels = label_set(&labels);
            let mut one = metric.encode_family(&labels)?;
            match (family.is_gauge, in_seconds) {
                (true, _) => one.encode_gauge(&value)?,
                (false, true) => {
                    one.encode_counter::<NoLabelSet, f64, f64>(&Family::seconds(value), None)?;
                }
                (false, false) => one.encode_counter::<NoLabelSet, u64, f64>(&value, None)?,
            }
        }
        Ok(())
    }

    fn faults(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "service time of page faults, by what was found";
        let mut metric = encoder.encode_descriptor(
            "zfolio_fault",
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        let rows = self
            .rows
            .iter()
            .map(|(at, labels)| (labels.clone(), self.of(*at)));
        for (labels, figures) in rows.chain([(Self::others(), &self.others)]) {
            for kind in FaultKind::ALL {
                let times = figures.faults_of(*kind);
                let [process, command, group] = label_set(&labels);
                let labels = [process, command, group, ("kind", kind.name())];
                let mut one = metric.encode_family(&labels)?;
                let buckets = buckets(times);
                one.encode_histogram::<NoLabelSet>(
                    Family::seconds(times.sum_ns),
                    times.count(),
                    &buckets,
                    None,
                )?;
            }
        }
        Ok(())
    }

    fn folios(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        type Count = fn(&FoliosOfSize) -> u64;
        let counts: [(&str, Count); 7] = [
            ("zswpout", |of| of.zswpout),
            ("zswpin", |of| of.zswpin),
            ("swpin", |of| of.swpin),
            ("swpin_fallback", |of| of.swpin_fallback),
            ("swpout_fallback", |of| of.swpout_fallback),
            ("split", |of| of.split),
            ("split_failed", |of| of.split_failed),
        ];
        for (name, count) in counts {
            let full = format!("zfolio_folios_{name}");
            let help = Family::help_of_folios(name);
            let mut metric = encoder.encode_descriptor(&full, &help, None, MetricType::Counter)?;
            for (size, folios) in FoliosOfSize::all(&self.seen.tree.total) {
                let size = size.trim_start_matches("hugepages-");
                let labels = [("size", size)];
                let mut one = metric.encode_family(&labels)?;
                one.encode_counter::<NoLabelSet, u64, f64>(&count(&folios), None)?;
            }
        }
        Ok(())
    }

    fn run(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (config, tree) = (&self.seen.config, &self.seen.tree);
        let help = "the run: version, codec, how faults are told, second tier";
        let labels = [
            ("version", Program::THIS.version()),
            ("codec", config.compressor()),
            ("faults", config.faults().unwrap_or("none")),
            ("tier", config.tier()),
        ];
        encoder
            .encode_descriptor("zfolio_run", help, None, MetricType::Info)?
            .encode_info(&labels)?;
        let gauge = |encoder: &mut DescriptorEncoder<'_>, name, help, value: u64| {
            encoder
                .encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?
                .encode_gauge(&value)
        };
        let help = if config.high_is_shared() {
            "what all may keep resident together, now"
        } else {
            "what each process may keep resident"
        };
        gauge(encoder, "zfolio_high", help, config.high_bytes())?;
        let help = "what all had resident together at most; 0 where each has its own high";
        gauge(
            encoder,
            "zfolio_shared_resident_peak",
            help,
            tree.resident_peak,
        )?;
        let help = "processes that loaded the library and lived some milliseconds";
        encoder
            .encode_descriptor("zfolio_processes_loaded", help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, u64, f64>(&tree.loaded, None)?;
        let help = "processes that live, by state";
        let mut metric =
            encoder.encode_descriptor("zfolio_processes", help, None, MetricType::Gauge)?;
        for state in ["watching", "managing", "unmanaged", "unwatched", "failed"] {
            let such = self.seen.processes();
            let such = such.filter(|(process, place)| place.lives && process.state_name() == state);
            let labels = [("state", state)];
            let mut one = metric.encode_family(&labels)?;
            one.encode_gauge(&(such.count() as u64))?;
        }
        Ok(())
    }

    fn groups(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let groups = &self.seen.tree.groups;
        if groups.is_empty() {
            return Ok(());
        }
        type Of = fn(&zfolio_host::group_state::GroupState) -> u64;
        let gauges: [(&str, &str, Of); 3] = [
            (
                "zfolio_group_resident",
                "what the processes of a group have resident",
                |of| of.resident,
            ),
            ("zfolio_group_resident_peak", "the most they had", |of| {
                of.peak
            }),
            (
                "zfolio_group_high",
                "what they may have; 0: no limit of its own",
                |of| of.high,
            ),
        ];
        for (name, help, of) in gauges {
            let mut metric =
                encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
            for group in groups {
                let name = one_line(&group.name);
                let labels = [("group", name.as_str())];
                metric.encode_family(&labels)?.encode_gauge(&of(group))?;
            }
        }
        Ok(())
    }
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.run(&mut encoder)?;
        self.groups(&mut encoder)?;
        for family in Family::all() {
            self.counter(&mut encoder, &family)?;
        }
        if let Some(totals) = &self.seen.store {
            store::encode(totals, &mut encoder)?;
        }
        self.faults(&mut encoder)?;
        self.folios(&mut encoder)
    }
}

fn label_set(labels: &Labels) -> [(&'static str, &str); 3] {
    labels
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()))
}

/// Buckets as a histogram has them: bound in seconds, and how many are in it alone. What is
/// counted below a bound did not reach it.
fn buckets(times: &Latency) -> Vec<(f64, u64)> {
    let mut buckets: Vec<(u64, u64)> = BOUNDS.map(|power| (1 << power, 0)).collect();
    let mut beyond = 0;
    for (bound, count) in times.buckets() {
        let place = buckets
            .iter_mut()
            .find(|(to, _)| bound.is_some_and(|bound| bound <= *to));
        *place.map_or(&mut beyond, |(_, sum)| sum) += count;
    }
    let bounded = buckets
        .into_iter()
        .map(|(to, sum)| (Family::seconds(to), sum));
    bounded.chain([(f64::INFINITY, beyond)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Look;
    use zfolio_runtime::segment::{Counter, Who};

    fn example() -> (zfolio_host::segment_file::OwnSegment, Look) {
        let own = crate::example::example();
        let index = own.claim_for(
            Who {
                word: 5,
                ..Who::is_calling()
            },
            |_| true,
        );
        let slot = &own.slots[index];
        slot.process
            .pid
            .store(4242, std::sync::atomic::Ordering::Relaxed);
        slot.process.comm[0].store(
            u64::from_le_bytes(*b"a\"b\\\n\0\0\0"),
            std::sync::atomic::Ordering::Relaxed,
        );
        slot.set(Counter::PagesOut, 7);
        slot.set(Counter::StallNs, 1_500_000_000);
        slot.set(Counter::StandbyPages, 3);
        slot.faults[FaultKind::Page as usize].record(3_000);
        slot.faults[FaultKind::Page as usize].record(u64::MAX / 4);
        let look = Look::open(own.path()).expect("it is there");
        (own, look)
    }

    fn line<'a>(text: &'a str, begin: &str) -> &'a str {
        let mut lines = text.lines().filter(|line| line.starts_with(begin));
        lines
            .next()
            .unwrap_or_else(|| panic!("no {begin} in\n{text}"))
    }

    #[test]
    fn a_process_has_its_series_and_the_rest_is_in_one_row() {
        let (_own, mut look) = example();
        let text = text(look.look()).expect("text");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let one = "process=\"4242\",command=\"a\\\"b\\\\ \",group=\"\"";
        let series = |name: &str, labels: &str| {
            let begin = format!("{name}{{{labels}}} ");
            line(&text, &begin)[begin.len()..].to_owned()
        };
        let others = "process=\"others\",command=\"\",group=\"\"";
        assert_eq!(series("zfolio_pages_out_total", one), "7");
        assert_eq!(series("zfolio_pages_out_total", others), "300000");
        assert_eq!(series("zfolio_high_stall_seconds_total", one), "1.5");
        assert_eq!(series("zfolio_standby_pages", one), "3");
        assert!(!text.contains(&format!("zfolio_standby_pages{{{others}}}")));
        let bucket = |le: &str| {
            let labels = format!("le=\"{le}\",{one},kind=\"page\"");
            series("zfolio_fault_seconds_bucket", &labels)
        };
        assert_eq!(bucket("0.000002048"), "0");
        assert_eq!(bucket("0.000004096"), "1");
        assert_eq!(bucket("1.073741824"), "1");
        assert_eq!(bucket("+Inf"), "2");
        let count = format!("{one},kind=\"page\"");
        assert_eq!(series("zfolio_fault_seconds_count", &count), "2");
        assert_eq!(series("zfolio_folios_zswpout_total", "size=\"64kB\""), "3");
        assert_eq!(series("zfolio_processes", "state=\"unmanaged\""), "0");
        assert!(text.contains("# UNIT zfolio_pool_bytes bytes\n"));
        assert!(text.contains("# TYPE zfolio_fault_seconds histogram\n"));
        assert!(
            text.contains("# HELP zfolio_standby_pages moved out, not compressed (in pages)\n")
        );
    }
}
