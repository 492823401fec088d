//! Files of our own on disk: nobody else can name them, and they go with the
//! process.

use crate::syscall::{Errno, nr, syscall};
use core::ffi::CStr;
use core::fmt::Write;

const O_RDWR: usize = 0o2;
const O_CREAT: usize = 0o100;
const O_EXCL: usize = 0o200;
const O_NOFOLLOW: usize = 0o400_000;
const O_CLOEXEC: usize = 0o2_000_000;
const O_TMPFILE: usize = 0o20_200_000;
const PUNCH_HOLE_KEEP_SIZE: usize = 3;
const MODE: usize = 0o600;

/// A file without a name, mode 0600. Never closed: it is its process's to the end.
#[derive(Clone, Copy, Debug)]
pub struct DiskFile(usize);

impl DiskFile {
    /// Makes a file in directory `dir`; where the file system has none without
    /// a name, one whose name is removed at once.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn anonymous(dir: &CStr) -> Result<Self, Errno> {
        let open = |path: &CStr, flags| {
            // SAFETY: a NUL-terminated path.
            unsafe { syscall(nr::OPEN, [path.as_ptr() as usize, flags, MODE, 0, 0, 0]) }.map(Self)
        };
        // (O_EXCL: nobody can give it a name later, by /proc say.)
        match open(dir, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
            opened => return opened,
        }
        for attempt in 0..100_u32 {
            let mut name = Name::default();
            let pid = crate::thread::pid();
            let written = write!(
                name,
                "{}/.zfolio-{pid}-{attempt}\0",
                dir.to_str().unwrap_or(".")
            );
            let path = CStr::from_bytes_until_nul(&name.text).map_err(|_| Errno::INVAL)?;
            written.map_err(|_| Errno::INVAL)?;
            match open(path, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC) {
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
                Ok(file) => {
                    // SAFETY: a NUL-terminated path.
                    unsafe { syscall(nr::UNLINK, [path.as_ptr() as usize, 0, 0, 0, 0, 0]) }?;
                    return Ok(file);
                }
            }
        }
        Err(Errno::EXIST)
    }

    /// The same file by a descriptor of a high number, if that can be had.
    #[must_use]
    pub fn lifted(self) -> Self {
        Self(crate::region::lift_descriptor(self.0))
    }

    /// The file that is open as `fd`.
    #[must_use]
    pub const fn from_fd(fd: usize) -> Self {
        Self(fd)
    }

    /// The descriptor number, in the table of the thread that opened it.
    #[must_use]
    pub const fn fd(self) -> usize {
        self.0
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// As the kernel says; a file that takes nothing more is `NOSPC`. What is
    /// there then is anything.
    pub fn write_at(self, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        self.whole(bytes.len(), offset, Errno::NOSPC, |done, offset| {
            let rest = &bytes[done..];
            // SAFETY: the kernel reads the slice.
            unsafe {
                let at = rest.as_ptr() as usize;
                syscall(nr::PWRITE64, [self.0, at, rest.len(), offset, 0, 0])
            }
        })
    }

    /// Reads as much as `into` holds from `offset`.
    ///
    /// # Errors
    /// As the kernel says; `IO` when the file ends before.
    pub fn read_at(self, into: &mut [u8], offset: u64) -> Result<(), Errno> {
        let len = into.len();
        self.whole(len, offset, Errno::IO, |done, offset| {
            let rest = &mut into[done..];
            // SAFETY: the kernel writes at most the slice.
            unsafe {
                let at = rest.as_mut_ptr() as usize;
                syscall(nr::PREAD64, [self.0, at, rest.len(), offset, 0, 0])
            }
        })
    }

    /// Gives the room of `len` bytes from `offset` back to the file system.
    ///
    /// # Errors
    /// As the kernel says; not every file system can.
    pub fn punch(self, offset: u64, len: u64) -> Result<(), Errno> {
        let (Ok(offset), Ok(len)) = (usize::try_from(offset), usize::try_from(len)) else {
            return Err(Errno::INVAL);
        };
        // SAFETY: takes numbers only.
        unsafe {
            let args = [self.0, PUNCH_HOLE_KEEP_SIZE, offset, len, 0, 0];
            syscall(nr::FALLOCATE, args)
        }
        .map(drop)
    }

    /// Calls until all is done; a call that does nothing is `stalled`.
    fn whole(
        self,
        len: usize,
        offset: u64,
        stalled: Errno,
        mut call: impl FnMut(usize, usize) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        let offset = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
        let mut done = 0;
        while done < len {
            match call(done, offset + done) {
                Ok(0) => return Err(stalled),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// A path put together without a heap.
struct Name {
    text: [u8; 512],
    len: usize,
}

impl Default for Name {
    fn default() -> Self {
        Self {
            text: [0; 512],
            len: 0,
        }
    }
}

impl Write for Name {
    fn write_str(&mut self, part: &str) -> core::fmt::Result {
        let buffer = self.text.get_mut(self.len..self.len + part.len());
        buffer
            .ok_or(core::fmt::Error)?
            .copy_from_slice(part.as_bytes());
        self.len += part.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_file_holds_what_was_written_and_has_no_name() {
        let dir = std::env::temp_dir();
        let file = DiskFile::anonymous(&CString::new(dir.as_os_str().as_bytes()).unwrap()).unwrap();
        let link = std::fs::read_link(std::format!("/proc/self/fd/{}", file.fd())).unwrap();
        assert!(link.to_string_lossy().ends_with("(deleted)"), "{link:?}");
        file.write_at(b"some bytes", 1 << 20).unwrap();
        let mut back = [0; 10];
        file.read_at(&mut back, 1 << 20).unwrap();
        assert_eq!(&back, b"some bytes");
        assert_eq!(file.read_at(&mut back, (1 << 20) + 5), Err(Errno::IO));
        if file.punch(1 << 20, 4096).is_ok() {
            file.read_at(&mut back, 1 << 20).unwrap();
            assert_eq!(back, [0; 10]);
        }
        assert_eq!(
            DiskFile::anonymous(c"/nowhere/at/all").err(),
            Some(Errno::NOENT)
        );
    }
}
