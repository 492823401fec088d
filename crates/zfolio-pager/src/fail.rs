//! Why a command failed, and what an error of a server means.

use std::fmt;

/// Why a command failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fail {
    /// The node has no room.
    Full,
    /// It may work later, or elsewhere: why.
    Later(String),
    /// Not answered in time.
    Slow(String),
    /// The store will not have it: why.
    Refused(String),
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("it is full"),
            Self::Later(why) | Self::Slow(why) | Self::Refused(why) => f.write_str(why),
        }
    }
}

/// What a server's error means.
pub(crate) fn fail_by(code: &str, text: &str) -> Fail {
    match code {
        "OOM" => Fail::Full,
        "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "READONLY"
        | "MISCONF" | "BUSY" | "NOREPLICAS" => Fail::Later(text.to_owned()),
        _ => Fail::Refused(text.to_owned()),
    }
}
