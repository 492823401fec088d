//! What is run of a program.

use super::column::{Alike, Column, Kept, Native, Sample, Saved, median};
use super::config::{CONFIGS, Config, Held, USUAL};
use super::search::{Probe, Search};
use super::workload::{Load, OWN, PROGRAMS, Program, amount};
use crate::args::{self, BenchSaved};
use crate::output::ministat::Summary;
use crate::output::progress::Progress;
use crate::rig::{self, Job, Ran, Rig, Side};
use std::ffi::OsString;
use std::fs;
use std::time::Duration;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::{MIN_HIGH, short};
use zfolio_mm::PAGE_SIZE;

/// Limits that are told apart: parts of what a program needs.
pub(super) const STEPS: u32 = 32;
pub(super) const QUICK_STEPS: u32 = 8;
/// Smallest `--size`, bytes.
pub(super) const LEAST: u64 = 32 << 20;
/// Runs of the controller for each of `--runs`.
pub(super) const CONTROLLED: usize = 3;

/// What to do.
#[derive(Debug)]
pub(super) struct Plan {
    /// Percent.
    pub(super) slowdown: u32,
    pub(super) load: Load,
    pub(super) runs: usize,
    pub(super) steps: u32,
    /// Whether the run without a limit that each is compared with goes on at the same time.
    pub(super) paired: bool,
    pub(super) limit: Duration,
    pub(super) programs: Vec<&'static Program>,
    /// The user's, where that is what is run.
    pub(super) own: Vec<OsString>,
    /// How faults are served, as of `zfolio run`.
    pub(super) faults: String,
    pub(super) configs: Vec<&'static Config>,
    /// Those that cannot be here, and why.
    pub(super) left_out: Vec<String>,
}

/// A program's columns.
#[derive(Debug)]
pub(super) struct Compared {
    pub(super) program: &'static Program,
    /// What it is told to do besides building its data.
    pub(super) amount: u64,
    /// Without a limit: a run each.
    pub(super) native: Vec<Native>,
    /// Of two at once, neither with a limit: the second, times the first.
    pub(super) alike: Vec<Alike>,
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
        let size = args
            .load
            .size
            .map_or(size, |s| s.bytes(machine::mem_total()));
        if size < LEAST {
            let why = format!("{} is below the least, {}", short(size), short(LEAST));
            return usage(why, "give it more");
        }
        let paired = Self::paired(args)?;
        let parts = if paired { 4 } else { 2 };
        if size > machine::available() / parts {
            let part = if paired { "a quarter" } else { "half" };
            let why = format!(
                "{} is more than {part} of this machine's memory",
                short(size)
            );
            return usage(why, "give it less");
        }
        let programs = if args.command.is_empty() {
            args::chosen("--workload", &args.workload, &PROGRAMS, |p| p.name)?
        } else {
            vec![&OWN]
        };
        Ok(Self {
            slowdown: args.slowdown,
            load: Load {
                size,
                seconds: f64::from(args.load.seconds.unwrap_or(seconds)),
                seed: args.load.seed,
            },
            runs: args.runs.unwrap_or(runs) as usize,
            steps,
            paired,
            limit: Duration::from_secs(args.limit),
            programs,
            own: args.command.clone(),
            faults: args.faults.clone(),
            configs: match args.only.is_empty() {
                true => CONFIGS[..USUAL].iter().collect(),
                false => args::chosen("--only", &args.only, &CONFIGS, |c| c.name)?,
            },
            left_out: Vec::new(),
        })
    }

    /// Whether two runs go on at once: a command of the user's may not bear another beside it.
    fn paired(args: &BenchSaved) -> Result<bool, Failure> {
        match args.paired.as_str() {
            "off" => Ok(false),
            "on" if !Rig::can_pair() => Err(Failure::new(
                Status::Usage,
                "--paired",
                "there is only one processor",
                "use --paired off",
            )),
            "on" => Ok(true),
            _ => Ok(args.command.is_empty() && Rig::can_pair()),
        }
    }

    /// What it is run with. Nothing of the system is changed where no row of the kernel's is asked
    /// for; those that it does not have are left out.
    ///
    /// # Errors
    /// When not even our side can be measured.
    pub(super) fn rig(&mut self) -> Result<Rig, String> {
        if !self.configs.iter().any(|config| config.is_kernel()) {
            return Rig::own();
        }
        let rig = Rig::new()?;
        let (there, gone) = self
            .configs
            .drain(..)
            .partition(|config| rig.sides.contains(&config.side()));
        self.configs = there;
        let none = |config: &&Config| format!("{}: this kernel has none", config.name);
        self.left_out = gone.iter().map(none).collect();
        self.left_out.extend(rig.left_out.iter().cloned());
        Ok(rig)
    }

    /// The most a run may take, times that without a limit.
    pub(super) fn allowed(&self) -> f64 {
        1.0 + f64::from(self.slowdown) / 100.0
    }

    /// The limit at a step, a part of `scale`; bytes.
    pub(super) fn high(&self, step: u32, scale: u64) -> u64 {
        let high = scale * u64::from(step) / u64::from(self.steps);
        (high / PAGE_SIZE as u64 * PAGE_SIZE as u64).max(MIN_HIGH)
    }

    fn job<'a>(&self, command: &'a [OsString], timeout: Duration) -> Job<'a> {
        Job {
            command,
            limit: 0,
            swap: 0,
            options: &[],
            settings: &[],
            timeout: timeout.min(self.limit),
            watched: true,
        }
    }

    /// Runs without a limit.
    fn native(&self, rig: &mut Rig, command: &[OsString]) -> Result<Ran, String> {
        let ran = rig.run(&Side::Native, &self.job(command, self.limit));
        rig::settle();
        ran.map_err(|why| format!("it fails without a limit: {why}"))
    }

    /// Runs without a limit, and with that of a configuration's `step`.
    fn beside(
        &self,
        rig: &mut Rig,
        commands: &[Vec<OsString>; 2],
        (column, step): (&Column, u32),
    ) -> Result<(Ran, Result<Ran, String>), String> {
        let (config, scale) = (column.config, column.scale);
        let promise = format!("{}%", self.slowdown);
        let mut options = config.options.to_vec();
        if !config.is_kernel() {
            options.extend(["--faults", self.faults.as_str()]);
        }
        let limit = if config.held == Held::Slowdown {
            options.extend(["--slowdown", promise.as_str()]);
            // (More than it needs: what is promised is the only limit.)
            2 * scale.max(MIN_HIGH)
        } else {
            self.high(step, scale)
        };
        let limited = |timeout| Job {
            limit,
            swap: 2 * scale + (64 << 20),
            options: &options,
            ..self.job(&commands[1], timeout)
        };
        // Twice of what is allowed is too much, whatever disturbs it.
        let most = self.allowed() * 2.0;
        if self.paired {
            let native = self.job(&commands[0], self.limit);
            let ran = rig.beside(&native, (&config.side(), &limited(self.limit)), most);
            rig::settle();
            return ran;
        }
        let native = self.native(rig, &commands[0])?;
        let enough = Duration::from_secs_f64(native.wall * most + 2.0);
        let ran = rig.run(&config.side(), &limited(enough));
        rig::settle();
        Ok((native, ran))
    }

    /// The command twice: for two runs at once, each with a directory of its own.
    fn commands(
        &self,
        rig: &Rig,
        program: &Program,
        amount: u64,
    ) -> Result<[Vec<OsString>; 2], String> {
        let of = |name: &str| -> Result<Vec<OsString>, String> {
            if program.is_own() {
                return Ok(self.own.clone());
            }
            let dir = rig.scratch().join(name);
            fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
            Ok(program.command(rig, &dir, self.load, amount))
        };
        Ok([of("without")?, of("with")?])
    }

    /// All columns of one program.
    pub(super) fn compare(&self, rig: &mut Rig, program: &'static Program) -> Compared {
        let mut compared = Compared {
            program,
            amount: 0,
            native: Vec::new(),
            alike: Vec::new(),
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
        let program = to.program;
        program.prepare(rig)?;
        if !program.is_own() {
            to.amount = amount(self.load.seconds, program.first, |amount| {
                let commands = self.commands(rig, program, amount)?;
                if !self.paired {
                    return self.native(rig, &commands[0]).map(|ran| ran.wall);
                }
                // (With half of the processors: a client and a server, say, may be faster then.)
                let pair = commands.each_ref().map(|c| self.job(c, self.limit));
                let ran = rig.beside(&pair[0], (&Side::Native, &pair[1]), f64::INFINITY);
                ran.map(|(ran, _)| ran.wall)
            })?;
        }
        let commands = self.commands(rig, program, to.amount)?;
        // Its first run has read the files it needs, and only measures what it needs.
        if program.is_own() {
            self.native(rig, &commands[0])?;
        }
        let first = self.native(rig, &commands[0])?;
        let told = program.told(&first.stdout);
        let need = Native::of(program, &first)?;
        to.columns = self.columns(&need);
        let searched = Search::<Sample>::most(self.steps, self.runs);
        let most = to
            .columns
            .iter()
            .map(|column| column.most(searched))
            .sum::<usize>();
        let alike = if self.paired { self.runs } else { 0 };
        let progress = Progress::new(program.name, (most + alike) as u64);
        for _ in 0..alike {
            let pair = commands.each_ref().map(|c| self.job(c, self.limit));
            let (one, other) = rig.beside(&pair[0], (&Side::Native, &pair[1]), f64::INFINITY)?;
            rig::settle();
            let (one, other) = (Native::of(program, &one)?, Native::of(program, &other?)?);
            to.alike.push(Alike {
                work: other.took / one.took.max(1e-9),
                cpu: other.cpu / one.cpu.max(1e-9),
            });
            progress.step();
        }
        for round in 0.. {
            let open: Vec<usize> = (0..to.columns.len())
                .filter(|at| to.columns[*at].step().is_some())
                .collect();
            if open.is_empty() {
                break;
            }
            for turn in 0..open.len() {
                let column = &mut to.columns[open[(round + turn) % open.len()]];
                let Some(step) = column.step() else { continue };
                let (ran, with) = self.beside(rig, &commands, (column, step))?;
                program.told(&ran.stdout).agrees(&told)?;
                let beside = Native::of(program, &ran)?;
                let early = ran.wall * self.allowed() * 2.0 + 2.0 < self.limit.as_secs_f64();
                column.add(program, with, &beside, &told, early);
                to.native.push(beside);
                progress.step();
            }
        }
        Ok(())
    }

    fn columns(&self, need: &Native) -> Vec<Column> {
        let column = |config: &'static Config| {
            let search = Search::new(self.steps, self.runs, self.allowed());
            let scale = need.need(config);
            let mut column = Column::new(config, scale.unwrap_or(0), search, self.controlled());
            if scale.is_none() {
                column.failed = Some("there is no control group to measure it by".to_owned());
            }
            column
        };
        self.configs.iter().copied().map(column).collect()
    }

    /// Runs of the controller.
    pub(super) fn controlled(&self) -> usize {
        if self.steps == QUICK_STEPS {
            self.runs
        } else {
            CONTROLLED * self.runs
        }
    }
}

impl Compared {
    /// What it uses without a limit, bytes, as `config` is measured: the median.
    pub(super) fn need(&self, config: &Config) -> Option<u64> {
        median(self.native.iter().filter_map(|native| native.need(config)))
    }

    pub(super) fn saved(&self, plan: &Plan, column: &Column) -> Option<Saved> {
        let (probe, times): (&Probe<Sample>, f64) = column.search()?.smallest()?;
        let need = self.need(column.config)?;
        let used = median(probe.samples.iter().map(|sample| sample.used))?;
        let bytes = need.cast_signed() - used.cast_signed();
        let ratios: Vec<f64> = probe.samples.iter().filter_map(|s| s.ratio).collect();
        let slower = probe.samples.iter().map(|s| (s.times - 1.0) * 100.0);
        Some(Saved {
            high: plan.high(probe.step, column.scale),
            used,
            bytes,
            percent: bytes as f64 * 100.0 / need.max(1) as f64,
            ratio: Summary::of(&ratios).map(|ratios| ratios.median),
            slowdown: (times - 1.0) * 100.0,
            spread: Summary::of(&slower.collect::<Vec<f64>>())?,
        })
    }

    /// Percent of its memory that a column saves: none where no limit is within the slowdown, `None`
    /// where it could not be measured.
    pub(super) fn percent(&self, plan: &Plan, column: &Column) -> Option<f64> {
        if column.failed.is_some() {
            return None;
        }
        if column.config.held == Held::Slowdown {
            return Kept::of(column.controlled(), f64::from(plan.slowdown))
                .map(|kept| kept.percent);
        }
        Some(self.saved(plan, column).map_or(0.0, |saved| saved.percent))
    }
}
