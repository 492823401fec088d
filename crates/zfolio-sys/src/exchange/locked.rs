//! The file of an exchange: mapped, and with locks on single bytes of it.

use crate::arena::unmap;
use crate::syscall::{Errno, nr, syscall};
use core::ffi::CStr;
use core::ops::Range;

/// A file with locks on single bytes of it.
#[derive(Clone, Copy)]
pub(super) struct Locked(pub(super) usize);

/// `struct flock` of x86-64.
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    start: i64,
    len: i64,
    pid: i32,
}

const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;
const F_OFD_GETLK: usize = 36;
const F_OFD_SETLK: usize = 37;

impl Locked {
    pub(super) fn open(path: &CStr) -> Result<Self, Errno> {
        const O_RDWR_CLOEXEC_NOFOLLOW: usize = 0o2_400_002;
        let at = path.as_ptr() as usize;
        // SAFETY: a NUL-terminated path.
        unsafe { syscall(nr::OPEN, [at, O_RDWR_CLOEXEC_NOFOLLOW, 0, 0, 0, 0]) }.map(Self)
    }

    pub(super) fn close(self) {
        // SAFETY: our own descriptor.
        let _ = unsafe { syscall(nr::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }

    /// Maps a part of the file that is there, for this process and none of its children.
    pub(super) fn map(self, offset: usize, len: usize) -> Result<usize, Errno> {
        const SEEK_END: usize = 2;
        const PROT_READ_WRITE: usize = 3;
        const MAP_SHARED: usize = 1;
        // SAFETY: takes numbers only.
        match unsafe { syscall(nr::LSEEK, [self.0, 0, SEEK_END, 0, 0, 0]) } {
            Ok(bytes) if bytes >= offset + len => {}
            Ok(_) => return Err(Errno::INVAL),
            Err(errno) => return Err(errno),
        }
        let at = crate::apart::map(len, PROT_READ_WRITE, MAP_SHARED, Some((self.0, offset)))?;
        crate::region::keep_from_children(&(at..at + len)).inspect_err(|_| unmap(at..at + len))?;
        Ok(at)
    }

    pub(super) fn reserve(self, offset: usize, len: usize) -> Result<(), Errno> {
        // SAFETY: takes numbers only.
        let done = unsafe { syscall(nr::FALLOCATE, [self.0, 0, offset, len, 0, 0]) };
        match done {
            // (A file system without it keeps what it has promised.)
            Err(Errno::OPNOTSUPP) => Ok(()),
            done => done.map(drop),
        }
    }

    pub(super) fn punch(self, offset: usize, len: usize) {
        const PUNCH_HOLE_KEEP_SIZE: usize = 3;
        // SAFETY: takes numbers only.
        let _ = unsafe {
            syscall(
                nr::FALLOCATE,
                [self.0, PUNCH_HOLE_KEEP_SIZE, offset, len, 0, 0],
            )
        };
    }

    fn call(self, command: usize, bytes: Range<usize>, kind: i16) -> Result<i16, Errno> {
        let number = |of: usize| i64::try_from(of).unwrap_or(i64::MAX);
        let mut of = Flock {
            kind,
            whence: 0,
            start: number(bytes.start),
            len: number(bytes.len()),
            pid: 0,
        };
        let at = (&raw mut of) as usize;
        // SAFETY: the kernel reads and writes one structure.
        unsafe { syscall(nr::FCNTL, [self.0, command, at, 0, 0, 0]) }?;
        Ok(of.kind)
    }

    /// Takes the lock of a byte, without waiting.
    pub(super) fn lock(self, byte: usize) -> Result<(), Errno> {
        self.call(F_OFD_SETLK, byte..byte + 1, F_WRLCK).map(drop)
    }

    pub(super) fn unlock(self, byte: usize) -> Result<(), Errno> {
        self.call(F_OFD_SETLK, byte..byte + 1, F_UNLCK).map(drop)
    }

    /// Whether somebody else holds one of `bytes`.
    pub(super) fn is_locked(self, bytes: Range<usize>) -> bool {
        self.call(F_OFD_GETLK, bytes, F_WRLCK) != Ok(F_UNLCK)
    }
}
