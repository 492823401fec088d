//! What the command knows of its own build: the preload library, where it is
//! to be inside the command, and the commit.
//!
//! `ZFOLIO_EMBED` says which library goes inside:
//!
//! | value | library |
//! |---|---|
//! | `build`, or unset | one that is built here, in a target directory of its own |
//! | `none` | none: one that lies beside the command is used |
//! | a path | that file |
//!
//! Cargo reads `.cargo/config.toml` of the directory it is called in, but for
//! `cargo install --path` that of the package: so builds in a checkout have
//! `none`, and what is installed has `build`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const EMBED: &str = "ZFOLIO_EMBED";
const LIBRARY: &str = "libzfolio_preload.so";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={EMBED}");
    let out = PathBuf::from(variable("OUT_DIR"));
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let library = match env::var(EMBED).as_deref() {
        Ok("none") => None,
        Err(_) | Ok("build" | "") => Some(build(&package, &out)),
        Ok(path) => {
            println!("cargo:rerun-if-changed={path}");
            Some(PathBuf::from(path))
        }
    };
    let code = match library {
        None => "pub(crate) const INSIDE: Option<Inside> = None;\n".to_owned(),
        Some(path) => {
            let bytes = fs::read(&path)
                .unwrap_or_else(|error| panic!("{EMBED}: {}: {error}", path.display()));
            fs::write(out.join(LIBRARY), &bytes).expect("writing into OUT_DIR");
            format!(
                "pub(crate) const INSIDE: Option<Inside> = Some(Inside {{\n    \
                 bytes: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{LIBRARY}\")),\n    \
                 hash: \"{:032x}\",\n}});\n",
                hash(&bytes)
            )
        }
    };
    fs::write(out.join("inside.rs"), code).expect("writing into OUT_DIR");
    if let Some(commit) = commit(&package) {
        println!("cargo:rustc-env=ZFOLIO_COMMIT={commit}");
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// Builds the preload library as a release and without symbols, whatever the
/// command is built as, and says where it is.
fn build(package: &Path, out: &Path) -> PathBuf {
    let manifest = package.with_file_name("zfolio-preload").join("Cargo.toml");
    let (host, target) = (variable("HOST"), variable("TARGET"));
    let dir = out.join("preload");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--manifest-path",
        ])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&dir)
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        // What looks at the command (clippy) is not to look at this.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET");
    let mut built = dir.clone();
    if target != host {
        cargo.args(["--target", &target]);
        built.push(&target);
    }
    let status = cargo.status().expect("cargo runs");
    assert!(
        status.success(),
        "{LIBRARY} does not build; {EMBED}=none makes a command without it"
    );
    built.push("release");
    watch(&built.join(Path::new(LIBRARY).with_extension("d")));
    built.join(LIBRARY)
}

/// Has cargo build again when a file changes that the library was made of:
/// those after the colon of its list of dependencies.
fn watch(list: &Path) {
    let text = fs::read_to_string(list).expect("cargo writes what the library depends on");
    let files = text.split_once(": ").map_or("", |(_, files)| files);
    // (A blank in a name is written with a backslash.)
    for file in files.trim().replace("\\ ", "\0").split(' ') {
        println!("cargo:rerun-if-changed={}", file.replace('\0', " "));
    }
}

/// FNV-1a, 128 bits: names a content; what is used is compared byte by byte.
fn hash(bytes: &[u8]) -> u128 {
    let begin = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes.iter().fold(begin, |hash: u128, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

/// The commit this is built from, and whether files differ from it; none where
/// this is no checkout of its own.
fn commit(package: &Path) -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(package)
            .args(args)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?;
        Some(text.trim().to_owned())
    };
    let root = package.ancestors().nth(2)?.canonicalize().ok()?;
    if PathBuf::from(git(&["rev-parse", "--show-toplevel"])?)
        .canonicalize()
        .ok()?
        != root
    {
        return None;
    }
    // What git writes at every commit and checkout.
    for name in ["HEAD", "logs/HEAD"] {
        let path = package.join(git(&["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    let described = [
        "describe",
        "--always",
        "--exclude=*",
        "--abbrev=12",
        "--dirty=-modified",
    ];
    git(&described).filter(|commit| !commit.is_empty())
}
