//! Why something cannot be had.

use zfolio_sys::syscall::Errno;

/// Why a process stays unmanaged.
pub(crate) enum Unstarted {
    Failed { what: &'static str, errno: Errno },
    Unfit(&'static str),
}

pub(crate) fn step<T>(what: &'static str, result: Result<T, Errno>) -> Result<T, Unstarted> {
    result.map_err(|errno| Unstarted::Failed { what, errno })
}

/// Why there can be no manager for regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unavailable {
    /// What failed, as in "userfaultfd failed".
    pub what: &'static str,
    /// With what.
    pub errno: Errno,
}

impl From<Unstarted> for Unavailable {
    fn from(why: Unstarted) -> Self {
        match why {
            Unstarted::Failed { what, errno } => Self { what, errno },
            Unstarted::Unfit(what) => Self {
                what,
                errno: Errno::INVAL,
            },
        }
    }
}

/// Why a range cannot be pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinError {
    /// It is not in a region of this manager.
    NotManaged,
    /// With what is pinned already it is more than half of `high`.
    TooMuch,
}
