//! The control segment as a file: created for a run, opened by `stat`.
//!
//! The one module of this crate with unsafe in it: it maps the file and hands
//! out a `&Segment`.
//!
//! # Invariants
//! - A created file is held with flock(2) by its creator for as long as its
//!   tree may use it; an unlocked one was left by a killed `zfolio run`, in
//!   whatever pid namespace, and is removed by the next.
//! - The final name appears only once the file is complete and locked. One
//!   that was never completed is removed when it is old.

use crate::exit::{Failure, Status};
use rustix::fs::{
    CWD, FallocateFlags, FlockOperation, RenameFlags, fallocate, flock, renameat_with,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, SystemTime};
use zfolio_runtime::segment::{MAGIC, Segment, VERSION};

/// Every segment's file name starts with this.
const PREFIX: &str = "zfolio-";
/// Every complete segment's file name ends with this.
const SUFFIX: &str = ".control";

/// Every socket's file name ends with this.
const SOCKET: &str = "socket";

/// Where the socket of the run is whose segment is at `control`.
pub fn socket_beside(control: &Path) -> PathBuf {
    control.with_extension(SOCKET)
}

/// A file is incomplete for milliseconds; after so long nobody is at it.
const UNFINISHED: Duration = Duration::from_secs(3600);

/// A mapped segment.
#[derive(Debug)]
struct Mapping(NonNull<Segment>);

// SAFETY: the mapping is owned, and a `Segment` is atomic words only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(file: &File, access: ProtFlags) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                Segment::BYTES,
                access,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        NonNull::new(at.cast())
            .map(Self)
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

impl Deref for Mapping {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        // SAFETY: page-aligned, `Segment::BYTES` long (the file was checked to
        // be), mapped until drop; every bit pattern is a valid atomic word.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no reference outlives `self`.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), Segment::BYTES) };
    }
}

/// A segment of our own: unlinked on drop.
#[derive(Debug)]
pub struct OwnSegment {
    map: Mapping,
    path: PathBuf,
    /// Holds the lock that says the segment is in use.
    _lock: File,
}

impl OwnSegment {
    /// Creates a segment, filled by `configure` before anybody can see it.
    ///
    /// # Errors
    /// When no directory takes the file.
    pub fn create(mut configure: impl FnMut(&Segment)) -> Result<Self, Failure> {
        let mut why = String::from("no directory");
        for dir in directories() {
            match Self::create_in(&dir, &mut configure) {
                Ok(made) => return Ok(made),
                Err(error) => why = format!("{}: {error}", dir.display()),
            }
        }
        Err(Failure::new(
            Status::CannotCreate,
            "control segment",
            why,
            "make /dev/shm or $TMPDIR writable, with 16 MiB free",
        ))
    }

    fn create_in(dir: &Path, configure: &mut impl FnMut(&Segment)) -> io::Result<Self> {
        sweep(dir);
        let space = rustix::fs::statvfs(dir)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < 3 * Segment::BYTES as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (file, hidden) = fresh_file(dir)?;
        let made = (|| {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            // Not sparse where it is used at once: a program that fills the file system
            // must not be a SIGBUS for others. Who claims a slot makes room for it.
            file.set_len(Segment::BYTES as u64)?;
            for first in Segment::FIRST_BYTES {
                let (at, len) = (first.start as u64, first.len());
                match fallocate(&file, FallocateFlags::empty(), at, len as u64) {
                    Err(Errno::OPNOTSUPP) => file.write_all_at(&vec![0; len], at)?,
                    done => done?,
                }
            }
            let map = Mapping::of(&file, ProtFlags::READ | ProtFlags::WRITE)?;
            configure(&map);
            map.head.version.store(VERSION, Relaxed);
            map.head.magic.store(MAGIC, Release);
            Ok((map, show(&hidden, dir)?))
        })();
        match made {
            Ok((map, path)) => Ok(Self {
                map,
                path,
                _lock: file,
            }),
            Err(error) => {
                let _ = fs::remove_file(&hidden);
                Err(error)
            }
        }
    }

    /// Where children find it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Deref for OwnSegment {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        &self.map
    }
}

impl Drop for OwnSegment {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Somebody else's segment, read only.
#[derive(Debug)]
pub struct SharedSegment(Mapping);

impl SharedSegment {
    /// Opens the segment at `path`.
    ///
    /// # Errors
    /// When it cannot be opened, or is not a segment of this version.
    pub fn open(path: &Path) -> io::Result<Self> {
        known(&File::open(path)?, ProtFlags::READ).map(Self)
    }
}

/// The segment of the run around, to be changed.
#[derive(Debug)]
pub struct WritableSegment(Mapping);

impl WritableSegment {
    /// Opens the segment at `path`.
    ///
    /// # Errors
    /// As [`SharedSegment::open`].
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        known(&file, ProtFlags::READ | ProtFlags::WRITE).map(Self)
    }
}

impl Deref for WritableSegment {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        &self.0
    }
}

/// Maps a segment of this version.
fn known(file: &File, access: ProtFlags) -> io::Result<Mapping> {
    let wrong = |what: &'static str| io::Error::new(io::ErrorKind::InvalidData, what);
    if file.metadata()?.len() != Segment::BYTES as u64 {
        return Err(wrong("not a control segment of this version"));
    }
    let map = Mapping::of(file, access)?;
    if map.head.magic.load(Acquire) != MAGIC {
        return Err(wrong("not a control segment"));
    }
    if map.head.version.load(Relaxed) != VERSION {
        return Err(wrong("a control segment of another version"));
    }
    Ok(map)
}

impl Deref for SharedSegment {
    type Target = Segment;

    fn deref(&self) -> &Segment {
        &self.0
    }
}

/// Where a segment may be, best first: memory, then the temporary directory.
pub fn directories() -> Vec<PathBuf> {
    let mut dirs = vec![PathBuf::from("/dev/shm")];
    dirs.extend(
        std::env::var_os("TMPDIR")
            .map(PathBuf::from)
            .filter(|dir| dir.is_absolute()),
    );
    dirs.push("/tmp".into());
    dirs
}

/// Complete segments in `dir` that belong to us, with their age.
pub fn list(dir: &Path) -> Vec<(SystemTime, PathBuf)> {
    files(dir, |name| {
        name.starts_with(PREFIX) && name.ends_with(SUFFIX)
    })
}

/// The name of a file that [`fresh_file`] made and nobody completed.
fn is_hidden(name: &str) -> bool {
    let numbers = name
        .strip_prefix('.')
        .and_then(|name| name.strip_prefix(PREFIX));
    numbers.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'-'))
}

/// Files in `dir` that belong to us and have such names, with their age.
fn files(dir: &Path, such: impl Fn(&str) -> bool) -> Vec<(SystemTime, PathBuf)> {
    entries(dir, such, FileType::is_file)
}

/// Entries of `dir` of a kind that belong to us and have such names, with their age.
fn entries(
    dir: &Path,
    such: impl Fn(&str) -> bool,
    kind: impl Fn(&FileType) -> bool,
) -> Vec<(SystemTime, PathBuf)> {
    let uid = rustix::process::geteuid().as_raw();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(&such))
        .filter_map(|entry| {
            // Not followed: a link is nobody's segment.
            let meta = entry.metadata().ok()?;
            (kind(&meta.file_type()) && meta.uid() == uid)
                .then(|| (meta.modified().ok(), entry.path()))
        })
        .filter_map(|(age, path)| Some((age?, path)))
        .collect()
}

/// Removes segments whose creator was killed.
fn sweep(dir: &Path) {
    let mut unfinished = files(dir, is_hidden);
    unfinished.retain(|(age, _)| age.elapsed().is_ok_and(|since| since > UNFINISHED));
    for (_, path) in list(dir).into_iter().chain(unfinished) {
        let free = File::open(&path)
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
        if free {
            let _ = fs::remove_file(&path);
        }
    }
    // A socket comes after its segment, and goes before it.
    let such = |name: &str| name.starts_with(PREFIX) && name.ends_with(SOCKET);
    for (_, path) in entries(dir, such, FileTypeExt::is_socket) {
        if path
            .with_extension(&SUFFIX[1..])
            .symlink_metadata()
            .is_err()
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// A new 0600 file under a name no sweep looks at while it is new.
fn fresh_file(dir: &Path) -> io::Result<(File, PathBuf)> {
    let pid = std::process::id();
    for attempt in 0_u32..1000 {
        let hidden = dir.join(format!(".{PREFIX}{pid}-{attempt}"));
        match OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&hidden)
        {
            Ok(file) => return Ok((file, hidden)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Gives `hidden` a name by which it is found, and which nobody has: another thread may make a segment
/// at the same time, or a process of the same number in another namespace.
fn show(hidden: &Path, dir: &Path) -> io::Result<PathBuf> {
    let pid = std::process::id();
    for attempt in 0_u32..1000 {
        let path = dir.join(format!("{PREFIX}{pid}-{attempt}{SUFFIX}"));
        match renameat_with(CWD, hidden, CWD, &path, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            // (A file system that cannot do so.)
            Err(Errno::INVAL | Errno::NOSYS) if path.symlink_metadata().is_err() => {
                return fs::rename(hidden, &path).map(|()| path);
            }
            Err(Errno::INVAL | Errno::NOSYS) => {}
            renamed => return Ok(renamed.map(|()| path)?),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use zfolio_runtime::segment::{SHARED, Who};

    #[test]
    fn a_segment_is_seen_by_a_reader_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let own = OwnSegment::create_in(dir.path(), &mut |s| {
            s.config().limits.high.store(77, Relaxed)
        })
        .unwrap();
        let mode = fs::metadata(own.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let seen = SharedSegment::open(own.path()).unwrap();
        assert_eq!(seen.config().limits.high.load(Relaxed), 77);
        let blocks = || fs::metadata(own.path()).unwrap().blocks() * 512;
        assert!(blocks() < 256 << 10, "{}", blocks());
        assert_eq!((own.claim(4711), own.claim(4712)), (0, 1));
        assert_eq!(seen.slots[0].process.pid.load(Relaxed), 4711);
        assert_eq!(seen.slots[1].process.pid.load(Relaxed), 4712);
        assert_eq!(list(dir.path()).len(), 1);
        drop(own);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn segments_made_at_once_have_names_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let make = |number: u64| {
            let mut configure = |s: &Segment| s.config().limits.high.store(number, Relaxed);
            OwnSegment::create_in(dir.path(), &mut configure).unwrap()
        };
        let make = &make;
        for _ in 0..20 {
            let made: Vec<OwnSegment> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|number| scope.spawn(move || make(number)))
                    .collect();
                threads.into_iter().map(|one| one.join().unwrap()).collect()
            });
            for (number, own) in made.iter().enumerate() {
                let seen = SharedSegment::open(own.path()).unwrap();
                assert_eq!(seen.config().limits.high.load(Relaxed), number as u64);
            }
        }
    }

    #[test]
    fn without_room_for_another_slot_one_is_shared() {
        let dir = tempfile::tempdir().unwrap();
        let own = OwnSegment::create_in(dir.path(), &mut |_| {}).unwrap();
        let claim = |pid: u32, fits: bool| {
            let who = Who {
                word: 7,
                namespace: 0,
                pid,
            };
            own.claim_for(who, |_| fits)
        };
        assert_eq!((claim(4711, false), claim(4712, false)), (0, SHARED));
        assert_eq!(own.slots[SHARED].process.pid.load(Relaxed), 4712);
        assert_eq!(own.claimed.load(Relaxed), 1);
        assert_eq!(own.crowded.load(Relaxed), 1);
        assert_eq!((claim(4713, true), claim(4714, true)), (1, 2));
        own.validate().unwrap();
        // The memory of the shared one was there from the start.
        let [_, shared] = Segment::FIRST_BYTES;
        let file = File::open(own.path()).unwrap();
        let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(shared.start as u64));
        assert_eq!(data, Ok(shared.start as u64));
    }

    #[test]
    fn only_abandoned_segments_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let living = OwnSegment::create_in(dir.path(), &mut |_| {}).unwrap();
        let dead = dir.path().join("zfolio-1-0.control");
        fs::write(&dead, b"left behind").unwrap();
        let bound = |control: &Path| {
            let path = socket_beside(control);
            std::os::unix::net::UnixListener::bind(&path).unwrap();
            path
        };
        let (left, kept) = (bound(&dead), bound(living.path()));
        sweep(dir.path());
        assert!(!dead.exists() && !left.exists());
        assert!(living.path().exists() && kept.exists());
    }

    #[test]
    fn what_was_never_completed_is_swept_when_it_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - 2 * UNFINISHED;
        let made = |name: &str| {
            let path = dir.path().join(name);
            let file = File::create(&path).unwrap();
            file.set_modified(old).unwrap();
            (path, file)
        };
        let (dead, _) = made(".zfolio-1-0");
        let (held, lock) = made(".zfolio-2-0");
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let (other, _) = made(".zfolio-notes");
        let (_, being_made) = fresh_file(dir.path()).unwrap();
        sweep(dir.path());
        assert!(!dead.exists());
        for kept in [held, other, being_made] {
            assert!(kept.exists(), "{}", kept.display());
        }
    }

    #[test]
    fn other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("junk");
        fs::write(&path, b"short").unwrap();
        assert!(SharedSegment::open(&path).is_err());
        File::create(&path)
            .unwrap()
            .set_len(Segment::BYTES as u64)
            .unwrap();
        assert!(SharedSegment::open(&path).is_err());
    }
}
