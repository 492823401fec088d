//! The command line.

use crate::options::asking::{Compact, Inspect, Set, fixed};
use crate::options::backing_options::ENV_BACKING;
use crate::options::backings::Backings;
use crate::options::mistake;
use crate::options::run_args::{Run, run_help};
use crate::own;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;
use zfolio_bench::args::{Advise, Bench, BenchChild, BenchWork, Usemem};
use zfolio_host::exit::{self, Failure, Status};
use zfolio_host::size::Size;
use zfolio_views::args::{Plot, Stat, Top, Which};

/// Compressed memory for any program, from user space.
#[derive(Parser, Debug)]
#[command(name = "zfolio", version = own::version(), long_version = own::long_version(), after_help = exit::help(), subcommand_required = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a program with its cold memory kept compressed
    #[command(after_help = run_help())]
    Run(Box<Run>),
    /// Say whether this machine can run managed programs, and what would mend it
    Doctor(Doctor),
    /// Show the statistics of a run while it lasts, as a table or as JSON
    Stat(Stat),
    /// Watch all running trees: memory by kind, faults, what moves, over time
    Top(Top),
    /// Print the figures of a running tree as OpenMetrics text (run --metrics serves them)
    Metrics(Which),
    /// Draw what run --record wrote
    Plot(Plot),
    /// Run a program some times with less and less memory, and say how little is enough
    Advise(Advise),
    /// Change limits of a running tree
    Set(Set),
    /// Have every process of a running tree compact its pool, and by messages its arena, now
    Compact(Compact),
    /// Bring all of a managed process into memory and keep it there while a debugger or a
    /// profiler looks into it
    Inspect(Inspect),
    /// Run a built-in workload bare and then with its memory limited, and compare
    Demo(Demo),
    /// Run an experiment on the parts zfolio is made of
    Bench(Bench),
    /// Write the manual pages into a directory
    Man(Man),
    /// Print what the JSON that zfolio writes looks like, as JSON Schema
    Schema(Schema),
    /// Print what a shell completes
    Completions(Completions),
    /// The workload of `demo`: fill, read, verify; prints JSON lines
    #[command(hide = true)]
    DemoWork(DemoWork),
    /// Use memory: the workload of the kernel's swap series
    Usemem(Usemem),
    /// Keeps what is behind the pool in a store, as standard input says
    #[command(hide = true)]
    Pager,
    /// Sets up what an experiment needs of the kernel, and undoes it
    #[command(hide = true)]
    BenchKeeper,
    /// Enters a control group and becomes another program
    #[command(hide = true)]
    BenchChild(BenchChild),
    /// The workloads of `bench peers`, `bench arena` and `bench tier`; prints JSON lines
    #[command(hide = true)]
    BenchWork(BenchWork),
}

/// Where Debian's and Fedora's packages have the seccomp profile of podman.
pub(crate) const PODMAN_PROFILE: &str = "/usr/share/containers/seccomp.json";

/// `zfolio doctor`.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Look at what is to be behind the pool as well, as `zfolio run --backing` takes it: how
    /// much there is, how fast a store is, and what would be lost when
    #[arg(long, value_name = "file:DIR|redis://HOST", env = ENV_BACKING, hide_env = true,
          value_parser = Backings::parse)]
    pub(crate) backing: Vec<Backings>,
    /// Only print a seccomp profile for containers: this one with userfaultfd for user faults
    /// allowed, which --faults in-thread needs
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = PODMAN_PROFILE,
          conflicts_with_all = ["json", "backing"])]
    pub(crate) seccomp_profile: Option<PathBuf>,
}

/// `zfolio demo`.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// How much memory the workload needs
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = Size::parse)]
    pub(crate) size: Size,
    /// How much it is given
    #[arg(long, value_name = "SIZE", default_value = "200M", value_parser = Size::parse)]
    pub(crate) high: Size,
}

/// `zfolio man`.
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The directory
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// `zfolio completions`.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// `zfolio schema`.
#[derive(Args, Debug)]
pub(crate) struct Schema {
    /// Whose JSON: of run --stats, of stat --json, of the first line of run --record, of the
    /// other lines (sample), of bench --json, of doctor --json
    #[arg(value_name = "NAME", value_enum)]
    pub(crate) name: Written,
}

/// What JSON is written of.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    Stats,
    Stat,
    Record,
    Sample,
    Bench,
    Doctor,
}

/// `zfolio demo-work`.
#[derive(Args, Debug)]
pub(crate) struct DemoWork {
    /// Bytes of records
    #[arg(long, value_parser = Size::parse)]
    pub(crate) size: Size,
}

/// Reads the command line. Help and version print and exit here.
///
/// # Errors
/// A wrong command line, in one line.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Failure> {
    let words: Vec<OsString> = args.into_iter().collect();
    Cli::try_parse_from(&words).map_err(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        if let Some(option) = fixed_option(&error) {
            let (why, mend) = fixed(&option);
            let why = format!("cannot change while a run lasts: {why}");
            return Failure::new(Status::Usage, format!("--{option}"), why, mend);
        }
        mistake::failure(&error, &words, &Cli::command())
    })
}

/// The option that `set` was given and only `run` has.
fn fixed_option(error: &clap::Error) -> Option<String> {
    // (`zfolio set` is what the usage of the error is about.)
    let of_set = error.render().to_string().contains("Usage: zfolio set ");
    let ContextValue::String(word) = error.get(ContextKind::InvalidArg)? else {
        return None;
    };
    let name = word.strip_prefix("--")?.split('=').next()?;
    let run = Run::augment_args(clap::Command::new("run"));
    let known = run.get_arguments().any(|arg| arg.get_long() == Some(name));
    (of_set && known && error.kind() == ErrorKind::UnknownArgument).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::run_args::Faults;
    use clap::ValueEnum;

    fn run(words: &[&str]) -> Result<Run, String> {
        let all = ["zfolio", "run"].iter().chain(words).map(OsString::from);
        match parse(all).map_err(|failure| failure.to_string())?.command {
            Command::Run(run) => Ok(*run),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_program_keeps_its_own_options() {
        for words in [
            &["--high", "1G", "--", "ls", "--high", "-l"][..],
            &["--high", "1G", "ls", "--high", "-l"],
        ] {
            let run = run(words).unwrap();
            assert_eq!(run.command, ["ls", "--high", "-l"]);
            assert_eq!(run.high, Some(Size::Bytes(1 << 30)));
        }
    }

    #[test]
    fn compressors_parse() {
        let parse =
            |text| run(&["--compressor", text, "true"]).map(|run| run.moved.compressor.name());
        assert_eq!(parse("lz4").unwrap(), "lz4");
        assert_eq!(parse("zstd").unwrap(), "zstd");
        assert_eq!(parse("auto").unwrap(), "auto");
        assert_eq!(parse("zstd:-3").unwrap(), "zstd:-3");
        assert_eq!(parse("none").unwrap(), "none");
        for text in ["zstd:", "zstd:23", "lz4:0", "gzip", ""] {
            let told = parse(text).unwrap_err();
            assert!(
                told.starts_with("zfolio: command line: ") && !told.contains('\n'),
                "{told}"
            );
        }
    }

    #[test]
    fn ways_have_the_names_of_the_control_segment() {
        for way in Faults::value_variants() {
            assert_eq!(Faults::from_number(way.number()), Some(*way));
            let value = way.to_possible_value().expect("a name");
            assert_eq!(value.get_name(), way.name());
        }
        assert_eq!(Faults::from_number(99), None);
    }

    #[test]
    fn experiments_refuse_what_they_cannot_do() {
        let bench = |words: &[&str]| {
            let all = ["zfolio", "bench"].iter().chain(words).map(OsString::from);
            parse(all).map_err(|failure| (failure.status, failure.to_string()))
        };
        assert!(bench(&["zsmalloc", "--seed", "3", "--runs", "5"]).is_ok());
        for words in [
            &["zsmalloc", "--runs", "0"][..],
            &["zsmalloc", "--runs", "1001"],
            &["zsmalloc", "--seed", "-1"],
            &["zsmalloc", "--keep", "100"],
            &["zsmalloc", "extra"],
            &["no-such"],
            &[],
        ] {
            let (status, told) = bench(words).unwrap_err();
            assert_eq!(status, Status::Usage, "{words:?}");
            assert!(
                told.starts_with("zfolio: command line: ") && !told.contains('\n'),
                "{told}"
            );
        }
    }

    #[test]
    fn what_cannot_change_is_refused_with_a_reason() {
        let set = |words: &[&str]| {
            let all = ["zfolio", "set", "1"].iter().chain(words);
            parse(all.map(OsString::from)).map_err(|failure| failure.to_string())
        };
        let own = Set::augment_args(clap::Command::new("set"));
        let own: Vec<&str> = own
            .get_arguments()
            .filter_map(|arg| arg.get_long())
            .collect();
        let run = Run::augment_args(clap::Command::new("run"));
        let mut refused = 0;
        for name in run.get_arguments().filter_map(|arg| arg.get_long()) {
            if !own.contains(&name) {
                let told = set(&[&format!("--{name}=1")]).expect_err(name);
                let begin = format!("zfolio: --{name}: cannot change while a run lasts: ");
                assert!(told.starts_with(&begin), "{told}");
                refused += 1;
            }
        }
        assert!(refused > 8 && own.len() > 7, "{refused}");
        let unknown = set(&["--hihg", "1G"]).expect_err("no such option");
        assert!(
            unknown.contains("command line: unexpected argument '--hihg'"),
            "{unknown}"
        );
        assert!(set(&["--max", "none", "--writeback", "no", "--high", "40%"]).is_ok());
        assert!(set(&["--max", "nothing"]).is_err());
    }

    #[test]
    fn mistakes_are_one_line() {
        for words in [
            &["--high", "lots", "true"][..],
            &[],
            &["--no-such", "true"],
            &["--folio", "3K", "true"],
        ] {
            let told = run(words).unwrap_err();
            assert!(
                told.starts_with("zfolio: command line: ") && !told.contains('\n'),
                "{told}"
            );
            assert!(told.ends_with(" --help"), "{told}");
        }
        let of = |words: &[&str]| {
            let words = ["zfolio"].iter().chain(words).map(OsString::from);
            parse(words).unwrap_err()
        };
        let none = of(&[]);
        assert_eq!(none.status, Status::Usage);
        for (words, near) in [
            (
                &["run", "--hihg", "3M", "true"][..],
                "--high? see zfolio run --help",
            ),
            (&["stta"], "stat? see zfolio --help"),
            (&["bench", "per"], "peers? see zfolio bench --help"),
            (
                &["run", "--faults", "mesage", "true"],
                "message? see zfolio run --help",
            ),
            (&["rn", "true"], "run? see zfolio --help"),
            (&["bench", "usemen"], "usemem? see zfolio bench --help"),
        ] {
            let told = of(words).to_string();
            assert!(told.ends_with(&format!("; did you mean {near}")), "{told}");
        }
        let told = of(&["run", "--high", "lots", "--", "true"]).to_string();
        assert!(told.ends_with("; see zfolio run --help"), "{told}");
    }
}
