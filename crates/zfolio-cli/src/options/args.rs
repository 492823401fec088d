//! The command line.

use crate::options::asking::{Compact, Set, fixed};
use crate::options::backing_options::{Backing, Behind, ENV_BACKING};
use crate::options::engines::{self, Engines};
use crate::options::groups::Group;
use crate::options::mistake;
use crate::options::slowdown::Slowdown;
use crate::own;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;
use zfolio_bench::args::{Advise, Bench, BenchChild, BenchWork, Usemem};
use zfolio_host::compressor::Compressor;
use zfolio_host::exit::{self, Failure, Status};
use zfolio_host::size::{self, Size};
use zfolio_mm::Order;
use zfolio_runtime::segment::faults;
use zfolio_views::args::{Plot, Stat, Top, Which, WhileRunning};

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
    /// Have every process of a running tree compact its pool and its arena now
    Compact(Compact),
    /// Run a built-in workload bare and then with its memory limited, and compare
    Demo(Demo),
    /// Run an experiment on the parts zfolio is made of
    Bench(Bench),
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man(Man),
    /// Print what the JSON that zfolio writes looks like, as JSON Schema
    Schema(Schema),
    /// Print what a shell completes
    #[command(hide = true)]
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

/// What `--help` of `run` ends with.
fn run_help() -> String {
    format!(
        "Options elsewhere:\n  Each option may also be given as a variable (ZFOLIO_HIGH for \
         --high, ZFOLIO_SWAP_MAX for\n  --swap-max; 1 and 0 for one that takes nothing) and in \
         a file zfolio.toml (high = \"2G\")\n  in this directory or in \
         $XDG_CONFIG_HOME/zfolio; ZFOLIO_CONFIG names another file, or is none.\n  The command \
         line counts first, then variables, this directory, the user's file.\n  Within another \
         run only the command line does.\n\n{}",
        exit::help()
    )
}

/// `zfolio run`.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Memory the program and all it starts may keep resident, pool included:
    /// 200M, 1.5G, 512MiB, or 40% of this machine's memory; 8M at least.
    /// Default: inside a memory limit (a control group's: a container, a job) what
    /// keeps the job under it; else half of this machine's memory
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    pub(crate) high: Option<Size>,
    /// What may be paid for memory.
    #[command(flatten)]
    pub(crate) paid: Slowdown,
    /// --high, --max and size= are for each process on its own, not shared
    #[arg(long)]
    pub(crate) per_process: bool,
    /// How pages are compressed: auto (lz4, and zstd when the pool has taken
    /// much of the memory), lz4, zstd, zstd:LEVEL (-7 to 19), deflate-iaa (fixed
    /// tables; with :dynamic or :canned others: deflate as an accelerator reads it) or none
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = Compressor::parse)]
    pub(crate) compressor: Compressor,
    /// How much is moved out at once where the program has no huge pages: a
    /// power of two from 4K to 2M; default: 64K
    #[arg(long, value_name = "SIZE", value_parser = size::parse_folio)]
    pub(crate) folio: Option<Order>,
    /// Huge pages are split when they leave, and stored in folios of --folio too (they
    /// are stored whole else). By the thread that touches (--faults) they always are
    #[arg(long)]
    pub(crate) split_huge_pages: bool,
    /// Groups.
    #[command(flatten)]
    pub(crate) group: Group,
    /// The backing and `max`.
    #[command(flatten)]
    pub(crate) behind: Behind,
    #[arg(long, value_name = "N[,ATTRIBUTE=VALUE...]", default_value = "0",
          help = engines::help(), value_parser = Engines::parse)]
    pub(crate) engines: Engines,
    /// No folio compaction: what `bench arena` compares with
    #[arg(long, hide = true)]
    pub(crate) no_folio_compaction: bool,
    /// Whether pages that stay in the pool are compressed again, denser, when the
    /// program is idle or the pool takes much of the memory (with --compressor
    /// auto only)
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Tier::Off)]
    pub(crate) tier: Tier,
    /// Who is told of a page that is touched while it is out: message (a thread of
    /// ours, by userfaultfd; needs CAP_SYS_PTRACE), or the thread that touched it, which
    /// needs no privilege: in-thread (by userfaultfd, Linux 6.8), guard (guard markers,
    /// Linux 6.13) or protect (page protection, Linux 5.11). auto: message where it is
    /// permitted, else the first of the others that works here. --engines, --tier, a
    /// store as --backing and --folio above 256K need message
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Faults::Auto)]
    pub(crate) faults: Faults,
    /// Write statistics to FILE as JSON when the program has ended
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// What is shown while it runs.
    #[command(flatten)]
    pub(crate) shown: WhileRunning,
    /// Print nothing of our own unless something fails
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Run a program we cannot manage (static, setuid, foreign) all the same;
    /// programs it starts are still managed where possible
    #[arg(long)]
    pub(crate) allow_unmanaged: bool,
    /// Print what holds for each option, and from where, instead of running anything
    #[arg(long)]
    pub(crate) print_config: bool,
    /// The program and its arguments
    #[arg(
        required_unless_present = "print_config",
        trailing_var_arg = true,
        value_name = "CMD"
    )]
    pub(crate) command: Vec<OsString>,
}

/// Who is told of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Faults {
    /// What works here
    Auto,
    /// A thread of ours
    Message,
    /// The thread that faults, by userfaultfd
    InThread,
    /// The thread that faults, by guard markers
    Guard,
    /// The thread that faults, by page protection
    Protect,
}

impl Faults {
    /// As the control segment has it.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Auto => faults::AUTO,
            Self::Message => faults::MESSAGE,
            Self::InThread => faults::IN_THREAD,
            Self::Guard => faults::GUARD,
            Self::Protect => faults::PROTECT,
        }
    }

    /// The opposite; none for a number that is not one.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        let mut all = Self::value_variants().iter();
        all.find(|way| way.number() == number).copied()
    }

    /// The name as the command line takes it.
    pub(crate) const fn name(self) -> &'static str {
        faults::NAMES[self.number() as usize]
    }
}

/// Whether there is a second tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Tier {
    /// Pages stay as they were stored
    Off,
    /// Where it is worth it, when there is time
    Auto,
}

impl Tier {
    /// The name as the command line takes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Auto => "auto",
        }
    }
}

/// Where Debian's and Fedora's packages have the seccomp profile of podman.
pub(crate) const PODMAN_PROFILE: &str = "/usr/share/containers/seccomp.json";

/// `zfolio doctor`.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Look at a store as well, as `zfolio run --backing` takes it: how fast it is, and
    /// what would be lost when
    #[arg(long, value_name = "redis://HOST", env = ENV_BACKING, hide_env = true,
          value_parser = Backing::parse)]
    pub(crate) backing: Option<Backing>,
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
    /// other lines (sample), of bench --json
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
    Cli::try_parse_from(args).map_err(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        if let Some(option) = fixed_option(&error) {
            let why = format!("cannot change while a run lasts: {}", fixed(&option));
            let mend = "start the run anew with it";
            return Failure::new(Status::Usage, format!("--{option}"), why, mend);
        }
        mistake::failure(&error)
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
    use clap::CommandFactory;

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
        let parse = |text| run(&["--compressor", text, "true"]).map(|run| run.compressor.name());
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
                "message? see zfolio --help",
            ),
        ] {
            let told = of(words).to_string();
            assert!(told.ends_with(&format!("; did you mean {near}")), "{told}");
        }
    }
}
