//! Why a page could not be loaded.

use core::fmt;
use zfolio_compress::CodecError;
use zfolio_sys::syscall::Errno;

/// A page that could not be loaded. Its destination holds zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadError {
    /// Which of the call's slots, the first that failed. Other pages of the
    /// call have been loaded unless they failed as well.
    pub index: usize,
    /// What was wrong.
    pub fault: LoadFault,
}

/// What was wrong with a stored page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadFault {
    /// The slot names nothing: it was invalidated or never given out.
    NoEntry,
    /// The object does not name its owner any more: overwritten.
    Owner,
    /// The bytes are not those that were stored.
    Checksum,
    /// The codec cannot make a page of them.
    Codec(CodecError),
    /// The backing could not be read.
    Backing(Errno),
    /// What the backing gave is not what was sealed.
    Seal,
    /// In the backing of the process this one is a child of.
    Lost,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.index;
        match self.fault {
            LoadFault::NoEntry => write!(f, "page {index}: its slot names nothing"),
            LoadFault::Owner => write!(f, "page {index}: its object was overwritten"),
            LoadFault::Checksum => write!(f, "page {index}: wrong checksum"),
            LoadFault::Codec(error) => write!(f, "page {index}: {error}"),
            LoadFault::Backing(Errno::NOENT) => {
                write!(f, "page {index}: the backing does not have it any more")
            }
            LoadFault::Backing(Errno::TIMEDOUT) => {
                write!(f, "page {index}: the backing did not answer in time")
            }
            LoadFault::Backing(errno) => {
                write!(f, "page {index}: the backing failed (errno {})", errno.0)
            }
            LoadFault::Seal => write!(f, "page {index}: the backing gave something else"),
            LoadFault::Lost => write!(f, "page {index}: it is in another process's backing"),
        }
    }
}

impl core::error::Error for LoadError {}
