//! The workloads: how each is started.

use crate::rig::{Rig, is_installed};
use crate::workloads::objects;
use std::ffi::OsString;
use zfolio_mm::PAGE_SIZE;

/// Bytes a customer of the object graph needs.
const BYTES_PER_OBJECT: u64 = 1300;
/// Bytes the compiler needs for a function of the generated file.
const BYTES_PER_FUNCTION: u64 = 46 << 10;
/// Bytes redis needs for a key.
const BYTES_PER_KEY: u64 = 1250;

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// `bench-work memory`: phases, threads that fill, accesses per page.
    Memory(&'static str, u32, u64),
    Python,
    Redis,
    Compile,
    /// The user's.
    Own,
}

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// Percent of its need that a row may use, unless told.
    pub(super) share: u32,
    kind: Kind,
    /// The phases that are the point of it; others it runs are left out. None: all are.
    pub(super) phases: &'static [&'static str],
}

pub(super) const WORKLOADS: [Workload; 9] = [
    Workload {
        name: "fill",
        share: 75,
        kind: Kind::Memory("fill", 1, 1),
        phases: &["fill"],
    },
    Workload {
        name: "thp",
        share: 75,
        kind: Kind::Memory("thp", 1, 1),
        phases: &["thp"],
    },
    Workload {
        name: "seq",
        share: 75,
        kind: Kind::Memory("fill,seq", 1, 1),
        phases: &["seq"],
    },
    Workload {
        name: "rand",
        share: 75,
        kind: Kind::Memory("fill,rand", 1, 1),
        phases: &["rand"],
    },
    Workload {
        name: "hot",
        share: 75,
        kind: Kind::Memory("fill,hot", 1, 4),
        phases: &["hot"],
    },
    Workload {
        name: "threads",
        share: 75,
        kind: Kind::Memory("fill,rand-1,rand-2,rand-4", 4, 1),
        phases: &["fill", "rand-1", "rand-2", "rand-4"],
    },
    Workload {
        name: "python",
        share: 40,
        kind: Kind::Python,
        phases: &["build", "walk", "follow"],
    },
    Workload {
        name: "redis",
        share: 40,
        kind: Kind::Redis,
        phases: &["load", "requests", "p99"],
    },
    Workload {
        name: "compile",
        share: 40,
        kind: Kind::Compile,
        phases: &["compile"],
    },
];

/// A program of the user's, whatever it is.
pub(super) const OWN: Workload = Workload {
    name: "command",
    share: 40,
    kind: Kind::Own,
    phases: &[],
};

impl Workload {
    /// Whether it can be told to use a region.
    pub(super) fn asks_for_regions(&self) -> bool {
        matches!(self.kind, Kind::Memory(..))
    }

    /// Why it cannot be run here.
    pub(super) fn missing(&self) -> Option<String> {
        let program = match self.kind {
            Kind::Memory(..) | Kind::Own => return None,
            Kind::Python => "python3",
            Kind::Redis => "redis-server",
            Kind::Compile => "cc",
        };
        (!is_installed(program)).then(|| format!("{program} is not installed"))
    }

    /// Name and unit of what the whole run is, where it is a figure.
    pub(super) fn timed(&self) -> Option<(String, String)> {
        (self.kind == Kind::Own).then(|| ("elapsed".to_owned(), "s".to_owned()))
    }

    /// The program and its arguments, for about `size` bytes; `own`: the user's.
    pub(super) fn command(
        &self,
        rig: &Rig,
        size: u64,
        seed: u64,
        own: &[OsString],
    ) -> Vec<OsString> {
        let number = |n: u64| OsString::from(n.to_string());
        let mut command: Vec<OsString> = vec![rig.exe().into(), "bench-work".into()];
        match self.kind {
            Kind::Memory(phases, threads, accesses) => {
                command.extend(["memory", "--phases", phases].map(OsString::from));
                let pages = size / PAGE_SIZE as u64;
                for (option, value) in [
                    ("--size", size),
                    ("--threads", u64::from(threads)),
                    ("--reads", pages.min(200_000) * accesses),
                    ("--seed", seed),
                ] {
                    command.extend([option.into(), number(value)]);
                }
            }
            Kind::Own => own.clone_into(&mut command),
            Kind::Python => {
                command = ["python3", "-c", objects::PYTHON]
                    .map(OsString::from)
                    .into();
                command.push(number(size / BYTES_PER_OBJECT));
            }
            Kind::Redis => {
                let keys = size / BYTES_PER_KEY;
                command.extend(["redis", "--dir"].map(OsString::from));
                command.push(rig.scratch().into());
                for (option, value) in [
                    ("--keys", keys),
                    ("--requests", keys.clamp(2000, 200_000)),
                    ("--seed", seed),
                ] {
                    command.extend([option.into(), number(value)]);
                }
            }
            Kind::Compile => {
                command.extend(["compile", "--dir"].map(OsString::from));
                command.push(rig.scratch().into());
                command.extend(["--functions".into(), number(size / BYTES_PER_FUNCTION)]);
            }
        }
        command
    }
}

/// Whether more of a unit is better.
pub(super) fn more_is_better(unit: &str) -> bool {
    unit.ends_with("/s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::workload_report::Told;

    #[test]
    fn units() {
        assert!(more_is_better("MB/s") && more_is_better("/s") && !more_is_better("us"));
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<&str> = WORKLOADS.iter().map(|w| w.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), WORKLOADS.len());
    }

    #[test]
    fn the_object_graph_says_the_same_twice() {
        let run = || {
            let ran = std::process::Command::new("python3")
                .args(["-c", objects::PYTHON, "500"])
                .output();
            ran.ok()
                .map(|ran| Told::read(&String::from_utf8_lossy(&ran.stdout)))
        };
        let Some(first) = run() else {
            eprintln!("SKIPPED: no python3 here");
            return;
        };
        assert_eq!(first.phases.len(), 3, "{first:?}");
        assert_eq!(first.checks.len(), 1);
        assert_eq!(Some(first.checks), run().map(|told| told.checks));
    }
}
