//! What can go wrong, as one type.

use core::fmt;
use zfolio_runtime::error::{PinError, Unavailable};
use zfolio_sys::syscall::Errno;

/// Why a call of this library failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A length of zero.
    Empty,
    /// More bytes than there are addresses for, or than a limit leaves.
    TooLarge {
        /// Bytes asked for.
        bytes: usize,
    },
    /// A range that is not inside the region.
    OutOfRange,
    /// Pinned memory would be more than half of `high`.
    PinnedTooMuch,
    /// `high` below 4 MiB, or above what the machine can address.
    BadLimit,
    /// `high` of a group with regions in it was to be raised so far that more
    /// addresses would have to be reserved.
    LimitIsSet,
    /// An option has no such value, or not with the others.
    BadOption {
        /// Its name.
        option: &'static str,
    },
    /// There is no option of that name.
    UnknownOption,
    /// More regions than can be kept track of.
    TooManyRegions,
    /// This process is the child of a fork, made without libc: it has no
    /// regions and cannot make any.
    Forked,
    /// The system refuses what regions need.
    Unavailable {
        /// What was refused, as in "userfaultfd".
        what: &'static str,
        /// The error number.
        errno: i32,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a region of zero bytes was asked for"),
            Self::TooLarge { bytes } => {
                write!(f, "there are no addresses for a region of {bytes} bytes")
            }
            Self::OutOfRange => f.write_str("the range is not inside the region"),
            Self::PinnedTooMuch => {
                f.write_str("pins would hold more than half of what the group may have")
            }
            Self::BadLimit => f.write_str("the limit is below 4 MiB, or out of range"),
            Self::LimitIsSet => {
                f.write_str("the limit is set, with regions using it, and cannot be raised so far")
            }
            Self::BadOption { option } => {
                write!(f, "the option `{option}` cannot have that value")
            }
            Self::UnknownOption => f.write_str("there is no option of that name for a group"),
            Self::TooManyRegions => f.write_str("there are too many regions"),
            Self::Forked => f.write_str("the child of a raw fork cannot use regions"),
            Self::Unavailable { what, errno } => write!(
                f,
                "{what} failed (errno {errno}); `zfolio doctor` says what is missing"
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<Unavailable> for Error {
    fn from(why: Unavailable) -> Self {
        Self::Unavailable {
            what: why.what,
            errno: why.errno.0,
        }
    }
}

impl From<PinError> for Error {
    fn from(why: PinError) -> Self {
        match why {
            PinError::NotManaged => Self::OutOfRange,
            PinError::TooMuch => Self::PinnedTooMuch,
        }
    }
}

impl Error {
    pub(crate) fn refused(what: &'static str, errno: Errno) -> Self {
        Self::Unavailable {
            what,
            errno: errno.0,
        }
    }
}
