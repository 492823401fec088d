//! How regions, memory that a program asks for, are served here.

use super::check::{Check, Level};
use super::shown::RegionsShown;
use zfolio_host::uffd_probe;
use zfolio_runtime::error::Unavailable;
use zfolio_runtime::protect::probe;
use zfolio_sys::syscall::Errno;

/// How what regions need can be had: less, since no kernel-mode faults.
pub(super) const GRANT_REGIONS: &str = "zfolio doctor --seccomp-profile FILE >zfolio.json (FILE: the profile \
    that is in force), then docker run --security-opt seccomp=zfolio.json";

/// How regions, memory that a program asks for, are served here.
pub(super) enum Regions {
    /// By userfaultfd.
    Moving,
    /// By page protection, since the other was refused.
    Protected(Errno),
    /// Not at all.
    Refused(Unavailable),
}

impl Regions {
    pub(super) fn find() -> Self {
        match uffd_probe::open_for_regions() {
            Ok(()) => Self::Moving,
            Err(errno) => probe().map_or_else(Self::Refused, |()| Self::Protected(errno)),
        }
    }

    pub(super) const fn way(&self) -> &'static str {
        match self {
            Self::Moving => "userfaultfd",
            Self::Protected(_) => "protection",
            Self::Refused(_) => "none",
        }
    }

    pub(super) fn why(&self) -> String {
        match self {
            Self::Moving => "userfaultfd can be had for them".to_owned(),
            Self::Protected(errno) => {
                format!("userfaultfd is refused: {}", uffd_probe::words(*errno))
            }
            Self::Refused(why) => format!("{}: {}", why.what, uffd_probe::words(why.errno)),
        }
    }

    pub(super) fn shown(&self) -> RegionsShown {
        RegionsShown {
            way: self.way(),
            why: self.why(),
        }
    }

    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Moving => "Regions work, by userfaultfd.".to_owned(),
            Self::Protected(_) => format!(
                "Regions work, by PROT_NONE and SIGSEGV, which is slower ({}).",
                self.why()
            ),
            Self::Refused(_) => format!("Regions do not work ({}).", self.why()),
        }
    }

    pub(super) fn check(&self) -> Check {
        let level = match self {
            Self::Moving => Level::Ok,
            // (Regions are not what a machine is judged by here.)
            Self::Protected(_) | Self::Refused(_) => Level::Warn,
        };
        let found = match self {
            Self::Moving => "by userfaultfd".to_owned(),
            Self::Protected(_) => {
                format!("by PROT_NONE and SIGSEGV, slower ({})", self.why())
            }
            Self::Refused(_) => format!("cannot be had ({})", self.why()),
        };
        Check::new("regions", level, found, GRANT_REGIONS)
    }
}
