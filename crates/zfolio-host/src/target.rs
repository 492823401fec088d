//! The program to run: where it is, and whether it can be managed at all.
//!
//! Managing means preloading a library, which the loader does only for
//! dynamically linked glibc programs of this architecture that gain no
//! privilege at exec. Everything else is told before anything is started.
//! A script is judged by its interpreter, as the kernel starts that.

use crate::elf::Elf;
use crate::exit::{Failure, Status};
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How deep scripts may be interpreted by scripts; the kernel's limit is 5.
const DEEPEST: usize = 5;
/// How much of a first line the kernel reads, bytes.
const FIRST_LINE: usize = 256;
/// Where execvp(3) looks without PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Finds `command` as execvp(3) would.
///
/// # Errors
/// [`Status::NotFound`], or [`Status::NotExecutable`] when something of that
/// name is there and cannot be executed.
pub fn find(command: &OsStr) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    find_in(command, &path)
}

fn find_in(command: &OsStr, search: &OsStr) -> Result<PathBuf, Failure> {
    let name = Path::new(command).display();
    let not_found = |why: &str, mend: &str| Failure::new(Status::NotFound, &name, why, mend);
    let refused = |why: &str, mend: &str| Failure::new(Status::NotExecutable, &name, why, mend);
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match path.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(refused(
                "permission denied",
                "check the directories' permissions",
            )),
            Err(_) => Err(not_found("no such file", "check the path")),
            Ok(meta) if meta.is_dir() => Err(refused("is a directory", "name a program")),
            Ok(_) if !executable(&path) => Err(refused(
                "not executable",
                "chmod +x it, or name its interpreter",
            )),
            Ok(_) => Ok(path),
        };
    }
    if command.is_empty() {
        return Err(not_found("empty name", "name a program"));
    }
    let mut denied = false;
    for dir in std::env::split_paths(search) {
        let path = if dir.as_os_str().is_empty() {
            Path::new(".").join(command)
        } else {
            dir.join(command)
        };
        if path.is_file() {
            if executable(&path) {
                return Ok(path);
            }
            denied = true;
        }
    }
    Err(if denied {
        refused("found in PATH, but not executable", "chmod +x it")
    } else {
        not_found("not found in PATH", "check the spelling, or give its path")
    })
}

fn executable(path: &Path) -> bool {
    rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Whether the program at `path` can be managed.
///
/// # Errors
/// One of [`Status::Static`], [`Status::Foreign`], [`Status::Privileged`],
/// which `--allow-unmanaged` may overrule; or [`Status::NotExecutable`] and
/// [`Status::NotFound`] for what the kernel would refuse as well.
pub fn check(path: &Path) -> Result<(), Failure> {
    check_at(path, 0)
}

/// Whether `--allow-unmanaged` may overrule a failure.
pub fn may_run_unmanaged(failure: &Failure) -> bool {
    matches!(
        failure.status,
        Status::Static | Status::Foreign | Status::Privileged
    )
}

fn check_at(path: &Path, depth: usize) -> Result<(), Failure> {
    const ANYWAY: &str = "use --allow-unmanaged to run it unmanaged";
    let name = path.display();
    let refused =
        |why: String, mend: &str| Err(Failure::new(Status::NotExecutable, &name, why, mend));
    let file = match File::open(path) {
        Ok(file) => file,
        // Execute permission without read permission: the kernel may run it,
        // and makes it undumpable; nothing to judge it by.
        Err(error) => {
            let why = format!("cannot be read ({error}), so it cannot be checked");
            return Err(Failure::new(Status::Privileged, &name, why, ANYWAY));
        }
    };
    let elf = match Elf::read(&file) {
        Ok(elf) => elf,
        Err(error) => {
            return refused(
                format!("damaged ELF headers ({error})"),
                "rebuild or reinstall it",
            );
        }
    };
    match elf {
        None => {
            let Some(interpreter) = script_interpreter(&file) else {
                return refused(
                    "neither a program nor a script with a #! line".into(),
                    "run it through its interpreter: zfolio run -- sh FILE",
                );
            };
            if depth >= DEEPEST {
                return refused(
                    "scripts interpreted by scripts, too deep".into(),
                    "name the last interpreter",
                );
            }
            let interpreter = match interpreter {
                Interpreter::Path(path) => PathBuf::from(path),
                Interpreter::Search(name) => find(&name)?,
            };
            if !interpreter.exists() {
                let why = format!("its interpreter {} does not exist", interpreter.display());
                return Err(Failure::new(
                    Status::NotFound,
                    &name,
                    why,
                    "install it, or correct the #! line",
                ));
            }
            check_at(&interpreter, depth + 1)
        }
        Some(Elf::Foreign(kind)) => {
            let why = format!("{kind}, and zfolio manages 64-bit x86 programs");
            Err(Failure::new(Status::Foreign, &name, why, ANYWAY))
        }
        Some(Elf::Static | Elf::SharedObject) => Err(Failure::new(
            Status::Static,
            &name,
            "statically linked, so nothing can be preloaded into it",
            format!("link it dynamically, or {ANYWAY}"),
        )),
        Some(Elf::Dynamic(loader)) => {
            if !loader.exists() {
                let why = format!("its loader {} does not exist", loader.display());
                return Err(Failure::new(
                    Status::NotFound,
                    &name,
                    why,
                    "install the C library it was built for",
                ));
            }
            let loader_name = loader.file_name().unwrap_or_default().to_string_lossy();
            if !loader_name.starts_with("ld-linux-x86-64") {
                let why = format!(
                    "built for another C library ({loader_name}); zfolio manages glibc programs"
                );
                return Err(Failure::new(Status::Foreign, &name, why, ANYWAY));
            }
            match privilege(path, &file) {
                Some(kind) => {
                    let why = format!("{kind}, so the loader ignores preloaded libraries");
                    Err(Failure::new(Status::Privileged, &name, why, ANYWAY))
                }
                None => Ok(()),
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Interpreter {
    /// The file the kernel starts.
    Path(OsString),
    /// A name that env(1) looks for in PATH.
    Search(OsString),
}

fn script_interpreter(file: &File) -> Option<Interpreter> {
    let mut line = [0; FIRST_LINE];
    let got = file.read_at(&mut line, 0).ok()?;
    parse_interpreter(&line[..got])
}

/// The program of a `#!` line; through `env [-S] [VAR=VALUE]... NAME`, NAME.
fn parse_interpreter(start: &[u8]) -> Option<Interpreter> {
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let mut words = line
        .split(|byte| *byte == b' ' || *byte == b'\t')
        .filter(|word| !word.is_empty());
    let path = words.next()?;
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    if Path::new(OsStr::from_bytes(path)).file_name() == Some(OsStr::new("env")) {
        // Options other than -S are rare and lead to env itself being judged,
        // which is dynamic where its interpreters are.
        let named = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='));
        if let Some(name) = named {
            return Some(Interpreter::Search(owned(name)));
        }
    }
    Some(Interpreter::Path(owned(path)))
}

/// Why exec would switch the loader to secure mode (AT_SECURE), if it would.
fn privilege(path: &Path, file: &File) -> Option<&'static str> {
    const ST_NOSUID: StatVfsMountFlags = StatVfsMountFlags::NOSUID;
    let ignored =
        no_new_privs() || rustix::fs::fstatvfs(file).is_ok_and(|fs| fs.f_flag.contains(ST_NOSUID));
    if ignored {
        return None;
    }
    let meta = file.metadata().ok()?;
    let uid = rustix::process::getuid().as_raw();
    let gid = rustix::process::getgid().as_raw();
    if let Some(kind) = identity_change(meta.mode(), (meta.uid(), meta.gid()), (uid, gid)) {
        return Some(kind);
    }
    let mut value = [0_u8; 64];
    let has_capabilities =
        rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok();
    // Root gains nothing by them.
    (has_capabilities && uid != 0).then_some("it has file capabilities")
}

/// Whether a file's mode and owner change the ids of who executes it.
fn identity_change(mode: u32, owner: (u32, u32), runner: (u32, u32)) -> Option<&'static str> {
    const SETUID: u32 = 0o4000;
    const SETGID_EXECUTABLE: u32 = 0o2010;
    if mode & SETUID != 0 && owner.0 != runner.0 {
        return Some("it is setuid");
    }
    (mode & SETGID_EXECUTABLE == SETGID_EXECUTABLE && owner.1 != runner.1).then_some("it is setgid")
}

fn no_new_privs() -> bool {
    crate::machine::status_field("NoNewPrivs").as_deref() == Some("1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    fn script(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn status(path: &Path) -> Option<Status> {
        check(path).err().map(|failure| failure.status)
    }

    #[test]
    fn commands_are_found_as_by_execvp() {
        let dir = tempfile::tempdir().unwrap();
        let good = script(dir.path(), "good", "#!/bin/sh\n", 0o755);
        let bad = script(dir.path(), "bad", "#!/bin/sh\n", 0o644);
        let search = dir.path().as_os_str();
        let found = |name: &OsStr| find_in(name, search).map_err(|failure| failure.status);
        assert_eq!(found(OsStr::new("good")), Ok(good.clone()));
        assert_eq!(found(good.as_os_str()), Ok(good));
        assert_eq!(found(OsStr::new("bad")), Err(Status::NotExecutable));
        assert_eq!(found(bad.as_os_str()), Err(Status::NotExecutable));
        assert_eq!(found(search), Err(Status::NotExecutable));
        assert_eq!(found(OsStr::new("absent")), Err(Status::NotFound));
        assert_eq!(found(OsStr::new("/no/such")), Err(Status::NotFound));
        assert_eq!(found(OsStr::new("")), Err(Status::NotFound));
    }

    #[test]
    fn dynamic_programs_and_their_scripts_pass() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(status(Path::new("/proc/self/exe")), None);
        let plain = script(dir.path(), "a", "#! /bin/sh -e\ntrue\n", 0o755);
        let env = script(dir.path(), "b", "#!/usr/bin/env -S sh -e\ntrue\n", 0o755);
        let nested = script(dir.path(), "c", &format!("#!{}\n", plain.display()), 0o755);
        for path in [plain, env, nested] {
            assert_eq!(check(&path), Ok(()), "{}", path.display());
        }
    }

    #[test]
    fn scripts_without_an_interpreter_do_not() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            status(&script(dir.path(), "a", "echo\n", 0o755)),
            Some(Status::NotExecutable)
        );
        assert_eq!(
            status(&script(dir.path(), "b", "#!/no/such\n", 0o755)),
            Some(Status::NotFound)
        );
        assert_eq!(
            status(&script(
                dir.path(),
                "c",
                "#!/usr/bin/env no-such-zf\n",
                0o755
            )),
            Some(Status::NotFound)
        );
        let own = dir.path().join("d");
        let looped = script(dir.path(), "d", &format!("#!{}\n", own.display()), 0o755);
        assert_eq!(status(&looped), Some(Status::NotExecutable));
    }

    #[test]
    fn first_lines_parse() {
        let path = |name: &str| Some(Interpreter::Path(name.into()));
        let search = |name: &str| Some(Interpreter::Search(name.into()));
        assert_eq!(parse_interpreter(b"#!/bin/sh"), path("/bin/sh"));
        assert_eq!(parse_interpreter(b"#! \t/bin/sh -x\nrest"), path("/bin/sh"));
        assert_eq!(
            parse_interpreter(b"#!/usr/bin/env python3\n"),
            search("python3")
        );
        assert_eq!(
            parse_interpreter(b"#!/usr/bin/env -S A=1 python3 -u\n"),
            search("python3")
        );
        assert_eq!(parse_interpreter(b"#!/usr/bin/env\n"), path("/usr/bin/env"));
        assert_eq!(parse_interpreter(b"#!\n"), None);
        assert_eq!(parse_interpreter(b"echo"), None);
    }

    #[test]
    fn identities_change_only_when_they_differ() {
        assert_eq!(
            identity_change(0o4755, (0, 0), (1000, 1000)),
            Some("it is setuid")
        );
        assert_eq!(identity_change(0o4755, (1000, 0), (1000, 1000)), None);
        assert_eq!(
            identity_change(0o2755, (0, 42), (1000, 1000)),
            Some("it is setgid")
        );
        assert_eq!(identity_change(0o2745, (0, 42), (1000, 1000)), None);
        assert_eq!(identity_change(0o755, (0, 0), (1000, 1000)), None);
    }

    #[test]
    fn static_programs_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let source = script(dir.path(), "s.c", "int main(void){return 0;}\n", 0o644);
        for (name, flag) in [("static", "-static"), ("static-pie", "-static-pie")] {
            let out = dir.path().join(name);
            let built = Command::new("cc")
                .arg(flag)
                .arg("-o")
                .args([&out, &source])
                .output();
            if !built.is_ok_and(|done| done.status.success()) {
                eprintln!("SKIPPED: {flag}: no cc that links it on this machine");
                continue;
            }
            assert_eq!(status(&out), Some(Status::Static), "{flag}");
        }
    }
}
