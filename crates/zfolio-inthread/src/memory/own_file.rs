//! The file behind the pool: in the program's own table of descriptors, where it moves away
//! when the program wants the number.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use zfolio_runtime::segment::Config;
use zfolio_sys::disk::DiskFile;
use zfolio_sys::limits::largest_file;
use zfolio_sys::procfs::File;
use zfolio_sys::region::lift_descriptor;
use zfolio_sys::syscall::Errno;
use zfolio_zswap::Backing;

/// The file, whose number changes where the program wants it.
pub(super) struct OwnFile {
    fd: AtomicUsize,
    capacity: u64,
    /// Cleared when the file system cannot make holes.
    punches: AtomicBool,
}

impl OwnFile {
    /// Makes the file in the directory that the run was given, to grow to `capacity` bytes.
    pub(super) fn create(config: &Config, capacity: u64) -> Result<Self, Errno> {
        let made = config.backing.path.near.with(DiskFile::anonymous)?;
        Ok(Self {
            fd: AtomicUsize::new(lift_descriptor(made.fd())),
            capacity,
            punches: AtomicBool::new(true),
        })
    }

    fn file(&self) -> DiskFile {
        DiskFile::from_fd(self.fd())
    }

    pub(super) fn fd(&self) -> usize {
        self.fd.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        File::from_fd(self.fd()).close();
        self.forget();
    }

    /// It is closed: nothing is read or written any more.
    pub(super) fn forget(&self) {
        self.fd.store(usize::MAX, Ordering::Relaxed);
    }

    /// Takes another number. Nobody reads or writes: the core lock is held.
    pub(super) fn move_away(&self) {
        let lifted = lift_descriptor(self.fd());
        self.fd.store(lifted, Ordering::Relaxed);
    }
}

impl Backing for OwnFile {
    fn name(&self) -> &'static str {
        "file"
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        // (A write beyond the program's limit would send it SIGXFSZ.)
        if offset + bytes.len() as u64 > largest_file() {
            return Err(Errno::FBIG);
        }
        self.file().write_at(bytes, offset)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.file().read_at(into, offset)
    }

    fn discard(&self, offset: u64, len: u64) {
        let punches = self.punches.load(Ordering::Relaxed);
        if punches && self.file().punch(offset, len) == Err(Errno::OPNOTSUPP) {
            self.punches.store(false, Ordering::Relaxed);
        }
    }
}
