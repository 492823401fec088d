//! `zfolio run`: check, prepare, start, wait, tell.
//!
//! Everything that can be known to fail is checked before the program starts;
//! from then on the program's own end is what counts. Its environment is the
//! only thing changed: three variables, and one that may hold a password taken out, for it and
//! its children alone.

mod store;

mod beside;
mod idle_processors;

use crate::fitting::{Chosen, Fitting};
use crate::options::backing_options::ENV_BACKING;
use crate::options::fault_ways::{Taken, check_within};
use crate::options::layers::{default_of, options};
use crate::options::run_args::Run;
use crate::options::settings::{Folios, InThread, Settings};
use crate::preload::{self, ENV_ASAN, ENV_LD_PRELOAD};
use crate::report::{Finished, Usage};
use crate::requests::server::Server;
use crate::slowdown::Following;
use crate::supervise::{Outcome, Supervisor};
use crate::tree::compressed_peak::Peaks;
use crate::tree::orphaned::Orphaned;
use crate::tree::too_little_memory::TooLittleMemory;
use crate::tree::unreached::{self, Unreached};
use beside::Beside;
use idle_processors::IdleProcessors;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use zfolio_host::exit::{Failure, Status, one_line};
use zfolio_host::machine;
use zfolio_host::outfile::OutFile;
use zfolio_host::segment_file::OwnSegment;
use zfolio_host::size::{self, MIN_HIGH, human};
use zfolio_host::standard_output::print;
use zfolio_host::statistics::Tree;
use zfolio_host::store_totals::StoreTotals;
use zfolio_host::target;
use zfolio_host::uffd_probe;
use zfolio_mm::Order;
use zfolio_runtime::segment::{ENV_CONTROL, ENV_GROUP};

/// Prints what holds for each option, and from where.
///
/// # Errors
/// It cannot be written.
pub(crate) fn print_config(
    args: &Run,
    given: &BTreeMap<String, (String, String)>,
) -> Result<ExitCode, Failure> {
    let chosen = Fitting::find(None, Instant::now()).chosen();
    let mut text = String::new();
    for (option, _) in options() {
        let (value, from) = match given.get(&option) {
            Some((value, from)) => (store::without_login(value), from.clone()),
            None if option == "high" && args.high.is_none() => {
                let why = match chosen.limit {
                    Some(limit) => format!("within a limit of {}", human(limit)),
                    None => "half of this machine's memory".into(),
                };
                (size::short(chosen.high), format!("default: {why}"))
            }
            None => (default_of(&option), "default".into()),
        };
        text += &one_line(&format!("{option:<19} {value:<16} {from}"));
        text.push('\n');
    }
    print(&text).map(|_| ExitCode::SUCCESS)
}

/// Runs the program and ends as it does.
///
/// # Errors
/// Whatever kept it from being started (see [`Status`]).
pub(crate) fn run(args: Run) -> Result<ExitCode, Failure> {
    let name = args.command.first().cloned().unwrap_or_default();
    let path = target::find(&name)?;
    check_target(&path, &args)?;
    if let Some(segment) = args.group.run_around() {
        check_within(&args, &segment)?;
        beside::check_within(&args.said.shown)?;
        args.group.define(&segment, args.high, args.behind.max)?;
        return Err(args.group.become_program(&path, &args.command));
    }
    let faults = Taken::of(&args)?;
    let given = args.high.map(|size| size.bytes(machine::mem_total()));
    let mut fitting = Fitting::find(given, Instant::now());
    let mut settings = settings(&args, faults, fitting.chosen())?;
    let exchange = store::exchange(&mut settings)?;
    let stats = args.said.stats.as_deref().map(open_stats).transpose()?;
    let library = preload::find()?.path;
    let beside = Beside::open(&args.said.shown, &args.command)?;

    let supervisor = Supervisor::install().map_err(|error| internal("signal handlers", error))?;
    let mut stored = true;
    let segment = OwnSegment::create(|segment| stored = settings.store(segment.config()))?;
    if !stored {
        let (why, mend) = ("the path is too long", "name another directory");
        return Err(Failure::new(Status::CannotCreate, "--backing", why, mend));
    }
    args.group.define(&segment, None, None)?;
    let keeper = exchange.map(|exchange| store::start(exchange, &settings));
    let keeper = keeper.transpose()?;
    // (Without one, where its path would be too long say, nothing can be asked of the run.)
    let mut server = Server::beside(segment.path()).ok();
    let mut command = Command::new(&path);
    command
        .arg0(&name)
        .args(&args.command[1..])
        .env(
            ENV_LD_PRELOAD,
            preload::with_library(std::env::var_os(ENV_LD_PRELOAD).as_deref(), &library),
        )
        .env(ENV_CONTROL, segment.path())
        .env_remove(ENV_GROUP)
        .env_remove(ENV_BACKING)
        .envs(args.group.env())
        .env(
            ENV_ASAN,
            preload::asan_options(std::env::var_os(ENV_ASAN).as_deref()),
        );
    let started = Instant::now();
    let running = supervisor.start(&mut command).map_err(|error| {
        Failure::new(
            Status::NotExecutable,
            path.display(),
            error,
            "check the program and its arguments",
        )
    })?;
    let pid = running.pid();
    let mut too_little = TooLittleMemory::new(started, settings.limit);
    let mut orphaned = Orphaned::new(&segment, started);
    let following = settings.slowdown;
    let mut following = following.map(|asked| Following::new(asked, settings.high, started));
    let mut unreached = Unreached::new(segment.path(), &library, settings.high, started);
    let mut idle = IdleProcessors::new();
    let looked = || {
        let now = Instant::now();
        idle.look(segment.config(), now);
        if let Some(server) = &mut server {
            server.look(&segment, &mut fitting, now);
        }
        match &mut following {
            None => fitting.look(&segment, now),
            Some(following) => following.look(&segment, fitting.most(&segment, now), now),
        }
        if let Some(line) = too_little.look(&segment, now)
            && !settings.quiet
        {
            say(&line);
        }
        for line in orphaned.look(&segment, now) {
            say(&line);
        }
        unreached.look(now);
    };
    let peaks = Peaks::default();
    let beside = beside.start(segment.path(), &peaks.ended(), started);
    for line in beside.told(settings.quiet) {
        say(&line);
    }
    let (peaks, outcome) = peaks.during(&segment, looked, || running.wait());
    let wall = started.elapsed();
    for line in beside.finish() {
        say(&line);
    }
    let mut outcome = outcome.map_err(|error| internal("waiting for the program", error))?;
    if orphaned.has_ended(pid) {
        outcome = Outcome::Exited(Status::Internal.code());
    }

    let mut tree = Tree::read(&segment);
    peaks.apply(&mut tree, &segment);
    settings.reread(segment.config(), server.as_ref().and_then(Server::high));
    drop((server, segment));
    let store = keeper.and_then(|keeper| keeper.finish(StoreTotals::read_in));
    let finished = Finished {
        command: args.command,
        pid,
        settings,
        tree,
        bought: following.map(|following| following.finish()),
        unreached: unreached.finish(),
        usage: usage(wall),
        outcome,
        store,
    };
    tell(&finished);
    let written = stats.map_or(Ok(()), |(path, file)| {
        file.finish(format!("{:#}\n", finished.json()))
            .map_err(|error| {
                Failure::new(
                    Status::StatsLost,
                    path.display(),
                    error,
                    "free some space and run it again",
                )
            })
    });
    match (written, outcome) {
        // Only a success may be turned into a failure of ours.
        (Err(failure), Outcome::Exited(0)) => Err(failure),
        (written, outcome) => {
            if let Err(failure) = written {
                say(&failure);
            }
            Ok(outcome.follow())
        }
    }
}

fn settings(args: &Run, faults: Taken, chosen: Chosen) -> Result<Settings, Failure> {
    let max = args.behind.max.map(|max| max.bytes(machine::mem_total()));
    let Chosen { high, limit } = match max {
        // (What was not asked for keeps to what was.)
        Some(max) if args.high.is_none() && max < chosen.high => Chosen {
            high: max,
            limit: None,
        },
        _ => chosen,
    };
    if high < MIN_HIGH {
        let why = format!(
            "{} is below the least, {}",
            human(high),
            size::short(MIN_HIGH)
        );
        return Err(Failure::new(Status::Usage, "--high", why, "give it more"));
    }
    args.work.engines.check(high)?;
    Ok(Settings {
        high,
        limit,
        slowdown: args.paid.check(high)?,
        faults,
        compressor: args.moved.compressor,
        folios: Folios {
            size: args.moved.folio.unwrap_or(Order::K64),
            split_huge_pages: args.moved.split_huge_pages,
            huge_page_assembly: args.moved.huge_page_assembly,
            page_cluster: args.moved.page_cluster,
            compaction: !args.work.no_folio_compaction,
        },
        engines: args.work.engines,
        tier: args.work.tier,
        in_thread: InThread {
            background: args.work.background_reclaim,
            io_uring: args.work.io_uring.decided(|| uffd_probe::usable().is_ok()),
        },
        quiet: args.said.quiet,
        shared: !args.per_process,
        behind: args.behind.check(high)?,
    })
}

fn check_target(path: &Path, args: &Run) -> Result<(), Failure> {
    match target::check(path) {
        Err(failure) if args.allow_unmanaged && target::may_run_unmanaged(&failure) => Ok(()),
        checked => checked,
    }
}

fn open_stats(path: &Path) -> Result<(&Path, OutFile), Failure> {
    match OutFile::open(path) {
        Ok(file) => Ok((path, file)),
        Err(error) => {
            let what = format!("--stats {}", path.display());
            Err(Failure::new(
                Status::CannotCreate,
                what,
                error,
                "name a file in a directory you may write",
            ))
        }
    }
}

fn internal(what: &str, error: std::io::Error) -> Failure {
    Failure::new(
        Status::Internal,
        what,
        error,
        "please report this with the output of zfolio doctor",
    )
}

fn usage(wall: Duration) -> Usage {
    let Ok(used) = getrusage(UsageWho::RUSAGE_CHILDREN) else {
        return Usage {
            wall,
            ..Usage::default()
        };
    };
    let micros = |of: i64| Duration::from_micros(of.unsigned_abs());
    Usage {
        wall,
        user: micros(used.user_time().num_microseconds()),
        sys: micros(used.system_time().num_microseconds()),
        max_rss: used.max_rss().unsigned_abs().saturating_mul(1024),
    }
}

fn tell(finished: &Finished) {
    let mut lines = finished.failures();
    if !finished.settings.quiet {
        lines.extend(finished.unmanaged());
        lines.extend(unreached::lines(
            &finished.unreached,
            finished.settings.high,
        ));
        lines.extend(finished.summary());
    }
    for line in lines {
        say(&line);
    }
}

/// A line on standard error; nobody may be reading any more, which changes
/// nothing about how the program ended.
fn say(line: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
