//! Options of `zfolio run` in variables and files, with the command as users call it.

mod support;

use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::{Output, Zfolio, finish};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(path, text).expect("written");
    fs::set_permissions(path, Permissions::from_mode(0o644)).expect("set");
}

/// `zfolio WORDS` in `dir`, whose `home` is the user's; variables are as given.
fn command(z: &Zfolio, dir: &Path, words: &[&str]) -> Command {
    let mut command = z.command(words);
    command.current_dir(dir).env("HOME", dir.join("home"));
    for name in ["ZFOLIO_CONFIG", "ZFOLIO_CONTROL", "XDG_CONFIG_HOME"] {
        command.env_remove(name);
    }
    command
}

fn config(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("statistics");
    let stats: Value = serde_json::from_str(&text).expect("JSON");
    stats["config"].clone()
}

/// The line of an option, without the blanks.
#[track_caller]
fn line(output: &Output, option: &str) -> String {
    let mut lines = output.succeeded().stdout.lines();
    let line = lines.find(|line| line.split(' ').next() == Some(option));
    let line = line.unwrap_or_else(|| panic!("no {option} in {}", output.stdout));
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_holds_is_printed_with_where_it_is_from() {
    let z = support::zfolio();
    let dir = support::tempdir();
    let dir = dir.path();
    let printed = |words: &[&str], variables: &[(&str, &str)]| {
        let words = [&["run", "--print-config"], words].concat();
        finish(command(z, dir, &words).envs(variables.iter().copied()), "")
    };
    let bare = printed(&[], &[]);
    assert!(
        line(&bare, "high").contains(" default: "),
        "{}",
        bare.stdout
    );
    assert_eq!(line(&bare, "folio"), "folio 64K default");
    assert_eq!(line(&bare, "quiet"), "quiet false default");
    write(
        &dir.join("home/.config/zfolio/zfolio.toml"),
        "high = '1G'\ntier = 'auto'\n",
    );
    write(&dir.join("zfolio.toml"), "\nhigh = '2G'\n");
    let all = printed(&["--tier", "off", "--", "job"], &[("ZFOLIO_MAX", "3G")]);
    assert_eq!(line(&all, "high"), "high 2G zfolio.toml:2");
    assert_eq!(line(&all, "max"), "max 3G ZFOLIO_MAX");
    assert_eq!(line(&all, "tier"), "tier off command line");
    let elsewhere = dir.join("home/.config");
    let config_home = elsewhere.to_str().expect("a path");
    let mut other = command(z, &elsewhere, &["run", "--print-config"]);
    let other = finish(other.env("XDG_CONFIG_HOME", config_home), "");
    let place = format!("high 1G {config_home}/zfolio/zfolio.toml:1");
    assert_eq!(line(&other, "high"), place);
    // A wrong file is told of, with the place; nothing is run.
    write(&dir.join("zfolio.toml"), "hihg = '2G'\n");
    let wrong = finish(&mut command(z, dir, &["run", "--", "echo", "ran"]), "");
    assert_eq!((wrong.status.code(), &*wrong.stdout), (Some(2), ""));
    let told = "zfolio: zfolio.toml:1: no option `hihg`, but there is `high`; ";
    assert!(wrong.stderr.starts_with(told), "{}", wrong.stderr);
    // One that is not believed is passed over, and the program runs.
    fs::set_permissions(dir.join("zfolio.toml"), Permissions::from_mode(0o666)).expect("set");
    let words = ["run", "--allow-unmanaged", "--", "echo", "ran"];
    let passed = finish(&mut command(z, dir, &words), "");
    assert_eq!(passed.succeeded().stdout, "ran\n");
    let told = "zfolio: zfolio.toml: not read: others may write to it: chmod go-w zfolio.toml\n";
    assert!(passed.stderr.starts_with(told), "{}", passed.stderr);
}

#[test]
fn a_run_within_a_run_has_what_its_command_line_says() {
    let Some(z) = support::real() else { return };
    let dir = support::tempdir();
    let dir = dir.path();
    write(
        &dir.join("zfolio.toml"),
        "compressor = 'zstd'\nhigh = '96M'\n",
    );
    let exe = z.exe().to_str().expect("a path");
    let [outer, inner] = ["outer.json", "inner.json"].map(|name| dir.join(name));
    let stats = inner.to_str().expect("a path");
    let nested = [
        exe, "run", "--quiet", "--high", "32M", "--stats", stats, "--", "true",
    ];
    let mut words = vec!["run", "--quiet", "--"];
    words.extend(nested);
    let mut command = command(z, dir, &words);
    command
        .env("ZFOLIO_FOLIO", "16K")
        .env("ZFOLIO_STATS", &outer);
    let output = finish(&mut command, "");
    if output.stderr.contains("--folio") {
        support::skip(&output.stderr);
        return;
    }
    output.succeeded();
    let (outer, inner) = (config(&outer), config(&inner));
    assert_eq!(outer["compressor"], "zstd");
    assert_eq!(outer["high_bytes"], 96 << 20);
    assert_eq!(outer["folio_bytes"], 16 << 10);
    assert_eq!(inner["compressor"], "auto");
    assert_eq!(inner["high_bytes"], 32 << 20);
    assert_eq!(inner["folio_bytes"], 64 << 10);
}
