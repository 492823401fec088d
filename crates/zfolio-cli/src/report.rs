//! What a finished run is told as: lines for people, a JSON object for tools.

use crate::args::{Compressor, Faults, Tier};
use crate::behind::Checked;
use crate::exit::one_line;
use crate::machine;
use crate::size::{grouped, human, short};
use crate::stats::{Process, Tree};
use crate::staying;
use crate::supervise::Outcome;
use crate::unreached::{self, Stranger};
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_runtime::options::codec_words;
use zfolio_runtime::segment::{Config, Counter, state};
use zfolio_sys::limits::filters;

/// The part of `high` by which a process may be above it before the summary says why.
const TOLERATED: u64 = 16;
/// The part of `high` from which on what could not leave is a reason for that.
const MATTERS: u64 = 8;
/// Version of the JSON's shape; raised when a key changes its meaning.
const SCHEMA: u32 = 1;

/// What was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// `high`, bytes.
    pub(crate) high: u64,
    /// Who is told of faults.
    pub(crate) faults: Faults,
    /// Codec and level.
    pub(crate) compressor: Compressor,
    /// Folio moved out at once.
    pub(crate) folio: Order,
    /// Threads that compress for reclaim.
    pub(crate) engines: u32,
    /// Folio compaction runs.
    pub(crate) folio_compaction: bool,
    /// Whether there is a second tier.
    pub(crate) tier: Tier,
    /// Nothing on the program's stderr.
    pub(crate) quiet: bool,
    /// `high` is shared by all processes.
    pub(crate) shared: bool,
    /// The backing and `max`.
    pub(crate) behind: Checked,
}

impl Settings {
    /// Writes them where the preload library reads them; false if a path does
    /// not fit there.
    pub(crate) fn store(&self, config: &Config) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        config.high.store(self.high, Relaxed);
        let (codec, level) = codec_words(self.compressor.0);
        config.codec.store(codec, Relaxed);
        config.level.store(level.cast_unsigned(), Relaxed);
        config.faults.store(self.faults.number(), Relaxed);
        config.folio_order.store(self.folio.get().into(), Relaxed);
        config.engines.store(self.engines, Relaxed);
        let off = !self.folio_compaction;
        config.no_folio_compaction.store(off.into(), Relaxed);
        config.tier.store((self.tier == Tier::Auto).into(), Relaxed);
        config.quiet.store(self.quiet.into(), Relaxed);
        config.filters.store(filters(), Relaxed);
        if let Ok(stat) = rustix::fs::fstat(std::io::stderr()) {
            config.standard_error[0].store(stat.st_dev, Relaxed);
            config.standard_error[1].store(stat.st_ino, Relaxed);
        }
        config.shared.store(self.shared.into(), Relaxed);
        self.behind.store(config)
    }
}

/// What the program cost, from rusage of everything waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    /// Elapsed.
    pub(crate) wall: Duration,
    /// CPU in user mode, all processes.
    pub(crate) user: Duration,
    /// CPU in the kernel, all processes.
    pub(crate) sys: Duration,
    /// Largest resident set of one process, bytes.
    pub(crate) max_rss: u64,
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Its process id.
    pub(crate) pid: u32,
    /// What was asked for.
    pub(crate) settings: Settings,
    /// What the segment said.
    pub(crate) tree: Tree,
    /// Whom it never reached.
    pub(crate) unreached: Vec<Stranger>,
    /// What it cost.
    pub(crate) usage: Usage,
    /// How it ended.
    pub(crate) outcome: Outcome,
}

impl Finished {
    /// The object `--stats` writes.
    pub(crate) fn json(&self) -> Value {
        let command: Vec<_> = self
            .command
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        let (status, signal) = match self.outcome {
            Outcome::Exited(status) => (Some(status), None),
            Outcome::Killed(signal) => (None, Some(signal)),
        };
        let mut map = Map::new();
        map.insert(
            "zfolio".into(),
            json!({ "version": env!("CARGO_PKG_VERSION"), "schema": SCHEMA }),
        );
        map.insert("command".into(), json!(command));
        map.insert("pid".into(), self.pid.into());
        let mut config = json!({
            "high_bytes": self.settings.high,
            "high_is_shared": self.settings.shared,
            "compressor": self.settings.compressor.name(),
            "folio_bytes": self.settings.folio.bytes(),
            "folio_order": self.settings.folio.get(),
            "engines": self.settings.engines,
            "folio_compaction": self.settings.folio_compaction,
            "tier": self.settings.tier.name(),
        });
        for (key, value) in self.settings.behind.json() {
            config[key] = value;
        }
        map.insert("config".into(), config);
        map.insert(
            "machine".into(),
            json!({
                "kernel": machine::kernel_release(),
                "cpus": machine::cpus(),
                "page_size_bytes": PAGE_SIZE,
                "mem_total_bytes": machine::mem_total(),
            }),
        );
        map.insert("exit".into(), json!({ "status": status, "signal": signal }));
        map.insert(
            "usage".into(),
            json!({
                "wall_s": self.usage.wall.as_secs_f64(),
                "user_s": self.usage.user.as_secs_f64(),
                "sys_s": self.usage.sys.as_secs_f64(),
                "max_rss_bytes": self.usage.max_rss,
            }),
        );
        map.insert("unreached".into(), unreached::json(&self.unreached));
        map.extend(self.tree.json());
        Value::Object(map)
    }

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
                [one] => format!("process {} ({})", one.pid, one.comm),
                many => format!(
                    "{} processes (first: {} {})",
                    many.len(),
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
        let high = short(self.settings.high);
        let processes = counted(self.tree.loaded, "process", "processes");
        let Some(largest) = self
            .tree
            .managed()
            .max_by_key(|process| process.figures.get(Counter::ProgramPeak))
        else {
            return vec![self.nothing_managed(&high, &processes)];
        };
        let managed = self.tree.managed().count();
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
                "zfolio: cost: {} page faults served (p50 {}, p99 {}), {} of CPU for compression, {} waiting at high.",
                grouped(faults.count()),
                duration(faults.percentile_ns(50)),
                duration(faults.percentile_ns(99)),
                duration(total.get(Counter::ManagerCpuNs)),
                duration(total.get(Counter::StallNs)),
            ),
        ];
        lines.extend(self.about_high(largest));
        lines.extend(self.about_backing());
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
        let refused = self.tree.processes.iter();
        let refused = refused.filter(|process| process.figures.get(Counter::BackingRefused) > 0);
        let trouble = [
            (refused.count() as u64, "processes without it"),
            (total.get(Counter::BackingWriteFail), "writes failed"),
            (total.get(Counter::BackingFull), "times full"),
        ];
        let trouble: String = trouble
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("; {} {what}", grouped(*count)))
            .collect();
        Some(format!(
            "zfolio: backing: {} written back, {} read{trouble}.",
            pages(Counter::Pswpout),
            pages(Counter::Pswpin),
        ))
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
                "zfolio: nothing was managed: a process used {peak} (high {high}), of files or \
                 without the library; {processes}."
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

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_runtime::options::Codec;

    fn finished(tree: Tree) -> Finished {
        Finished {
            command: vec!["/usr/bin/python3".into(), "-c".into()],
            pid: 100,
            settings: Settings {
                high: 200 << 20,
                faults: Faults::Message,
                compressor: Compressor(Codec::LZ4),
                folio: Order::K64,
                engines: 0,
                folio_compaction: true,
                tier: Tier::Off,
                quiet: false,
                shared: true,
                behind: Checked::default(),
            },
            tree,
            unreached: Vec::new(),
            usage: Usage {
                wall: Duration::from_secs(2),
                max_rss: 12 << 20,
                ..Usage::default()
            },
            outcome: Outcome::Exited(3),
        }
    }

    fn example() -> Tree {
        Tree::read(&crate::stats::tests::example())
    }

    #[test]
    fn the_summary_is_three_lines_of_plain_words() {
        assert_eq!(
            finished(example()).summary(),
            [
                "zfolio: python3 needed 474 MiB at its peak and lived in 201 MiB (high 200M); 3 processes, 1 managed.",
                "zfolio: 380 MiB compressed to 120 MiB (3.2x) at most; 1.1 GiB moved out, 781 MiB brought back.",
                "zfolio: cost: 100 page faults served (p50 20 us, p99 20 us), 4.1 s of CPU for compression, 0.3 s waiting at high.",
            ]
        );
    }

    #[test]
    fn what_could_not_leave_is_told_where_high_was_not_kept() {
        let segment = crate::stats::tests::example();
        segment.slots[0].set(Counter::StaysReadOnly, 96 << 20);
        let kept = finished(Tree::read(&segment)).summary();
        assert_eq!(kept.len(), 3, "{kept:?}");
        segment.slots[0].set(Counter::ResidentPeakSteady, 290 << 20);
        assert_eq!(
            finished(Tree::read(&segment)).summary()[3],
            "zfolio: high was not kept: 96 MiB could not leave (96 MiB read-only)."
        );
    }

    #[test]
    fn nothing_managed_is_one_line() {
        let mut tree = example();
        tree.processes.clear();
        tree.loaded = 1;
        assert_eq!(
            finished(tree).summary(),
            [
                "zfolio: nothing needed managing: python3 used 12 MiB at most (high 200M); 1 process."
            ]
        );
        let mut uncounted = finished(Tree::default());
        assert_eq!(
            uncounted.summary(),
            ["zfolio: nothing needed managing: python3 used 12 MiB at most (high 200M)."]
        );
        uncounted.usage.max_rss = 300 << 20;
        assert_eq!(
            uncounted.summary(),
            ["zfolio: nothing was managed: python3 did not load the library (it used 300 MiB)."]
        );
    }

    #[test]
    fn reasons_are_told_once() {
        let mut tree = example();
        tree.processes.push(tree.processes[1].clone());
        assert_eq!(
            finished(tree.clone()).unmanaged(),
            ["zfolio: 2 processes (first: 101 sh) ran unmanaged: userfaultfd: not permitted"]
        );
        assert_eq!(finished(tree.clone()).failures(), Vec::<String>::new());
        tree.processes[0].state = state::FAILED;
        tree.processes[0].message = "decompression failed\nat 0x1000".into();
        assert_eq!(
            finished(tree).failures(),
            ["zfolio: process 100 (python3): decompression failed at 0x1000"]
        );
    }

    #[test]
    fn the_json_has_its_keys() {
        let json = finished(example()).json();
        assert_eq!(json["config"]["high_bytes"], 200 << 20);
        assert_eq!(json["config"]["folio_order"], 4);
        assert_eq!(json["exit"], json!({ "status": 3, "signal": null }));
        assert_eq!(json["usage"]["wall_s"], 2.0);
        assert_eq!(json["command"][0], "/usr/bin/python3");
        for key in [
            "zfolio",
            "machine",
            "total",
            "processes",
            "processes_loaded",
            "processes_managed",
        ] {
            assert!(!json[key].is_null(), "{key}");
        }
    }

    #[test]
    fn durations_read() {
        assert_eq!(duration(0), "0 ns");
        assert_eq!(duration(21_499), "21 us");
        assert_eq!(duration(6_000_000), "6 ms");
        assert_eq!(duration(300_000_000), "0.3 s");
        assert_eq!(duration(4_100_000_000), "4.1 s");
    }
}
