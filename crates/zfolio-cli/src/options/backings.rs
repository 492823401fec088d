//! What may be behind the pool, on the command line: files, a store, or both in that order.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::size::{Size, human};
use zfolio_pager::probe;
use zfolio_pager::spec::Spec;
use zfolio_sys::disk::DiskFile;

/// Least of a backing, bytes: some clusters.
const MIN_BACKING: u64 = 4 << 20;
/// Size of a store that has no limit of its own and for which none is given, bytes: what
/// one process can name.
const UNLIMITED: u64 = 256 << 30;

/// A backing.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Backing {
    /// Files in a directory.
    File { dir: PathBuf, size: Option<Size> },
    /// A store of other machines.
    Store { spec: Spec, size: Option<Size> },
}

/// The value of an option: a backing, or several with spaces between.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Backings(pub(crate) Vec<Backing>);

impl Backings {
    /// Reads them.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut each: Vec<String> = Vec::new();
        for word in text.split(' ') {
            let begins = word.starts_with("file:") || word.starts_with("redis");
            match each.last_mut() {
                // (A directory may have spaces in its name.)
                Some(last) if !begins => *last += &format!(" {word}"),
                _ => each.push(word.to_owned()),
            }
        }
        let each = each.iter().map(|text| Backing::parse(text));
        each.collect::<Result<_, _>>().map(Self)
    }
}

impl Backing {
    /// Reads one.
    fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("redis") {
            return Self::parse_store(text);
        }
        const FORM: &str = "write file:DIR, file:DIR,size=SIZE or redis://HOST:PORT,...";
        let rest = text.strip_prefix("file:").ok_or(FORM)?;
        let (dir, size) = match rest.rsplit_once(",size=") {
            Some((dir, size)) => (dir, Some(parse_size(size)?)),
            None => (rest, None),
        };
        if dir.is_empty() {
            return Err(FORM.into());
        }
        Ok(Self::File {
            dir: dir.into(),
            size,
        })
    }

    fn parse_store(text: &str) -> Result<Self, String> {
        // (A password may have commas in it; what comes behind the hosts may not.)
        let hosts = text.rfind('@').unwrap_or(0);
        let (head, choices) = text.split_at(hosts);
        let mut size = None;
        let mut rest = Vec::new();
        for part in choices.split(',') {
            match part.strip_prefix("size=") {
                Some(given) => size = Some(parse_size(given)?),
                None => rest.push(part),
            }
        }
        let spec = Spec::parse(&format!("{head}{}", rest.join(",")))?;
        Ok(Self::Store { spec, size })
    }
}

fn parse_size(text: &str) -> Result<Size, String> {
    Size::parse(text).map_err(|error| error.to_string())
}

/// Files, and how much all of them may take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Files {
    /// Absolute.
    pub(crate) dir: PathBuf,
    /// Bytes.
    pub(crate) size: u64,
}

/// A store, and how much of it may be taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Store {
    pub(crate) spec: Spec,
    /// Bytes.
    pub(crate) size: u64,
    /// Where its pager is met, once that is known.
    pub(crate) exchange: PathBuf,
}

/// Where pages go that stay long in the pool: to files while those have room, then to a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FilesThenStore {
    pub(crate) files: Option<Files>,
    pub(crate) store: Option<Store>,
}

/// The files and the store that are asked for, of which there is one at most.
pub(crate) type AskedInOrder<'a> = (
    Option<(&'a Path, Option<Size>)>,
    Option<(&'a Spec, Option<Size>)>,
);

/// What is asked for, if pages can go there in that order.
///
/// # Errors
/// They cannot, in one line.
pub(crate) fn in_order(asked: &[Backings]) -> Result<AskedInOrder<'_>, Failure> {
    let wrong = |why: &str| {
        let mend = "give file:DIR, redis://HOST, or the one and then the other";
        Err(Failure::new(Status::Usage, "--backing", why, mend))
    };
    let all: Vec<&Backing> = asked.iter().flat_map(|of| &of.0).collect();
    match all[..] {
        [] => Ok((None, None)),
        [Backing::File { dir, size }] => Ok((Some((dir, *size)), None)),
        [Backing::Store { spec, size }] => Ok((None, Some((spec, *size)))),
        [
            Backing::File { dir, size },
            Backing::Store { spec, size: most },
        ] => Ok((Some((dir, *size)), Some((spec, *most)))),
        [Backing::Store { .. }, Backing::File { .. }] => {
            wrong("a store stands before a file, which would never be written to")
        }
        [Backing::File { .. }, Backing::File { .. }] => wrong("it is a file twice"),
        [Backing::Store { .. }, Backing::Store { .. }] => wrong("it is a store twice"),
        _ => wrong("there are more than two"),
    }
}

impl FilesThenStore {
    /// Checks what is asked for: that files can be made there, that the store loses no pages.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub(crate) fn check(asked: &[Backings]) -> Result<Self, Failure> {
        let (files, store) = in_order(asked)?;
        Ok(Self {
            files: files
                .map(|(dir, size)| check_files(dir, size))
                .transpose()?,
            store: store
                .map(|(spec, size)| check_store(spec, size))
                .transpose()?,
        })
    }

    /// Whether there is a backing.
    pub(crate) const fn is_any(&self) -> bool {
        self.files.is_some() || self.store.is_some()
    }
}

/// Asks the store what it is, and refuses one that would lose pages.
fn check_store(spec: &Spec, size: Option<Size>) -> Result<Store, Failure> {
    let what = format!("--backing {}", spec.shown());
    let cannot = |why: &str, mend: &str| Failure::new(Status::CannotCreate, &what, why, mend);
    let look = format!("zfolio doctor --backing {} says more", spec.shown());
    let facts = probe::facts(spec).map_err(|why| cannot(&why, &look))?;
    if let Some((why, mend)) = facts.unfit(spec) {
        return Err(cannot(&why, &mend));
    }
    let size = match size {
        Some(size) => size.bytes(machine::mem_total()),
        None => facts
            .headroom(spec.copies)
            .map_or(UNLIMITED, |headroom| headroom / 4 * 3),
    };
    if size < MIN_BACKING {
        let why = format!("{} is too little", human(size));
        return Err(cannot(&why, "give it more, or the store more memory"));
    }
    Ok(Store {
        spec: spec.clone(),
        size,
        exchange: PathBuf::new(),
    })
}

/// Makes a file there, and sees how much there is for it.
///
/// # Errors
/// It cannot be made, or is too small, in one line.
pub(crate) fn check_files(dir: &Path, size: Option<Size>) -> Result<Files, Failure> {
    let what = format!("--backing file:{}", dir.display());
    let cannot = |why: &dyn std::fmt::Display| {
        let mend = "name a directory on a disk that you may write";
        Failure::new(Status::CannotCreate, &what, why, mend)
    };
    let dir = std::fs::canonicalize(dir).map_err(|error| cannot(&error))?;
    let path = CString::new(dir.as_os_str().as_bytes()).map_err(|error| cannot(&error))?;
    DiskFile::anonymous(&path)
        .map_err(|errno| cannot(&std::io::Error::from_raw_os_error(errno.0)))?;
    let space = rustix::fs::statvfs(&dir).map_err(|error| cannot(&error))?;
    let size = match size {
        Some(size) => size.bytes(machine::mem_total()),
        None => space.f_bavail.saturating_mul(space.f_frsize) / 2,
    };
    if size < MIN_BACKING {
        return Err(cannot(&format!("{} is too little", human(size))));
    }
    Ok(Files { dir, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backings_parse() {
        let file = |dir: &str, size| {
            let dir = dir.into();
            Ok(Backing::File { dir, size })
        };
        let parse = Backing::parse;
        assert_eq!(parse("file:/tmp"), file("/tmp", None));
        let size = Some(Size::Bytes(1 << 30));
        assert_eq!(parse("file:/a,b,size=1G"), file("/a,b", size));
        let text = "redis://u:a,size=3@h:1,i:2,size=1G,copies=2";
        let spec = Spec::parse("redis://u:a,size=3@h:1,i:2,copies=2").unwrap();
        assert_eq!(parse(text), Ok(Backing::Store { spec, size }));
        for text in [
            "",
            "/tmp",
            "file:",
            "file:,size=1G",
            "disk:/tmp",
            "file:/tmp,size=x",
            "redis:/h",
            "redis://h,size=x",
            "redis://h,copies=0",
        ] {
            assert!(Backings::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_may_stand_before_a_store_and_nothing_else_twice() {
        let of = |texts: &[&str]| {
            let asked = texts.iter().map(|text| Backings::parse(text).unwrap());
            let asked: Vec<Backings> = asked.collect();
            let found = in_order(&asked);
            let found = found.map(|(files, store)| (files.is_some(), store.is_some()));
            found.map_err(|failure| {
                assert_eq!(failure.status, Status::Usage);
                failure.to_string()
            })
        };
        let (file, store) = ("file:/a b,size=1G", "redis://h");
        assert_eq!(of(&[]), Ok((false, false)));
        assert_eq!(of(&[file]), Ok((true, false)));
        assert_eq!(of(&[store]), Ok((false, true)));
        assert_eq!(of(&[file, store]), Ok((true, true)));
        assert_eq!(of(&[&format!("{file} {store}")]), Ok((true, true)));
        for (texts, words) in [
            (&[store, file][..], "a store stands before a file"),
            (
                &[&format!("{store} {file}")],
                "a store stands before a file",
            ),
            (&[file, file], "a file twice"),
            (&[store, store], "a store twice"),
            (&[file, store, store], "more than two"),
        ] {
            let told = of(texts).expect_err(words);
            assert!(told.starts_with("zfolio: --backing: "), "{told}");
            assert!(told.contains(words) && !told.contains('\n'), "{told}");
        }
    }
}
