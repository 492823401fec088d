//! Finding libzfolio_preload.so.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use zfolio_host::elf::Elf;
use zfolio_host::exit::{Failure, Status};

/// Environment variable: where the library is, instead of searching.
pub(crate) const ENV_PRELOAD: &str = "ZFOLIO_PRELOAD";
/// The loader's variable.
pub(crate) const ENV_LD_PRELOAD: &str = "LD_PRELOAD";
/// Options of the address sanitizer's runtime.
pub(crate) const ENV_ASAN: &str = "ASAN_OPTIONS";
const LIBRARY: &str = "libzfolio_preload.so";

/// The library's absolute path.
///
/// # Errors
/// [`Status::Preload`] when it is nowhere, is not a library for this machine,
/// or has a path `LD_PRELOAD` cannot express.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    let named = std::env::var_os(ENV_PRELOAD).filter(|path| !path.is_empty());
    let candidates = match named {
        Some(path) => vec![PathBuf::from(path)],
        None => places(),
    };
    let Some(found) = candidates.iter().find_map(|path| path.canonicalize().ok()) else {
        let looked: Vec<String> = candidates
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return Err(Failure::new(
            Status::Preload,
            LIBRARY,
            format!("not found (looked for {})", looked.join(", ")),
            format!("install it beside zfolio, or set {ENV_PRELOAD} to its path"),
        ));
    };
    check(&found)?;
    Ok(found)
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
    if path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" :\t".contains(byte))
    {
        return refused(
            "a blank or colon in its path, which LD_PRELOAD cannot express".into(),
            "install it under another path",
        );
    }
    let elf = File::open(path).and_then(|file| Elf::read(&file));
    match elf {
        Ok(Some(Elf::SharedObject | Elf::Dynamic(_))) => Ok(()),
        Ok(_) => refused(
            "not a shared library for this machine".into(),
            "install the one built with zfolio",
        ),
        Err(error) => refused(format!("cannot be read ({error})"), "install it readable"),
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
        std::fs::copy("/proc/self/exe", &blank).unwrap();
        assert!(check(&blank).is_err());
        let plain = dir.path().join("ab.so");
        std::fs::rename(&blank, &plain).unwrap();
        assert_eq!(check(&plain), Ok(()));
    }
}
