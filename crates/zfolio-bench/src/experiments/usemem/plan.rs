//! What is run, and the columns it gives.

use super::rows::{GROUP, Row};
use crate::args::{BenchUsemem, KernelSeries};
use crate::output::ministat::Summary;
use crate::output::progress::Progress;
use crate::rig::{self, Job, Ran, Rig, Side};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use zfolio_compress::Codec;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::{MIN_HIGH, short};
use zfolio_mm::Order;

/// Codecs of ours that a row is made for, if this build has them.
pub(super) const CODECS: [&str; 3] = ["lz4", "zstd", "deflate-iaa"];
/// Other forms of these, run only where they are asked for.
const FORMS: [&str; 2] = ["deflate-iaa:dynamic", "deflate-iaa:canned"];

/// A folio size: its order, how `--folio` spells it, how the kernel's files do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Folio {
    pub(super) order: Order,
    pub(super) option: &'static str,
    pub(super) kernel: Option<&'static str>,
}

pub(super) const FOLIOS: [Folio; 3] = [
    Folio {
        order: Order::PAGE,
        option: "4K",
        kernel: None,
    },
    Folio {
        order: Order::K64,
        option: "64K",
        kernel: Some("64kB"),
    },
    Folio {
        order: Order::HUGE,
        option: "2M",
        kernel: Some("2048kB"),
    },
];

/// A column: where pages go, and for ours with which codec, on how many engines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Column {
    pub(super) side: Side,
    pub(super) codec: Option<&'static str>,
    pub(super) how: How,
}

/// What differs between columns of ours of one codec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// Folios whole, without engines.
    Plain,
    /// So many engines beside.
    Engines(usize),
    /// The same, and all that is compressed is verified.
    Verified(usize),
    /// The same, one unit at a time: the accelerator without batching, as before the series.
    Sequential(usize),
    /// Engines that work while processors are idle.
    Auto,
    /// Folios, huge pages too, split to pages before they are stored: case 1 of the series.
    Split,
}

impl How {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Engines(_) => "-engines",
            Self::Verified(_) => "-verified",
            Self::Sequential(_) => "-sequential",
            Self::Auto => "-auto",
            Self::Split => "-split",
        }
    }

    /// Whether it is run only where it is asked for.
    const fn is_extra(self) -> bool {
        matches!(self, Self::Verified(_) | Self::Sequential(_) | Self::Auto)
    }

    /// Whether there is such a column for folios of `order`: pages are not split.
    pub(super) fn is_for(self, order: Order) -> bool {
        self != Self::Split || order > Order::PAGE
    }

    /// Options of `zfolio run`.
    pub(super) fn options(self, folio: Folio) -> Vec<String> {
        let engines = |words: String| {
            vec![
                "--folio".into(),
                folio.option.into(),
                "--engines".into(),
                words,
            ]
        };
        match self {
            Self::Plain => engines("0".into()),
            Self::Engines(count) => engines(count.to_string()),
            Self::Sequential(count) => engines(format!("{count},sync_mode=sync")),
            Self::Auto => engines("auto".into()),
            Self::Verified(count) => engines(format!("{count},verify_compress=1")),
            Self::Split => ["--folio", "4K", "--split-huge-pages"]
                .map(String::from)
                .into(),
        }
    }
}

impl Column {
    pub(super) fn name(&self) -> String {
        match self.codec {
            Some(codec) => format!("run-{codec}{}", self.how.suffix()),
            None => self.side.name(),
        }
    }
}

/// The runs of a column with one folio size.
pub(super) struct Measured {
    pub(super) column: Column,
    pub(super) limit: u64,
    pub(super) runs: Vec<Ran>,
    pub(super) failed: Option<String>,
    pub(super) broken: bool,
}

/// One folio size's columns.
pub(super) struct Compared {
    pub(super) folio: Folio,
    pub(super) columns: Vec<Measured>,
}

/// What to do.
pub(super) struct Plan {
    pub(super) processes: u32,
    /// Bytes each process writes.
    pub(super) size: u64,
    pub(super) runs: u32,
    pub(super) timeout: Duration,
    /// Read-ahead fixed, as by the kernel's `page-cluster`; `None`: the kernel's as it is set,
    /// ours judged.
    pub(super) page_cluster: Option<u8>,
    /// Whose columns and options these are.
    pub(super) series: Option<KernelSeries>,
    /// Sizes of folio.
    folios: Vec<Order>,
}

/// The columns there are here; without those that are run only where they are asked for, if `usual`.
fn offered(rig: &Rig, usual: bool) -> Vec<Column> {
    let engines = machine::cpus().min(16);
    let mut offered: Vec<Column> = Vec::new();
    let sides = rig.sides.iter();
    for side in sides.filter(|side| side.is_kernel() || **side == Side::Run) {
        let codecs: Vec<Option<&'static str>> = if *side == Side::Run {
            let forms = FORMS.iter().filter(|_| !usual);
            let known = CODECS.iter().chain(forms);
            let known = known.filter(|name| Codec::parse(name).is_ok());
            known.copied().map(Some).collect()
        } else {
            vec![None]
        };
        for codec in codecs {
            let ours = [
                How::Split,
                How::Engines(engines),
                How::Verified(engines),
                How::Sequential(engines),
                How::Auto,
            ];
            let ours = ours.into_iter().filter(|_| codec.is_some());
            for how in [How::Plain].into_iter().chain(ours) {
                if !(how.is_extra() && usual) {
                    let side = side.clone();
                    offered.push(Column { side, codec, how });
                }
            }
        }
    }
    offered
}

/// The columns of a series that there are here.
pub(super) fn of_series(rig: &Rig, series: KernelSeries) -> Vec<Column> {
    let offered = offered(rig, false);
    let named = |name: &&str| {
        offered
            .iter()
            .find(|column| column.name() == *name)
            .cloned()
    };
    series.columns().iter().filter_map(named).collect()
}

/// The columns there are here, or those asked for.
pub(super) fn columns(rig: &Rig, only: &[String], quick: bool) -> Result<Vec<Column>, Failure> {
    let mut offered = offered(rig, only.is_empty());
    if only.is_empty() && quick {
        // One of each of the kernel's kinds, and ours without engines.
        let mut kinds = Vec::new();
        offered.retain(|column| {
            let kind = std::mem::discriminant(&column.side);
            let new = !kinds.contains(&kind);
            kinds.push(kind);
            column.how == How::Plain && (new || column.side == Side::Run)
        });
    }
    if only.is_empty() {
        return Ok(offered);
    }
    let asked = only.iter().map(|name| {
        let found = offered.iter().find(|column| column.name() == *name);
        found.cloned().ok_or_else(|| {
            let names: Vec<String> = offered.iter().map(Column::name).collect();
            let mut why = format!("{name} is not offered here");
            for left_out in &rig.left_out {
                let _ = write!(why, " ({left_out})");
            }
            let mend = format!("choose of {}", names.join(", "));
            Failure::new(Status::Usage, "--only", why, mend)
        })
    });
    asked.collect()
}

impl Plan {
    pub(super) fn of(args: &BenchUsemem) -> Result<Self, Failure> {
        let usage =
            |what: &str, why: String, mend: &str| Err(Failure::new(Status::Usage, what, why, mend));
        let default = if args.quick { 48 << 20 } else { 256 << 20 };
        let cpus = u32::try_from(machine::cpus()).unwrap_or(1);
        let plan = Self {
            processes: args.processes.unwrap_or(2 * cpus),
            size: args.size.map_or(default, |s| s.bytes(machine::mem_total())),
            runs: args.runs.unwrap_or(if args.quick { 1 } else { 3 }),
            timeout: Duration::from_secs(args.limit),
            page_cluster: args
                .page_cluster
                .or_else(|| args.series.and_then(KernelSeries::page_cluster)),
            series: args.series,
            folios: match (&args.folio[..], args.series) {
                ([], Some(series)) => series.folios().into(),
                (asked, _) => asked.into(),
            },
        };
        if plan.size < 2 * MIN_HIGH {
            let least = short(2 * MIN_HIGH);
            let why = format!("{} is below the least, {least}", short(plan.size));
            return usage("--size", why, "give it more");
        }
        if plan.need() > machine::available() / 2 {
            let why = format!(
                "{} in all is more than half of the memory",
                short(plan.need())
            );
            return usage("--size", why, "give it less, or fewer --processes");
        }
        Ok(plan)
    }

    /// Bytes of all processes.
    pub(super) fn need(&self) -> u64 {
        self.size * u64::from(self.processes)
    }

    /// Bytes they may keep together: half, or the part that the series has.
    pub(super) fn total(&self) -> u64 {
        let (part, of) = self.series.map_or((1, 2), KernelSeries::kept);
        self.need() / of * part
    }

    /// Whether folios of that size are run.
    pub(super) fn is_wanted(&self, folio: Folio) -> bool {
        self.folios.is_empty() || self.folios.contains(&folio.order)
    }

    pub(super) fn command(&self, rig: &Rig, folio: Folio) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec![rig.exe().into(), "usemem".into()];
        let processes = self.processes.to_string();
        let options = [
            "--init-time",
            "-w",
            "-O",
            "-b",
            "1",
            "-s",
            "1",
            "-n",
            &processes,
        ];
        command.extend(options.map(OsString::from));
        if folio.kernel.is_some_and(|_| folio.order == Order::HUGE) {
            command.push("--thp".into());
        }
        command.push(self.size.to_string().into());
        command
    }

    pub(super) fn compare(&self, rig: &mut Rig, folio: Folio, columns: &[Column]) -> Compared {
        let own = self.command(rig, folio);
        let mut advised = own.clone();
        // The kernel makes folios of 64 KiB only where it is advised to.
        if folio.kernel.is_some() && folio.order != Order::HUGE {
            advised.insert(2, "--thp".into());
        }
        let mut settings = settings(folio);
        if let Some(cluster) = self.page_cluster {
            settings.push(("/proc/sys/vm/page-cluster".into(), cluster.to_string()));
        }
        let columns = columns
            .iter()
            .filter(|column| column.how.is_for(folio.order));
        let steps = columns.clone().count() * (self.runs as usize + 1);
        let progress = Progress::new("usemem", steps as u64);
        let mut measured: Vec<Measured> = Vec::new();
        for column in columns {
            let limit = self.limit(rig, column, &advised, &settings);
            let (limit, failed) = match limit {
                Ok(limit) => (limit, None),
                Err(why) => (0, Some(why)),
            };
            measured.push(Measured {
                column: column.clone(),
                limit,
                runs: Vec::new(),
                failed,
                broken: false,
            });
            progress.step();
        }
        for round in 0..self.runs as usize {
            for turn in 0..measured.len() {
                let count = measured.len();
                let at = &mut measured[(round + turn) % count];
                if at.failed.is_none() {
                    let command = if at.column.side.is_kernel() {
                        &advised
                    } else {
                        &own
                    };
                    let mut options = at.column.how.options(folio);
                    if let Some(cluster) = self.page_cluster {
                        options.extend(["--page-cluster".to_owned(), cluster.to_string()]);
                    }
                    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
                    options.extend(["--compressor", at.column.codec.unwrap_or("lz4")]);
                    options.extend(["--group", GROUP]);
                    let job = self.job(command, at.limit, &options, &settings);
                    match rig.run(&at.column.side, &job) {
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
        Compared {
            folio,
            columns: measured,
        }
    }

    pub(super) fn job<'a>(
        &self,
        command: &'a [OsString],
        limit: u64,
        options: &'a [&'a str],
        settings: &'a [(PathBuf, String)],
    ) -> Job<'a> {
        Job {
            command,
            limit,
            swap: 2 * self.need() + (64 << 20),
            options,
            settings,
            timeout: self.timeout,
            watched: false,
        }
    }

    pub(super) fn limit(
        &self,
        rig: &mut Rig,
        column: &Column,
        command: &[OsString],
        settings: &[(PathBuf, String)],
    ) -> Result<u64, String> {
        match &column.side {
            side if rig.pool_is_outside(side) => {
                let job = self.job(command, 0, &[], settings);
                let unchecked = |_: &Ran| Ok(());
                rig.search(side, &job, self.total(), self.need(), unchecked)
                    .map_err(|unfound| unfound.why)
            }
            _ => Ok(self.total()),
        }
    }
}

/// Which folios the kernel may make.
pub(super) fn settings(folio: Folio) -> Vec<(PathBuf, String)> {
    let file =
        |size: &str| format!("/sys/kernel/mm/transparent_hugepage/hugepages-{size}/enabled").into();
    let mut settings = Vec::new();
    for size in ["64kB", "2048kB"] {
        let path: PathBuf = file(size);
        let wanted = if folio.kernel == Some(size) {
            "madvise"
        } else {
            "never"
        };
        if path.exists() {
            settings.push((path, wanted.to_owned()));
        }
    }
    settings
}

impl Measured {
    /// A row's figures, if all runs have it.
    pub(super) fn summary(&self, row: &Row, folio: Folio) -> Option<Summary> {
        let figures = self
            .runs
            .iter()
            .map(|ran| row.of(ran, &self.column.side, folio.kernel));
        let figures: Option<Vec<f64>> = figures.collect();
        Summary::of(&figures?)
    }

    /// Their median.
    pub(super) fn median(&self, row: &Row, folio: Folio) -> Option<f64> {
        self.summary(row, folio).map(|summary| summary.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_differ_in_options_of_run() {
        let of = |how: How| how.options(FOLIOS[2]).join(" ");
        assert_eq!(of(How::Plain), "--folio 2M --engines 0");
        assert_eq!(of(How::Split), "--folio 4K --split-huge-pages");
        assert_eq!(
            of(How::Sequential(2)),
            "--folio 2M --engines 2,sync_mode=sync"
        );
        assert_eq!(
            of(How::Verified(2)),
            "--folio 2M --engines 2,verify_compress=1"
        );
        assert_eq!(of(How::Auto), "--folio 2M --engines auto");
        assert!(!How::Split.is_for(Order::PAGE) && How::Split.is_for(Order::K64));
    }

    #[test]
    fn columns_of_a_series_are_columns_of_ours_or_the_swap_file() {
        let ours = |name: &str| {
            let hows = [How::Plain, How::Split, How::Engines(2), How::Sequential(2)];
            let mut all = CODECS
                .into_iter()
                .flat_map(|codec| hows.map(|how| (codec, how)));
            all.any(|(codec, how)| {
                let (side, codec) = (Side::Run, Some(codec));
                Column { side, codec, how }.name() == name
            })
        };
        for series in [KernelSeries::V5, KernelSeries::V8, KernelSeries::V9] {
            for name in series.columns() {
                assert!(ours(name) || Side::SwapFile.name() == *name, "{name}");
            }
        }
        assert_eq!(KernelSeries::V8.page_cluster(), Some(2));
        assert_eq!(KernelSeries::V9.page_cluster(), Some(0));
    }

    #[test]
    fn columns_have_the_names_of_their_codecs() {
        for name in CODECS.iter().chain(&FORMS) {
            assert_eq!(Codec::parse(name).expect(name).to_string(), *name);
        }
    }
}
