//! A command is run to its end; where there is none in time, what it waits in is told.

use super::kill_group;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read, Write as _};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// After a command has ended somebody else may have its output open for so long.
const HELD: Duration = Duration::from_secs(120);

/// How a command ended, and what it and its descendants wrote.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end, and until nobody has its output open any more; `begun` is told its process id. What it
/// is given as input it need not read.
///
/// # Errors
/// It takes longer than `limit`, or its output is held for longer than two minutes: what was waited
/// in by those that are killed for it, and what was written.
pub fn run_to_end(
    command: &mut Command,
    input: &str,
    limit: Duration,
    begun: impl FnOnce(u32),
) -> Result<Ended, String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_empty() {
        Stdio::null()
    } else {
        Stdio::piped()
    });
    let mut child = command.spawn().expect("it starts");
    let pid = child.id();
    begun(pid);
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_owned();
        thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    }
    let (sender, events) = channel();
    let stdout = Reader::start(child.stdout.take().expect("a pipe"), &sender);
    let stderr = Reader::start(child.stderr.take().expect("a pipe"), &sender);
    wait_beside(child, sender);
    let (mut until, mut status, mut open) = (Instant::now() + limit, None, 2);
    while status.is_none() || open > 0 {
        let left = until.saturating_duration_since(Instant::now());
        match events.recv_timeout(left) {
            Ok(Event::Ended(how)) => {
                status = Some(how);
                until = until.min(Instant::now() + HELD);
            }
            Ok(Event::Closed) => open -= 1,
            Err(_) => {
                let mut whose = stdout.holders();
                whose.extend(stderr.holders());
                if status.is_none() {
                    whose.extend(tree(pid));
                }
                let mut told = match status {
                    None => format!("{command:?} still ran after {limit:?}:\n"),
                    Some(status) => format!("{command:?} ended ({status}), but not these:\n"),
                };
                told.extend(whose.iter().map(|pid| what_it_waits_in(*pid)));
                // (Once it was waited for its number may be another's.)
                if status.is_none() {
                    kill_group(pid);
                }
                whose.into_iter().for_each(kill);
                let _ = write!(
                    told,
                    "stdout:\n{}\nstderr:\n{}",
                    stdout.text(),
                    stderr.text()
                );
                return Err(told);
            }
        }
    }
    Ok(Ended {
        status: status.expect("it has ended"),
        stdout: stdout.text(),
        stderr: stderr.text(),
    })
}

enum Event {
    /// The command has.
    Ended(ExitStatus),
    /// Nobody can write to one of the pipes any more.
    Closed,
}

fn wait_beside(mut child: Child, sender: Sender<Event>) {
    thread::spawn(move || {
        let status = child.wait().expect("a child is waited for");
        let _ = sender.send(Event::Ended(status));
    });
}

/// What comes by a pipe.
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// The pipe, as links of descriptors name it.
    name: PathBuf,
}

impl Reader {
    fn start(mut pipe: impl Read + AsFd + Send + 'static, sender: &Sender<Event>) -> Self {
        let own = format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd());
        let this = Self {
            bytes: Arc::default(),
            name: fs::read_link(own).unwrap_or_default(),
        };
        let (bytes, sender) = (Arc::clone(&this.bytes), sender.clone());
        thread::spawn(move || {
            let mut some = vec![0; 64 << 10];
            loop {
                let len = match pipe.read(&mut some) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Ok(len @ 1..) => len,
                    Ok(_) | Err(_) => break,
                };
                let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend_from_slice(&some[..len]);
            }
            let _ = sender.send(Event::Closed);
        });
        this
    }

    fn text(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Other processes that have it open.
    fn holders(&self) -> BTreeSet<u32> {
        let has = |pid: &u32| {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
            let mut links = descriptors.into_iter().flatten().flatten();
            links.any(|link| fs::read_link(link.path()).is_ok_and(|name| name == self.name))
        };
        let own = std::process::id();
        let pids = all_processes().filter(|pid| *pid != own);
        pids.filter(has).collect()
    }
}

fn all_processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process and all its descendants.
fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = all_processes()
        .filter_map(|pid| {
            let stat = after_name(&Path::new("/proc").join(pid.to_string()));
            Some((pid, stat.get(1)?.parse().ok()?))
        })
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let of = found[next];
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| *parent == of)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found
}

/// The words of a `stat` file behind the name: state, parent, and so on.
fn after_name(dir: &Path) -> Vec<String> {
    let stat = fs::read_to_string(dir.join("stat")).unwrap_or_default();
    let behind = stat.rsplit(')').next().unwrap_or_default();
    behind.split_whitespace().map(str::to_owned).collect()
}

/// A process's command and its signals, and for every thread where it sleeps, its state, its
/// system call (with its stack pointer and instruction pointer), the processor time it has had, and the
/// mapping that its instruction pointer is in.
fn what_it_waits_in(pid: u32) -> String {
    let mut told = String::new();
    let dir = Path::new("/proc").join(pid.to_string());
    let command = fs::read(dir.join("cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let _ = writeln!(told, "{pid}: {command}");
    let mut mappings = BTreeSet::new();
    let tasks = fs::read_dir(dir.join("task"));
    for task in tasks.into_iter().flatten().flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stat = after_name(&task.path());
        let word = |at: usize| stat.get(at).map_or("?", String::as_str);
        let call = read("syscall");
        let _ = writeln!(
            told,
            "  {} {} {} ticks {}+{} wchan {} syscall {}",
            task.file_name().display(),
            read("comm").trim(),
            word(0),
            word(11),
            word(12),
            read("wchan").trim(),
            call.trim(),
        );
        for line in read("status").lines() {
            if ["SigPnd", "ShdPnd", "SigBlk"]
                .iter()
                .any(|name| line.starts_with(name))
            {
                let _ = writeln!(told, "    {}", line.replace('\t', " "));
            }
        }
        for line in read("stack").lines().take(8) {
            let _ = writeln!(told, "    {line}");
        }
        mappings.extend(mapping_of(&dir, call.split_whitespace().last()));
    }
    for mapping in mappings {
        let _ = writeln!(told, "  {mapping}");
    }
    told
}

/// The line of `maps` that has a hexadecimal address.
fn mapping_of(dir: &Path, address: Option<&str>) -> Option<String> {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let address = number(address?)?;
    let maps = fs::read_to_string(dir.join("maps")).ok()?;
    maps.lines()
        .find(|line| {
            let range = line
                .split_whitespace()
                .next()
                .and_then(|r| r.split_once('-'));
            range.is_some_and(|(from, to)| {
                number(from).is_some_and(|from| from <= address)
                    && number(to).is_some_and(|to| address < to)
            })
        })
        .map(str::to_owned)
}

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
