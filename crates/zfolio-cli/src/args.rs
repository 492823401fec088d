//! The command line.

use crate::behind::Behind;
pub(crate) use crate::bench::args::Usemem;
use crate::bench::args::{
    BenchArena, BenchChild, BenchPeers, BenchPool, BenchSaved, BenchTier, BenchUsemem, BenchWork,
};
use crate::exit::{self, Failure, Status, one_line};
use crate::groups::Group;
use crate::size::{self, Size};
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;
use zfolio_mm::Order;
use zfolio_runtime::options::Codec;
use zfolio_runtime::segment::faults;

/// Compressed memory for any program, from user space.
#[derive(Parser, Debug)]
#[command(name = "zfolio", version, after_help = exit::help(), subcommand_required = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a program with its cold memory kept compressed
    #[command(after_help = exit::help())]
    Run(Run),
    /// Say whether this machine can run managed programs, and what would mend it
    Doctor(Doctor),
    /// Show the statistics of a running tree
    Stat(Stat),
    /// Run a built-in workload bare and then with its memory limited, and compare
    Demo(Demo),
    /// Run an experiment on the parts zfolio is made of
    Bench(Bench),
    /// The workload of `demo`: fill, read, verify; prints JSON lines
    #[command(hide = true)]
    DemoWork(DemoWork),
    /// Use memory: the workload of the kernel's swap series
    Usemem(Usemem),
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

/// `zfolio run`.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Memory the program and all it starts may keep resident, pool included:
    /// 200M, 1.5G, 512MiB, or 40% of this machine's memory; 8M at least.
    /// Default: half of what is available to us (the machine's memory or the
    /// control group's limit, whichever is less)
    #[arg(long, value_name = "SIZE", value_parser = Size::parse)]
    pub(crate) high: Option<Size>,
    /// --high, --max and size= are for each process on its own, not shared
    #[arg(long)]
    pub(crate) per_process: bool,
    /// How pages are compressed: auto (lz4, and zstd when the pool has taken
    /// much of the memory), lz4, zstd, zstd:LEVEL (-7 to 19), deflate-iaa (with
    /// :fixed or :canned: deflate as an accelerator reads it) or none
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = Compressor::parse)]
    pub(crate) compressor: Compressor,
    /// How much is moved out at once where the program has no huge pages: a
    /// power of two from 4K to 2M
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = size::parse_folio)]
    pub(crate) folio: Order,
    /// Groups.
    #[command(flatten)]
    pub(crate) group: Group,
    /// The backing and `max`.
    #[command(flatten)]
    pub(crate) behind: Behind,
    /// Threads of each process that help to compress what is moved out, 0 to 16
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = value_parser!(u32).range(0..=zfolio_runtime::options::MOST_ENGINES as i64))]
    pub(crate) engines: u32,
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
    /// permitted, else the first of the others that works here
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Faults::Auto)]
    pub(crate) faults: Faults,
    /// Write statistics to FILE as JSON when the program has ended
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// Print nothing of our own unless something fails
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Run a program we cannot manage (static, setuid, foreign) all the same;
    /// programs it starts are still managed where possible
    #[arg(long)]
    pub(crate) allow_unmanaged: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
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

/// `zfolio doctor`.
#[derive(Args, Debug)]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `zfolio stat`.
#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// Process id of a `zfolio run` or of a program under it, or the path of
    /// a control segment; default: the newest
    #[arg(value_name = "PID|FILE")]
    pub(crate) which: Option<PathBuf>,
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

/// `zfolio bench`.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// Which experiment.
    #[command(subcommand)]
    pub(crate) experiment: Experiment,
}

/// The experiments.
#[derive(Subcommand, Debug)]
pub(crate) enum Experiment {
    /// Copies that zspage compaction needs: the kernel's old and new way, and ours
    Zsmalloc(BenchZsmalloc),
    /// Folio compaction: how many large blocks, at what cost, by variant
    Compaction(BenchCompaction),
    /// A running program with folio compaction off and on: huge pages, blocks, time
    Arena(BenchArena),
    /// An idle program with the second tier off and auto: memory, reads, CPU
    Tier(BenchTier),
    /// Memory used for the same pages: our pool beside the kernel's
    Pool(BenchPool),
    /// One workload native, under `zfolio run`, on zram, zswap and a swap file
    Peers(BenchPeers),
    /// usemem by folio size and codec, under `zfolio run` and on the kernel's swap
    Usemem(BenchUsemem),
    /// Memory saved at a slowdown: the smallest `--high` for it, by codec, for real
    /// programs
    Saved(BenchSaved),
    /// Undo what experiments that were killed have left of devices and swap
    Cleanup,
    /// Codecs, unit sizes, batches and engines on the pages of real programs
    Compressors(BenchCompressors),
}

/// `zfolio bench zsmalloc`.
#[derive(Args, Debug)]
pub(crate) struct BenchZsmalloc {
    /// Where the pseudo-random patterns begin: the same seed, the same figures
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Patterns tried per class, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Objects left of a hundred when the others were freed, 1 to 99
    #[arg(long, value_name = "PERCENT", default_value_t = 33, value_parser = value_parser!(u32).range(1..=99))]
    pub(crate) keep: u32,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub(crate) files: BenchFiles,
}

/// `zfolio bench compaction`.
#[derive(Args, Debug)]
pub(crate) struct BenchCompaction {
    /// Where the random numbers start: the same seed gives the same arenas
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Arenas of each kind, each with a seed of its own, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u64).range(1..=1000))]
    pub(crate) runs: u64,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub(crate) files: BenchFiles,
}

/// `zfolio bench compressors`.
#[derive(Args, Debug)]
pub(crate) struct BenchCompressors {
    /// Codecs, as `run --compressor` names them, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = Compressor::parse,
          default_value = "lz4,zstd,deflate-iaa,deflate-iaa:canned")]
    pub(crate) compressors: Vec<Compressor>,
    /// Unit sizes, powers of two from 4K to 2M, separated by commas
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size::parse_folio,
          default_value = "4K,16K,64K")]
    pub(crate) units: Vec<Order>,
    /// Units of a batch, 2 to 64
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u32).range(2..=64))]
    pub(crate) batch: u32,
    /// Numbers of engines besides none, 0 to 16, separated by commas
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,2",
          value_parser = value_parser!(u32).range(0..=16))]
    pub(crate) engines: Vec<u32>,
    /// Rounds in which every way takes its turn, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Compress the pages of FILE (a dump of memory, say) instead of those of
    /// programs started for it (python3, sqlite3, node: those there are)
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Most memory taken of each
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = Size::parse)]
    pub(crate) pages: Size,
    /// Where the results go besides the terminal
    #[command(flatten)]
    pub(crate) files: BenchFiles,
}

/// Files every experiment writes.
#[derive(Args, Debug)]
pub(crate) struct BenchFiles {
    /// Write all figures to FILE as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Draw them into FILE as SVG
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// `zfolio demo-work`.
#[derive(Args, Debug)]
pub(crate) struct DemoWork {
    /// Bytes of records
    #[arg(long, value_parser = Size::parse)]
    pub(crate) size: Size,
}

/// Codec and level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Compressor(pub(crate) Codec);

impl Compressor {
    fn parse(text: &str) -> Result<Self, String> {
        Codec::parse(text)
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// The name as the command line takes it.
    pub(crate) fn name(self) -> String {
        self.0.to_string()
    }
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
        let rendered = error.render().to_string();
        // clap's first paragraph is the error, the rest is usage; a missing
        // subcommand is told by its help alone.
        let first = rendered.split("\n\n").next().unwrap_or_default();
        let words: Vec<&str> = first.split_whitespace().collect();
        let told = one_line(&words.join(" "));
        let told = match told.strip_prefix("error: ") {
            Some(told) => told.to_owned(),
            None => "no command given".to_owned(),
        };
        Failure::new(Status::Usage, "command line", told, "see zfolio --help")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn run(words: &[&str]) -> Result<Run, String> {
        let all = ["zfolio", "run"].iter().chain(words).map(OsString::from);
        match parse(all).map_err(|failure| failure.to_string())?.command {
            Command::Run(run) => Ok(run),
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
            assert!(told.ends_with("; see zfolio --help"), "{told}");
        }
        let none = parse([OsString::from("zfolio")]).unwrap_err();
        assert_eq!(none.status, Status::Usage);
    }
}
