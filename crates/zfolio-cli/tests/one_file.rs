//! The command with its preload library inside: one file, copied to where there is no library.
//!
//! That command is the one cargo makes for these tests. The gate has it made with the library inside
//! (`ZFOLIO_EMBED`); elsewhere these say that they did not run.

#[path = "support/nobody.rs"]
mod nobody;
mod support;

use nobody::Nobody;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The command's file. (Read before `support` builds zfolio as other tests have it, in the same place
/// where these are built as a release.)
static COMMAND: LazyLock<Vec<u8>> =
    LazyLock::new(|| fs::read(env!("CARGO_BIN_EXE_zfolio")).unwrap());

/// The command alone in a directory, for a user who has another one as home.
struct Alone {
    user: Nobody,
    exe: PathBuf,
    home: PathBuf,
}

impl Alone {
    fn new() -> Option<Self> {
        let dir = support::tempdir();
        let exe = dir.path().join("zfolio");
        support::executable(&exe, &COMMAND);
        let version = Command::new(&exe).arg("--version").output().unwrap();
        if !String::from_utf8_lossy(&version.stdout).contains("preload library: inside") {
            assert!(
                std::env::var_os("ZFOLIO_EMBED").is_none_or(|value| value == "none"),
                "{version:?}"
            );
            support::skip("no library inside (ZFOLIO_EMBED)");
            return None;
        }
        support::managed()?;
        let user = Nobody::new()?;
        let home = user.writable("home");
        let made = user.command("mkdir").arg(&home).status().unwrap();
        assert!(made.success());
        let bin = user.path("bin");
        fs::create_dir(&bin).unwrap();
        let exe = bin.join("zfolio");
        support::executable(&exe, &COMMAND);
        // (The directory that both are in is root's, others cannot write to it.)
        fs::set_permissions(user.path("writable"), fs::Permissions::from_mode(0o1777)).unwrap();
        Some(Self { user, exe, home })
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.user.command(program);
        command.env_remove("ZFOLIO_PRELOAD").env("HOME", &self.home);
        for name in ["XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"] {
            command.env_remove(name);
        }
        command
    }

    /// A program that needs more than it is given, and checks what it reads.
    fn run(&self) -> Output {
        let script = "b = [bytes([i % 251]) * 65536 for i in range(1024)]; \
                      assert all(x == bytes([i % 251]) * 65536 for i, x in enumerate(b)); print('right')";
        let mut command = self.command(&self.exe);
        command.args(["run", "--high", "40M", "--", "python3", "-c", script]);
        command.output().unwrap()
    }

    #[track_caller]
    fn runs_managed(&self) {
        let output = self.run();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && output.stdout == b"right\n",
            "{output:?}"
        );
        assert!(told.contains("1 process, 1 managed"), "{told}");
    }

    /// What doctor says of the library.
    fn doctor(&self) -> String {
        let output = self.command(&self.exe).arg("doctor").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines();
        let line = lines.find(|line| line.contains("preload library"));
        line.unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    /// The library that was written.
    fn written(&self) -> PathBuf {
        let dir = self.home.join(".cache/zfolio");
        let entries: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries[0].join("libzfolio_preload.so")
    }
}

#[test]
fn the_library_is_written_and_used() {
    let Some(alone) = Alone::new() else { return };
    alone.runs_managed();
    let library = alone.written();
    let of = fs::metadata(&library).unwrap();
    assert_eq!((of.uid(), of.mode() & 0o7777), (65_534, 0o644));
    let bytes = fs::read(&library).unwrap();
    assert!(
        alone.doctor().contains("which has it inside"),
        "{}",
        alone.doctor()
    );
    alone.runs_managed();
    assert_eq!(
        fs::metadata(&library).unwrap().ino(),
        of.ino(),
        "written again"
    );
    // What is not it is not loaded.
    fs::write(&library, &bytes[..bytes.len() - 1]).unwrap();
    alone.runs_managed();
    assert_eq!(fs::read(&library).unwrap(), bytes);
}

#[test]
fn an_installed_library_of_the_same_build_is_used_first_and_another_is_not() {
    let Some(alone) = Alone::new() else { return };
    let lib = alone.user.path("lib/zfolio");
    fs::create_dir_all(&lib).unwrap();
    let installed = lib.join("libzfolio_preload.so");
    alone.runs_managed();
    fs::copy(alone.written(), &installed).unwrap();
    fs::remove_dir_all(alone.home.join(".cache")).unwrap();
    alone.runs_managed();
    assert!(
        alone.doctor().contains("installed with zfolio"),
        "{}",
        alone.doctor()
    );
    assert!(!alone.home.join(".cache").exists(), "written for nothing");

    // The same library, that says it is of another version.
    let mut bytes = fs::read(&installed).unwrap();
    let begin = b"zfolio preload library: ";
    let at = bytes
        .windows(begin.len())
        .position(|part| part == begin)
        .unwrap();
    bytes[at + begin.len()] = b'7';
    fs::write(&installed, &bytes).unwrap();
    alone.runs_managed();
    let told = alone.doctor();
    assert!(
        told.contains("is of another build") && told.contains("inside"),
        "{told}"
    );
    assert!(alone.written().exists());

    let mut command = alone.command(&alone.exe);
    command.env("ZFOLIO_PRELOAD", &installed);
    let output = command.args(["run", "--", "true"]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(72), "{told}");
    assert!(
        told.contains("of another version (7.") && told.lines().count() == 1,
        "{told}"
    );
}

/// `zfolio doctor` of that user with file systems of these options over its home and over the
/// directories for temporary files, in a mount namespace of its own.
fn doctor_under(alone: &Alone, home: &str, temporary: &str) -> Option<String> {
    let script = format!(
        "set -e; mount -t tmpfs -o mode=755 none /mnt; mkdir /mnt/home; cp {} /mnt/zfolio
         mount -t tmpfs -o {home},mode=1777 none /mnt/home
         for at in /tmp /var/tmp; do mount -t tmpfs -o {temporary},mode=1777 none $at; done
         unset ZFOLIO_PRELOAD XDG_CACHE_HOME XDG_RUNTIME_DIR TMPDIR; cd /; echo mounted; export HOME=/mnt/home
         setpriv --reuid 65534 --regid 65534 --clear-groups /mnt/zfolio doctor || true",
        alone.exe.display()
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    if !text.starts_with("mounted") {
        support::skip("file systems cannot be mounted");
        return None;
    }
    let mut lines = text.lines();
    let line = lines.find(|line| line.contains("preload library"));
    Some(line.unwrap_or_else(|| panic!("{text}")).to_owned())
}

#[test]
fn where_nothing_may_be_run_or_written_the_next_place_is_taken() {
    let Some(alone) = Alone::new() else { return };
    for (refused, words) in [
        ("noexec", "mounted noexec"),
        ("ro", "Read-only file system"),
    ] {
        let Some(told) = doctor_under(&alone, refused, "exec") else {
            return;
        };
        assert!(
            told.starts_with("ok") && told.contains(" /tmp/zfolio-65534/"),
            "{told}"
        );
        let told = doctor_under(&alone, refused, refused).unwrap();
        assert!(
            told.starts_with("FAIL") && told.contains("TMPDIR"),
            "{told}"
        );
        assert_eq!(told.matches(words).count(), 3, "{told}");
    }
}
