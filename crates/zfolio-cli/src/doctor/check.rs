//! A finding, and what mends it.

use schemars::JsonSchema;
use serde::Serialize;

/// Checks of what only `--faults message` needs.
pub(super) const FOR_MESSAGES: [&str; 5] = [
    "kernel",
    "userfaultfd",
    "userfaultfd feature",
    "moving a page",
    "PAGEMAP_SCAN",
];

/// How the privilege can be had.
pub(super) const GRANT: &str = "run as root; in a container: docker run --cap-add SYS_PTRACE \
    --security-opt seccomp=unconfined";

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(super) enum Level {
    #[serde(rename = "ok")]
    Ok,
    /// Works, but not as well as it could, or only so far.
    #[serde(rename = "warn")]
    Warn,
    /// `zfolio run` cannot work.
    #[serde(rename = "FAIL")]
    Fail,
}

impl Level {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) level: Level,
    pub(super) found: String,
    /// The command, or what to do; empty when nothing need be done.
    pub(super) mend: String,
}

impl Check {
    pub(super) fn new(
        name: &'static str,
        level: Level,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        let mend = if level == Level::Ok {
            String::new()
        } else {
            mend.into()
        };
        Self {
            name,
            level,
            found: found.into(),
            mend,
        }
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:<5} {:<26} {}",
            self.level.word(),
            self.name,
            self.found
        )?;
        if self.mend.is_empty() {
            Ok(())
        } else {
            write!(f, "\n      mend: {}", self.mend)
        }
    }
}
