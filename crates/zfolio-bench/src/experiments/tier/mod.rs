//! `zfolio bench tier`: what the second tier gains and costs for a program that is idle.
//!
//! A workload that fills its memory, hardly touches it for a while and then reads at
//! random (`work::idle`) runs under `zfolio run --tier off` and `auto`, in turn: once with
//! made-up records, once with pages of real programs.
//!
//! | module | concept |
//! |---|---|
//! | `rows` | the figures of a run |

mod rows;

use crate::args::BenchTier;
use crate::corpus::Corpus;
use crate::output::ministat::{Difference, Summary};
use crate::output::plot::{self, Series};
use crate::output::progress::Progress;
use crate::output::results::Results;
use crate::output::table::Table;
use crate::rig;
use rows::{ROWS, Ran};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::{MIN_HIGH, short};

/// Pages of real programs, at most; they come over and over.
const CORPUS_PAGES: usize = 48_000;

/// What to do.
#[derive(Debug)]
struct Plan {
    size: u64,
    high: u64,
    idle: u64,
    reads: u64,
    runs: u64,
    seed: u64,
    timeout: Duration,
}

/// The runs with one kind of content, pair by pair.
#[derive(Debug)]
struct Compared {
    content: String,
    off: Vec<Ran>,
    auto: Vec<Ran>,
}

/// A file that is gone with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn named(name: &str) -> Self {
        let own = std::process::id();
        Self(std::env::temp_dir().join(format!("zfolio-tier-{own}-{name}")))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs the experiment.
///
/// # Errors
/// When the command line makes no sense, a file cannot be written, or a run fails,
/// as it does when a page is not as it was written.
pub(crate) fn tier(args: &BenchTier) -> Result<ExitCode, Failure> {
    let plan = Plan::of(args)?;
    let results = Results::open("tier", &args.files)?;
    let failed = |why: String| Failure::new(Status::Internal, "bench tier", why, "report this");
    let corpus = Corpus::gather(args.corpus.as_deref(), CORPUS_PAGES, plan.seed);
    let corpus = corpus.map_err(|why| {
        let mend = "name a file of pages by --corpus";
        Failure::new(
            Status::CannotCreate,
            "bench tier: pages of programs",
            why,
            mend,
        )
    })?;
    let file = Scratch::named("pages");
    write_pages(&corpus, &file.0).map_err(|error| failed(error.to_string()))?;
    let progress = Progress::new("tier", plan.runs * 4);
    let mut all = Vec::new();
    for (content, file) in [
        ("records".to_owned(), None),
        (corpus.told(), Some(file.0.as_path())),
    ] {
        let compared = plan.compare(content, file, &progress).map_err(failed)?;
        all.push(compared);
    }
    drop(progress);
    results.finish(&report(&plan, &all), &to_json(&plan, &all), || draw(&all))?;
    Ok(ExitCode::SUCCESS)
}

fn write_pages(corpus: &Corpus, path: &Path) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(fs::File::create(path)?);
    for page in &corpus.pages {
        out.write_all(&page.0)?;
    }
    out.flush()
}

impl Plan {
    fn of(args: &BenchTier) -> Result<Self, Failure> {
        let memory = machine::mem_total();
        let size = args.size.bytes(memory);
        let high = args.high.map_or(size / 5 * 3, |high| high.bytes(memory));
        let wrong = |why: String, mend| Err(Failure::new(Status::Usage, "bench tier", why, mend));
        if high < MIN_HIGH || high >= size {
            let why = format!("--size {} in --high {}", short(size), short(high));
            return wrong(why, "choose 8M <= high < size");
        }
        if size > machine::available() / 2 {
            let why = format!("{} is more than half of the memory", short(size));
            return wrong(why, "give it less");
        }
        Ok(Self {
            size,
            high,
            idle: args.idle,
            reads: args.reads,
            runs: args.runs,
            seed: args.seed,
            timeout: Duration::from_secs(args.limit + args.idle),
        })
    }

    fn compare(
        &self,
        content: String,
        file: Option<&Path>,
        progress: &Progress,
    ) -> Result<Compared, String> {
        let (mut off, mut auto) = (Vec::new(), Vec::new());
        for run in 0..self.runs {
            // Neither is always the first.
            let first = run % 2 == 1;
            for tier in [first, !first] {
                let ran = self.run(tier, file, self.seed.wrapping_add(run));
                let ran = ran.map_err(|why| format!("seed {}: {why}", self.seed + run))?;
                if tier {
                    auto.push(ran);
                } else {
                    off.push(ran);
                }
                progress.step();
            }
        }
        Ok(Compared { content, off, auto })
    }

    fn run(&self, tier: bool, file: Option<&Path>, seed: u64) -> Result<Ran, String> {
        let exe = std::env::current_exe().map_err(|error| error.to_string())?;
        let stats = Scratch::named("stats.json");
        let mut command = Command::new(&exe);
        command
            .env(zfolio_host::PLAIN.0, zfolio_host::PLAIN.1)
            .args(["bench-child", "--parent"])
            .arg(std::process::id().to_string());
        command.arg("--").arg(&exe).args(["run", "--quiet"]);
        // (What is done while the program sleeps takes a thread of ours.)
        command.args(["--faults", "message"]);
        command.arg("--high").arg(self.high.to_string());
        command.args(["--tier", if tier { "auto" } else { "off" }]);
        command.arg("--stats").arg(&stats.0);
        command.arg("--").arg(&exe).args(["bench-work", "idle"]);
        command.arg("--size").arg(self.size.to_string());
        command.arg("--seconds").arg(self.idle.to_string());
        command.arg("--reads").arg(self.reads.to_string());
        command.arg("--seed").arg(seed.to_string());
        if let Some(file) = file {
            command.arg("--file").arg(file);
        }
        let ran = rig::ended(&mut command, self.timeout, false, |_| Some(rig::LOOK))?;
        let text = fs::read_to_string(&stats.0).map_err(|error| error.to_string())?;
        let stats = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ran::of(seed, &ran.stdout, stats)
    }
}

fn summary(runs: &[Ran], of: fn(&Ran) -> Option<f64>) -> Option<Summary> {
    let figures: Option<Vec<f64>> = runs.iter().map(of).collect();
    Summary::of(&figures?)
}

fn report(plan: &Plan, all: &[Compared]) -> String {
    let mut text = format!(
        "The second tier off and auto: {} of memory in --high {}, {} s idle, {} random reads, {} \
         run(s), in turn, seeds from {}.\nMeans, and standard deviations. Linux {}, {} \
         processors.\n* : differs at 95 % confidence (Student's t).\n",
        short(plan.size),
        short(plan.high),
        plan.idle,
        plan.reads,
        plan.runs,
        plan.seed,
        machine::kernel_release(),
        machine::cpus(),
    );
    for compared in all {
        let _ = write!(text, "\n{}\n{}", compared.content, table(compared));
    }
    text
}

fn table(compared: &Compared) -> String {
    let mut table = Table::new(["figure", "off", "sd", "auto", "sd", "change"]);
    for row in &ROWS {
        let [off, auto] = [&compared.off, &compared.auto].map(|runs| summary(runs, row.of));
        let shown = |summary: &Option<Summary>| match summary {
            None => ["-".to_owned(), "-".to_owned()],
            Some(summary) => [row.shown(summary.avg), row.shown(summary.stddev)],
        };
        let ([off_mean, off_spread], [auto_mean, auto_spread]) = (shown(&off), shown(&auto));
        let change = match (&off, &auto) {
            (Some(off), Some(auto)) if off.avg != 0.0 => {
                let proven = Difference::between(off, auto).is_some_and(|d| d.is_proven());
                let mark = if proven { " *" } else { "" };
                format!("{:+.1} %{mark}", (auto.avg / off.avg - 1.0) * 100.0)
            }
            _ => "-".to_owned(),
        };
        let label = row.label.to_owned();
        table.row([label, off_mean, off_spread, auto_mean, auto_spread, change]);
    }
    table.text()
}

fn draw(all: &[Compared]) -> Result<String, String> {
    let series = all.iter().flat_map(|compared| {
        let content = compared.content.split([' ', ':']).next().unwrap_or("");
        let content = if content == "records" {
            content
        } else {
            "programs"
        };
        [("off", &compared.off), ("auto", &compared.auto)].map(|(name, runs)| Series {
            name: format!("{content}, {name}"),
            points: runs.first().map_or(Vec::new(), |ran| {
                let looks = ran.resident.iter();
                looks
                    .map(|(at, bytes)| (*at, bytes / 1_048_576.0))
                    .collect()
            }),
        })
    });
    let series: Vec<Series> = series.collect();
    plot::lines("Idle, first run", "seconds", "resident (MiB)", &series)
}

fn to_json(plan: &Plan, all: &[Compared]) -> Value {
    let runs = |runs: &[Ran]| -> Vec<Value> {
        let one = |ran: &Ran| {
            let figures = ROWS.iter().map(|row| {
                let figure = (row.of)(ran);
                let figure = figure.map_or(Value::Null, Value::from);
                (row.label.to_owned(), figure)
            });
            json!({
                "seed": ran.seed,
                "resident": ran.resident,
                "figures": Value::Object(figures.collect()),
                "stats": ran.stats,
            })
        };
        runs.iter().map(one).collect()
    };
    let contents = all.iter().map(|compared| {
        json!({
            "content": compared.content,
            "off": runs(&compared.off),
            "auto": runs(&compared.auto),
        })
    });
    json!({
        "size_bytes": plan.size,
        "high_bytes": plan.high,
        "idle_s": plan.idle,
        "reads": plan.reads,
        "runs": plan.runs,
        "seed": plan.seed,
        "contents": contents.collect::<Vec<_>>(),
    })
}
