//! `zfolio doctor`: what this machine allows, and what would mend the rest.

use crate::exit::Status;
use crate::machine::{self, line_of, status_field};
use crate::size::human;
use crate::{preload, segment, uffd_probe};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;
use zfolio_runtime::error::Unavailable;
use zfolio_runtime::protect::probe;
use zfolio_runtime::segment::{Segment, faults};
use zfolio_sys::syscall::Errno;

/// Kernel that brought UFFDIO_MOVE.
const OLDEST: (u32, u32) = (6, 8);
/// Mappings below which registering many ranges may run out.
const FEW_MAPPINGS: u64 = 65_530;
/// Bit of CAP_SYS_PTRACE in CapEff.
const CAP_SYS_PTRACE: u32 = 19;
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
    let messages = checks
        .iter()
        .all(|check| check.level != Level::Fail || !FOR_MESSAGES.contains(&check.name));
    let way = if messages {
        Some(faults::NAMES[faults::MESSAGE as usize])
    } else {
        without_messages(&mut checks)
    };
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

/// Where messages cannot be had: the way that `zfolio run` takes instead, if one works. What
/// is only for messages is no failure then.
fn without_messages(checks: &mut Vec<Check>) -> Option<&'static str> {
    let ways = zfolio_inthread::start::ways();
    let works = |number: u32| {
        let way = ways.iter().find(|(way, _)| *way == number);
        way.is_some_and(|(_, result)| result.is_ok())
    };
    let first = [faults::IN_THREAD, faults::GUARD, faults::PROTECT]
        .into_iter()
        .find(|number| works(*number))
        .map(|number| faults::NAMES[number as usize]);
    if first.is_some() {
        for check in checks.iter_mut() {
            if check.level == Level::Fail && FOR_MESSAGES.contains(&check.name) {
                check.level = Level::Warn;
            }
        }
    }
    for (number, result) in ways {
        let name = faults::NAMES[number as usize];
        let (level, found) = match result {
            Ok(()) => (Level::Ok, format!("--faults {name} works")),
            Err((what, errno)) => (
                Level::Warn,
                format!(
                    "--faults {name} does not: {what}: {}",
                    uffd_probe::words(errno)
                ),
            ),
        };
        checks.push(Check::new(
            "without privilege",
            level,
            found,
            "docs/in-thread.md says what it needs",
        ));
    }
    first
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
    let mut checks = vec![kernel(), userfaultfd(), regions.check()];
    checks.extend(features());
    checks.extend([move_page(), pagemap_scan(), library(), segment_directory()]);
    checks.extend([device(), sysctl(), capability(), seccomp(), container()]);
    checks.extend([huge_pages(), mappings(), overcommit(), memlock()]);
    checks
}

fn kernel() -> Check {
    let release = machine::kernel_release();
    let level = match machine::kernel_version(&release) {
        Some(version) if version >= OLDEST => Level::Ok,
        Some(_) => Level::Fail,
        None => Level::Warn,
    };
    let found = format!(
        "{release} ({}.{} or newer is needed for MOVE)",
        OLDEST.0, OLDEST.1
    );
    Check::new("kernel", level, found, "install a newer kernel and boot it")
}

fn userfaultfd() -> Check {
    match uffd_probe::open(0) {
        Ok(()) => Check::new(
            "userfaultfd",
            Level::Ok,
            "can be had, kernel-mode faults included",
            "",
        ),
        Err(Errno::PERM) => Check::new(
            "userfaultfd",
            Level::Fail,
            "not permitted for this user",
            GRANT,
        ),
        Err(errno) if errno.0 == 38 => {
            let mend = "boot a kernel with CONFIG_USERFAULTFD=y";
            Check::new("userfaultfd", Level::Fail, "not in this kernel", mend)
        }
        Err(errno) => Check::new("userfaultfd", Level::Fail, uffd_probe::words(errno), GRANT),
    }
}

fn features() -> Vec<Check> {
    let bits = (0..u64::BITS).map(|bit| 1_u64 << bit);
    // A feature that needs privilege is there; one the kernel lacks is INVAL.
    let word: u64 = bits
        .filter(|bit| !matches!(uffd_probe::open(*bit), Err(Errno::INVAL)))
        .sum();
    if uffd_probe::open(0).is_err() {
        return Vec::new(); // told already; every feature would fail alike
    }
    let mut checks = vec![Check::new(
        "userfaultfd features",
        Level::Ok,
        format!("{word:#x}"),
        "",
    )];
    for (name, bit) in uffd_probe::NEEDED {
        let (level, found, mend) = match uffd_probe::open(bit) {
            Ok(()) => (Level::Ok, format!("{name} {bit:#x}"), ""),
            Err(Errno::PERM) => (Level::Fail, format!("{name} needs CAP_SYS_PTRACE"), GRANT),
            Err(_) => (
                Level::Fail,
                format!("{name} is missing"),
                "install Linux 6.8 or newer and boot it",
            ),
        };
        checks.push(Check::new("userfaultfd feature", level, found, mend));
    }
    checks
}

fn move_page() -> Check {
    match uffd_probe::try_move() {
        Ok(()) => Check::new("moving a page", Level::Ok, "done, same bytes", ""),
        Err(why) => Check::new("moving a page", Level::Fail, why, "mend what is told above"),
    }
}

fn pagemap_scan() -> Check {
    match uffd_probe::try_pagemap_scan() {
        Ok(()) => Check::new("PAGEMAP_SCAN", Level::Ok, "done, right answer", ""),
        Err(why) => Check::new(
            "PAGEMAP_SCAN",
            Level::Fail,
            why,
            "install Linux 6.8 or newer; mount /proc",
        ),
    }
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

fn device() -> Check {
    const NAME: &str = "/dev/userfaultfd";
    const PATH: &str = "/dev/userfaultfd";
    if OpenOptions::new().read(true).write(true).open(PATH).is_ok() {
        return Check::new(NAME, Level::Ok, "may be opened", "");
    }
    let found = if Path::new(PATH).exists() {
        "may not be opened"
    } else {
        "not there"
    };
    Check::new(NAME, either_way(), found, format!("sudo chmod 666 {PATH}"))
}

fn sysctl() -> Check {
    const NAME: &str = "vm.unprivileged_userfaultfd";
    match line_of("/proc/sys/vm/unprivileged_userfaultfd").as_deref() {
        Some("1") => Check::new(NAME, Level::Ok, "1", ""),
        found => {
            let found = found.unwrap_or("not there");
            Check::new(
                NAME,
                either_way(),
                found,
                "sudo sysctl vm.unprivileged_userfaultfd=1",
            )
        }
    }
}

/// One of several ways to the same permission: no matter while one works.
fn either_way() -> Level {
    if uffd_probe::open(0).is_ok() {
        Level::Ok
    } else {
        Level::Warn
    }
}

fn capability() -> Check {
    let mask = status_field("CapEff")
        .and_then(|mask| u64::from_str_radix(&mask, 16).ok())
        .unwrap_or(0);
    if mask >> CAP_SYS_PTRACE & 1 == 1 {
        return Check::new("CAP_SYS_PTRACE", Level::Ok, "held", "");
    }
    Check::new(
        "CAP_SYS_PTRACE",
        Level::Warn,
        "not held (EVENT_FORK needs it)",
        GRANT,
    )
}

fn seccomp() -> Check {
    let (level, found) = match status_field("Seccomp").as_deref() {
        Some("0") => (Level::Ok, "no filter".to_owned()),
        Some("2") => (either_way(), "a filter is in force".to_owned()),
        other => (Level::Warn, format!("mode {}", other.unwrap_or("unknown"))),
    };
    Check::new(
        "seccomp",
        level,
        found,
        "docker run --security-opt seccomp=unconfined",
    )
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
