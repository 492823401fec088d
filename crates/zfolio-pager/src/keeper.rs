//! The other end of the pager: `zfolio run` makes the exchange, starts the pager, starts it
//! again when it ends, and lets it go.

use crate::spec::Spec;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zfolio_sys::exchange::{BUCKETS, BYTES, Hall, MAGIC};

/// Between the end of a pager and the next.
const AGAIN: Duration = Duration::from_millis(50);
/// A pager that ends sooner is not worth an immediate other.
const SHORT: Duration = Duration::from_secs(1);
/// How long the end of a run waits for values to be deleted.
const DELETED: Duration = Duration::from_secs(5);

/// A random name of 16 digits.
///
/// # Errors
/// As reading random numbers does.
pub(crate) fn random_name() -> io::Result<String> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

/// The file that members and the pager meet in. Removed with the value.
#[derive(Debug)]
pub struct Exchange {
    path: PathBuf,
    run: String,
}

impl Exchange {
    /// Makes one, of mode 0600, where files are memory.
    ///
    /// # Errors
    /// As the file system says.
    pub fn create() -> io::Result<Self> {
        let run = random_name()?;
        let mut why = io::ErrorKind::NotFound.into();
        for dir in [Path::new("/dev/shm").to_owned(), std::env::temp_dir()] {
            let path = dir.join(format!("zfolio-{run}.exchange"));
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create_new(true).mode(0o600);
            let made = options.open(&path).and_then(|file| {
                file.set_len(BYTES as u64)?;
                hall(&path)?.head().magic.store(MAGIC, Release);
                Ok(())
            });
            match made {
                Ok(()) => return Ok(Self { path, run }),
                Err(error) => why = error,
            }
            let _ = fs::remove_file(&path);
        }
        Err(why)
    }

    /// Where members find it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn hall(path: &Path) -> io::Result<Hall> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    Hall::open(&path).map_err(|errno| io::Error::from_raw_os_error(errno.0))
}

/// What the pagers of a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes to the store, protocol included.
    pub sent: u64,
    /// Bytes of values from it.
    pub received: u64,
    /// Requests tried once more.
    pub retries: u64,
    /// Copies that the store did not have any more.
    pub lost_copies: u64,
    /// Reads answered from another copy.
    pub other_copy: u64,
    /// Pagers started.
    pub pagers: u32,
    /// Reads by how long they took: `waits[n]` of less than 2^n us.
    pub waits: Vec<u64>,
}

impl Totals {
    /// Below how many us `percent` of the reads were; `None` without any.
    #[must_use]
    pub fn quantile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.waits.iter().sum();
        let wanted = (all * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let bucket = self.waits.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        bucket.map(|bucket| 1 << bucket)
    }
}

/// A pager that is kept running.
#[derive(Debug)]
pub struct Keeper {
    exchange: Exchange,
    hall: Option<Hall2>,
    thread: JoinHandle<()>,
    stop: Sender<()>,
}

/// (A [`Hall`] has no `Debug`.)
struct Hall2(Hall);

impl std::fmt::Debug for Hall2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hall")
    }
}

impl Keeper {
    /// Starts `command`, which is to call [`crate::serve::serve`], as the pager of `exchange`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        exchange: Exchange,
        spec: &Spec,
        quiet: bool,
        mut command: impl FnMut() -> Command + Send + 'static,
    ) -> io::Result<Self> {
        let hall = hall(exchange.path())?;
        let told = format!(
            "{}\n{}\n{}\n{}\n",
            exchange.path().display(),
            exchange.run,
            spec.text(),
            if quiet { "quiet" } else { "" }
        );
        let mut start = move || {
            let mut command = command();
            // Of its own group: what a terminal sends the program is not for it.
            command
                .process_group(0)
                .stdin(Stdio::piped())
                .stdout(Stdio::null());
            let mut child = command.spawn()?;
            let mut input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
            input.write_all(told.as_bytes())?;
            Ok::<_, io::Error>((child, input))
        };
        let first = start()?;
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("zfolio-keeper".into())
            .spawn(move || keep(first, start, &stopped))?;
        Ok(Self {
            exchange,
            hall: Some(Hall2(hall)),
            thread,
            stop,
        })
    }

    /// The run has ended: the pager is let go once it has deleted what members left, and
    /// goes on by itself for members that live on.
    #[must_use]
    pub fn finish(self) -> Totals {
        drop(self.stop);
        let _ = self.thread.join();
        let totals = self.hall.map(|hall| totals(&hall.0)).unwrap_or_default();
        drop(self.exchange);
        totals
    }
}

fn totals(hall: &Hall) -> Totals {
    let head = hall.head();
    Totals {
        sent: head.sent.load(Relaxed),
        received: head.received.load(Relaxed),
        retries: head.retries.load(Relaxed),
        lost_copies: head.lost_copies.load(Relaxed),
        other_copy: head.other_copy.load(Relaxed),
        pagers: head.pagers.load(Relaxed),
        waits: (0..BUCKETS).map(|n| head.waits[n].load(Relaxed)).collect(),
    }
}

/// Keeps a pager running until `stopped` says so; then waits a while for its end.
fn keep(
    (mut child, input): (Child, ChildStdin),
    mut start: impl FnMut() -> io::Result<(Child, ChildStdin)>,
    stopped: &Receiver<()>,
) {
    let mut input = Some(input);
    let mut begun = Instant::now();
    let mut until = None;
    loop {
        // (An init of a pid namespace may have waited for it already: an error.)
        let ended = !matches!(child.try_wait(), Ok(None));
        let closed =
            || stopped.recv_timeout(AGAIN) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected);
        match until {
            Some(until) if ended || Instant::now() >= until => return,
            Some(_) => std::thread::sleep(AGAIN / 5),
            None if closed() => {
                drop(input.take());
                until = Some(Instant::now() + DELETED);
            }
            None if ended => {
                let soon = begun.elapsed() < SHORT;
                if soon {
                    std::thread::sleep(SHORT);
                }
                begun = Instant::now();
                match start() {
                    Ok((next, pipe)) => {
                        child = next;
                        drop(input.replace(pipe));
                    }
                    // (No memory or no process for it now.)
                    Err(_) => std::thread::sleep(SHORT),
                }
            }
            None => {}
        }
    }
}
