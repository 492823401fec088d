//! What is run of a workload, and the rows it gives.

use super::workload::{OWN, WORKLOADS, Workload};
use crate::args::{self, BenchPeers};
use crate::output::progress::Progress;
use crate::output::workload_report::Told;
use crate::rig::{self, Job, Ran, Rig, Side, Unfound};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::{MIN_HIGH, short};

/// Least share with `--quick`: in little memory, what a program always needs
/// counts for more.
pub(super) const QUICK_SHARE: u32 = 65;
/// Characters of a command that are shown.
pub(super) const WORDS: usize = 120;
/// Smallest `--size`, bytes.
pub(super) const LEAST: u64 = 32 << 20;

/// What `--faults` is for our side's `zfolio run`; with `auto` nothing.
const FAULTS: [[&str; 2]; 4] = [
    ["--faults", "in-thread"],
    ["--faults", "guard"],
    ["--faults", "protect"],
    ["--faults", "message"],
];

/// What to do.
pub(super) struct Plan {
    pub(super) size: u64,
    pub(super) share: Option<u32>,
    pub(super) runs: u32,
    pub(super) seed: u64,
    pub(super) timeout: Duration,
    pub(super) workloads: Vec<&'static Workload>,
    /// A program of the user's, in place of the workloads.
    pub(super) own: Vec<OsString>,
    /// Empty: all there are.
    pub(super) only: Vec<String>,
    /// `--faults` of our side.
    pub(super) faults: String,
    pub(super) quick: bool,
}

/// A row: one side's runs of a workload.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) side: Side,
    /// `--high`, or the group's limit; bytes.
    pub(super) limit: Option<u64>,
    /// By phase; a figure a round.
    pub(super) figures: BTreeMap<String, Vec<f64>>,
    /// Most memory used, and of it the pool charged to nobody; bytes, a round.
    pub(super) used: Vec<u64>,
    pub(super) pool: Vec<u64>,
    /// Of whole runs, a round: elapsed and in the kernel, seconds.
    pub(super) wall: Vec<f64>,
    pub(super) sys: Vec<f64>,
    /// Why there are no (more) figures.
    pub(super) failed: Option<String>,
    /// It failed otherwise than by lasting too long.
    pub(super) broken: bool,
}

/// A workload's rows.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) workload: &'static Workload,
    /// What it needs without a limit, and what each row may use; bytes.
    pub(super) need: u64,
    pub(super) total: u64,
    pub(super) units: Vec<(String, String)>,
    pub(super) rows: Vec<Row>,
    /// Why it was not run at all.
    pub(super) left_out: Option<String>,
}

pub(super) fn usage(what: &str, why: impl std::fmt::Display, mend: &str) -> Failure {
    Failure::new(Status::Usage, what, why, mend)
}

impl Plan {
    pub(super) fn of(args: &BenchPeers) -> Result<Self, Failure> {
        let memory = machine::mem_total();
        let default = if args.quick { 128 << 20 } else { 1 << 30 };
        let size = args.size.map_or(default, |size| size.bytes(memory));
        if size < LEAST {
            let why = format!("{} is below the least, {}", short(size), short(LEAST));
            return Err(usage("--size", why, "give it more"));
        }
        if size > machine::available() / 2 {
            let why = format!("{} is more than half of this machine's memory", short(size));
            return Err(usage("--size", why, "give it less"));
        }
        let workloads = if args.command.is_empty() {
            args::chosen("--workload", &args.workload, &WORKLOADS, |w| w.name)?
        } else {
            zfolio_host::target::find(&args.command[0])?;
            vec![&OWN]
        };
        for name in &args.only {
            if !is_a_side(name) {
                let why = format!("no row is called {name}");
                let mend = "choose native, run, region, file, zram-ALGORITHM or zswap-COMPRESSOR";
                return Err(usage("--only", why, mend));
            }
        }
        Ok(Self {
            size,
            share: args.share,
            runs: args.runs.unwrap_or(if args.quick { 1 } else { 5 }),
            seed: args.seed,
            timeout: Duration::from_secs(args.limit),
            workloads,
            own: args.command.clone(),
            only: args.only.clone(),
            faults: args.faults.clone(),
            quick: args.quick,
        })
    }

    /// What is run, for people.
    pub(super) fn what(&self) -> String {
        if self.own.is_empty() {
            return format!("Workloads of about {} MiB", self.size >> 20);
        }
        let words: Vec<_> = self.own.iter().map(|word| word.to_string_lossy()).collect();
        let words = words.join(" ").replace(char::is_control, " ");
        words.chars().take(WORDS).collect()
    }

    /// The sides to be measured; notes those asked for that are not here.
    pub(super) fn sides(&self, rig: &mut Rig) -> Result<Vec<Side>, Failure> {
        let offered = rig.sides.clone();
        if self.only.is_empty() {
            // Quick: one of each kind.
            let mut kinds = Vec::new();
            let first = |side: &&Side| {
                let kind = std::mem::discriminant(*side);
                let new = !kinds.contains(&kind);
                kinds.push(kind);
                new || !self.quick
            };
            return Ok(offered.iter().filter(first).cloned().collect());
        }
        let mut sides = Vec::new();
        for name in &self.only {
            match offered.iter().find(|side| side.name() == *name) {
                Some(side) if !sides.contains(side) => sides.push(side.clone()),
                Some(_) => {}
                None => rig.left_out.push(format!("{name}: not offered here")),
            }
        }
        if sides.is_empty() {
            let why = rig.left_out.join("; ");
            return Err(usage("--only", why, "see zfolio bench peers --quick"));
        }
        Ok(sides)
    }

    pub(super) fn job<'a>(&self, command: &'a [OsString], limit: u64, need: u64) -> Job<'a> {
        Job {
            command,
            limit,
            swap: 2 * need + (64 << 20),
            options: FAULTS
                .iter()
                .find(|option| option[1] == self.faults)
                .map_or(&[], |option| &option[..]),
            settings: &[],
            timeout: self.timeout,
            watched: false,
        }
    }

    /// All rows of one workload.
    pub(super) fn compare(
        &self,
        rig: &mut Rig,
        workload: &'static Workload,
        sides: &[Side],
    ) -> Compared {
        let mut compared = Compared {
            workload,
            need: 0,
            total: 0,
            units: Vec::new(),
            rows: Vec::new(),
            left_out: workload.missing(),
        };
        if compared.left_out.is_some() {
            return compared;
        }
        let command = workload.command(rig, self.size, self.seed, &self.own);
        let native = match rig.run(&Side::Native, &self.job(&command, 0, self.size)) {
            Ok(ran) => ran,
            Err(why) => {
                compared.left_out = Some(format!("it fails without a limit: {why}"));
                return compared;
            }
        };
        let told = Told::read(&native.stdout);
        compared.units = told.units();
        compared.units.extend(workload.timed());
        compared.need = native.charged.unwrap_or(0).max(native.resident);
        let usual = if self.quick {
            workload.share.max(QUICK_SHARE)
        } else {
            workload.share
        };
        let share = u64::from(self.share.unwrap_or(usual));
        compared.total = (compared.need * share / 100).max(MIN_HIGH);
        let steps = sides.len() * (self.runs as usize + 1);
        let progress = Progress::new(workload.name, steps as u64);
        for side in sides {
            compared
                .rows
                .push(self.row(rig, side, &command, &compared, &told));
            progress.step();
        }
        for round in 0..self.runs as usize {
            let count = compared.rows.len();
            for turn in 0..count {
                let row = &mut compared.rows[(round + turn) % count];
                if row.failed.is_none() {
                    let job = self.job(&command, row.limit.unwrap_or(0), compared.need);
                    let ran = rig.run(&row.side, &job);
                    row.add(ran, &told, workload.timed());
                    rig::settle();
                }
                progress.step();
            }
        }
        compared
    }

    /// A row without figures yet, its limit searched; `told`: what the program put out
    /// without one.
    pub(super) fn row(
        &self,
        rig: &mut Rig,
        side: &Side,
        command: &[OsString],
        at: &Compared,
        told: &Told,
    ) -> Row {
        let limit = match side {
            Side::Native => Ok(None),
            Side::Region if !at.workload.asks_for_regions() => Err(Unfound {
                why: "this program does not ask for regions".to_owned(),
                broken: false,
            }),
            side => {
                let job = self.job(command, 0, at.need);
                let agrees = |ran: &Ran| Told::read(&ran.stdout).agrees(told);
                rig.search(side, &job, at.total, at.need, agrees).map(Some)
            }
        };
        let (limit, failed, broken) = match limit {
            Ok(limit) => (limit, None, false),
            Err(unfound) => (None, Some(unfound.why), unfound.broken),
        };
        Row {
            side: side.clone(),
            limit,
            figures: BTreeMap::new(),
            used: Vec::new(),
            pool: Vec::new(),
            wall: Vec::new(),
            sys: Vec::new(),
            failed,
            broken,
        }
    }
}

/// Whether a row of some machine is called so.
pub(super) fn is_a_side(name: &str) -> bool {
    let with = |prefix| {
        name.strip_prefix(prefix)
            .is_some_and(|rest: &str| !rest.is_empty())
    };
    ["native", "run", "region", "file"].contains(&name) || with("zram-") || with("zswap-")
}

impl Row {
    /// A round; `timed`: the phase that is the whole run.
    pub(super) fn add(
        &mut self,
        ran: Result<Ran, String>,
        native: &Told,
        timed: Option<(String, String)>,
    ) {
        let ran = match ran {
            Ok(ran) => ran,
            Err(why) => {
                self.broken = !why.starts_with(rig::ENDED);
                self.failed = Some(why);
                return;
            }
        };
        let told = Told::read(&ran.stdout);
        if let Err(why) = told.agrees(native) {
            self.broken = true;
            self.failed = Some(why);
            return;
        }
        let told = told
            .phases
            .into_iter()
            .map(|(phase, value, _)| (phase, value));
        let timed = timed.map(|(phase, _)| (phase, ran.wall));
        for (phase, value) in told.chain(timed) {
            self.figures.entry(phase).or_default().push(value);
        }
        self.used.extend(ran.used());
        self.pool.push(ran.pool);
        self.wall.push(ran.wall);
        self.sys.push(ran.sys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rows() {
        for name in ["native", "run", "region", "file", "zram-lz4", "zswap-zstd"] {
            assert!(is_a_side(name), "{name}");
        }
        for name in ["", "zram", "zram-", "disk", "Run"] {
            assert!(!is_a_side(name), "{name}");
        }
    }

    fn row() -> Row {
        Row {
            side: Side::Run,
            limit: None,
            figures: BTreeMap::new(),
            used: Vec::new(),
            pool: Vec::new(),
            wall: Vec::new(),
            sys: Vec::new(),
            failed: None,
            broken: false,
        }
    }

    #[test]
    fn a_wrong_result_is_no_figure() {
        let native = Told::read("{\"check\":\"1\"}\n");
        let ran = |stdout: &str| {
            Ok(Ran {
                stdout: stdout.to_owned(),
                ..Ran::default()
            })
        };
        let phase = "{\"phase\":\"walk\",\"value\":2.0,\"unit\":\"s\"}\n";
        let mut right = row();
        let timed = OWN.timed();
        right.add(
            ran(&format!("{phase}{{\"check\":\"1\"}}\n")),
            &native,
            timed,
        );
        assert_eq!(right.figures["elapsed"], [0.0]);
        assert_eq!(right.figures["walk"], [2.0]);
        let mut wrong = row();
        wrong.add(ran(&format!("{phase}{{\"check\":\"2\"}}\n")), &native, None);
        assert!(wrong.broken && wrong.figures.is_empty());
        let mut slow = row();
        slow.add(Err(format!("{} 3 s", rig::ENDED)), &native, None);
        assert!(!slow.broken && slow.failed.is_some());
    }
}
