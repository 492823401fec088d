//! What `--faults message` needs of the kernel, and what permits it.

use super::check::{Check, GRANT, Level};
use std::fs::OpenOptions;
use std::path::Path;
use zfolio_host::machine::{self, line_of, status_field};
use zfolio_host::uffd_probe;
use zfolio_sys::syscall::Errno;

/// Kernel that brought UFFDIO_MOVE.
const OLDEST: (u32, u32) = (6, 8);
/// Bit of CAP_SYS_PTRACE in CapEff.
const CAP_SYS_PTRACE: u32 = 19;

/// What is tried.
pub(super) fn abilities() -> Vec<Check> {
    let mut checks = vec![kernel(), userfaultfd()];
    checks.extend(features());
    checks.extend([move_page(), pagemap_scan()]);
    checks
}

/// What decides whether this user may.
pub(super) fn permissions() -> [Check; 4] {
    [device(), sysctl(), capability(), seccomp()]
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
