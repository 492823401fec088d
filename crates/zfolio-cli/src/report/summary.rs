//! Lines for people.

use super::finished::Finished;
use std::path::Path;
use zfolio_host::exit::one_line;
use zfolio_host::size::{grouped, human, short};
use zfolio_host::statistics::{Figures, Process};
use zfolio_host::staying;
use zfolio_mm::PAGE_SIZE;
use zfolio_runtime::segment::{Counter, state};

/// The part of `high` by which a process may be above it before the summary says why.
const TOLERATED: u64 = 16;
/// The part of `high` from which on what could not leave is a reason for that.
const MATTERS: u64 = 8;

impl Finished {
    /// What went wrong inside, unless the process could say so itself: printed
    /// whatever `--quiet` says.
    pub(crate) fn failures(&self) -> Vec<String> {
        let failed = self
            .tree
            .processes
            .iter()
            .filter(|process| process.state == state::FAILED && !process.told);
        failed
            .map(|process| {
                let told = if process.message.is_empty() {
                    "ended itself"
                } else {
                    &process.message
                };
                one_line(&format!(
                    "zfolio: process {} ({}): {told}",
                    process.pid, process.comm
                ))
            })
            .collect()
    }

    /// Whether it matters that a process ran unmanaged: a sandboxed helper that
    /// nobody could watch is most often a small one.
    fn is_told_of(&self, process: &Process) -> bool {
        process.state == state::UNMANAGED
            || process.state == state::UNWATCHED && self.usage.max_rss >= self.settings.high / 2
    }

    /// Every reason for running unmanaged, once.
    pub(crate) fn unmanaged(&self) -> Vec<String> {
        let mut reasons: Vec<(&str, Vec<&Process>)> = Vec::new();
        for process in self
            .tree
            .processes
            .iter()
            .filter(|process| self.is_told_of(process))
        {
            match reasons
                .iter_mut()
                .find(|(reason, _)| *reason == process.message)
            {
                Some((_, with)) => with.push(process),
                None => reasons.push((&process.message, vec![process])),
            }
        }
        let line = |(reason, with): (&str, Vec<&Process>)| {
            let reason = if reason.is_empty() {
                "no reason given"
            } else {
                reason
            };
            let who = match &with[..] {
                [one] if one.stands_for == 1 => format!("process {} ({})", one.pid, one.comm),
                many => format!(
                    "{} processes (first: {} {})",
                    many.iter().map(|one| one.stands_for).sum::<u64>(),
                    many[0].pid,
                    many[0].comm
                ),
            };
            one_line(&format!("zfolio: {who} ran unmanaged: {reason}"))
        };
        reasons.into_iter().map(line).collect()
    }

    /// The summary.
    pub(crate) fn summary(&self) -> Vec<String> {
        let high = match self.settings.limit {
            None => short(self.settings.high),
            Some(limit) => format!(
                "{} of a limit of {}",
                short(self.settings.high),
                short(limit)
            ),
        };
        let processes = counted(self.tree.loaded, "process", "processes");
        let bought = self.about_slowdown();
        let Some(largest) = self
            .tree
            .managed()
            .max_by_key(|process| process.figures.get(Counter::ProgramPeak))
        else {
            let line = self.nothing_managed(&high, &processes);
            return [line].into_iter().chain(bought).collect();
        };
        let managed = self.tree.managed_count();
        let figures = &largest.figures;
        let held = self.tree.total.most_held;
        let total = &self.tree.total;
        let pages = |which| human(total.get(which).saturating_mul(PAGE_SIZE as u64));
        let ratio = held
            .ratio()
            .map_or(String::new(), |ratio| format!(" ({ratio:.1}x)"));
        let faults = total.all_faults();
        let mut lines = vec![
            format!(
                "zfolio: {} needed {} at its peak and lived in {} (high {high}); {processes}, {managed} managed{}.",
                largest.comm,
                human(figures.get(Counter::ProgramPeak)),
                human(lived_in(largest)),
                about_faults(largest),
            ),
            format!(
                "zfolio: {} compressed to {}{ratio} at most; {} moved out, {} brought back.",
                human(held.stored),
                human(held.compressed),
                pages(Counter::PagesOut),
                pages(Counter::PagesIn),
            ),
            format!(
                "zfolio: cost: {} page faults served (p50 {}, p99 {}), {}.",
                grouped(faults.count()),
                duration(faults.percentile_ns(50)),
                duration(faults.percentile_ns(99)),
                about_time(largest, total),
            ),
        ];
        lines.extend(self.about_high(largest));
        lines.extend(self.about_backing());
        lines.extend(self.about_store());
        lines.extend(bought);
        lines.iter().map(|line| one_line(line)).collect()
    }

    /// A line on what could not leave, where `high` was not kept.
    fn about_high(&self, largest: &Process) -> Option<String> {
        let high = self.settings.high;
        let is_why = staying::bytes(&largest.figures) >= high / MATTERS;
        (lived_in(largest) > high + high / TOLERATED && is_why)
            .then(|| staying::words(&largest.figures))
            .flatten()
            .map(|words| format!("zfolio: high was not kept: {words}."))
    }

    /// A line on what was written back, if there is a backing.
    fn about_backing(&self) -> Option<String> {
        let total = &self.tree.total;
        if !self.settings.behind.has_backing() {
            return None;
        }
        let pages = |which| human(total.get(which).saturating_mul(PAGE_SIZE as u64));
        let of_store = |way: &str, which| match self.settings.behind.has_both() {
            true => format!(" ({} {way} the store)", pages(which)),
            false => String::new(),
        };
        let refused = self.tree.processes.iter();
        let refused = refused.filter(|process| process.figures.get(Counter::BackingRefused) > 0);
        let trouble = [
            (refused.count() as u64, "processes without it"),
            (total.get(Counter::BackingWriteFail), "writes failed"),
            (total.get(Counter::BackingFull), "times full"),
        ];
        let trouble = troubles(&trouble);
        Some(format!(
            "zfolio: backing: {} written back{}, {} read{}{trouble}.",
            pages(Counter::Pswpout),
            of_store("to", Counter::PswpoutStore),
            pages(Counter::Pswpin),
            of_store("from", Counter::PswpinStore),
        ))
    }

    /// A line on the way to a store, if one was used.
    fn about_store(&self) -> Option<String> {
        let totals = self.store.as_ref()?;
        let trouble = [
            (totals.retries, "tries more"),
            (totals.other_copy, "reads from another copy"),
            (totals.lost_copies, "copies lost"),
            (totals.held_back, "writes held back"),
            (u64::from(totals.pagers.saturating_sub(1)), "pagers more"),
        ];
        let trouble = troubles(&trouble);
        Some(format!("zfolio: {}{trouble}.", totals.words()))
    }

    fn nothing_managed(&self, high: &str, processes: &str) -> String {
        let name = self.command.first().map_or("the program".into(), |name| {
            Path::new(name)
                .file_name()
                .unwrap_or(name)
                .to_string_lossy()
        });
        let peak = human(self.usage.max_rss);
        // A process that ends within milliseconds is never counted, so none
        // counted means something only where memory was used.
        let line = if self.tree.loaded == 0 && self.usage.max_rss >= self.settings.high {
            format!(
                "zfolio: nothing was managed: {name} did not load the library (it used {peak})."
            )
        } else if self.tree.loaded == 0 {
            format!("zfolio: nothing needed managing: {name} used {peak} at most (high {high}).")
        } else if self
            .tree
            .processes
            .iter()
            .any(|process| self.is_told_of(process))
            || !self.unreached.is_empty()
        {
            format!(
                "zfolio: nothing was managed: {name} used {peak} at most (high {high}); {processes}."
            )
        } else if self.usage.max_rss > self.settings.high {
            // It ended before anybody looked.
            format!(
                "zfolio: nothing was managed: a process used {peak} (high {high}), without the library, \
                 or of files or memory that may not leave (read-only, executable, locked); {processes}."
            )
        } else {
            format!(
                "zfolio: nothing needed managing: {name} used {peak} at most (high {high}); {processes}."
            )
        };
        one_line(&line)
    }
}

/// Resident peak without the first second, where the program is young and
/// reclaim has not begun; programs shorter than that have only the plain one.
fn lived_in(process: &Process) -> u64 {
    match process.figures.get(Counter::ResidentPeakSteady) {
        0 => process.figures.get(Counter::ResidentPeak),
        steady => steady,
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// Nanoseconds for people: `21 us`, `4.1 s`.
#[allow(clippy::cast_precision_loss, reason = "shown with two figures")]
pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} us", ns / 1_000),
        1_000_000..100_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// How faults were told, where it was not by messages.
fn about_faults(process: &Process) -> String {
    match process.told_by {
        "message" => String::new(),
        way => format!(" ({way})"),
    }
}

/// What moving out cost: CPU of threads of ours and waiting for them, or, where there are none,
/// what the program's threads spent on it (counted under both names).
fn about_time(process: &Process, total: &Figures) -> String {
    let stalled = duration(total.get(Counter::StallNs));
    match process.told_by {
        "message" => {
            let cpu = duration(total.get(Counter::ManagerCpuNs));
            format!("{cpu} of CPU for zfolio's threads, {stalled} waiting at high")
        }
        _ => {
            let made = format!("{stalled} of its threads' time making room at high");
            if total.get(Counter::PgstealKswapd) == 0 {
                return made;
            }
            let all = total.get(Counter::ManagerCpuNs);
            let beside = all.saturating_sub(total.get(Counter::StallNs));
            format!("{made}, {} of CPU beside them", duration(beside))
        }
    }
}

/// Those that were counted at all, each behind a semicolon.
fn troubles(all: &[(u64, &str)]) -> String {
    let some = all.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("; {} {what}", grouped(*count)))
        .collect()
}
