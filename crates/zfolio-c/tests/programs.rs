//! The C programs, compiled as C11 and as C++17 against an installed library,
//! and run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Where this test's build of the library is.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    // Beside the tests (deps), or one level up.
    let places = own.ancestors().skip(1).take(2);
    let mut found = places.map(|dir| dir.join("libzfolio_c.so"));
    found
        .find(|path| path.exists())
        .expect("libzfolio_c.so is built with its tests")
}

/// An installation of it.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let _ = fs::remove_dir_all(&prefix);
        let installed = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("install"))
            .arg(&prefix)
            .env("LIBRARY", library())
            .env_remove("DESTDIR")
            .output()
            .unwrap();
        assert!(installed.status.success(), "{installed:?}");
        prefix
    })
}

/// Compiles one program one way; `None` where there is no such compiler.
fn compiled(name: &str, compiler: &str, options: &[&str]) -> Option<PathBuf> {
    if Command::new(compiler).arg("--version").output().is_err() {
        eprintln!("SKIPPED: {name}: there is no {compiler}");
        return None;
    }
    let prefix = prefix();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{compiler}"));
    let built = Command::new(compiler)
        .args(options)
        .args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .arg("-I")
        .arg(prefix.join("include"))
        .arg(source.join(format!("{name}.c")))
        .arg("-o")
        .arg(&program)
        .args(["-x", "none"])
        .arg("-L")
        .arg(prefix.join("lib"))
        .arg("-lzfolio")
        .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()))
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{name} with {compiler}: {why}");
    Some(program)
}

fn run(name: &str) {
    let c: (&str, &[&str]) = ("gcc", &["-std=c11", "-x", "c"]);
    let cxx: (&str, &[&str]) = ("g++", &["-std=c++17", "-x", "c++"]);
    for (compiler, options) in [c, cxx] {
        let Some(program) = compiled(name, compiler, options) else {
            continue;
        };
        // As regions are served here, and as where userfaultfd is refused.
        for regions in ["", "protect"] {
            let mut command = Command::new(&program);
            let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../zfolio/tests/options.txt");
            command.arg(cases);
            let ran = command.env("ZFOLIO_REGIONS", regions).output();
            let Output { status, stderr, .. } = ran.unwrap();
            let told = String::from_utf8_lossy(&stderr);
            assert!(
                status.success(),
                "{name} ({compiler}, {regions}): {status}\n{told}"
            );
        }
    }
}

#[test]
fn contents() {
    run("contents");
}

#[test]
fn errors() {
    run("errors");
}

#[test]
fn syscalls() {
    run("syscalls");
}

#[test]
fn direct() {
    run("direct");
}

#[test]
fn options() {
    run("options");
}

#[test]
fn signals() {
    run("signals");
}

#[test]
fn what_is_installed_names_itself() {
    let lib = prefix().join("lib");
    let dynamic = Command::new("readelf")
        .arg("-d")
        .arg(lib.join("libzfolio.so"))
        .output();
    let Ok(dynamic) = dynamic else {
        eprintln!("SKIPPED: there is no readelf");
        return;
    };
    let dynamic = String::from_utf8_lossy(&dynamic.stdout).into_owned();
    assert!(dynamic.contains("soname: [libzfolio.so.0]"), "{dynamic}");
    let names = Command::new("readelf")
        .args(["-W", "--dyn-syms"])
        .arg(lib.join("libzfolio.so"))
        .output()
        .unwrap();
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    let header = fs::read_to_string(prefix().join("include/zfolio.h")).unwrap();
    let mut declared = 0;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, _) in header.match_indices("zfolio_") {
        let rest = &header[at..];
        let name = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        let starts = !header[..at].ends_with(is_word);
        if starts && rest[name.len()..].starts_with('(') && !rest[name.len()..].starts_with("()") {
            declared += 1;
            let exported = names
                .lines()
                .any(|line| line.ends_with(&format!(" {name}")));
            assert!(exported, "{name} is in the header and not in the library");
        }
    }
    assert!(declared >= 15, "{declared} functions found in the header");
    let pc = fs::read_to_string(lib.join("pkgconfig/zfolio.pc")).unwrap();
    assert!(
        pc.contains(&format!("prefix={}", prefix().display())),
        "{pc}"
    );
    assert!(!pc.contains('@'), "{pc}");
}
