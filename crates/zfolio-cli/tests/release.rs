//! `./release`: what it refuses, and what it does, in a small checkout of its own whose packages
//! are stand-ins.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use support::{Output, copy_executable, finish, script, tempdir};

/// A command in `dir`, as somebody who may commit.
fn run(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(dir);
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "somebody");
        command.env(format!("GIT_{who}_EMAIL"), "somebody@zfolio.invalid");
    }
    finish(&mut command, "")
}

#[track_caller]
fn refused(dir: &Path, version: &str, words: &str) {
    let output = run(dir, &["./release", version]);
    assert!(!output.status.success(), "{}", output.stdout);
    assert!(output.stderr.contains(words), "{}", output.stderr);
    assert!(!dir.join("target/packages").exists(), "something was built");
}

#[test]
fn a_release_is_checked_built_and_tried_and_not_tagged() {
    let dir = tempdir();
    let dir = dir.path();
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, text).expect("written");
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    copy_executable(&root.join("release"), &dir.join("release"));
    let manifest = "[package]\nname = \"small\"\nversion = \"1.2.0\"\nedition = \"2024\"\n";
    write("Cargo.toml", manifest);
    write("src/lib.rs", "");
    write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n");
    write(".gitignore", "/target\n");
    fs::create_dir(dir.join("packaging")).expect("made");
    let build = "#!/bin/sh\nmkdir -p target/packages\necho 'abc  small.tar.gz' >target/packages/SHA256SUMS\n";
    script(&dir.join("packaging"), "build", build);
    let test = "#!/bin/sh\ntest -e target/packages/SHA256SUMS && echo tried >target/tried\n";
    script(&dir.join("packaging"), "test", test);
    run(dir, &["cargo", "generate-lockfile", "--offline"]).succeeded();
    run(dir, &["git", "init", "--quiet"]).succeeded();
    let commit = || {
        run(dir, &["git", "add", "--all"]).succeeded();
        run(dir, &["git", "commit", "--quiet", "--message", "small"]).succeeded();
    };
    refused(dir, "1.2", "1.2 is no version");
    refused(dir, "1.2.0", "the checkout differs from its commit");
    commit();
    refused(dir, "1.3.0", "Cargo.toml has version 1.2.0");
    refused(dir, "1.2.0", "CHANGELOG.md has no heading ## [1.2.0]");
    write("CHANGELOG.md", "# Changelog\n\n## [1.2.0] - 2026-11-26\n");
    write("other/Cargo.toml", &manifest.replace("1.2.0", "1.1.0"));
    commit();
    refused(dir, "1.2.0", "other/Cargo.toml has version 1.1.0");
    fs::remove_dir_all(dir.join("other")).expect("removed");
    commit();
    let output = run(dir, &["./release", "1.2.0"]);
    let told = &output.succeeded().stdout;
    for part in [
        "abc  small.tar.gz\n",
        "git tag --sign v1.2.0 ",
        "zfolio 1.2.0 of commit ",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert!(dir.join("target/tried").exists());
    assert_eq!(run(dir, &["git", "tag"]).succeeded().stdout, "");
    // What does not pass its test is no release.
    script(&dir.join("packaging"), "test", "#!/bin/sh\nexit 3\n");
    commit();
    let output = run(dir, &["./release", "1.2.0"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(!output.stdout.contains("git tag"), "{}", output.stdout);
}
