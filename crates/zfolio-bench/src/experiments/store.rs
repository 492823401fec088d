//! `zfolio bench store`: a program whose cold pages go to a Redis or Valkey store, beside the
//! same with a file behind the pool, the kernel's swap to a file, and no limit.
//!
//! The workloads have several times what they may keep resident, and more than the pool takes.
//! Every row may keep the same: `--high`, or a control group's limit for the kernel's. Rows
//! take turns, each once a round. Beside them stands what the store and this machine can do at
//! most: a bare read of the same size by the same client, and bytes over loopback.

use crate::args::BenchStore;
use crate::output::ministat::Summary;
use crate::output::results::Results;
use crate::output::table::Table;
use crate::output::workload_report::Told;
use crate::rig::{self, Job, Ran, Rig, Side};
use crate::workloads::objects;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_pager::probe;
use zfolio_pager::spec::Spec;

/// Bytes a customer of the object graph needs.
const BYTES_PER_OBJECT: u64 = 1300;
/// Bytes sent over loopback to see how fast that goes.
const LOOPBACK: usize = 1 << 30;
/// Bare reads that are timed.
const READS: usize = 2000;

/// One way to run a workload.
struct Way {
    name: &'static str,
    side: Side,
    options: Vec<String>,
}

/// A workload's figures in one way.
#[derive(Default)]
struct Row {
    /// By name; one a round.
    figures: BTreeMap<String, Vec<f64>>,
    failed: Option<String>,
}

/// Runs the experiment.
///
/// # Errors
/// When the store cannot be used, a file cannot be written, or a program fails.
pub(crate) fn store(args: &BenchStore) -> Result<ExitCode, Failure> {
    let failed = |what: &str, why: String| {
        Failure::new(Status::Internal, what, why, "see zfolio doctor --backing")
    };
    let spec = Spec::parse(&without_size(&args.url)).map_err(|why| failed("--url", why))?;
    let results = Results::open("store", &args.files)?;
    let memory = machine::mem_total();
    let (size, high) = (args.size.bytes(memory), args.high.bytes(memory));
    let mut rig = Rig::new().map_err(|why| failed("bench store", why))?;
    let ways = ways(args, &rig);
    let mut text = format!(
        "Workloads of about {} MiB in {} MiB, {} round(s), rows in turn; {} processors, Linux {}.\n\
         Figures are medians, least..most behind. CPU: of the program, its manager and the pager.\n",
        size >> 20,
        high >> 20,
        args.runs,
        machine::cpus(),
        machine::kernel_release(),
    );
    let mut all = Vec::new();
    let mut wire = None;
    for workload in ["memory", "python"] {
        if !args.workload.is_empty() && !args.workload.iter().any(|name| name == workload) {
            continue;
        }
        let command = command(&rig, workload, size, args.seed);
        let rows = compare(&mut rig, &ways, &command, args, size, high);
        let _ = write!(text, "\n{workload}\n{}", table(&ways, &rows));
        let store = rows.last().and_then(|row| row.figures.get("bytes/read"));
        wire = wire.or(store.and_then(|all| Summary::of(all)).map(|of| of.median));
        all.push(json!({ "workload": workload, "rows": as_json(&ways, &rows) }));
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "some KiB"
    )]
    let bytes = wire.unwrap_or(0.0).clamp(2048.0, 65536.0) as usize;
    let bare = probe::reads(&spec, bytes, READS).map_err(|why| failed("the store", why))?;
    let speed = probe::speed(&spec).map_err(|why| failed("the store", why))?;
    let loopback = loopback().map_err(|error| failed("loopback", error.to_string()))?;
    let us = |at: usize| bare.get(at).map_or(0.0, |ns| *ns as f64 / 1000.0);
    let (half, most) = (us(bare.len() / 2), us(bare.len() * 99 / 100));
    let mean = bare.iter().sum::<u64>() as f64 / 1000.0 / bare.len().max(1) as f64;
    let mega = |bytes: u64| bytes as f64 / 1e6;
    let _ = writeln!(
        text,
        "\nbare reads of {bytes} bytes by the same client: mean {mean:.1} us, p50 {half:.1} us, \
         p99 {most:.1} us\nthe store, 64 KiB at a time, many at once: {:.0} MB/s written, {:.0} \
         MB/s read\nloopback, one connection: {:.0} MB/s",
        mega(speed.write),
        mega(speed.read),
        mega(loopback),
    );
    let told = json!({
        "size": size, "high": high, "runs": args.runs,
        "seed": args.seed, "store": spec.shown(), "copies": spec.copies, "wait": spec.wait,
        "workloads": all, "bare_read_bytes": bytes,
        "bare_read_us": { "mean": mean, "p50": half, "p99": most },
        "store_write_bytes_per_second": speed.write, "store_read_bytes_per_second": speed.read,
        "loopback_bytes_per_second": loopback, "left_out": rig.left_out,
    });
    results.finish(
        &text,
        &told,
        || Err("a table is all there is to see".into()),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The same without what `zfolio run` takes out itself.
fn without_size(url: &str) -> String {
    let parts = url.split(',').filter(|part| !part.starts_with("size="));
    parts.collect::<Vec<_>>().join(",")
}

fn ways(args: &BenchStore, rig: &Rig) -> Vec<Way> {
    let way = |name, side, backing: Option<String>| {
        let pool = ["--max-pool".to_owned(), args.max_pool.to_string()];
        let options = backing.map(|to| {
            let backing = ["--backing".to_owned(), to];
            backing.into_iter().chain(pool).collect()
        });
        Way {
            name,
            side,
            options: options.unwrap_or_default(),
        }
    };
    let dir = args.dir.as_deref().unwrap_or(rig.scratch());
    let mut ways = vec![way("native", Side::Native, None)];
    if rig.sides.contains(&Side::SwapFile) {
        ways.push(way("swap file", Side::SwapFile, None));
    }
    let file = format!("file:{}", dir.display());
    ways.push(way("run, file", Side::Run, Some(file)));
    ways.push(way("run, store", Side::Run, Some(args.url.clone())));
    ways
}

fn command(rig: &Rig, workload: &str, size: u64, seed: u64) -> Vec<OsString> {
    if workload == "python" {
        let objects = (size / BYTES_PER_OBJECT).to_string();
        return ["python3", "-c", objects::PYTHON, &objects]
            .map(OsString::from)
            .into();
    }
    let options = [
        "bench-work",
        "memory",
        "--phases",
        "fill,seq,rand",
        "--threads",
        "1",
        "--reads",
        "20000",
    ];
    let mut command: Vec<OsString> = vec![rig.exe().into()];
    command.extend(options.map(OsString::from));
    for (option, value) in [("--size", size), ("--seed", seed)] {
        command.extend([option.into(), value.to_string().into()]);
    }
    command
}

/// All rows of a workload.
fn compare(
    rig: &mut Rig,
    ways: &[Way],
    command: &[OsString],
    args: &BenchStore,
    size: u64,
    high: u64,
) -> Vec<Row> {
    let mut rows: Vec<Row> = ways.iter().map(|_| Row::default()).collect();
    let mut right: Option<Told> = None;
    for round in 0..args.runs as usize {
        for turn in 0..ways.len() {
            // (The first of all without a limit: what it says is right.)
            let at = (round + turn) % ways.len();
            let options: Vec<&str> = ways[at].options.iter().map(String::as_str).collect();
            let job = Job {
                command,
                limit: high,
                swap: 2 * size + (64 << 20),
                options: &options,
                settings: &[],
                timeout: Duration::from_secs(args.limit),
                watched: false,
            };
            if rows[at].failed.is_some() {
                continue;
            }
            let ran = rig.run(&ways[at].side, &job);
            rows[at].add(ran, &mut right);
            rig::settle();
        }
    }
    rows
}

impl Row {
    fn add(&mut self, ran: Result<Ran, String>, right: &mut Option<Told>) {
        let ran = match ran {
            Ok(ran) => ran,
            Err(why) => {
                self.failed = Some(why);
                return;
            }
        };
        let told = Told::read(&ran.stdout);
        if let Some(right) = right
            && let Err(why) = told.agrees(right)
        {
            self.failed = Some(why);
            return;
        }
        let mut add = |name: String, value: f64| self.figures.entry(name).or_default().push(value);
        for (phase, value, unit) in &told.phases {
            add(format!("{phase} {unit}"), *value);
        }
        add("elapsed s".into(), ran.wall);
        let number = |of: &Value| of.as_f64().unwrap_or(0.0);
        let usage = &ran.stats["usage"];
        if usage.is_object() {
            add(
                "CPU s".into(),
                number(&usage["user_s"]) + number(&usage["sys_s"]),
            );
            let counters = &ran.stats["total"]["counters"];
            let pages = |name: &str| number(&counters[name]) * 4096.0 / 1048576.0;
            add("out MiB".into(), pages("pswpout"));
            add("in MiB".into(), pages("pswpin"));
        }
        let store = &ran.stats["store"];
        if store.is_object() {
            let reads: f64 = store["reads_us"]
                .as_array()
                .map_or(0.0, |all| all.iter().map(number).sum());
            let of = |name: &str| number(&store[name]);
            add("sent MiB".into(), of("sent_bytes") / 1048576.0);
            add("received MiB".into(), of("received_bytes") / 1048576.0);
            add("reads".into(), reads);
            add("read mean us".into(), of("reads_sum_us") / reads.max(1.0));
            add("read p50 us".into(), of("read_p50_us"));
            add("read p99 us".into(), of("read_p99_us"));
            add("bytes/read".into(), of("received_bytes") / reads.max(1.0));
        }
        right.get_or_insert(told);
    }
}

/// A line for each figure, a column for each way.
fn table(ways: &[Way], rows: &[Row]) -> String {
    let mut names: Vec<&String> = Vec::new();
    for name in rows.iter().flat_map(|row| row.figures.keys()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let heads = ways.iter().map(|way| way.name.to_owned());
    let mut table = Table::new(["figure".to_owned()].into_iter().chain(heads));
    for name in names {
        let cells = rows.iter().map(|row| {
            let summary = row.figures.get(name).and_then(|all| Summary::of(all));
            summary.map_or("-".to_owned(), |of| {
                format!("{:.1} ({:.1}..{:.1})", of.median, of.min, of.max)
            })
        });
        table.row([name.clone()].into_iter().chain(cells));
    }
    let mut text = table.text();
    for (way, row) in ways.iter().zip(rows) {
        if let Some(why) = &row.failed {
            let _ = writeln!(text, "{}: {why}", way.name);
        }
    }
    text
}

fn as_json(ways: &[Way], rows: &[Row]) -> Vec<Value> {
    let each = ways.iter().zip(rows);
    each.map(|(way, row)| json!({ "name": way.name, "figures": row.figures, "failed": row.failed }))
        .collect()
}

/// Bytes a second from one thread to another by a connection over loopback.
fn loopback() -> std::io::Result<u64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut from = TcpStream::connect(listener.local_addr()?)?;
    let (mut to, _) = listener.accept()?;
    let begin = Instant::now();
    let sender = std::thread::spawn(move || {
        let bytes = vec![7; 64 << 10];
        (0..LOOPBACK / bytes.len()).all(|_| from.write_all(&bytes).is_ok())
    });
    let mut bytes = vec![0; 64 << 10];
    let mut came = 0;
    while came < LOOPBACK {
        match to.read(&mut bytes)? {
            0 => break,
            count => came += count,
        }
    }
    let _ = sender.join();
    let us = begin.elapsed().as_micros().max(1);
    Ok(u64::try_from(came as u128 * 1_000_000 / us).unwrap_or(u64::MAX))
}
