//! `zfolio bench saved`: how much memory real programs save while they are at
//! most so many percent slower.
//!
//! For each program and configuration the smallest `--high` is searched that is within the
//! limit. Every such run is compared with one without a limit of the same round:
//! configurations take turns, so that what disturbs the machine disturbs all. What a run used is its kernel's high-water
//! mark, manager and pool included, and `zfolio run` besides.
//!
//! | module | concept |
//! |---|---|
//! | `workload` | the programs, and how long they are made to take |
//! | `search` | the smallest `--high`, by a curve through all runs |
//! | `report` | table, JSON, plot |

mod report;
mod search;
mod workload;

use super::args::{self, BenchSaved};
use super::ministat::Summary;
use super::progress::Progress;
use super::results::Results;
use super::rig::{self, Job, Ran, Rig, Side};
use super::told::Told;
use crate::exit::{Failure, Status};
use crate::machine;
use crate::size::{MIN_HIGH, short};
use search::{Probe, Search};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;
use workload::{PROGRAMS, Program};
use zfolio_mm::PAGE_SIZE;

/// How `zfolio run` is told to compress.
#[derive(Debug)]
struct Config {
    name: &'static str,
    options: &'static [&'static str],
}

const CONFIGS: [Config; 4] = [
    Config {
        name: "lz4",
        options: &["--compressor", "lz4"],
    },
    Config {
        name: "zstd",
        options: &["--compressor", "zstd:1"],
    },
    Config {
        name: "auto",
        options: &["--compressor", "auto"],
    },
    Config {
        name: "auto-tier",
        options: &["--compressor", "auto", "--tier", "auto"],
    },
];

/// Values of `--high` that are told apart: parts of what a program needs.
const STEPS: u32 = 32;
const QUICK_STEPS: u32 = 8;
/// Smallest `--size`, bytes.
const LEAST: u64 = 32 << 20;

/// What to do.
#[derive(Debug)]
struct Plan {
    /// Percent.
    slowdown: u32,
    size: u64,
    seconds: f64,
    runs: usize,
    steps: u32,
    seed: u64,
    limit: Duration,
    programs: Vec<&'static Program>,
    configs: Vec<&'static Config>,
}

/// A run with a limit: what counts of it.
#[derive(Clone, PartialEq, Debug)]
struct Sample {
    /// Elapsed, times that of the run without a limit; infinite if it was ended
    /// because that was certain to be too much.
    times: f64,
    /// Most memory used, and of it `zfolio run` itself; bytes. 0 if it was ended.
    used: u64,
    own: u64,
    /// What was stored to its frames of the pool, when most was; `None` when
    /// nothing was.
    ratio: Option<f64>,
}

impl search::Judged for Sample {
    fn figure(&self) -> f64 {
        self.times
    }
}

/// A configuration's runs of a program.
#[derive(Debug)]
struct Column {
    config: &'static Config,
    search: Search<Sample>,
    /// Why there are no more.
    failed: Option<String>,
}

/// A program's columns.
#[derive(Debug)]
struct Compared {
    program: &'static Program,
    /// What it is told to do besides building its data.
    amount: u64,
    /// What `--high` is tried in parts of, bytes: its need, as first measured.
    scale: u64,
    /// Without a limit: the most memory in one process, bytes; seconds; a run each.
    memory: Vec<u64>,
    wall: Vec<f64>,
    columns: Vec<Column>,
    left_out: Option<String>,
}

/// Runs the experiment.
///
/// # Errors
/// When the command line makes no sense, a file cannot be written, or a program
/// fails or has another result.
pub(super) fn saved(args: &BenchSaved) -> Result<ExitCode, Failure> {
    let plan = Plan::of(args)?;
    let results = Results::open(&args.files)?;
    let mut rig = Rig::own()
        .map_err(|why| Failure::new(Status::Internal, "bench saved", why, "free what it names"))?;
    let compare = |program: &&'static Program| plan.compare(&mut rig, program);
    let all: Vec<Compared> = plan.programs.iter().map(compare).collect();
    let told = report::Report {
        plan: &plan,
        all: &all,
    };
    results.finish(&told.text(), &told.json(), || told.plot())?;
    let broken = |compared: &Compared| {
        let column = compared.columns.iter().find(|c| c.failed.is_some())?;
        let what = format!("{}, {}", compared.program.name, column.config.name);
        Some((what, column.failed.clone().unwrap_or_default()))
    };
    match all.iter().find_map(broken) {
        None => Ok(ExitCode::SUCCESS),
        Some((what, why)) => Err(Failure::new(
            Status::Internal,
            format!("bench saved: {what}"),
            why,
            "report this",
        )),
    }
}

impl Plan {
    fn of(args: &BenchSaved) -> Result<Self, Failure> {
        let usage = |why: String, mend| Err(Failure::new(Status::Usage, "--size", why, mend));
        let (size, seconds, runs, steps) = if args.quick {
            (48 << 20, 1, 1, QUICK_STEPS)
        } else {
            (256 << 20, 6, 3, STEPS)
        };
        let size = args.size.map_or(size, |s| s.bytes(machine::mem_total()));
        if size < LEAST {
            let why = format!("{} is below the least, {}", short(size), short(LEAST));
            return usage(why, "give it more");
        }
        if size > machine::available() / 2 {
            let why = format!("{} is more than half of this machine's memory", short(size));
            return usage(why, "give it less");
        }
        Ok(Self {
            slowdown: args.slowdown,
            size,
            seconds: f64::from(args.seconds.unwrap_or(seconds)),
            runs: args.runs.unwrap_or(runs) as usize,
            steps,
            seed: args.seed,
            limit: Duration::from_secs(args.limit),
            programs: args::chosen("--workload", &args.workload, &PROGRAMS, |p| p.name)?,
            configs: args::chosen("--only", &args.only, &CONFIGS, |c| c.name)?,
        })
    }

    /// The most a run may take, times that without a limit.
    fn allowed(&self) -> f64 {
        1.0 + f64::from(self.slowdown) / 100.0
    }

    /// `--high` at a step, a part of `scale`; bytes.
    fn high(&self, step: u32, scale: u64) -> u64 {
        let high = scale * u64::from(step) / u64::from(self.steps);
        (high / PAGE_SIZE as u64 * PAGE_SIZE as u64).max(MIN_HIGH)
    }

    fn run(
        &self,
        rig: &mut Rig,
        command: &[OsString],
        with: Option<(&Config, u64)>,
        timeout: Duration,
    ) -> Result<Ran, String> {
        let (side, limit) = match with {
            None => (Side::Native, 0),
            Some((_, high)) => (Side::Run, high),
        };
        let ran = rig.run(
            &side,
            &Job {
                command,
                limit,
                swap: 0,
                options: with.map_or(&[], |(config, _)| config.options),
                settings: &[],
                timeout: timeout.min(self.limit),
                watched: true,
            },
        );
        rig::settle();
        ran
    }

    /// All columns of one program.
    fn compare(&self, rig: &mut Rig, program: &'static Program) -> Compared {
        let mut compared = Compared {
            program,
            amount: 0,
            scale: 0,
            memory: Vec::new(),
            wall: Vec::new(),
            columns: Vec::new(),
            left_out: program.missing(),
        };
        if compared.left_out.is_none() {
            compared.left_out = self.measure(rig, &mut compared).err();
        }
        compared
    }

    /// # Errors
    /// How the program fails without a limit, in a sentence.
    fn measure(&self, rig: &mut Rig, to: &mut Compared) -> Result<(), String> {
        let native = |rig: &mut Rig, command: &[OsString]| {
            self.run(rig, command, None, self.limit)
                .map_err(|why| format!("it fails without a limit: {why}"))
        };
        let program = to.program;
        to.amount = workload::amount(self.seconds, program.first, |amount| {
            let command = program.command(rig, self.size, amount, self.seed);
            native(rig, &command).map(|ran| ran.wall)
        })?;
        let command = program.command(rig, self.size, to.amount, self.seed);
        // Its first run has read the files it needs.
        let first = native(rig, &command)?;
        let told = Told::read(&first.stdout);
        to.scale = first.high_water;
        to.columns = self.columns();
        let most = self.configs.len() * Search::<Sample>::most(self.steps, self.runs);
        let progress = Progress::new(program.name, most as u64);
        for round in 0.. {
            let open: Vec<usize> = (0..to.columns.len())
                .filter(|at| to.columns[*at].step().is_some())
                .collect();
            if open.is_empty() {
                break;
            }
            let ran = native(rig, &command)?;
            Told::read(&ran.stdout).agrees(&told)?;
            to.memory.push(ran.high_water);
            to.wall.push(ran.wall);
            for turn in 0..open.len() {
                let column = &mut to.columns[open[(round + turn) % open.len()]];
                let Some(step) = column.step() else { continue };
                let high = self.high(step, to.scale);
                // Twice of what is allowed is too much, whatever disturbs it.
                let enough = Duration::from_secs_f64(ran.wall * self.allowed() * 2.0 + 2.0);
                let with = self.run(rig, &command, Some((column.config, high)), enough);
                column.add(with, ran.wall, &told, enough < self.limit);
                progress.step();
            }
        }
        Ok(())
    }

    fn columns(&self) -> Vec<Column> {
        let column = |config: &&'static Config| Column {
            config,
            search: Search::new(self.steps, self.runs, self.allowed()),
            failed: None,
        };
        self.configs.iter().map(column).collect()
    }
}

impl Column {
    /// The step of `--high` to run at next.
    fn step(&self) -> Option<u32> {
        self.search.next().filter(|_| self.failed.is_none())
    }

    /// Takes a run that stands beside one of `native` seconds. One that was ended
    /// early was too slow, if `early` is what it was ended for.
    fn add(&mut self, ran: Result<Ran, String>, native: f64, told: &Told, early: bool) {
        let sample = match ran {
            Ok(ran) => Told::read(&ran.stdout)
                .agrees(told)
                .and_then(|()| Sample::of(&ran, native)),
            Err(why) if early && why.starts_with(rig::ENDED) => Ok(Sample {
                times: f64::INFINITY,
                used: 0,
                own: 0,
                ratio: None,
            }),
            Err(why) => Err(why),
        };
        match sample {
            Ok(sample) => self.search.add(sample),
            Err(why) => self.failed = Some(why),
        }
    }
}

impl Sample {
    /// # Errors
    /// Statistics without the figure.
    fn of(ran: &Ran, native: f64) -> Result<Self, String> {
        let most = ran.stats["usage"]["max_rss_bytes"].as_u64();
        let most = most.ok_or("its statistics cannot be read")?;
        Ok(Self {
            times: ran.wall / native.max(1e-9),
            used: most + ran.first,
            own: ran.first,
            ratio: ran.stats["total"]["most_held"]["ratio_pool"].as_f64(),
        })
    }
}

/// What the smallest `--high` within the limit comes to.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Saved {
    /// Bytes: `--high`, the median of what was used, and how much less that is
    /// than without a limit (which may be less than nothing).
    high: u64,
    used: u64,
    bytes: i64,
    /// Of what is used without a limit.
    percent: f64,
    ratio: Option<f64>,
    /// Percent: by the curve, and of the runs with it.
    slowdown: f64,
    spread: Summary,
}

impl Compared {
    /// What it uses without a limit, bytes: the median.
    fn need(&self) -> Option<u64> {
        median(self.memory.iter().copied())
    }

    fn saved(&self, plan: &Plan, column: &Column) -> Option<Saved> {
        let (probe, times): (&Probe<Sample>, f64) = column.search.smallest()?;
        let need = self.need()?;
        let used = median(probe.samples.iter().map(|sample| sample.used))?;
        let bytes = need.cast_signed() - used.cast_signed();
        let ratios: Vec<f64> = probe.samples.iter().filter_map(|s| s.ratio).collect();
        let slower = probe.samples.iter().map(|s| (s.times - 1.0) * 100.0);
        Some(Saved {
            high: plan.high(probe.step, self.scale),
            used,
            bytes,
            percent: bytes as f64 * 100.0 / need.max(1) as f64,
            ratio: Summary::of(&ratios).map(|ratios| ratios.median),
            slowdown: (times - 1.0) * 100.0,
            spread: Summary::of(&slower.collect::<Vec<f64>>())?,
        })
    }
}

/// The median, of the two in the middle the greater: what is used is not to be
/// made less of.
fn median(of: impl Iterator<Item = u64>) -> Option<u64> {
    let mut all: Vec<u64> = of.collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}
