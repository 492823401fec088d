//! What is run of a program, and the columns it gives.

use super::search::{Probe, Search};
use super::workload::{PROGRAMS, Program, amount};
use crate::args::{self, BenchSaved};
use crate::output::ministat::Summary;
use crate::output::progress::Progress;
use crate::output::workload_report::Told;
use crate::rig::{self, Job, Ran, Rig, Side};
use std::ffi::OsString;
use std::time::Duration;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::{MIN_HIGH, short};
use zfolio_mm::PAGE_SIZE;

/// How `zfolio run` is told to compress.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) name: &'static str,
    pub(super) options: &'static [&'static str],
}

/// The first so many are tried where none is named.
const USUAL: usize = 4;

pub(super) const CONFIGS: [Config; 8] = [
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
    Config {
        name: "deflate-iaa",
        options: &["--compressor", "deflate-iaa"],
    },
    Config {
        name: "lz4-engines",
        options: &["--compressor", "lz4", "--engines", "auto"],
    },
    Config {
        name: "zstd-engines",
        options: &["--compressor", "zstd:1", "--engines", "auto"],
    },
    Config {
        name: "deflate-iaa-engines",
        options: &["--compressor", "deflate-iaa", "--engines", "auto"],
    },
];

/// Values of `--high` that are told apart: parts of what a program needs.
pub(super) const STEPS: u32 = 32;
pub(super) const QUICK_STEPS: u32 = 8;
/// Smallest `--size`, bytes.
pub(super) const LEAST: u64 = 32 << 20;

/// What to do.
#[derive(Debug)]
pub(super) struct Plan {
    /// Percent.
    pub(super) slowdown: u32,
    pub(super) size: u64,
    pub(super) seconds: f64,
    pub(super) runs: usize,
    pub(super) steps: u32,
    pub(super) seed: u64,
    pub(super) limit: Duration,
    pub(super) programs: Vec<&'static Program>,
    pub(super) configs: Vec<&'static Config>,
}

/// A run with a limit: what counts of it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sample {
    /// Elapsed, times that of the run without a limit; infinite if it was ended
    /// because that was certain to be too much.
    pub(super) times: f64,
    /// Most memory used, and of it `zfolio run` itself; bytes. 0 if it was ended.
    pub(super) used: u64,
    pub(super) own: u64,
    /// What was stored to its frames of the pool, when most was; `None` when
    /// nothing was.
    pub(super) ratio: Option<f64>,
}

impl super::search::Judged for Sample {
    fn figure(&self) -> f64 {
        self.times
    }
}

/// A configuration's runs of a program.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) config: &'static Config,
    pub(super) search: Search<Sample>,
    /// Why there are no more.
    pub(super) failed: Option<String>,
}

/// A program's columns.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) program: &'static Program,
    /// What it is told to do besides building its data.
    pub(super) amount: u64,
    /// What `--high` is tried in parts of, bytes: its need, as first measured.
    pub(super) scale: u64,
    /// Without a limit: the most memory in one process, bytes; seconds; a run each.
    pub(super) memory: Vec<u64>,
    pub(super) wall: Vec<f64>,
    pub(super) columns: Vec<Column>,
    pub(super) left_out: Option<String>,
}

impl Plan {
    pub(super) fn of(args: &BenchSaved) -> Result<Self, Failure> {
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
            configs: match args.only.is_empty() {
                true => CONFIGS[..USUAL].iter().collect(),
                false => args::chosen("--only", &args.only, &CONFIGS, |c| c.name)?,
            },
        })
    }

    /// The most a run may take, times that without a limit.
    pub(super) fn allowed(&self) -> f64 {
        1.0 + f64::from(self.slowdown) / 100.0
    }

    /// `--high` at a step, a part of `scale`; bytes.
    pub(super) fn high(&self, step: u32, scale: u64) -> u64 {
        let high = scale * u64::from(step) / u64::from(self.steps);
        (high / PAGE_SIZE as u64 * PAGE_SIZE as u64).max(MIN_HIGH)
    }

    pub(super) fn run(
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
    pub(super) fn compare(&self, rig: &mut Rig, program: &'static Program) -> Compared {
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
    pub(super) fn measure(&self, rig: &mut Rig, to: &mut Compared) -> Result<(), String> {
        let native = |rig: &mut Rig, command: &[OsString]| {
            self.run(rig, command, None, self.limit)
                .map_err(|why| format!("it fails without a limit: {why}"))
        };
        let program = to.program;
        to.amount = amount(self.seconds, program.first, |amount| {
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

    pub(super) fn columns(&self) -> Vec<Column> {
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
    pub(super) fn step(&self) -> Option<u32> {
        self.search.next().filter(|_| self.failed.is_none())
    }

    /// Takes a run that stands beside one of `native` seconds. One that was ended
    /// early was too slow, if `early` is what it was ended for.
    pub(super) fn add(&mut self, ran: Result<Ran, String>, native: f64, told: &Told, early: bool) {
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
    pub(super) fn of(ran: &Ran, native: f64) -> Result<Self, String> {
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
pub(super) struct Saved {
    /// Bytes: `--high`, the median of what was used, and how much less that is
    /// than without a limit (which may be less than nothing).
    pub(super) high: u64,
    pub(super) used: u64,
    pub(super) bytes: i64,
    /// Of what is used without a limit.
    pub(super) percent: f64,
    pub(super) ratio: Option<f64>,
    /// Percent: by the curve, and of the runs with it.
    pub(super) slowdown: f64,
    pub(super) spread: Summary,
}

impl Compared {
    /// What it uses without a limit, bytes: the median.
    pub(super) fn need(&self) -> Option<u64> {
        median(self.memory.iter().copied())
    }

    pub(super) fn saved(&self, plan: &Plan, column: &Column) -> Option<Saved> {
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
pub(super) fn median(of: impl Iterator<Item = u64>) -> Option<u64> {
    let mut all: Vec<u64> = of.collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}
