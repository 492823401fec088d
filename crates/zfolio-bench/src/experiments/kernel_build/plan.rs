//! What is compiled, and the columns that gives.

use super::source::Project;
use crate::args::BenchKernelBuild;
use crate::experiments::usemem::GROUP;
use crate::output::ministat::Summary;
use crate::output::progress::Progress;
use crate::rig::{self, Job, Ran, Rig, Side};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::MIN_HIGH;

/// Codecs of ours.
const CODECS: [&str; 3] = ["lz4", "zstd", "deflate-iaa"];
/// Sizes of folio of ours.
const FOLIOS: [&str; 3] = ["4K", "64K", "2M"];

/// Before make: a run that is tried again (the kernel's, in groups of version 1) begins with no
/// object file of the first try.
const ANEW: &str = "find \"$1\" -name '*.o' -delete && shift && exec \"$@\"";

/// Words of the command before what make is told besides where.
const WORDS: usize = 8;

/// Where cold pages go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Column {
    pub(super) side: Side,
    /// Of ours: codec and folio.
    pub(super) ours: Option<(&'static str, &'static str)>,
}

impl Column {
    pub(super) fn name(&self) -> String {
        match self.ours {
            Some((codec, folio)) => format!("run-{codec}-{folio}"),
            None => self.side.name(),
        }
    }

    /// How large folios are, as the kernel's files have it; of ours.
    pub(super) fn size(&self) -> Option<&'static str> {
        match self.ours?.1 {
            "64K" => Some("64kB"),
            "2M" => Some("2048kB"),
            _ => None,
        }
    }
}

/// The runs of a column.
pub(super) struct Measured {
    pub(super) column: Column,
    pub(super) limit: u64,
    pub(super) runs: Vec<Ran>,
    pub(super) failed: Option<String>,
    pub(super) broken: bool,
}

impl Measured {
    /// The figures of all runs, if each has one.
    pub(super) fn summary(&self, of: impl Fn(&Ran) -> Option<f64>) -> Option<Summary> {
        let figures: Option<Vec<f64>> = self.runs.iter().map(of).collect();
        Summary::of(&figures?)
    }

    /// Their median.
    pub(super) fn median(&self, of: impl Fn(&Ran) -> Option<f64>) -> Option<f64> {
        self.summary(of).map(|summary| summary.median)
    }
}

/// What to do.
pub(super) struct Plan {
    command: Vec<OsString>,
    pub(super) jobs: u32,
    share: u64,
    pub(super) runs: u32,
    timeout: Duration,
    /// How faults are served, as of `zfolio run`.
    pub(super) faults: String,
    pub(super) need: u64,
    pub(super) total: u64,
    objects: BTreeMap<PathBuf, u64>,
}

impl Plan {
    pub(super) fn of(args: &BenchKernelBuild, project: &Project) -> Self {
        let cpus = u32::try_from(machine::cpus()).unwrap_or(1);
        let jobs = args.jobs.unwrap_or(cpus + 1);
        let mut command: Vec<OsString> = ["sh", "-c", ANEW, "sh"].map(OsString::from).into();
        command.push(project.build.clone().into());
        command.extend(["make", "-C"].map(OsString::from));
        command.push(project.build.join(&args.subdirectory).into());
        debug_assert_eq!(command.len(), WORDS);
        command.push(format!("-j{jobs}").into());
        command.extend(args.make.iter().map(OsString::from));
        if args.quick {
            command.push("CFLAGS=-O0".into());
        }
        Self {
            command,
            jobs,
            share: args.share.into(),
            runs: args.runs.unwrap_or(if args.quick { 1 } else { 3 }),
            timeout: Duration::from_secs(args.limit),
            faults: args.faults.clone(),
            need: 0,
            total: 0,
            objects: BTreeMap::new(),
        }
    }

    /// What is run, for people.
    pub(super) fn what(&self) -> String {
        let words: Vec<_> = self.command[WORDS..]
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        format!("make {}", words.join(" "))
    }

    /// Compiles once without a limit, to know what that needs and what it makes.
    ///
    /// # Errors
    /// It fails.
    pub(super) fn without_limit(
        &mut self,
        rig: &mut Rig,
        project: &Project,
    ) -> Result<Ran, String> {
        let ran = self.once(rig, project, &Side::Native, 0, &[])?;
        self.objects = project.objects()?;
        self.need = ran.charged.unwrap_or(0).max(ran.resident);
        self.total = (self.need * self.share / 100).max(MIN_HIGH);
        Ok(ran)
    }

    fn once(
        &self,
        rig: &mut Rig,
        project: &Project,
        side: &Side,
        limit: u64,
        options: &[&str],
    ) -> Result<Ran, String> {
        project.renew()?;
        let job = self.job(limit, options);
        let ran = rig.run(side, &job)?;
        if !self.objects.is_empty() && project.objects()? != self.objects {
            return Err("what was compiled differs from what it is without a limit".to_owned());
        }
        Ok(ran)
    }

    fn job<'a>(&'a self, limit: u64, options: &'a [&'a str]) -> Job<'a> {
        Job {
            command: &self.command,
            limit,
            swap: 2 * self.need + (64 << 20),
            options,
            settings: &[],
            timeout: self.timeout,
            watched: true,
        }
    }

    /// All columns, in turn. `native` is the first run of the first.
    pub(super) fn compare(
        &self,
        rig: &mut Rig,
        project: &Project,
        columns: &[Column],
    ) -> Vec<Measured> {
        let progress = Progress::new("compiling", columns.len() as u64 * u64::from(self.runs + 1));
        let mut all: Vec<Measured> = Vec::new();
        for column in columns {
            let limit = self.limit(rig, project, column);
            let failed = limit.as_ref().err().cloned();
            all.push(Measured {
                column: column.clone(),
                limit: limit.unwrap_or(0),
                runs: Vec::new(),
                failed,
                broken: false,
            });
            progress.step();
        }
        for round in 0..self.runs as usize {
            for turn in 0..all.len() {
                let count = all.len();
                let at = &mut all[(round + turn) % count];
                if at.failed.is_none() {
                    let ours = at.column.ours;
                    let mut options = Vec::new();
                    if let Some((codec, folio)) = ours {
                        options.extend(["--group", GROUP, "--compressor", codec, "--folio", folio]);
                        if self.faults != "auto" {
                            options.extend(["--faults", self.faults.as_str()]);
                        }
                    }
                    match self.once(rig, project, &at.column.side, at.limit, &options) {
                        Ok(ran) => at.runs.push(ran),
                        Err(why) => {
                            at.broken = !why.starts_with(rig::ENDED);
                            at.failed = Some(why);
                        }
                    }
                    rig::settle();
                }
                progress.step();
            }
        }
        all
    }

    /// The total, or for a pool that is charged to nobody what leaves it room.
    fn limit(&self, rig: &mut Rig, project: &Project, column: &Column) -> Result<u64, String> {
        if !rig.pool_is_outside(&column.side) {
            return Ok(self.total);
        }
        project.renew()?;
        let job = self.job(0, &[]);
        // (Each try of a search compiles what is not there yet.)
        let anew = |_: &Ran| project.renew();
        let found = rig.search(&column.side, &job, self.total, self.need, anew);
        found.map_err(|unfound| unfound.why)
    }
}

/// The columns there are here, or those asked for.
pub(super) fn columns(rig: &Rig, only: &[String], quick: bool) -> Result<Vec<Column>, Failure> {
    let mut offered = Vec::new();
    let kernel = rig.sides.iter().filter(|side| side.is_kernel());
    let sides = [&Side::Native, &Side::Run].into_iter().chain(kernel);
    for side in sides {
        let mut add = |ours| {
            offered.push(Column {
                side: side.clone(),
                ours,
            });
        };
        if *side == Side::Run {
            for codec in CODECS {
                FOLIOS.iter().for_each(|folio| add(Some((codec, *folio))));
            }
        } else {
            add(None);
        }
    }
    if only.is_empty() {
        let mut kinds = Vec::new();
        offered.retain(|column| {
            // Of each of the kernel's the first algorithm, if it has to be quick; of ours one.
            let kind = std::mem::discriminant(&column.side);
            let new = !kinds.contains(&kind);
            kinds.push(kind);
            new || !quick
        });
        return Ok(offered);
    }
    let find = |name: &String| {
        let found = offered.iter().find(|column| column.name() == *name);
        found.cloned().ok_or_else(|| {
            let names: Vec<String> = offered.iter().map(Column::name).collect();
            let why = format!("{name} is not offered here");
            let mend = format!("choose of {}", names.join(", "));
            Failure::new(Status::Usage, "--only", why, mend)
        })
    };
    only.iter().map(find).collect()
}
