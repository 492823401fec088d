//! A file behind the pool, and a store behind that.

use super::place::{Place, url};
use super::programs;
use crate::servers::Server;
use crate::support::{self, Zfolio};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tempfile::TempDir;

/// Pages that a file of [`behind`] holds, about: they are not compressed here.
const IN_FILE: u64 = 4 << 8;

/// A directory that everybody may write to.
fn directory() -> TempDir {
    let dir = support::tempdir();
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(dir.path(), open).expect("a directory of ours");
    dir
}

/// A file of 4 MiB, and the store.
fn behind(dir: &TempDir, store: &str) -> String {
    format!("file:{},size=4M {store}", dir.path().display())
}

/// What does not go into the file goes to the store, and all of it comes back.
pub(crate) fn in_order(of: &Place<'_>) {
    let Some(server) = Server::start(&[]) else {
        return;
    };
    let (servers, dir) = ([server], directory());
    let backing = behind(&dir, &url(&servers, ""));
    let options = ["--compressor", "none"];
    let begun = of.begin_with(&["stepped", "40"], &backing, &options);
    let Some(mut session) = begun else { return };
    session.step("fill 1");
    session.step("check");
    assert!(servers[0].keys() > 100, "{}: the file is full", of.way);
    session.step("fill 2");
    session.step("random 4000");
    session.step("check");
    let ended = session.ends();
    ended.succeeded();
    assert_eq!(ended.stats["config"]["faults"], of.way);
    let counter = |name: &str| ended.counter(name);
    for (all, store) in [("pswpout", "pswpout_store"), ("pswpin", "pswpin_store")] {
        let near = counter(all) - counter(store);
        assert!(near >= IN_FILE * 3 / 4, "{}: {}", of.way, ended.stats);
        assert!(counter(store) > 2000, "{}: {}", of.way, ended.stats);
    }
    of.had_all_taken(&ended);
    let both = &ended.stats["config"]["backing"]["in_order"];
    assert_eq!(both[0]["size_bytes"], 4 << 20, "{both}");
    assert_eq!(both[1]["store"], url(&servers, ""), "{both}");
    for words in [" to the store)", " from the store)", "zfolio: store: "] {
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
    assert_eq!(
        servers[0].keys(),
        0,
        "{}: a run deletes what it had",
        of.way
    );
    let left = fs::read_dir(dir.path()).expect("it is there").count();
    assert_eq!(left, 0, "{}: files", of.way);
}

/// A file system that is unmounted when it goes.
struct Mounted(TempDir);

impl Mounted {
    /// One of 2 MiB.
    fn new() -> Option<Self> {
        let dir = directory();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,mode=777", "zfolio-test"])
            .arg(dir.path())
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            support::skip("a file system cannot be mounted");
            return None;
        }
        Some(Self(dir))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// Where the disk is full before the file is, pages go to the store: nothing is lost.
pub(crate) fn disk_is_full(of: &Place<'_>) {
    let (Some(server), Some(disk)) = (Server::start(&[]), Mounted::new()) else {
        return;
    };
    let servers = [server];
    let backing = behind(&disk.0, &url(&servers, ""));
    let options = ["--compressor", "none"];
    let begun = of.begin_with(&["stepped", "24"], &backing, &options);
    let Some(mut session) = begun else { return };
    for step in ["fill 1", "check", "fill 2", "check"] {
        session.step(step);
    }
    let ended = session.ends();
    ended.succeeded();
    assert!(ended.counter("backing_write_fail") > 0, "{}", ended.stats);
    assert!(ended.counter("pswpout_store") > 2000, "{}", ended.stats);
    assert_eq!(ended.counter("backing_read_fail"), 0, "{}", of.way);
}

/// A fork has what is in the file, and what is in the store.
pub(crate) fn forks(of: &Place<'_>) {
    let dir = directory();
    let before = format!("file:{},size=4M ", dir.path().display());
    programs::forks_behind(of, &before, &[]);
}

pub(crate) fn refused(z: &Zfolio) {
    let dir = directory();
    let file = format!("file:{},size=4M", dir.path().display());
    let store = "redis://127.0.0.1:1";
    for (all, words) in [
        (&[store, &file][..], "a store stands before a file"),
        (&[&file, &file], "a file twice"),
        (&[&file, store, store], "more than two"),
    ] {
        let options = all.iter().flat_map(|of| ["--backing", of]);
        let options: Vec<&str> = ["--high", "64M"].into_iter().chain(options).collect();
        let output = z.run_with(&options, &["true"], "");
        assert_eq!(output.status.code(), Some(2), "{}", output.stderr);
        assert!(output.stderr.contains(words), "{}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        let mut doctor = z.command(["doctor"]);
        let doctor = doctor.args(&options[2..]).output().expect("it runs");
        let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(told.contains(words), "{told}");
    }
    let mut doctor = z.command(["doctor", "--backing", &file, "--backing", store]);
    let doctor = doctor.output().expect("it runs");
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    for words in [
        "4.0 MiB at most in ",
        "then to the store",
        "redis://127.0.0.1:1",
    ] {
        assert!(told.contains(words), "{told}");
    }
}
