//! The other end of the pager: `zfolio run` makes the exchange, starts the pager, starts it
//! again when it ends, and lets it go.

use crate::spec::Spec;
use std::ffi::{CString, OsStr};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering::Release;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use zfolio_sys::exchange::{BYTES, Hall, MAGIC, is_in_use};

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
///
/// # Who uses it
/// The run holds flock(2) of it, members and the pager hold bytes of it. One that is whole and that none of them
/// holds was left by those that were killed, in whatever pid namespace: the next run removes it.
#[derive(Debug)]
pub struct Exchange {
    path: PathBuf,
    run: String,
    /// Locked.
    file: File,
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
            sweep(&dir);
            let made = options.open(&path).and_then(|file| {
                // (First: until it has its length nobody looks at who holds it.)
                file.lock_shared()?;
                file.set_len(BYTES as u64)?;
                hall(&path)?.head().magic.store(MAGIC, Release);
                Ok(file)
            });
            match made {
                Ok(file) => return Ok(Self { path, run, file }),
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

/// Whether a file of this name may be an exchange.
fn is_named(name: &OsStr) -> bool {
    let run = name.to_str().and_then(|name| {
        let name = name.strip_prefix("zfolio-")?;
        name.strip_suffix(".exchange")
    });
    run.is_some_and(|run| run.len() == 16 && run.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Removes the exchanges of this user in `dir` that nobody uses any more.
fn sweep(dir: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        // (Not followed: a link is nobody's exchange.)
        let is_one = is_named(&entry.file_name())
            && entry
                .metadata()
                .is_ok_and(|of| of.is_file() && of.uid() == user && of.len() == BYTES as u64);
        if is_one && is_left(&entry.path()).unwrap_or(false) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether the file at `path` is an exchange of this version that nobody uses.
fn is_left(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let mut magic = [0; 8];
    (&file).read_exact(&mut magic)?;
    let is_free = file.try_lock().is_ok();
    let name = CString::new(path.as_os_str().as_bytes())?;
    let in_use = is_in_use(&name).map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
    Ok(is_free && !in_use && u64::from_le_bytes(magic) == MAGIC)
}

/// A pager that is kept running.
#[derive(Debug)]
pub struct Keeper {
    exchange: Exchange,
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
        let found = read(&self.exchange.file);
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

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_sys::exchange::Exchange as Member;

    /// A killed run's, with what it held gone.
    fn left(dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        let file = File::create_new(&path).unwrap();
        file.set_len(BYTES as u64).unwrap();
        hall(&path).unwrap().head().magic.store(MAGIC, Release);
        path
    }

    #[test]
    fn only_what_nobody_uses_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let abandoned = left(dir, "zfolio-0123456789abcdef.exchange");
        let of_a_run = left(dir, "zfolio-1123456789abcdef.exchange");
        let run = File::open(&of_a_run).unwrap();
        run.lock_shared().unwrap();
        let of_a_member = left(dir, "zfolio-2123456789abcdef.exchange");
        let name = CString::new(of_a_member.as_os_str().as_bytes()).unwrap();
        let _member = Member::join(&name, 77).unwrap();
        let of_a_pager = left(dir, "zfolio-3123456789abcdef.exchange");
        let pager = hall(&of_a_pager).unwrap();
        assert!(pager.become_pager(false));
        let others = left(dir, "zfolio-mine.exchange");
        let short = left(dir, "zfolio-4123456789abcdef.exchange");
        let file = OpenOptions::new().write(true).open(&short).unwrap();
        file.set_len(4096).unwrap();
        let nothing = dir.join("zfolio-5123456789abcdef.exchange");
        File::create_new(&nothing)
            .unwrap()
            .set_len(BYTES as u64)
            .unwrap();
        let link = dir.join("zfolio-6123456789abcdef.exchange");
        std::os::unix::fs::symlink(&abandoned, &link).unwrap();
        sweep(dir);
        assert!(!abandoned.exists());
        for kept in [
            &of_a_run,
            &of_a_member,
            &of_a_pager,
            &others,
            &short,
            &nothing,
            &link,
        ] {
            assert!(kept.symlink_metadata().is_ok(), "{}", kept.display());
        }
        drop(run);
        sweep(dir);
        assert!(!of_a_run.exists(), "its run has ended");
        assert!(of_a_member.exists() && of_a_pager.exists());
    }

    #[test]
    fn a_run_removes_what_others_left_and_keeps_what_is_used() {
        let mine = Exchange::create().unwrap();
        let name = format!("zfolio-{}.exchange", random_name().unwrap());
        let old = left(mine.path().parent().unwrap(), &name);
        let another = Exchange::create().unwrap();
        assert!(mine.path().exists() && another.path().exists());
        assert!(!old.exists(), "the next run removes what is left");
        let path = mine.path().to_owned();
        drop(mine);
        assert!(!path.exists());
    }
}
