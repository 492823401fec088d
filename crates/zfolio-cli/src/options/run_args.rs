//! The command line of `run`.

use crate::options::backing_options::Behind;
use crate::options::engines::{self, Engines};
use crate::options::groups::Group;
use crate::options::slowdown::Slowdown;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use zfolio_host::compressor::Compressor;
use zfolio_host::exit;
use zfolio_host::size::{self, Size};
use zfolio_mm::Order;
use zfolio_runtime::options::BackgroundReclaim;
use zfolio_runtime::segment::{faults, io_uring};
use zfolio_views::args::WhileRunning;

/// What `--help` of `run` ends with.
pub(super) fn run_help() -> String {
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
    /// How memory goes.
    #[command(flatten)]
    pub(crate) moved: Moved,
    /// Groups.
    #[command(flatten)]
    pub(crate) group: Group,
    /// The backing and `max`.
    #[command(flatten)]
    pub(crate) behind: Behind,
    /// Who works for it.
    #[command(flatten)]
    pub(crate) work: Work,
    /// What is said of it.
    #[command(flatten)]
    pub(crate) said: Said,
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

/// How memory goes.
#[derive(Args, Debug)]
pub(crate) struct Moved {
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
    /// Huge pages that came back in pieces are copied into one again once all of them
    /// are there. Not by the thread that touches (--faults)
    #[arg(long)]
    pub(crate) huge_page_assembly: bool,
    /// Read-ahead is fixed as by the kernel's page-cluster: a fault brings what is stored
    /// of its 2^N pages, 0 to 9 (0: its page alone); else it is judged
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) page_cluster: Option<u8>,
}

/// Who compresses, compacts and is told of faults.
#[derive(Args, Debug)]
pub(crate) struct Work {
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
    /// Who is told of a page that is touched while it is out: the thread that touched it,
    /// which needs no privilege: in-thread (by userfaultfd, Linux 6.8), guard (guard
    /// markers, Linux 6.13) or protect (page protection, Linux 5.11); or message (a thread
    /// of ours, by userfaultfd; needs CAP_SYS_PTRACE). auto: in-thread, else message, else
    /// guard, else protect: the first that works here. --engines, --swap-high,
    /// --huge-page-assembly, --folio above 256K and --page-cluster above 6 need message
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Faults::Auto)]
    pub(crate) faults: Faults,
    /// Whether a thread of ours moves memory out beside the program's threads, where those
    /// that touch bring it back (--faults in-thread) and there is more than one
    /// processor. auto: while memory runs short. off: the program's threads alone do it
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Background::Auto)]
    pub(crate) background_reclaim: Background,
    /// What becomes of a program that has the kernel keep addresses (io_uring, io_setup,
    /// vmsplice), which the thread that touches (--faults) cannot follow. refuse: the call is
    /// answered as by a kernel without it. unmanaged: all of the process's memory is brought
    /// back, and the call is made. auto: unmanaged where messages are permitted (--faults
    /// message manages such a program), else refuse
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = IoUring::Auto)]
    pub(crate) io_uring: IoUring,
}

/// What is said of a run: while it goes, and at its end.
#[derive(Args, Debug)]
pub(crate) struct Said {
    /// Write statistics to FILE as JSON when the program has ended
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// What is shown while it runs.
    #[command(flatten)]
    pub(crate) shown: WhileRunning,
    /// Print nothing of our own unless something fails
    #[arg(long)]
    pub(crate) quiet: bool,
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
    /// The order in which `auto` tries them. In-thread is the fastest, and what a program is given by it is
    /// right in more cases than by messages (docs/limits.md); guard and protect are slower than both.
    pub(crate) const BY_PREFERENCE: [Self; 4] =
        [Self::InThread, Self::Message, Self::Guard, Self::Protect];

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

/// Whether a thread of ours reclaims beside the program's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Background {
    /// While memory runs short
    Auto,
    /// The program's threads alone do it
    Off,
    /// From the first page that leaves: for tests
    #[value(hide = true)]
    Eager,
}

impl Background {
    /// The choice that processes read.
    pub(crate) const fn choice(self) -> BackgroundReclaim {
        match self {
            Self::Auto => BackgroundReclaim::Auto,
            Self::Off => BackgroundReclaim::Off,
            Self::Eager => BackgroundReclaim::Eager,
        }
    }

    /// The name as the command line takes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::Eager => "eager",
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

/// What becomes of a program that uses io_uring, where its threads serve their faults themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum IoUring {
    /// It runs as it does bare, where it may be managed by messages; else it is told that there is none
    Auto,
    /// It is told that there is none
    Refuse,
    /// It is managed no longer
    Unmanaged,
}

impl IoUring {
    /// What was asked for, or what holds here. (The filters of containers refuse io_uring as they refuse messages:
    /// what runs there can do without.)
    pub(crate) fn decided(self, messages_work: impl FnOnce() -> bool) -> Self {
        match self {
            Self::Auto if messages_work() => Self::Unmanaged,
            Self::Auto => Self::Refuse,
            decided => decided,
        }
    }

    /// As the control segment has it.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Auto | Self::Refuse => io_uring::REFUSE,
            Self::Unmanaged => io_uring::UNMANAGED,
        }
    }

    /// The name as the command line takes it.
    pub(crate) const fn name(self) -> &'static str {
        io_uring::NAMES[self.number() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::IoUring::{self, Auto, Refuse, Unmanaged};

    #[test]
    fn what_becomes_of_io_uring_goes_by_what_works_where_it_is_not_said() {
        for works in [true, false] {
            let decided = |asked: IoUring| asked.decided(|| works);
            assert_eq!(decided(Auto), if works { Unmanaged } else { Refuse });
            assert_eq!([decided(Refuse), decided(Unmanaged)], [Refuse, Unmanaged]);
        }
    }
}
