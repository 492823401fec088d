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
use std::sync::atomic::Ordering::Release;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zfolio_sys::exchange::{BYTES, Hall, MAGIC};

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

/// A pager that is kept running.
#[derive(Debug)]
pub struct Keeper {
    exchange: Exchange,
    file: File,
    thread: JoinHandle<()>,
    stop: Sender<()>,
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
        let file = File::open(exchange.path())?;
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
            file,
            thread,
            stop,
        })
    }

    /// The run has ended: the pager is let go once it has deleted what members left, and
    /// goes on by itself for members that live on. Returns what `read` finds in the exchange
    /// then. (Its name is gone with the pager.)
    #[must_use]
    pub fn finish<T>(self, read: impl FnOnce(&File) -> T) -> T {
        drop(self.stop);
        let _ = self.thread.join();
        let found = read(&self.file);
        drop(self.exchange);
        found
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
