//! In a container as users get it: podman's default seccomp profile, which refuses userfaultfd,
//! no privilege, and a limit of memory that the kernel holds.
//!
//! The root file system is the host's own, shown through an overlay: no image is fetched.

mod memory;
mod support;

use memory::compiled;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::{Output, finish, tempdir};

/// What the program needs, MiB.
const NEEDS: &str = "200";
/// What the container may have; past it the kernel kills.
const LIMIT: &str = "120m";
/// What zfolio lets the program have of that.
const HIGH: &str = "70M";
/// How a container ends of which a process was killed by signal 9.
const KILLED: i32 = 128 + 9;

/// `podman run`, with the files of `shown` at their own place.
fn container(user: &str, shown: &Path) -> Command {
    let mut command = Command::new("podman");
    command.args(["--runtime", "runc", "--cgroup-manager", "cgroupfs", "run"]);
    command.args(["--rm", "--network=none", "--user", user, "--workdir", "/"]);
    command.args(["--memory", LIMIT, "--memory-swap", LIMIT]);
    // (Its default asks for more than some hosts have.)
    command.args(["--ulimit", "nofile=1024:1024"]);
    command.args(["--ulimit", "nproc=4096:4096"]);
    let mut volume = shown.as_os_str().to_owned();
    volume.push(":");
    volume.push(shown);
    volume.push(":ro");
    command.arg("--volume").arg(volume);
    let mut library = std::ffi::OsString::from("ZFOLIO_PRELOAD=");
    library.push(shown.join("libzfolio_preload.so"));
    command.arg("--env").arg(library);
    command.args(["--rootfs", "/:O"]);
    command
}

fn is_there(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|done| done.status.success())
}

/// zfolio and the program in a directory that containers can be shown; `None` after saying why
/// there can be none.
fn shown() -> Option<tempfile::TempDir> {
    let z = support::real()?;
    if !rustix::process::geteuid().is_root() {
        support::skip("containers: needs root, to start them");
        return None;
    }
    for needed in ["podman", "runc"] {
        if !is_there(needed) {
            support::skip(&format!("containers: no {needed} here"));
            return None;
        }
    }
    let program = compiled("inthread_filled")?;
    let dir = tempdir();
    for (from, name) in [
        (z.exe(), "zfolio"),
        (z.library(), "libzfolio_preload.so"),
        (&program, "filled"),
    ] {
        fs::copy(from, dir.path().join(name)).expect("a copy");
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("readable");
    let tried = finish(container("0:0", dir.path()).arg("true"), "");
    if !tried.status.success() {
        support::skip(&format!("containers cannot be started: {}", tried.stderr));
        return None;
    }
    Some(dir)
}

/// The program under one of the ways; it must end right.
#[track_caller]
fn manages(dir: &Path, user: &str, way: &str) {
    let mut command = container(user, dir);
    command.arg(dir.join("zfolio"));
    command.args(["run", "--faults", way, "--high", HIGH, "--"]);
    command.arg(dir.join("filled")).arg(NEEDS);
    let output = finish(&mut command, "");
    assert_eq!(output.succeeded().stdout, "right\n", "{}", output.stderr);
    let told = &output.stderr;
    assert!(told.contains("1 managed"), "{told}");
    let expected = if way == "auto" { "" } else { way };
    assert!(told.contains(expected), "{told}");
}

fn doctor(dir: &Path, user: &str) -> Output {
    finish(
        container(user, dir).arg(dir.join("zfolio")).arg("doctor"),
        "",
    )
}

#[test]
fn lives_in_a_limit_in_which_it_is_killed_bare() {
    let Some(shown) = shown() else { return };
    let dir = shown.path();
    for user in ["65534:65534", "0:0"] {
        let bare = finish(container(user, dir).arg(dir.join("filled")).arg(NEEDS), "");
        assert_eq!(bare.status.code(), Some(KILLED), "{}", bare.stderr);
        let told = doctor(dir, user).stdout;
        // The profile refuses userfaultfd; if it did not, this would be another test.
        assert!(!told.contains("--faults in-thread works\n"), "{told}");
        for way in ["guard", "protect"] {
            if told.contains(&format!("--faults {way} works\n")) {
                manages(dir, user, way);
            } else {
                support::skip(&format!("--faults {way} in a container: {told}"));
            }
        }
    }
    // Without being told which.
    manages(dir, "65534:65534", "auto");
}
