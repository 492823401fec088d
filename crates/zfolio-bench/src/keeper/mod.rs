//! The keeper: a process that sets up what experiments beside the kernel need
//! (zram devices, swap areas, control groups, settings of /sys), and undoes all
//! of it when the experiment ends, however it ends.
//!
//! ```text
//!  zfolio bench ...                      zfolio bench-keeper
//!     Keeper  ── requests, a line each ──>  server    session of its own
//!             <── ok / err, a line each ──    │
//!                                             ├─ journal: written before
//!  killed with -9: the pipe ends ────────────>│  each step
//!                                             └─ undoes all, last first
//! ```
//!
//! Should the keeper itself be killed, its journal stays, and the next keeper
//! to start (or `zfolio bench cleanup`) undoes what is in it.
//!
//! | module | concept |
//! |---|---|
//! | `entry` | what can be set up, and undoing it |
//! | `journal` | what is set up, on disk |
//! | `server` | the keeper's own process |
//!
//! # Invariants
//! - Nothing is set up before the journal has it (a zram device: before it is
//!   used; its number is the kernel's choice).
//! - Swap, and the settings of zswap, are one experiment's at a time: the lock.

mod entry;
mod journal;
mod server;
mod wait;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use zfolio_host::exit::{Failure, Status};
use zfolio_host::standard_output::print;

pub use server::serve;
pub(crate) use wait::wait_until;

/// The keeper's process, as the experiment sees it. Dropped: everything is
/// undone.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

/// Something that is set up; undone by [`Keeper::undo`], or in the end.
#[derive(Debug)]
#[must_use]
pub(crate) struct Kept(u64);

/// A zram device.
#[derive(Debug)]
pub(crate) struct Zram {
    pub(crate) kept: Kept,
    number: u32,
}

impl Zram {
    /// The device.
    pub(crate) fn device(&self) -> PathBuf {
        format!("/dev/zram{}", self.number).into()
    }

    /// A file of its in /sys.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        format!("/sys/block/zram{}/{name}", self.number).into()
    }

    /// What it holds now.
    ///
    /// # Errors
    /// When the device is gone.
    pub(crate) fn mm_stat(&self) -> Result<MmStat, String> {
        let path = self.file("mm_stat");
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        MmStat::parse(&text).ok_or_else(|| format!("{} has {text:?}", path.display()))
    }
}

/// Of /sys/block/zramN/mm_stat, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MmStat {
    pub(crate) compr_data_size: u64,
    pub(crate) mem_used_total: u64,
    pub(crate) mem_used_max: u64,
}

impl MmStat {
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        let [
            _orig,
            compr_data_size,
            mem_used_total,
            _limit,
            mem_used_max,
            ..,
        ] = fields[..]
        else {
            return None;
        };
        Some(Self {
            compr_data_size,
            mem_used_total,
            mem_used_max,
        })
    }
}

impl Keeper {
    /// Starts one; undoes what killed ones have left.
    ///
    /// # Errors
    /// Why there can be none, in a sentence: it needs root.
    pub(crate) fn start() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("the kernel's swap is root's to set up".to_owned());
        }
        let exe = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(exe)
            .arg("bench-keeper")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("starting the keeper: {error}"))?;
        let (to, from) = (child.stdin.take(), child.stdout.take());
        let from = BufReader::new(from.ok_or("no pipe from the keeper")?);
        let mut keeper = Self { child, to, from };
        keeper.answer()?;
        Ok(keeper)
    }

    fn ask(&mut self, request: &[&str]) -> Result<Vec<String>, String> {
        let line = request.join("\t");
        let to = self.to.as_mut().ok_or("the keeper is gone")?;
        to.write_all(format!("{line}\n").as_bytes())
            .map_err(|error| format!("the keeper: {error}"))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Vec<String>, String> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) => return Err("the keeper has ended".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(format!("the keeper: {error}")),
        }
        let mut fields = line.trim_end_matches('\n').split('\t').map(str::to_owned);
        match fields.next().as_deref() {
            Some("ok") => Ok(fields.collect()),
            _ => Err(fields.next().unwrap_or_default()),
        }
    }

    fn kept(&mut self, request: &[&str]) -> Result<Kept, String> {
        number(self.ask(request)?.first()).map(Kept)
    }

    /// Swap and zswap are ours alone from now on.
    ///
    /// # Errors
    /// When another experiment has them.
    pub(crate) fn lock_swap(&mut self) -> Result<(), String> {
        self.ask(&["lock"]).map(drop)
    }

    /// The compression algorithms zram offers.
    ///
    /// # Errors
    /// When there is no zram.
    pub(crate) fn zram_algorithms(&mut self) -> Result<Vec<String>, String> {
        self.ask(&["algorithms"])
    }

    /// A zram device of `size` bytes.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn zram(&mut self, algorithm: &str, size: u64) -> Result<Zram, String> {
        let answer = self.ask(&["zram", algorithm, &size.to_string()])?;
        let device = u32::try_from(number(answer.get(1))?).map_err(|error| error.to_string())?;
        Ok(Zram {
            kept: Kept(number(answer.first())?),
            number: device,
        })
    }

    /// A file of `size` bytes that can be swapped to, and its path.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn swap_file(&mut self, size: u64) -> Result<(Kept, PathBuf), String> {
        let answer = self.ask(&["file", &size.to_string()])?;
        let path = answer.get(1).ok_or("no path")?.into();
        Ok((Kept(number(answer.first())?), path))
    }

    /// A directory for temporary files.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn scratch(&mut self) -> Result<PathBuf, String> {
        let answer = self.ask(&["scratch"])?;
        Ok(answer.get(1).ok_or("no path")?.into())
    }

    /// Has the kernel swap to `path` first.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn swap_on(&mut self, path: &Path) -> Result<Kept, String> {
        self.kept(&["swapon", &path.to_string_lossy()])
    }

    /// A new control group below `parent`.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn cgroup(&mut self, parent: &Path) -> Result<(Kept, PathBuf), String> {
        let answer = self.ask(&["cgroup", &parent.to_string_lossy()])?;
        let path = answer.get(1).ok_or("no path")?.into();
        Ok((Kept(number(answer.first())?), path))
    }

    /// Writes `value` to a file of /sys; `before` is what to write in the end.
    ///
    /// # Errors
    /// As the system says.
    pub(crate) fn set(&mut self, path: &Path, value: &str, before: &str) -> Result<Kept, String> {
        self.kept(&["set", &path.to_string_lossy(), value, before])
    }

    /// Undoes one thing now.
    ///
    /// # Errors
    /// Why not. It is tried again in the end.
    pub(crate) fn undo(&mut self, kept: Kept) -> Result<(), String> {
        self.ask(&["undo", &kept.0.to_string()]).map(drop)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It undoes everything when the pipe ends.
        drop(self.to.take());
        let _ = self.child.wait();
    }
}

fn number(field: Option<&String>) -> Result<u64, String> {
    field
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| "the keeper's answer has no number".to_owned())
}

/// `zfolio bench cleanup`.
///
/// # Errors
/// When something cannot be undone.
pub(crate) fn cleanup() -> Result<ExitCode, Failure> {
    let (found, failed) = journal::recover(Path::new(journal::STATE));
    match failed.first() {
        Some(why) => Err(Failure::new(
            Status::Internal,
            "bench cleanup",
            why,
            "end what uses it and run it again",
        )),
        None => {
            let line = format!("undone: what {found} killed experiment(s) had left\n");
            print(&line).map(|_| ExitCode::SUCCESS)
        }
    }
}
