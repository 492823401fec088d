//! `zfolio bench usemem`: the runs of the kernel series on storing large folios
//! and on compressing in batches, scaled to this machine.
//!
//! `usemem` in several processes, which together may keep half of what they
//! write: by folio size and codec, under `zfolio run` and on the kernel's zram,
//! zswap and swap file. The rows are those of the series. Then the store path
//! alone (`store`): one page after another, and in batches.
//!
//! | module | concept |
//! |---|---|
//! | `rows` | the rows of the tables, and where each figure is from |
//! | `store` | pages into the engine one by one and in batches |

mod rows;
mod store;

use super::args::BenchUsemem;
use super::ministat::Summary;
use super::plot::{self, Series};
use super::progress::Progress;
use super::results::Results;
use super::rig::{self, Job, Ran, Rig, Side};
use super::table::Table;
use crate::exit::{Failure, Status};
use crate::machine;
use crate::size::{MIN_HIGH, short};
use rows::ROWS;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use zfolio_compress::Codec;
use zfolio_mm::Order;

/// Codecs of ours that a row is made for, if this build has them.
const CODECS: [&str; 3] = ["lz4", "zstd", "deflate-iaa"];

/// A folio size: its order, how `--folio` spells it, how the kernel's files do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Folio {
    order: Order,
    option: &'static str,
    kernel: Option<&'static str>,
}

const FOLIOS: [Folio; 3] = [
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
struct Column {
    side: Side,
    codec: Option<&'static str>,
    engines: usize,
}

impl Column {
    fn name(&self) -> String {
        match self.codec {
            Some(codec) if self.engines > 0 => format!("run-{codec}-engines"),
            Some(codec) => format!("run-{codec}"),
            None => self.side.name(),
        }
    }
}

/// The runs of a column with one folio size.
struct Measured {
    column: Column,
    limit: u64,
    runs: Vec<Ran>,
    failed: Option<String>,
    broken: bool,
}

/// One folio size's columns.
struct Compared {
    folio: Folio,
    columns: Vec<Measured>,
}

/// What to do.
struct Plan {
    processes: u32,
    /// Bytes each process writes.
    size: u64,
    runs: u32,
    timeout: Duration,
}

/// Runs the experiment.
///
/// # Errors
/// When the command line makes no sense, a file cannot be written, or a run
/// fails.
pub(super) fn usemem(args: &BenchUsemem) -> Result<ExitCode, Failure> {
    let plan = Plan::of(args)?;
    let results = Results::open(&args.files)?;
    let internal =
        |why: String| Failure::new(Status::Internal, "bench usemem", why, "free what it names");
    let mut rig = Rig::new().map_err(internal)?;
    let columns = columns(&rig, &args.only, args.quick)?;
    let mut all = Vec::new();
    for folio in FOLIOS {
        if args.folio.is_empty() || args.folio.contains(&folio.order) {
            all.push(plan.compare(&mut rig, folio, &columns));
        }
    }
    let stored = store::measure(plan.runs).map_err(internal)?;
    let text = report(&plan, &rig, &all, &stored);
    let json = to_json(&plan, &rig, &all, &stored);
    results.finish(&text, &json, || draw(&all))?;
    let mut measured = all.iter().flat_map(|compared| &compared.columns);
    match measured.find(|measured| measured.broken) {
        None => Ok(ExitCode::SUCCESS),
        Some(measured) => Err(Failure::new(
            Status::Internal,
            format!("bench usemem: {}", measured.column.name()),
            measured.failed.clone().unwrap_or_default(),
            "report this",
        )),
    }
}

/// The columns there are here, or those asked for.
fn columns(rig: &Rig, only: &[String], quick: bool) -> Result<Vec<Column>, Failure> {
    let engines = machine::cpus().min(16);
    let mut offered: Vec<Column> = Vec::new();
    let sides = rig.sides.iter();
    for side in sides.filter(|side| side.is_kernel() || **side == Side::Run) {
        let codecs: Vec<Option<&'static str>> = if *side == Side::Run {
            let known = CODECS.iter().filter(|name| Codec::parse(name).is_ok());
            known.copied().map(Some).collect()
        } else {
            vec![None]
        };
        for codec in codecs {
            let column = |engines| Column {
                side: side.clone(),
                codec,
                engines,
            };
            offered.push(column(0));
            if codec.is_some() {
                offered.push(column(engines));
            }
        }
    }
    if only.is_empty() && quick {
        // One of each of the kernel's kinds, and ours without engines.
        let mut kinds = Vec::new();
        offered.retain(|column| {
            let kind = std::mem::discriminant(&column.side);
            let new = !kinds.contains(&kind);
            kinds.push(kind);
            column.engines == 0 && (new || column.side == Side::Run)
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
    fn of(args: &BenchUsemem) -> Result<Self, Failure> {
        let usage =
            |what: &str, why: String, mend: &str| Err(Failure::new(Status::Usage, what, why, mend));
        let default = if args.quick { 48 << 20 } else { 256 << 20 };
        let cpus = u32::try_from(machine::cpus()).unwrap_or(1);
        let plan = Self {
            processes: args.processes.unwrap_or(2 * cpus),
            size: args.size.map_or(default, |s| s.bytes(machine::mem_total())),
            runs: args.runs.unwrap_or(if args.quick { 1 } else { 3 }),
            timeout: Duration::from_secs(args.limit),
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
    fn need(&self) -> u64 {
        self.size * u64::from(self.processes)
    }

    /// Bytes they may keep together: half, as in the series.
    fn total(&self) -> u64 {
        self.need() / 2
    }

    fn command(&self, rig: &Rig, folio: Folio) -> Vec<OsString> {
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

    fn compare(&self, rig: &mut Rig, folio: Folio, columns: &[Column]) -> Compared {
        let own = self.command(rig, folio);
        let mut advised = own.clone();
        // The kernel makes folios of 64 KiB only where it is advised to.
        if folio.kernel.is_some() && folio.order != Order::HUGE {
            advised.insert(2, "--thp".into());
        }
        let settings = settings(folio);
        let steps = columns.len() * (self.runs as usize + 1);
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
                    let engines = at.column.engines.to_string();
                    let options = [
                        "--folio",
                        folio.option,
                        "--compressor",
                        at.column.codec.unwrap_or("lz4"),
                        "--engines",
                        &engines,
                    ];
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

    fn job<'a>(
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

    fn limit(
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
fn settings(folio: Folio) -> Vec<(PathBuf, String)> {
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
    /// The median of a row's figure, if the runs have it.
    fn median(&self, row: &rows::Row, folio: Folio) -> Option<f64> {
        let figures = self
            .runs
            .iter()
            .map(|ran| row.of(ran, &self.column.side, folio.kernel));
        let figures: Option<Vec<f64>> = figures.collect();
        Summary::of(&figures?).map(|summary| summary.median)
    }
}

/// What the changes are against: zram with lz4, or the first.
fn base(compared: &Compared) -> Option<&Measured> {
    let done = || compared.columns.iter().filter(|m| !m.runs.is_empty());
    done()
        .find(|measured| measured.column.name() == "zram-lz4")
        .or_else(|| done().next())
}

fn report(plan: &Plan, rig: &Rig, all: &[Compared], stored: &store::Stored) -> String {
    let mut text = format!(
        "usemem --init-time -w -O -b 1 -s 1 -n {} {}: all processes together may keep {} MiB, half, \
         pools included.\n{} run(s), in turn; medians. Linux {}, {} processors, control groups of \
         version {}.\n\
         Sign: a change is the column less the one named, in % of that; + is more of the row, which is \
         better for throughput and worse for times.\n\
         run-CODEC compresses in batches, run-CODEC-engines on {} threads besides.\n\
         Kernel counters are the whole machine's; - : not counted there.\n",
        plan.processes,
        short(plan.size),
        plan.total() >> 20,
        plan.runs,
        machine::kernel_release(),
        machine::cpus(),
        rig.group_version(),
        machine::cpus().min(16),
    );
    for compared in all {
        let _ = writeln!(text, "\n{} folios", compared.folio.option);
        text.push_str(&table(compared));
        for measured in &compared.columns {
            if let Some(why) = &measured.failed {
                let _ = writeln!(text, "{}: {why}", measured.column.name());
            }
        }
    }
    text.push_str(&against_published(all));
    text.push_str(&stored.text());
    for why in &rig.left_out {
        let _ = writeln!(text, "\nLeft out: {why}.");
    }
    text
}

fn table(compared: &Compared) -> String {
    let done: Vec<&Measured> = compared
        .columns
        .iter()
        .filter(|measured| !measured.runs.is_empty())
        .collect();
    let names = done.iter().map(|measured| measured.column.name());
    let mut table = Table::new(["row".to_owned()].into_iter().chain(names));
    for row in &ROWS {
        let Some(name) = row.name(compared.folio.kernel) else {
            continue;
        };
        let cells = done.iter().map(|measured| {
            let figure = measured.median(row, compared.folio);
            figure.map_or("-".to_owned(), |figure| row.shown(figure))
        });
        table.row([name].into_iter().chain(cells));
    }
    let mib = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |n| (n >> 20).to_string());
    for (name, of) in [
        (
            "limit (MiB)",
            (|m: &Measured| Some(m.limit)) as fn(&Measured) -> _,
        ),
        ("memory used (MiB)", |m| {
            m.runs.iter().filter_map(Ran::used).max()
        }),
    ] {
        let cells = done.iter().map(|measured| mib(of(measured)));
        table.row([name.to_owned()].into_iter().chain(cells));
    }
    if let Some(base) = base(compared) {
        let throughput = |m: &Measured| m.median(&ROWS[0], compared.folio);
        let cells = done.iter().map(|measured| {
            change(throughput(measured), throughput(base))
                .map_or("-".into(), |c| format!("{c:+.1} %"))
        });
        let name = format!("throughput against {}", base.column.name());
        table.row([name].into_iter().chain(cells));
    }
    table.text()
}

/// `figure` less `base`, in % of `base`.
fn change(figure: Option<f64>, base: Option<f64>) -> Option<f64> {
    let (figure, base) = (figure?, base.filter(|base| *base > 0.0)?);
    Some((figure / base - 1.0) * 100.0)
}

/// Larger folios against pages, beside what the series found for zswap storing
/// them whole ("after" of its v8; pages: the same kernel).
fn against_published(all: &[Compared]) -> String {
    const PUBLISHED: [(&str, &str, f64); 2] = [("64K", "zstd", 29.4), ("2M", "zstd", 34.2)];
    let throughput = |option: &str, column: &str| {
        let compared = all
            .iter()
            .find(|compared| compared.folio.option == option)?;
        let measured = compared
            .columns
            .iter()
            .find(|m| m.column.name() == column)?;
        measured.median(&ROWS[0], compared.folio)
    };
    let mut table = Table::new(["throughput against 4K folios", "here", "published, zswap"]);
    let mut rows = 0;
    for folio in ["64K", "2M"] {
        let columns = all.first().map_or(&[][..], |first| &first.columns);
        for column in columns {
            let name = column.column.name();
            if let Some(here) = change(throughput(folio, &name), throughput("4K", &name)) {
                let published = PUBLISHED
                    .iter()
                    .find(|(size, codec, _)| *size == folio && column.column.codec == Some(codec));
                table.row([
                    format!("{folio}, {name}"),
                    format!("{here:+.1} %"),
                    published.map_or("-".to_owned(), |(.., found)| format!("{found:+.1} %")),
                ]);
                rows += 1;
            }
        }
    }
    if rows > 0 {
        format!("\n{}", table.text())
    } else {
        String::new()
    }
}

fn to_json(plan: &Plan, rig: &Rig, all: &[Compared], stored: &store::Stored) -> Value {
    let folios = all.iter().map(|compared| {
        let columns = compared.columns.iter().map(|measured| {
            let rows = ROWS.iter().filter_map(|row| {
                let name = row.name(compared.folio.kernel)?;
                let figures = measured
                    .runs
                    .iter()
                    .map(|ran| row.of(ran, &measured.column.side, compared.folio.kernel));
                Some((name, json!(figures.collect::<Vec<_>>())))
            });
            json!({
                "name": measured.column.name(),
                "limit": measured.limit,
                "used": measured.runs.iter().map(Ran::used).collect::<Vec<_>>(),
                "pool_outside": measured.runs.iter().map(|ran| ran.pool).collect::<Vec<_>>(),
                "rows": rows.collect::<serde_json::Map<_, _>>(),
                "failed": measured.failed,
            })
        });
        json!({
            "folio": compared.folio.option,
            "columns": columns.collect::<Vec<_>>(),
        })
    });
    json!({
        "experiment": "usemem",
        "kernel": machine::kernel_release(),
        "cpus": machine::cpus(),
        "load_average": machine::line_of("/proc/loadavg"),
        "command": std::env::args().collect::<Vec<_>>(),
        "cgroup_version": rig.group_version(),
        "processes": plan.processes,
        "size": plan.size,
        "total": plan.total(),
        "runs": plan.runs,
        "left_out": rig.left_out,
        "folios": folios.collect::<Vec<_>>(),
        "store": stored.json(),
    })
}

fn draw(all: &[Compared]) -> Result<String, String> {
    let mut series: Vec<Series> = Vec::new();
    for compared in all {
        for measured in &compared.columns {
            let Some(figure) = measured.median(&ROWS[0], compared.folio) else {
                continue;
            };
            let point = (f64::from(compared.folio.order.get()), figure / 1024.0);
            let name = measured.column.name();
            match series.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => series.push(Series {
                    name,
                    points: vec![point],
                }),
            }
        }
    }
    plot::lines(
        "usemem: throughput of all processes in half of their memory",
        "order of the folios",
        "MiB/s",
        &series,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(side: Side, codec: Option<&'static str>, lines: &str) -> Measured {
        let ran = Ran {
            stdout: lines.to_owned(),
            wall: 2.0,
            ..Ran::default()
        };
        Measured {
            column: Column {
                side,
                codec,
                engines: 0,
            },
            limit: 1 << 20,
            runs: vec![ran],
            failed: None,
            broken: false,
        }
    }

    #[test]
    fn changes_have_the_sign_that_is_told() {
        assert_eq!(change(Some(150.0), Some(100.0)), Some(50.0));
        assert_eq!(change(Some(50.0), Some(100.0)), Some(-50.0));
        assert_eq!(change(Some(1.0), Some(0.0)), None);
        assert_eq!(change(None, Some(1.0)), None);
    }

    #[test]
    fn tables_have_the_rows_and_the_base() {
        let line = |kb: u64| format!("1 bytes / 1 usecs = {kb} KB/s\n");
        let compared = Compared {
            folio: FOLIOS[1],
            columns: vec![
                measured(Side::Run, Some("zstd"), &(line(100) + &line(200))),
                measured(Side::Zram("lz4".to_owned()), None, &line(200)),
            ],
        };
        let text = table(&compared);
        for part in [
            "Total throughput (KB/s)",
            "memcg_swap_fail",
            "64kB-swpout_fallback",
            "ZSWPOUT-64kB",
            "throughput against zram-lz4",
            "+50.0 %",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(draw(&[compared]).expect("drawn").contains("run-zstd"));
    }
}
