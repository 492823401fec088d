//! `zfolio.toml`: options of `zfolio run` in a file.
//!
//! A key is an option's name, without the dashes in front; its value is what the option takes, as
//! a string or a number, and `true` or `false` for an option that takes nothing.
//!
//! # Whom a file is believed
//! It belongs to the user or root, and so does the link that leads to it; nobody else may write
//! to it. The file of a directory may have come with what is in there (a checkout, an archive),
//! and belong to the user all the same. So it may say how memory is used, and nothing that names
//! a file to be written: only [`OF_DIRECTORY`].

use crate::options::mistake::near;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use toml::{Spanned, Value};
use zfolio_host::exit::{Failure, Status};

/// The name of such a file.
pub(crate) const NAME: &str = "zfolio.toml";
/// Most bytes of one.
const MOST: u64 = 1 << 20;

/// What a file of a directory may say.
pub(crate) const OF_DIRECTORY: [&str; 26] = [
    "accept-threshold",
    "allow-unmanaged",
    "background-reclaim",
    "compressor",
    "engines",
    "faults",
    "folio",
    "group",
    "high",
    "huge-page-assembly",
    "io-uring",
    "low",
    "max",
    "max-pool",
    "no-shrinker",
    "no-writeback",
    "on-max",
    "page-cluster",
    "per-process",
    "quiet",
    "slowdown",
    "split-huge-pages",
    "swap-high",
    "swap-max",
    "tier",
    "zswap-max",
];

/// How a file was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// By a variable: it must be there, and good.
    Named,
    /// It is in the directory.
    Directory,
    /// It is the user's.
    User,
}

/// A line of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// The option.
    pub(crate) option: String,
    /// Its value as the command line would have it.
    pub(crate) value: String,
    /// The file, and the line.
    pub(crate) place: String,
}

/// Why nothing is read of a file.
#[derive(Debug)]
pub(crate) enum Not {
    /// It is not there.
    There,
    /// It is not believed; a line says why.
    Believed(String),
    /// It is wrong.
    Right(Failure),
}

/// Reads a file, in which each of the `options` may be.
///
/// # Errors
/// Why there is nothing of it.
pub(crate) fn read(path: &Path, kind: Kind, options: &[String]) -> Result<Vec<Entry>, Not> {
    let cannot = |why: &dyn std::fmt::Display, mend: &str| {
        Not::Right(Failure::new(Status::Usage, path.display(), why, mend))
    };
    let text = match believed(path) {
        Ok(Ok(text)) => text,
        Ok(Err(why)) if kind == Kind::Named => return Err(cannot(&why, "mend that first")),
        Ok(Err(why)) => {
            let line = format!("zfolio: {}: not read: {why}", path.display());
            return Err(Not::Believed(line));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && kind != Kind::Named => {
            return Err(Not::There);
        }
        // (No directory there either, or one that may not be looked into: HOME may be that of
        // another user.)
        Err(error) if kind == Kind::User && is_elsewhere(error.kind()) => {
            return Err(Not::There);
        }
        Err(error) => return Err(cannot(&error, "name a file that you may read")),
    };
    let table: BTreeMap<Spanned<String>, Spanned<Value>> =
        toml::from_str(&text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            wrong(&place(path, &text, &at), None, error.message())
        })?;
    let mut entries = Vec::new();
    for (key, value) in table {
        let place = place(path, &text, &key.span());
        let option = key.into_inner();
        if !options.contains(&option) {
            let near = nearest(&option, options);
            return Err(wrong(&place, None, &format!("no option `{option}`{near}")));
        }
        if kind == Kind::Directory && !OF_DIRECTORY.contains(&option.as_str()) {
            let why = "the file of a directory may not say that, since it may be another's \
                       who gave you the directory: write it in your own";
            return Err(wrong(&place, Some(&option), why));
        }
        let value = match value.into_inner() {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Boolean(yes) => yes.to_string(),
            _ => {
                let why = "write it as a string, a whole number, true or false";
                return Err(wrong(&place, Some(&option), why));
            }
        };
        entries.push(Entry {
            option,
            value,
            place,
        });
    }
    Ok(entries)
}

/// Something is wrong at that place.
fn wrong(place: &str, option: Option<&str>, why: &str) -> Not {
    let what = match option {
        Some(option) => format!("{place}: {option}"),
        None => place.to_owned(),
    };
    let mend = "zfolio run --help has what options take";
    Not::Right(Failure::new(Status::Usage, what, why, mend))
}

/// What keeps a user from a file that is not the user's own.
const fn is_elsewhere(why: io::ErrorKind) -> bool {
    matches!(
        why,
        io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
    )
}

/// `FILE:LINE`.
fn place(path: &Path, text: &str, at: &Range<usize>) -> String {
    let before = text.as_bytes().iter().take(at.start);
    let line = 1 + before.filter(|byte| **byte == b'\n').count();
    format!("{}:{line}", path.display())
}

/// The option that may have been meant, in words; empty if none is near.
fn nearest(name: &str, options: &[String]) -> String {
    let name = name.replace('_', "-").to_lowercase();
    let near = near(&name, options.iter().map(String::as_str));
    near.map_or(String::new(), |option| format!(", but there is `{option}`"))
}

/// What a file has, if it is to be believed; else why not.
fn believed(path: &Path) -> io::Result<Result<String, String>> {
    let own = rustix::process::geteuid().as_raw();
    let strange = |uid: u32| uid != own && uid != 0;
    // (A link's owner is who made it lead there.)
    let link = fs::symlink_metadata(path)?;
    // Not blocked by a pipe that somebody put there.
    let flags = rustix::fs::OFlags::RDONLY
        | rustix::fs::OFlags::NONBLOCK
        | rustix::fs::OFlags::NOCTTY
        | rustix::fs::OFlags::CLOEXEC;
    if strange(link.uid()) {
        return Ok(Err(format!("it belongs to user {}", link.uid())));
    }
    let file = File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(Err("it is no regular file".into()));
    }
    if strange(found.uid()) {
        return Ok(Err(format!("it belongs to user {}", found.uid())));
    }
    if found.mode() & 0o022 != 0 {
        let path = path.display();
        return Ok(Err(format!("others may write to it: chmod go-w {path}")));
    }
    if found.len() > MOST {
        return Ok(Err("it is longer than 1 MiB".into()));
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text)?;
    Ok(Ok(text))
}

/// The file of the user, where there may be one.
pub(crate) fn of_user(home: Option<PathBuf>, config_home: Option<PathBuf>) -> Option<PathBuf> {
    let config = config_home.filter(|dir| dir.is_absolute());
    let config = config.or_else(|| {
        let home = home.filter(|dir| dir.is_absolute())?;
        Some(home.join(".config"))
    })?;
    Some(config.join("zfolio").join(NAME))
}
