//! What a descriptor is of, as far as it says how bytes are moved.

use crate::raw::{self, is_error, nr};

/// Character devices of which bytes are read one after another, by major number: memory (zeros,
/// random bytes) and terminals. What others give and take may be records (FUSE).
const STREAMS: [u64; 11] = [1, 4, 5, 136, 137, 138, 139, 140, 141, 142, 143];
const S_IFMT: u64 = 0xf000;
const S_IFCHR: u64 = 0x2000;
const S_IFBLK: u64 = 0x6000;
const S_IFREG: u64 = 0x8000;
const S_IFSOCK: u64 = 0xc000;
const SOL_SOCKET: usize = 1;
const SO_TYPE: usize = 3;
const SO_DOMAIN: usize = 39;
const SOCK_STREAM: u32 = 1;
const AF_UNIX: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A file, or a block device: who reads or writes there does not wait for others.
    File,
    /// Bytes one after another, of a device.
    Stream,
    /// Likewise, of a socket.
    Socket,
    /// A read or write may be one record.
    Record,
    /// A pipe, or whatever else: a read may end at any length.
    Pipe,
}

pub(super) fn of(fd: usize) -> Kind {
    let mut about = [0_u64; 18];
    let at = about.as_mut_ptr() as usize;
    if raw::own(nr::FSTAT, [fd, at, 0]) != 0 {
        return Kind::Pipe;
    }
    let device = about[5];
    let major = device >> 8 & 0xfff | device >> 32 & !0xfff;
    match about[3] & S_IFMT {
        S_IFREG | S_IFBLK => Kind::File,
        S_IFCHR if STREAMS.contains(&major) => Kind::Stream,
        S_IFSOCK if option(fd, SO_TYPE) == Some(SOCK_STREAM) => Kind::Socket,
        S_IFCHR | S_IFSOCK => Kind::Record,
        _ => Kind::Pipe,
    }
}

/// Bytes of a file.
pub(super) fn size(fd: usize) -> Option<usize> {
    let mut about = [0_u64; 18];
    let asked = raw::own(nr::FSTAT, [fd, about.as_mut_ptr() as usize, 0]);
    (asked == 0).then(|| usize::try_from(about[6]).unwrap_or(0))
}

/// Whether writes go to the end of a file.
pub(super) fn appends(fd: usize) -> bool {
    const F_GETFL: usize = 3;
    const O_APPEND: isize = 0o2000;
    raw::own(nr::FCNTL, [fd, F_GETFL, 0]) & O_APPEND != 0
}

/// Moves on where a descriptor reads and writes, by one step that nobody comes between; where it was. `None` where
/// that cannot be.
pub(super) fn claim(fd: usize, len: usize) -> Option<usize> {
    let before = position(fd);
    let moved = seek(fd, len.cast_signed());
    // (Some files tell a place and do not move.)
    let is_moved = !is_error(moved) && moved != before.cast_signed();
    is_moved
        .then(|| moved.cast_unsigned().checked_sub(len))
        .flatten()
}

/// Gives back the last bytes of what was claimed.
pub(super) fn give_back(fd: usize, len: usize) {
    if len > 0 {
        seek(fd, -len.cast_signed());
    }
}

fn seek(fd: usize, by: isize) -> isize {
    const CURRENT: usize = 1;
    raw::own(nr::LSEEK, [fd, by.cast_unsigned(), CURRENT])
}

/// Where a descriptor would read on.
pub(super) fn position(fd: usize) -> usize {
    seek(fd, 0).cast_unsigned()
}

/// Whether a socket is of the Unix domain.
pub(super) fn is_local(fd: usize) -> bool {
    option(fd, SO_DOMAIN) == Some(AF_UNIX)
}

fn option(fd: usize, option: usize) -> Option<u32> {
    let (mut value, mut len) = (0_u32, 4_u32);
    let into = [(&raw mut value) as usize, (&raw mut len) as usize];
    // SAFETY: two words of this frame.
    let asked = unsafe {
        raw::call(
            nr::GETSOCKOPT,
            [fd, SOL_SOCKET, option, into[0], into[1], 0],
        )
    };
    (asked == 0).then_some(value)
}
