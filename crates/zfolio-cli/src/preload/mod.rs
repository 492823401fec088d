//! Finding libzfolio_preload.so.
//!
//! | module | concept |
//! |---|---|
//! | `names` | what the library is called, and which paths `LD_PRELOAD` can have |
//! | `unpack` | writing out the one inside the command to where programs can load it |

mod names;
mod unpack;

pub(crate) use names::ENV_PRELOAD;

use crate::own;
use names::{LIBRARY, can_be_listed};

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zfolio_host::elf::Elf;
use zfolio_host::exit::{Failure, Status};

/// The loader's variable.
pub(crate) const ENV_LD_PRELOAD: &str = "LD_PRELOAD";
/// Options of the address sanitizer's runtime.
pub(crate) const ENV_ASAN: &str = "ASAN_OPTIONS";

/// The library that a run uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Library {
    /// Its absolute path.
    pub(crate) path: PathBuf,
    /// Where it is from.
    pub(crate) from: From,
    /// Libraries that were found first and are of another build.
    pub(crate) passed_over: Vec<PathBuf>,
}

/// Where a library is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
    /// [`ENV_PRELOAD`].
    Named,
    /// Installed with the command.
    Installed,
    /// Out of the command, which wrote it there.
    Inside,
}

impl From {
    /// As `zfolio doctor` says it.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Named => "named by ZFOLIO_PRELOAD",
            Self::Installed => "installed with zfolio",
            Self::Inside => "written out by zfolio, which has it inside",
        }
    }
}

/// The library to use: the one that is named; else one that is installed and of the
/// same build as this command; else the one inside this command, written out.
///
/// # Errors
/// [`Status::Preload`] when it is nowhere, is not a library for this machine, is of
/// another build, or has a path `LD_PRELOAD` cannot express.
pub(crate) fn find() -> Result<Library, Failure> {
    let named = std::env::var_os(ENV_PRELOAD).filter(|path| !path.is_empty());
    let candidates = match named {
        Some(path) => {
            let path = Path::new(&path)
                .canonicalize()
                .map_err(|_| not_found(&[PathBuf::from(&path)]))?;
            check(&path)?;
            return Ok(Library {
                path,
                from: From::Named,
                passed_over: Vec::new(),
            });
        }
        None => places(),
    };
    let mut installed = candidates
        .iter()
        .filter_map(|path| path.canonicalize().ok());
    let Some(inside) = own::INSIDE else {
        let path = installed.next().ok_or_else(|| not_found(&candidates))?;
        check(&path)?;
        return Ok(Library {
            path,
            from: From::Installed,
            passed_over: Vec::new(),
        });
    };
    let mut passed_over = Vec::new();
    for path in installed {
        if inside.is_content_of(&path) && check(&path).is_ok() {
            return Ok(Library {
                path,
                from: From::Installed,
                passed_over,
            });
        }
        passed_over.push(path);
    }
    let path = unpack::unpack(&inside, &unpack::Surroundings::here())?;
    Ok(Library {
        path,
        from: From::Inside,
        passed_over,
    })
}

fn not_found(looked: &[PathBuf]) -> Failure {
    let looked: Vec<String> = looked
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    Failure::new(
        Status::Preload,
        LIBRARY,
        format!("not found (looked for {})", looked.join(", ")),
        format!("install it beside zfolio, or set {ENV_PRELOAD} to its path"),
    )
}

fn places() -> Vec<PathBuf> {
    let exe = std::env::current_exe().unwrap_or_default();
    let mut places = Vec::new();
    if let Some(dir) = exe.parent() {
        places.push(dir.join(LIBRARY));
        if let Some(prefix) = dir.parent() {
            places.push(prefix.join("lib/zfolio").join(LIBRARY));
            places.push(prefix.join("lib").join(LIBRARY));
        }
    }
    places.push(Path::new("/usr/lib/zfolio").join(LIBRARY));
    places
}

fn check(path: &Path) -> Result<(), Failure> {
    let refused =
        |why: String, mend: &str| Err(Failure::new(Status::Preload, path.display(), why, mend));
    if !can_be_listed(path) {
        return refused(
            "a blank or colon in its path, which LD_PRELOAD cannot express".into(),
            "install it under another path",
        );
    }
    let elf = File::open(path).and_then(|file| Ok((Elf::read(&file)?, build_of(&file)?)));
    match elf {
        Ok((Some(Elf::SharedObject | Elf::Dynamic(_)), build)) => match build {
            Some(build) if build == own::build() => Ok(()),
            Some(build) => refused(
                format!("of another version ({build}; this is {})", own::build()),
                "install both of one version",
            ),
            None => refused(
                "not a preload library of zfolio, or one of another version".into(),
                "install the one built with zfolio",
            ),
        },
        Ok(_) => refused(
            "not a shared library for this machine".into(),
            "install the one built with zfolio",
        ),
        Err(error) => refused(format!("cannot be read ({error})"), "install it readable"),
    }
}

/// What a library says of its build, read a part at a time: a library with line tables has 18 MB,
/// and what is read counts as memory of the run.
fn build_of(library: &File) -> io::Result<Option<String>> {
    const PART: usize = 256 << 10;
    /// Longer than what is looked for, so that each place of it lies in one part.
    const OVERLAP: usize = 256;
    let mut part = vec![0; PART + OVERLAP];
    let mut from = 0;
    loop {
        let mut len = 0;
        while len < part.len() {
            match library.read_at(&mut part[len..], from + len as u64)? {
                0 => break,
                more => len += more,
            }
        }
        if let Some(build) = own::build_of(&part[..len]) {
            return Ok(Some(build.to_owned()));
        }
        if len < part.len() {
            return Ok(None);
        }
        from += PART as u64;
    }
}

/// `LD_PRELOAD` with `library` added behind what is there already.
pub(crate) fn with_library(existing: Option<&OsStr>, library: &Path) -> OsString {
    let separators = |byte: &u8| *byte == b':' || *byte == b' ';
    match existing {
        None => library.into(),
        Some(list) if list.is_empty() => library.into(),
        Some(list)
            if list
                .as_bytes()
                .split(separators)
                .any(|item| item == library.as_os_str().as_bytes()) =>
        {
            list.to_owned()
        }
        Some(list) => {
            let mut list = list.to_owned();
            list.push(":");
            list.push(library);
            list
        }
    }
}

/// `ASAN_OPTIONS` that let a library stand before the sanitizer's runtime,
/// which otherwise ends the program: ours has nothing that the runtime would
/// have to intercept. What is there already comes later, and so wins.
pub(crate) fn asan_options(existing: Option<&OsStr>) -> OsString {
    let mut options = OsString::from("verify_asan_link_order=0");
    if let Some(existing) = existing.filter(|existing| !existing.is_empty()) {
        options.push(":");
        options.push(existing);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_runtime::segment::Stamp;

    #[test]
    fn the_list_is_kept_and_not_doubled() {
        let library = Path::new("/l/z.so");
        let with = |existing: Option<&str>| with_library(existing.map(OsStr::new), library);
        assert_eq!(with(None), "/l/z.so");
        assert_eq!(with(Some("")), "/l/z.so");
        assert_eq!(with(Some("/a.so")), "/a.so:/l/z.so");
        assert_eq!(with(Some("/a.so /l/z.so")), "/a.so /l/z.so");
        assert_eq!(with(Some("/l/z.so:/a.so")), "/l/z.so:/a.so");
        assert_eq!(with(Some("/l/z.so.1")), "/l/z.so.1:/l/z.so");
    }

    #[test]
    fn the_sanitizers_options_are_kept() {
        let with = |existing: Option<&str>| asan_options(existing.map(OsStr::new));
        assert_eq!(with(None), "verify_asan_link_order=0");
        assert_eq!(with(Some("")), "verify_asan_link_order=0");
        assert_eq!(
            with(Some("detect_leaks=0")),
            "verify_asan_link_order=0:detect_leaks=0"
        );
    }

    #[test]
    fn only_libraries_with_plain_paths_pass() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("text.so");
        std::fs::write(&text, "text").unwrap();
        assert!(check(&text).is_err());
        let blank = dir.path().join("a b.so");
        std::fs::copy("/bin/true", &blank).unwrap();
        assert!(check(&blank).is_err());
        let plain = dir.path().join("ab.so");
        std::fs::rename(&blank, &plain).unwrap();
        let told = check(&plain).unwrap_err().to_string();
        assert!(told.contains("not a preload library"), "{told}");
    }

    #[test]
    fn a_build_is_found_wherever_it_stands() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("library");
        for before in [0, (256 << 10) - 30, 256 << 10, (512 << 10) + 17] {
            let mut bytes = vec![7; before];
            bytes.extend(Stamp::BEGIN);
            bytes.extend(b"1.2.3, segment 9\0");
            bytes.resize(bytes.len() + before, 0);
            std::fs::write(&path, &bytes).unwrap();
            let found = build_of(&File::open(&path).unwrap()).unwrap();
            assert_eq!(found.as_deref(), Some("1.2.3, segment 9"), "{before}");
        }
        std::fs::write(&path, vec![7; 600 << 10]).unwrap();
        assert_eq!(build_of(&File::open(&path).unwrap()).unwrap(), None);
    }

    #[test]
    fn only_libraries_of_this_version_pass() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("library.so");
        let program = std::fs::read("/bin/true").unwrap();
        for (build, passes) in [
            (own::build(), true),
            ("0.0.1, segment 013", false),
            ("", false),
        ] {
            let bytes = [&program[..], &Stamp::BEGIN, build.as_bytes(), b"\0"].concat();
            std::fs::write(&path, &bytes).unwrap();
            let checked = check(&path);
            assert_eq!(checked.is_ok(), passes, "{build}: {checked:?}");
            if let Err(failure) = checked {
                assert_eq!(failure.status, Status::Preload);
                assert!(
                    failure.to_string().contains("of another version"),
                    "{failure}"
                );
            }
        }
    }
}
