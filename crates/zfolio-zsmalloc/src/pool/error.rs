//! What a pool could not do.

use core::fmt;

/// What a pool could not do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ZsError {
    /// An object of 0 bytes or of more than the largest class holds.
    BadSize,
    /// The source has no run of frames for a zspage, or handles ran out.
    NoMemory,
    /// The handle has no object: it was freed already or never given out.
    BadHandle,
    /// The object, or one in the zspage, is pinned.
    Pinned,
    /// No zspage starts at the frame to move from, or one does at the frame to
    /// move to.
    BadFrame,
}

impl fmt::Display for ZsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadSize => "object size out of range",
            Self::NoMemory => "no frames for a zspage",
            Self::BadHandle => "no object has this handle",
            Self::Pinned => "the object is pinned",
            Self::BadFrame => "no zspage can be moved between these frames",
        })
    }
}

impl core::error::Error for ZsError {}
