//! The rows of `zfolio top`: each run, and below it its processes, with what came between two looks.

use crate::look::Seen;
use crate::sample::{Counts, Memory, per_second};
use std::path::PathBuf;
use zfolio_host::exit::one_line;
use zfolio_host::histogram::Latency;
use zfolio_host::statistics::Figures;
use zfolio_host::store_totals::StoreTotals;
use zfolio_mm::PAGE_SIZE;

/// What a row is of: a run, or a process of it by its claim.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) run: PathBuf,
    pub(crate) turn: Option<u64>,
}

/// A row.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    pub(super) key: Key,
    pub(super) pid: String,
    pub(super) name: String,
    pub(super) state: &'static str,
    pub(super) faults_told_by: &'static str,
    pub(super) codec: String,
    /// `high`, of a run. Bytes.
    pub(super) high: Option<u64>,
    pub(super) memory: Memory,
    /// Faults a second.
    pub(super) faults: f64,
    /// Service times of these; of all there were where none came.
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    /// Bytes a second.
    pub(super) moved_out: f64,
    pub(super) moved_in: f64,
    /// What went to a store behind the pool, in words; of a run.
    pub(super) store: Option<String>,
    /// Time waited at `high`, part of the time that passed: above 1 where several threads waited.
    pub(super) stall: f64,
}

/// What the rows are in the order of; within each run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    Program,
    Resident,
    Pool,
    Saved,
    Faults,
    Pid,
}

impl Sort {
    pub(crate) const ALL: [Self; 6] = [
        Self::Program,
        Self::Resident,
        Self::Pool,
        Self::Saved,
        Self::Faults,
        Self::Pid,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Resident => "resident",
            Self::Pool => "pool",
            Self::Saved => "saved",
            Self::Faults => "faults",
            Self::Pid => "pid",
        }
    }

    pub(crate) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|one| *one == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    fn order(self, rows: &mut [Row]) {
        let by = |of: fn(&Row) -> u64| move |row: &Row| std::cmp::Reverse(of(row));
        match self {
            Self::Program => rows.sort_by_key(by(|row| row.memory.program_bytes)),
            Self::Resident => rows.sort_by_key(by(|row| row.memory.resident_bytes)),
            Self::Pool => rows.sort_by_key(by(|row| row.memory.pool_bytes)),
            Self::Saved => rows.sort_by_key(by(|row| row.memory.saved())),
            Self::Faults => rows.sort_by(|one, other| other.faults.total_cmp(&one.faults)),
            Self::Pid => rows.sort_by_key(|row| row.pid.parse().unwrap_or(u64::MAX)),
        }
    }
}

/// What came between two looks.
struct Between {
    faults: f64,
    times: Latency,
    moved_out: f64,
    moved_in: f64,
    stall: f64,
}

impl Between {
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    fn new(before: Option<&Figures>, now: &Figures, seconds: f64) -> Self {
        let nothing = Figures::default();
        // (Of what was not there before all came in between, or it is not known when.)
        let earlier = before.unwrap_or(&nothing);
        let more = Counts::of(now).since(&Counts::of(earlier));
        let (all, then) = (now.all_faults(), earlier.all_faults());
        let since = all.since(&then);
        let times = if since.count() > 0 { since } else { all };
        let per = |count| per_second(count, if before.is_some() { seconds } else { 0.0 });
        Self {
            faults: per(more.faults),
            times,
            moved_out: per(more.pages_out) * PAGE_SIZE as f64,
            moved_in: per(more.pages_in) * PAGE_SIZE as f64,
            stall: per(more.high_stall_ns) / 1e9,
        }
    }
}

/// The row of a run and those of its processes that live, in this order.
pub(crate) fn rows(
    run: &std::path::Path,
    pid: Option<u32>,
    before: Option<&Seen>,
    now: &Seen,
    sort: Sort,
) -> Vec<Row> {
    let seconds = before.map_or(0.0, |before| {
        now.at.saturating_duration_since(before.at).as_secs_f64()
    });
    let row = |turn, figures: (Option<&Figures>, &Figures), memory| {
        let between = Between::new(figures.0, figures.1, seconds);
        Row {
            key: Key {
                run: run.to_path_buf(),
                turn,
            },
            pid: String::new(),
            name: String::new(),
            state: "",
            faults_told_by: now.config.faults().unwrap_or("-"),
            codec: now.config.compressor().to_owned(),
            high: None,
            store: None,
            memory,
            faults: between.faults,
            p50_ns: between.times.percentile_ns(50),
            p99_ns: between.times.percentile_ns(99),
            moved_out: between.moved_out,
            moved_in: between.moved_in,
            stall: between.stall,
        }
    };
    let total = (before.map(|before| &before.tree.total), &now.tree.total);
    let head = Row {
        pid: pid.map_or("-".into(), |pid| pid.to_string()),
        name: "zfolio run".into(),
        state: "run",
        high: Some(now.config.high_bytes()),
        store: now.store.as_ref().map(StoreTotals::words),
        ..row(None, total, Memory::of(&now.now))
    };
    let live = now.processes().filter(|(_, place)| place.lives);
    let mut below: Vec<Row> = live
        .map(|(process, place)| {
            let was = before.and_then(|before| {
                let mut all = before.processes();
                all.find(|(_, other)| other.turn == place.turn)
                    .map(|(process, _)| &process.figures)
            });
            let memory = Memory::of(&process.figures);
            Row {
                pid: process.pid.to_string(),
                name: one_line(&process.comm),
                state: process.state_name(),
                faults_told_by: if process.was_managed() {
                    process.told_by
                } else {
                    "-"
                },
                ..row(Some(place.turn), (was, &process.figures), memory)
            }
        })
        .collect();
    sort.order(&mut below);
    [head].into_iter().chain(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Look;
    use std::time::Duration;
    use zfolio_runtime::segment::{Counter, FaultKind, Who};

    #[test]
    fn rates_are_of_what_came_between_two_looks() {
        let own = crate::example::example();
        let who = |word| Who {
            word,
            ..Who::is_calling()
        };
        // (Of one id the last claim lives.)
        let index = own.claim_for(who(7), |_| true);
        let slot = &own.slots[index];
        let mut look = Look::open(own.path()).expect("it is there");
        slot.set(Counter::PagesOut, 100);
        slot.set(Counter::ProgramBytes, 10 << 20);
        slot.set(Counter::ResidentBytes, 4 << 20);
        slot.faults[FaultKind::Page as usize].record(1_000_000);
        let before = look.look();
        slot.set(Counter::PagesOut, 100 + 512);
        slot.set(Counter::StallNs, 500_000_000);
        for _ in 0..20 {
            slot.faults[FaultKind::Page as usize].record(20_000);
        }
        let mut now = look.look();
        now.at = before.at + Duration::from_secs(2);
        let all = rows(own.path(), Some(1), Some(&before), &now, Sort::Saved);
        let of = |pid: &str| {
            let mut rows = all.iter();
            rows.find(|row| row.pid == pid).expect("a row")
        };
        for row in [of(&std::process::id().to_string()), of("1")] {
            assert!((row.faults - 10.0).abs() < 1e-9, "{row:?}");
            assert!((row.moved_out - f64::from(1 << 20)).abs() < 1.0, "{row:?}");
            assert!((row.stall - 0.25).abs() < 1e-9, "{row:?}");
            assert!(row.p99_ns < 100_000, "{row:?}");
        }
        let one = of(&std::process::id().to_string());
        assert_eq!(one.memory.saved(), 6 << 20);
        // At first nothing is known of rates.
        let first = rows(own.path(), None, None, &now, Sort::Pid);
        assert!(first.iter().all(|row| row.faults == 0.0));
        assert_eq!((first[0].pid.as_str(), first[0].state), ("-", "run"));
    }

    #[test]
    fn every_order_comes_in_turn() {
        let mut seen = vec![Sort::Program];
        for _ in 1..Sort::ALL.len() {
            seen.push(seen[seen.len() - 1].next());
        }
        assert_eq!(seen, Sort::ALL);
        assert_eq!(seen[seen.len() - 1].next(), Sort::Program);
    }
}
