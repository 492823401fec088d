//! `zfolio doctor`: what this machine allows, and what would mend the rest.

mod faults;
mod messages;

use crate::exit::Status;
use crate::machine::line_of;
use crate::size::human;
use crate::{preload, segment, uffd_probe};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use zfolio_runtime::error::Unavailable;
use zfolio_runtime::protect::probe;
use zfolio_runtime::segment::Segment;
use zfolio_sys::syscall::Errno;

/// Mappings below which registering many ranges may run out.
const FEW_MAPPINGS: u64 = 65_530;
/// Checks of what only `--faults message` needs.
const FOR_MESSAGES: [&str; 5] = [
    "kernel",
    "userfaultfd",
    "userfaultfd feature",
    "moving a page",
    "PAGEMAP_SCAN",
];
/// How the privilege can be had.
const GRANT: &str = "run as root; in a container: docker run --cap-add SYS_PTRACE \
    --security-opt seccomp=unconfined";

/// How what regions need can be had: less, since no kernel-mode faults.
const GRANT_REGIONS: &str = "docker run --security-opt seccomp=unconfined, or a profile that \
    allows userfaultfd";

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Ok,
    /// Works, but not as well as it could, or only so far.
    Warn,
    /// `zfolio run` cannot work.
    Fail,
}

impl Level {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Check {
    name: &'static str,
    level: Level,
    found: String,
    /// The command, or what to do; empty when nothing need be done.
    mend: String,
}

impl Check {
    fn new(
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

    fn json(&self) -> Value {
        json!({ "name": self.name, "level": self.level.word(), "found": self.found, "mend": self.mend })
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

/// Looks, prints, and says by the status whether programs can be managed.
pub(crate) fn doctor(json: bool) -> ExitCode {
    let regions = Regions::find();
    let mut checks = examine(&regions);
    let way = faults::judge(&mut checks);
    let usable = checks.iter().all(|check| check.level != Level::Fail);
    if json {
        let checks: Vec<Value> = checks.iter().map(Check::json).collect();
        let regions = regions.json();
        println!(
            "{:#}",
            json!({ "usable": usable, "faults": way, "regions": regions, "checks": checks })
        );
    } else {
        for check in &checks {
            println!("{check}");
        }
        match way.filter(|_| usable) {
            Some(way) => {
                println!("This machine can run managed programs (`zfolio run`), by --faults {way}.")
            }
            None => println!("This machine cannot run managed programs (`zfolio run`)."),
        }
        println!("{}", regions.sentence());
    }
    ExitCode::from(if usable { 0 } else { Status::Doctor.code() })
}

/// How regions, memory that a program asks for, are served here.
enum Regions {
    /// By userfaultfd.
    Moving,
    /// By page protection, since the other was refused.
    Protected(Errno),
    /// Not at all.
    Refused(Unavailable),
}

impl Regions {
    fn find() -> Self {
        match uffd_probe::open_for_regions() {
            Ok(()) => Self::Moving,
            Err(errno) => probe().map_or_else(Self::Refused, |()| Self::Protected(errno)),
        }
    }

    const fn way(&self) -> &'static str {
        match self {
            Self::Moving => "userfaultfd",
            Self::Protected(_) => "protection",
            Self::Refused(_) => "none",
        }
    }

    fn why(&self) -> String {
        match self {
            Self::Moving => "userfaultfd can be had for them".to_owned(),
            Self::Protected(errno) => {
                format!("userfaultfd is refused: {}", uffd_probe::words(*errno))
            }
            Self::Refused(why) => format!("{}: {}", why.what, uffd_probe::words(why.errno)),
        }
    }

    fn json(&self) -> Value {
        json!({ "way": self.way(), "why": self.why() })
    }

    fn sentence(&self) -> String {
        match self {
            Self::Moving => "Regions work, by userfaultfd.".to_owned(),
            Self::Protected(_) => format!(
                "Regions work, by PROT_NONE and SIGSEGV, which is slower ({}).",
                self.why()
            ),
            Self::Refused(_) => format!("Regions do not work ({}).", self.why()),
        }
    }

    fn check(&self) -> Check {
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

fn examine(regions: &Regions) -> Vec<Check> {
    let mut checks = messages::abilities();
    checks.insert(2, regions.check());
    checks.extend([library(), segment_directory()]);
    checks.extend(messages::permissions());
    checks.push(container());
    checks.extend([huge_pages(), mappings(), overcommit(), memlock()]);
    checks
}

fn library() -> Check {
    match preload::find() {
        Ok(path) => Check::new("preload library", Level::Ok, path.display().to_string(), ""),
        Err(failure) => {
            let mend = format!("install it beside zfolio, or set {}", preload::ENV_PRELOAD);
            Check::new("preload library", Level::Fail, failure.to_string(), mend)
        }
    }
}

fn segment_directory() -> Check {
    const NAME: &str = "control segment";
    match segment::OwnSegment::create(|_| {}) {
        Err(failure) => Check::new(
            NAME,
            Level::Fail,
            failure.to_string(),
            "chmod 1777 /dev/shm",
        ),
        Ok(made) => {
            let dir = made
                .path()
                .parent()
                .unwrap_or(Path::new("/"))
                .display()
                .to_string();
            let size = human(Segment::BYTES as u64);
            if dir == "/dev/shm" {
                Check::new(
                    NAME,
                    Level::Ok,
                    format!("{dir} is writable ({size} a run)"),
                    "",
                )
            } else {
                let found = format!("/dev/shm cannot be used; {dir} is ({size} a run)");
                Check::new(
                    NAME,
                    Level::Warn,
                    found,
                    "docker run --shm-size 64m; chmod 1777 /dev/shm",
                )
            }
        }
    }
}

fn container() -> Check {
    let signs = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    let by_file = signs
        .into_iter()
        .find(|(path, _)| Path::new(path).exists())
        .map(|(_, kind)| kind.to_owned());
    let by_variable = std::env::var("container")
        .ok()
        .filter(|kind| !kind.is_empty());
    let kubernetes = std::env::var_os("KUBERNETES_SERVICE_HOST").map(|_| "kubernetes".to_owned());
    let found = kubernetes
        .or(by_file)
        .or(by_variable)
        .unwrap_or_else(|| "no signs of one".to_owned());
    Check::new("container", Level::Ok, found, "")
}

fn huge_pages() -> Check {
    const NAME: &str = "transparent huge pages";
    let setting = line_of("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = setting
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(word, _)| word);
    match chosen {
        Some("never") => {
            let mend = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
            Check::new(NAME, Level::Warn, "never: moves are 4 KiB each", mend)
        }
        Some(word) => Check::new(NAME, Level::Ok, word, ""),
        None => Check::new(
            NAME,
            Level::Warn,
            "not in this kernel",
            "boot one with CONFIG_TRANSPARENT_HUGEPAGE=y",
        ),
    }
}

fn mappings() -> Check {
    const NAME: &str = "vm.max_map_count";
    let found = line_of("/proc/sys/vm/max_map_count").unwrap_or_default();
    let level = match found.parse::<u64>() {
        Ok(count) if count >= FEW_MAPPINGS => Level::Ok,
        _ => Level::Warn,
    };
    Check::new(NAME, level, found, "sudo sysctl vm.max_map_count=262144")
}

fn overcommit() -> Check {
    const NAME: &str = "vm.overcommit_memory";
    let found = line_of("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    if found == "2" {
        let found = "2: reserving address space may be refused";
        return Check::new(
            NAME,
            Level::Warn,
            found,
            "sudo sysctl vm.overcommit_memory=0",
        );
    }
    Check::new(NAME, Level::Ok, found, "")
}

fn memlock() -> Check {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let found = limit.map_or("unlimited".to_owned(), human);
    Check::new(
        "memlock limit",
        Level::Ok,
        format!("{found} (locked memory is left alone)"),
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_tells_what_mends_it_only_when_something_is_wrong() {
        let fine = Check::new("a", Level::Ok, "found", "do this");
        assert_eq!(fine.to_string(), format!("{:<5} {:<26} found", "ok", "a"));
        let bad = Check::new("a", Level::Fail, "found", "do this");
        assert!(bad.to_string().ends_with("\n      mend: do this"));
        assert_eq!(bad.json()["level"], "FAIL");
    }

    #[test]
    fn how_regions_work_is_said_with_the_reason() {
        let refused = Regions::Refused(Unavailable {
            what: "mapping memory twice",
            errno: Errno::NOMEM,
        });
        for (regions, level, words) in [
            (Regions::Moving, Level::Ok, "by userfaultfd"),
            (
                Regions::Protected(Errno::PERM),
                Level::Warn,
                "not permitted",
            ),
            (
                refused,
                Level::Warn,
                "mapping memory twice: Cannot allocate",
            ),
        ] {
            assert!(regions.sentence().contains(words), "{}", regions.sentence());
            let check = regions.check();
            assert!(
                check.level == level && check.found.contains(words),
                "{check}"
            );
        }
    }

    #[test]
    fn every_check_that_is_not_ok_has_a_mend() {
        for check in examine(&Regions::find()) {
            assert!(
                check.level == Level::Ok || !check.mend.is_empty(),
                "{check}"
            );
        }
    }
}
