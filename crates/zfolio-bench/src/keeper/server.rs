//! The keeper's own process: a line in, a line out, until the pipe ends.

use super::entry::Entry;
use super::journal::{Journal, STATE, recover};
use super::wait::wait_until;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::process::setsid;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use zfolio_mm::PAGE_SIZE;
use zfolio_sys::swap::swapon;

/// Our areas come before any that was there.
const PRIORITY: u16 = 32_767;
const ZRAM_CONTROL: &str = "/sys/class/zram-control";

struct Server {
    journal: Journal,
    /// The lock on swap, once it is ours.
    swap: Option<File>,
    groups: u32,
}

/// `zfolio bench-keeper`: serves stdin until it ends, then undoes everything.
pub fn serve() -> ExitCode {
    // What ends the experiment must not end this.
    let _ = setsid();
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
        signal_hook::consts::SIGPIPE,
    ] {
        let _ = signal_hook::flag::register(signal, Arc::clone(&ignored));
    }
    let state = Path::new(STATE);
    let (_, mut failed) = recover(state);
    let journal = match Journal::create(state) {
        Ok(journal) => journal,
        Err(error) => {
            answer(&Err(format!("{STATE}: {error}")));
            return ExitCode::FAILURE;
        }
    };
    answer(&Ok(vec![]));
    let mut server = Server {
        journal,
        swap: None,
        groups: 0,
    };
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        answer(&server.serve(&line));
    }
    failed.extend(server.journal.undo_all());
    for why in &failed {
        let _ = writeln!(
            io::stderr(),
            "zfolio: bench: not undone: {why}; zfolio bench cleanup tries again"
        );
    }
    ExitCode::from(u8::from(!failed.is_empty()))
}

/// Nobody may be reading any more.
fn answer(answer: &Result<Vec<String>, String>) {
    let line = match answer {
        Ok(fields) => ["ok".to_owned()]
            .iter()
            .chain(fields)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\t"),
        Err(why) => format!("err\t{}", why.replace(['\t', '\n'], " ")),
    };
    let mut out = io::stdout();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

impl Server {
    fn serve(&mut self, line: &str) -> Result<Vec<String>, String> {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["lock"] => self.lock(),
            ["algorithms"] => algorithms(),
            ["zram", algorithm, size] => self.zram(algorithm, size),
            ["file", size] => self.swap_file(size),
            ["scratch"] => self.scratch(),
            ["swapon", path] => self.swap_on(Path::new(path)),
            ["cgroup", parent] => self.cgroup(Path::new(parent)),
            ["set", path, value, before] => self.set(Path::new(path), value, before),
            ["undo", number] => {
                let number = number.parse().map_err(|_| "not a number".to_owned())?;
                self.journal.undo(number).map(|()| vec![])
            }
            _ => Err(format!("{line} is not understood")),
        }
    }

    /// Begins `entry`, does it by `set_up`, and takes it back if that fails.
    fn keep(
        &mut self,
        entry: Entry,
        set_up: impl FnOnce() -> Result<(), String>,
    ) -> Result<u64, String> {
        let number = self.journal.begin(entry)?;
        if let Err(why) = set_up() {
            let _ = self.journal.undo(number);
            return Err(why);
        }
        Ok(number)
    }

    fn lock(&mut self) -> Result<Vec<String>, String> {
        if self.swap.is_none() {
            let file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(Path::new(STATE).join("lock"))
                .map_err(|error| format!("{STATE}/lock: {error}"))?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)
                .map_err(|_| "another experiment has the kernel's swap".to_owned())?;
            self.swap = Some(file);
        }
        Ok(vec![])
    }

    fn zram(&mut self, algorithm: &str, size: &str) -> Result<Vec<String>, String> {
        let device = add_zram()?;
        let set_up = || {
            let dir = PathBuf::from(format!("/sys/block/zram{device}"));
            write(&dir.join("comp_algorithm"), algorithm)?;
            write(&dir.join("disksize"), size)?;
            let node = PathBuf::from(format!("/dev/zram{device}"));
            wait_until(Duration::from_secs(10), || node.exists());
            Ok(())
        };
        let number = self.keep(Entry::Zram(device), set_up)?;
        Ok(vec![number.to_string(), device.to_string()])
    }

    fn swap_file(&mut self, size: &str) -> Result<Vec<String>, String> {
        let size: u64 = size.parse().map_err(|_| "not a size".to_owned())?;
        let path = Path::new(STATE).join(format!("{}.swap", std::process::id()));
        let number = self.keep(Entry::File(path.clone()), || {
            let error = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .map_err(|e| error(&e))?;
            fallocate(&file, FallocateFlags::empty(), 0, size).map_err(|e| error(&e))
        })?;
        let path = path.display().to_string();
        Ok(vec![number.to_string(), path])
    }

    fn scratch(&mut self) -> Result<Vec<String>, String> {
        let path = Path::new(STATE).join(format!("{}.tmp", std::process::id()));
        let number = self.keep(Entry::Directory(path.clone()), || {
            fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))
        })?;
        Ok(vec![number.to_string(), path.display().to_string()])
    }

    fn swap_on(&mut self, path: &Path) -> Result<Vec<String>, String> {
        if self.swap.is_none() {
            return Err("swap is not locked".to_owned());
        }
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| "a path with a zero byte".to_owned())?;
        let number = self.keep(Entry::Swap(path.to_path_buf()), || {
            make_swap(path).map_err(|error| format!("{}: {error}", path.display()))?;
            swapon(&name, PRIORITY)
                .map_err(|errno| format!("swapon {}: error {}", path.display(), errno.0))
        })?;
        Ok(vec![number.to_string()])
    }

    fn cgroup(&mut self, parent: &Path) -> Result<Vec<String>, String> {
        self.groups += 1;
        let path = parent.join(format!(
            "zfolio-bench-{}-{}",
            std::process::id(),
            self.groups
        ));
        let number = self.keep(Entry::Cgroup(path.clone()), || {
            fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))
        })?;
        Ok(vec![number.to_string(), path.display().to_string()])
    }

    fn set(&mut self, path: &Path, value: &str, before: &str) -> Result<Vec<String>, String> {
        let entry = Entry::Setting(path.to_path_buf(), before.to_owned());
        let number = self.keep(entry, || write(path, value))?;
        Ok(vec![number.to_string()])
    }
}

fn write(path: &Path, value: &str) -> Result<(), String> {
    fs::write(path, value).map_err(|error| format!("{value} to {}: {error}", path.display()))
}

/// Reading the file makes a device; the number of it.
fn add_zram() -> Result<u32, String> {
    let path = format!("{ZRAM_CONTROL}/hot_add");
    let text = fs::read_to_string(path).map_err(|error| format!("no zram: {error}"))?;
    let number = text.trim().parse();
    number.map_err(|_| format!("zram's answer was {text:?}"))
}

fn algorithms() -> Result<Vec<String>, String> {
    let device = add_zram()?;
    let text = fs::read_to_string(format!("/sys/block/zram{device}/comp_algorithm"));
    Entry::Zram(device).undo()?;
    let text = text.map_err(|error| format!("no zram: {error}"))?;
    let names = text.split_whitespace();
    Ok(names
        .map(|name| name.trim_matches(['[', ']']).to_owned())
        .collect())
}

/// Writes what mkswap(8) writes: one page with the layout of Linux's swap
/// header, version 1.
fn make_swap(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let size = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
    file.write_all_at(&swap_header(size)?, 0)?;
    file.sync_all()
}

fn swap_header(size: u64) -> io::Result<[u8; PAGE_SIZE]> {
    // Boot code's room, then version, last page and number of bad pages.
    const INFO: usize = 1024;
    const MAGIC: &[u8; 10] = b"SWAPSPACE2";
    let pages = u32::try_from(size / PAGE_SIZE as u64).unwrap_or(u32::MAX);
    let last = pages
        .checked_sub(1)
        .filter(|last| *last >= 9)
        .ok_or_else(|| io::Error::other("too small for swap"))?;
    let mut page = [0; PAGE_SIZE];
    page[INFO..INFO + 4].copy_from_slice(&1_u32.to_ne_bytes());
    page[INFO + 4..INFO + 8].copy_from_slice(&last.to_ne_bytes());
    page[PAGE_SIZE - MAGIC.len()..].copy_from_slice(MAGIC);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against util-linux, where it is.
    #[test]
    fn the_header_is_what_mkswap_writes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("swap");
        let size = 1 << 20;
        let file = File::create(&path).unwrap();
        file.set_len(size).unwrap();
        let made = std::process::Command::new("mkswap").arg(&path).output();
        if !made.is_ok_and(|made| made.status.success()) {
            eprintln!("SKIPPED: no mkswap here");
            return;
        }
        let mut theirs = fs::read(&path).unwrap();
        // UUID: we have none.
        theirs[1036..1052].fill(0);
        assert!(theirs[..PAGE_SIZE] == swap_header(size).unwrap());
        assert!(swap_header(4096).is_err());
    }

    #[test]
    fn requests_that_make_no_sense_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server {
            journal: Journal::create(&dir.path().join("state")).unwrap(),
            swap: None,
            groups: 0,
        };
        for line in ["", "zram", "swapon\t/x", "undo\tx", "set\t/x"] {
            assert!(server.serve(line).is_err(), "{line:?}");
        }
        let parent = dir.path().display().to_string();
        let made = server.serve(&format!("cgroup\t{parent}")).unwrap();
        assert!(Path::new(&made[1]).is_dir());
        let setting = dir.path().join("setting");
        fs::write(&setting, "old").unwrap();
        server
            .serve(&format!("set\t{}\tnew\told", setting.display()))
            .unwrap();
        assert_eq!(fs::read_to_string(&setting).unwrap(), "new");
        assert_eq!(server.journal.undo_all(), Vec::<String>::new());
        assert!(!Path::new(&made[1]).exists());
        assert_eq!(fs::read_to_string(&setting).unwrap(), "old");
    }
}
