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
/// The profile that podman's package has.
const PODMAN_PROFILE: &str = "/usr/share/containers/seccomp.json";
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
        support::copy_executable(from, &dir.path().join(name));
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

/// `zfolio doctor --seccomp-profile` lets faults be served in-thread, and a userfaultfd of the kernel's
/// faults stays refused.
#[test]
fn a_profile_with_user_faults_lets_a_user_have_in_thread() {
    let Some(shown) = shown() else { return };
    let dir = shown.path();
    if !Path::new(PODMAN_PROFILE).exists() {
        return support::skip(&format!("a seccomp profile: no {PODMAN_PROFILE}"));
    }
    let made = finish(
        Command::new(dir.join("zfolio")).args(["doctor", "--seccomp-profile"]),
        "",
    );
    let file = dir.join("zfolio.json");
    fs::write(&file, &made.succeeded().stdout).expect("the profile");
    let mut option = std::ffi::OsString::from("seccomp=");
    option.push(&file);
    let by_profile = |arguments: &[&std::ffi::OsStr]| {
        let mut command = container("65534:65534", dir);
        // Options stand before the root file system.
        let mut words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let at = words
            .iter()
            .position(|word| word == "--rootfs")
            .expect("it");
        words.splice(at..at, ["--security-opt".into(), option.clone()]);
        command = Command::new("podman");
        finish(command.args(words).args(arguments), "")
    };
    let zfolio = dir.join("zfolio");
    let filled = dir.join("filled");
    let done = by_profile(&[
        zfolio.as_ref(),
        "run".as_ref(),
        "--high".as_ref(),
        HIGH.as_ref(),
        "--".as_ref(),
        filled.as_ref(),
        NEEDS.as_ref(),
    ]);
    assert_eq!(done.succeeded().stdout, "right\n", "{}", done.stderr);
    assert!(done.stderr.contains("in-thread"), "{}", done.stderr);
    // Without the flag (0x80000 is O_CLOEXEC) the profile refuses, by what number the base
    // says; with it the kernel gives one.
    for (flags, expected) in [(0x80000, "refused"), (0x80001, "given")] {
        let script = format!(
            "import ctypes; c = ctypes.CDLL(None, use_errno=True); \
             print('given' if c.syscall(323, {flags}) >= 0 else \
             'refused' if ctypes.get_errno() in (1, 38) else ctypes.get_errno())"
        );
        let told = by_profile(&["python3".as_ref(), "-c".as_ref(), script.as_ref()]);
        assert_eq!(told.succeeded().stdout, format!("{expected}\n"));
    }
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
        for words in [
            "Podman container\n",
            "120 MiB: zfolio run keeps under it",
            "--faults in-thread would need: zfolio doctor --seccomp-profile >zfolio.json",
        ] {
            assert!(told.contains(words), "{words}: {told}");
        }
        assert!(told.ends_with("\nNext: zfolio run -- CMD\n"), "{told}");
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
