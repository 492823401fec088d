//! How what is saved is shown.

use super::column::Alike;
use super::column::{Column, Kept, Sample, median};
use super::plan::{Compared, Plan};
use super::search::Search;
use crate::output::ministat::Summary;
use crate::output::plot::{self, Series};
use crate::output::table::Table;
use std::fmt::Write as _;
use zfolio_host::machine;

pub(super) struct Report<'a> {
    pub(super) plan: &'a Plan,
    pub(super) all: &'a [Compared],
}

impl Report<'_> {
    pub(super) fn text(&self) -> String {
        let plan = self.plan;
        let mut text = format!(
            "Memory saved at no more than {} % slowdown: {}; {} processors, Linux {}.\n\
             high: the smallest within it, by a curve through {} to {} runs, each beside one without a \
             limit{},\nof {} values told apart (a {}th of what the program needs). used: most memory \
             of the largest process,\npool and manager included, and zfolio run itself; of the kernel's \
             rows what is charged to the group, and the pool; medians.\nslowdown: of the work, apart from \
             building the data, where a program tells it. Every result is as without a limit.\n",
            plan.slowdown,
            plan.what(),
            machine::cpus(),
            machine::kernel_release(),
            plan.runs,
            Search::<Sample>::most(plan.steps, plan.runs),
            if plan.paired {
                " at the same time,\non the other half of the processors, which they exchange ten times a second"
            } else {
                ""
            },
            plan.steps,
            plan.steps,
        );
        for left_out in &plan.left_out {
            let _ = writeln!(text, "Left out: {left_out}.");
        }
        for compared in self.all {
            text.push('\n');
            text.push_str(&compared.text(plan));
        }
        let line = self.headline();
        if !line.is_empty() {
            let _ = write!(text, "\nMemory saved, mean of the programs: {line}.\n");
        }
        text
    }

    /// By configuration: the mean over the programs, none saved where no `--high`
    /// is within the limit.
    fn headline(&self) -> String {
        let parts = self.plan.configs.iter().filter_map(|config| {
            let percents: Vec<f64> = self
                .all
                .iter()
                .flat_map(|compared| {
                    let columns = compared.columns.iter();
                    let own = columns.filter(|column| column.config.name == config.name);
                    own.filter_map(|column| compared.percent(self.plan, column))
                })
                .collect();
            let mean = percents.iter().sum::<f64>() / percents.len() as f64;
            (!percents.is_empty()).then(|| format!("{} {mean:.0} %", config.name))
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    /// A line a configuration: percent saved, program by program.
    pub(super) fn plot(&self) -> Result<String, String> {
        let shown = || {
            self.all
                .iter()
                .filter(|compared| compared.left_out.is_none())
        };
        let series = self.plan.configs.iter().map(|config| {
            let points = (0_u32..).zip(shown()).filter_map(|(at, compared)| {
                let mut columns = compared.columns.iter();
                let column = columns.find(|column| column.config.name == config.name)?;
                let percent = compared.percent(self.plan, column)?;
                Some((f64::from(at), percent.max(0.0)))
            });
            Series {
                name: config.name.to_owned(),
                points: points.collect(),
            }
        });
        let names: Vec<&str> = shown().map(|compared| compared.program.name).collect();
        plot::lines(
            &format!("Saved at {} %: {}", self.plan.slowdown, names.join(", ")),
            "program",
            "% of its memory",
            &series.collect::<Vec<_>>(),
        )
    }
}

impl Compared {
    fn text(&self, plan: &Plan) -> String {
        let name = self.program.name;
        if let Some(why) = &self.left_out {
            return format!("{name}: left out: {why}\n");
        }
        let mib = |bytes: u64| bytes >> 20;
        let of_work: Vec<f64> = self.native.iter().map(|native| native.took).collect();
        let wall: Vec<f64> = self.native.iter().map(|native| native.wall).collect();
        let (all, work) = (Summary::of(&wall), Summary::of(&of_work));
        let mut text = format!(
            "{name}: without a limit {} MiB, {:.2}..{:.2} s\n",
            median(self.native.iter().map(|native| native.memory)).map_or(0, mib),
            all.map_or(0.0, |all| all.min),
            all.map_or(0.0, |all| all.max),
        );
        let slower = |times: f64| (times - 1.0) * 100.0;
        let alike = |which: &dyn Fn(&Alike) -> f64| {
            let all: Vec<f64> = self.alike.iter().map(which).collect();
            Summary::of(&all)
        };
        if let (Some(alike), Some(cpu)) = (alike(&|two| two.work), alike(&|two| two.cpu)) {
            let _ = writeln!(
                text,
                "Of two such at once the second took {:+.1}..{:+.1} % more for its work, and {:+.1}..{:+.1} % \
                 more processor time.",
                slower(alike.min),
                slower(alike.max),
                slower(cpu.min),
                slower(cpu.max),
            );
        } else if let Some(all) = work.filter(|all| all.max > all.min * plan.allowed()) {
            let _ = writeln!(
                text,
                "(This machine is not quiet: these differ by {:.0} %.)",
                slower(all.max / all.min)
            );
        }
        let mut table = Table::new([
            "row",
            "high",
            "used",
            "saved",
            "%",
            "slowdown",
            "spread",
            "pool ratio",
        ]);
        for column in &self.columns {
            let Some(saved) = self.saved(plan, column) else {
                continue;
            };
            table.row([
                column.config.name.to_owned(),
                mib(saved.high).to_string(),
                mib(saved.used).to_string(),
                (saved.bytes >> 20).to_string(),
                format!("{:.0}", saved.percent),
                format!("{:+.1} %", saved.slowdown),
                format!("{:+.1}..{:+.1}", saved.spread.min, saved.spread.max),
                saved.ratio.map_or("-".to_owned(), |r| format!("{r:.2}")),
            ]);
        }
        if self
            .columns
            .iter()
            .any(|column| self.saved(plan, column).is_some())
        {
            text.push_str(&table.text());
        }
        for column in &self.columns {
            let name = column.config.name;
            if let Some(kept) = Kept::of(column.controlled(), f64::from(plan.slowdown)) {
                text.push_str(&kept.text());
            }
            if let Some(why) = &column.failed {
                let _ = writeln!(text, "{name}: {why}");
            } else if let Some(slowest) = column.slowest(plan) {
                let _ = writeln!(text, "{name}: no high is within the limit: {slowest}");
            }
        }
        text
    }
}

impl Column {
    /// How slow it is with the greatest `--high`, where that is too slow as well.
    fn slowest(&self, plan: &Plan) -> Option<String> {
        let probe = self.search()?.greatest()?;
        let times = probe.samples.iter().map(|sample| sample.times);
        let least = times.fold(f64::INFINITY, f64::min);
        Some(if least.is_finite() {
            let slower = (least - 1.0) * 100.0;
            format!("{slower:+.1} % at best with all that it needs")
        } else {
            let times = plan.allowed() * 2.0;
            format!("it was ended after {times:.1} times the time, with all that it needs")
        })
    }
}

impl Kept {
    fn text(&self) -> String {
        format!(
            "slowdown: {:.0} % saved ({} MiB on average) since memory was first taken, {:.0} % over all; \
             whole runs {:+.1} % slower ({:+.1}..{:+.1}), thought {:.1}, its work {:+.1}; processor time \
             {:+.1} % ({:+.1}..{:+.1}); promise kept in {} of {} runs, by processor time in {}\n",
            self.percent,
            self.resident >> 20,
            self.whole,
            self.slowdown.median,
            self.slowdown.min,
            self.slowdown.max,
            self.estimated,
            self.work,
            self.cpu.median,
            self.cpu.min,
            self.cpu.max,
            self.kept,
            self.runs,
            self.kept_by_cpu,
        )
    }
}

impl Plan {
    /// What is run, for the first line.
    fn what(&self) -> String {
        if self.own.is_empty() {
            return format!(
                "programs of about {} MiB and {} s",
                self.load.size >> 20,
                self.load.seconds
            );
        }
        let words = self.own.iter().map(|word| word.to_string_lossy());
        words.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::column::Native;
    use super::super::column::{Controlled, Runs};
    use super::super::config::{CONFIGS, Held};
    use super::super::workload::{Load, PROGRAMS};
    use super::*;
    use serde_json::Value;
    use std::time::Duration;

    const MIB: u64 = 1 << 20;

    fn plan() -> Plan {
        Plan {
            slowdown: 5,
            load: Load {
                size: 320 * MIB,
                seconds: 6.0,
                seed: 1,
            },
            runs: 3,
            steps: 32,
            paired: false,
            limit: Duration::from_secs(60),
            programs: PROGRAMS.iter().collect(),
            own: Vec::new(),
            faults: "auto".to_owned(),
            configs: CONFIGS.iter().collect(),
            left_out: vec!["zram-zstd: this kernel has none".to_owned()],
        }
    }

    /// A column of which `high` from `step` on is within the limit, and then uses
    /// its `high` and 4 MiB of its own.
    fn column(plan: &Plan, which: usize, step: u32) -> Column {
        let mut search = Search::new(plan.steps, plan.runs, plan.allowed());
        while let Some(tried) = search.next() {
            let mut probes = search.probes.iter();
            let before = probes.find(|probe| probe.step == tried);
            let times = [1.01, 1.04, 1.02][before.map_or(0, |probe| probe.samples.len() % 3)];
            search.add(Sample {
                times: if tried < step { f64::INFINITY } else { times },
                used: plan.high(tried, 320 * MIB) + 4 * MIB,
                own: 4 * MIB,
                ratio: Some(2.5),
            });
        }
        Column {
            config: &CONFIGS[which],
            scale: 320 * MIB,
            runs: Runs::Searched(search),
            failed: None,
        }
    }

    /// Two runs of the controller, of which one kept the promise.
    fn controlled() -> Column {
        let run = |wall| Controlled {
            wall,
            work: wall + 0.01,
            cpu: wall - 0.03,
            estimated: 3.5,
            needed: 300 * MIB,
            resident: 180 * MIB,
            needed_whole: 300 * MIB,
            resident_whole: 240 * MIB,
        };
        Column {
            config: CONFIGS
                .iter()
                .find(|c| c.held == Held::Slowdown)
                .expect("one"),
            scale: 320 * MIB,
            runs: Runs::Controlled {
                runs: vec![run(1.04), run(1.08)],
                most: 2,
            },
            failed: None,
        }
    }

    fn native(memory: u64, wall: f64) -> Native {
        Native {
            wall,
            took: wall - 1.0,
            cpu: wall,
            memory,
            charged: Some(memory + 10 * MIB),
        }
    }

    fn compared(which: usize, columns: Vec<Column>) -> Compared {
        Compared {
            program: &PROGRAMS[which],
            amount: 1000,
            native: vec![
                native(321 * MIB, 6.0),
                native(320 * MIB, 6.3),
                native(319 * MIB, 5.9),
            ],
            alike: Vec::new(),
            columns,
            left_out: None,
        }
    }

    #[test]
    fn what_is_saved_is_what_is_not_used() {
        let plan = plan();
        let all = compared(0, vec![column(&plan, 0, 20), column(&plan, 1, 16)]);
        let saved = |at: usize| all.saved(&plan, &all.columns[at]).expect("one fits");
        let (lz4, zstd) = (saved(0), saved(1));
        assert_eq!((lz4.high, lz4.used), (200 * MIB, 204 * MIB));
        assert_eq!(lz4.bytes.cast_unsigned(), 116 * MIB);
        assert!((lz4.percent - 36.25).abs() < 1e-9);
        assert_eq!((zstd.high, zstd.bytes >> 20), (160 * MIB, 156));
        let slower = lz4.spread;
        assert!((lz4.slowdown - 2.0).abs() < 1e-9, "{lz4:?}");
        assert!((slower.min - 1.0).abs() < 1e-9 && (slower.max - 4.0).abs() < 1e-9);
        assert_eq!((lz4.ratio, slower.n), (Some(2.5), 3));
    }

    #[test]
    fn more_used_than_without_a_limit_is_less_than_nothing() {
        let plan = plan();
        let all = compared(0, vec![column(&plan, 0, 32)]);
        let saved = all.saved(&plan, &all.columns[0]).expect("it fits");
        assert_eq!((saved.bytes >> 20, saved.percent), (-4, -1.25));
    }

    #[test]
    fn of_pairs_it_is_told_what_two_alike_differ_by() {
        let mut plan = plan();
        plan.paired = true;
        let mut all = compared(0, vec![column(&plan, 0, 20)]);
        let alike = |work, cpu| Alike { work, cpu };
        all.alike = vec![alike(0.995, 1.001), alike(1.012, 0.998)];
        let report = Report {
            plan: &plan,
            all: &[all],
        };
        let text = report.text();
        assert!(text.contains("at the same time"), "{text}");
        assert!(
            text.contains("took -0.5..+1.2 % more for its work, and -0.2..+0.1 %"),
            "{text}"
        );
        assert!(!text.contains("not quiet"), "{text}");
        assert_eq!(report.json()["programs"][0]["alike"][1]["work"], 1.012);
    }

    #[test]
    fn every_form_has_every_program() {
        let plan = plan();
        let mut gone = compared(2, Vec::new());
        gone.left_out = Some("node is not installed".to_owned());
        let mut broken = column(&plan, 2, 16);
        broken.failed = Some("its result is [], without a limit it is [\"1\"]".to_owned());
        let all = [
            compared(0, vec![column(&plan, 0, 20), column(&plan, 3, 4)]),
            compared(3, vec![column(&plan, 0, 33), broken, controlled()]),
            gone,
        ];
        let report = Report {
            plan: &plan,
            all: &all,
        };
        let text = report.text();
        for part in [
            "no more than 5 % slowdown",
            "python: without a limit 320 MiB, 5.90..6.30 s",
            "(This machine is not quiet: these differ by 8 %.)",
            "auto-tier",
            "+2.0 %",
            "+1.0..+4.0",
            "lz4: no high is within the limit: it was ended after 2.1 times",
            "auto: its result is []",
            "node: left out: node is not installed",
            // Of lz4, 36.25 % of one program and nothing of the other.
            "mean of the programs: lz4 18 %, auto-tier 86 %, slowdown 40 %.",
            "slowdown: 40 % saved (180 MiB on average)",
            "processor time +3.0 % (+1.0..+5.0)",
            "promise kept in 1 of 2 runs, by processor time in 2",
            "Left out: zram-zstd: this kernel has none.",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let json = report.json();
        let first = &json["programs"][0]["columns"][0];
        assert_eq!(first["saved"]["bytes"], 116 * MIB);
        assert!(first["tried"].as_array().is_some_and(|all| all.len() > 3));
        assert_eq!(json["programs"][1]["columns"][0]["saved"], Value::Null);
        let by_itself = &json["programs"][1]["columns"][2]["controlled"];
        assert_eq!(by_itself["medians"]["promise_kept"], 1);
        assert!(report.plot().expect("drawn").contains("auto-tier"));
    }
}
