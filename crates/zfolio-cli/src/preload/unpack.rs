//! The library inside the command, written out to where programs can load it.
//!
//! It is a file, not a memfd: children of the program that are started later, or as
//! another user, load it by its path too. It stays, since they may be started at any time.
//!
//! Nobody but the user and root may change what is loaded. So every directory above it
//! belongs to one of them and cannot be written to by others (or is sticky, as /tmp is);
//! the file's content is compared before each use. A file is never written to: it appears
//! under its name complete. The directory is named by the content, so commands of several
//! builds do not meet.

use super::names::{ENV_PRELOAD, LIBRARY, can_be_listed};
use crate::own::Inside;
use rustix::fs::{CWD, Mode, OFlags, RawMode, StatVfsMountFlags};
use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use zfolio_host::exit::{Failure, Status};

/// What decides where it may be.
pub(super) struct Surroundings {
    user: u32,
    variable: fn(&str) -> Option<OsString>,
}

impl Surroundings {
    /// Those of this process.
    pub(super) fn here() -> Self {
        Self {
            user: rustix::process::geteuid().as_raw(),
            variable: |name| std::env::var_os(name),
        }
    }

    /// Where to try, in this order: a directory, and the name of ours in it. First what
    /// stays as long as programs run. (A runtime directory goes when the user logs out, and
    /// /tmp is cleaned of old files.) What root runs may start programs as other users, who
    /// cannot look into root's own directories, so there what all can reach comes first.
    fn places(&self) -> Vec<Place> {
        let named = |name| (self.variable)(name).filter(|value| !value.is_empty());
        let own = |base: Option<PathBuf>| base.map(|base| (base, "zfolio".to_owned()));
        let mut places = Vec::new();
        let of_user = [
            named("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| Some(Path::new(&named("HOME")?).join(".cache"))),
            named("XDG_RUNTIME_DIR").map(PathBuf::from),
        ];
        let of_all = [
            named("TMPDIR").map(PathBuf::from),
            Some("/tmp".into()),
            Some("/var/tmp".into()),
        ];
        let with_user = format!("zfolio-{}", self.user);
        let of_all = of_all
            .into_iter()
            .flatten()
            .map(|base| (base, with_user.clone()));
        if self.user == 0 {
            places.extend(
                ["/var/cache", "/run"]
                    .into_iter()
                    .filter_map(|base| own(Some(base.into()))),
            );
            places.extend(of_all);
            places.extend(of_user.into_iter().filter_map(own));
        } else {
            places.extend(of_user.into_iter().filter_map(own));
            places.extend(of_all);
        }
        let mut seen = Vec::new();
        places.retain(|(base, _)| {
            !seen.contains(base) && {
                seen.push(base.clone());
                true
            }
        });
        places
            .into_iter()
            .map(|(base, name)| Place { base, name })
            .collect()
    }
}

struct Place {
    base: PathBuf,
    name: String,
}

/// The path of the library, which is there now.
///
/// # Errors
/// [`Status::Preload`] where no place will do; says of each why not.
pub(super) fn unpack(inside: &Inside, here: &Surroundings) -> Result<PathBuf, Failure> {
    let mut refused = Vec::new();
    for place in here.places() {
        match place.put(inside, here.user) {
            Ok(path) => return Ok(path),
            Err(why) => refused.push(format!("{}: {why}", place.base.display())),
        }
    }
    Err(Failure::new(
        Status::Preload,
        LIBRARY,
        format!("there is no place to write it to ({})", refused.join("; ")),
        format!(
            "name a directory of yours in TMPDIR from which programs can be run, \
             or an installed library in {ENV_PRELOAD}"
        ),
    ))
}

impl Place {
    fn put(&self, inside: &Inside, user: u32) -> Result<PathBuf, String> {
        if !self.base.is_absolute() {
            return Err("not an absolute path".into());
        }
        // (~/.cache may be missing, and is the user's to make.)
        if !self.base.exists() {
            make_dir(&self.base, 0o700).map_err(|error| error.to_string())?;
        }
        let base = self
            .base
            .canonicalize()
            .map_err(|error| error.to_string())?;
        let dir = base.join(&self.name).join(inside.hash);
        if !can_be_listed(&dir) {
            return Err("a blank or colon in it, which LD_PRELOAD cannot express".into());
        }
        for above in base.ancestors() {
            let of = fs::symlink_metadata(above).map_err(|error| error.to_string())?;
            safe(&of, user, true).map_err(|why| format!("{} {why}", above.display()))?;
        }
        may_be_run(&base)?;
        for dir in [dir.parent().unwrap_or(&base), &dir] {
            own_dir(dir, user).map_err(|why| format!("{} {why}", dir.display()))?;
        }
        may_be_run(&dir)?;
        let path = dir.join(LIBRARY);
        if !is_there(&path, inside, user) {
            write(&dir, &path, inside).map_err(|error| error.to_string())?;
            if !is_there(&path, inside, user) {
                return Err("what was written to it is not what is read".into());
            }
        }
        Ok(path)
    }
}

/// Whether none but the user and root may change a file, or what is in a directory.
fn safe(of: &Metadata, user: u32, sticky_will_do: bool) -> Result<(), String> {
    const STICKY: u32 = 0o1000;
    if of.uid() != user && of.uid() != 0 {
        return Err(format!("belongs to another user ({})", of.uid()));
    }
    let sticky = of.is_dir() && sticky_will_do && of.mode() & STICKY != 0;
    if of.mode() & 0o022 != 0 && !sticky {
        return Err("can be written to by others".into());
    }
    Ok(())
}

/// A directory of the user's or root's, made where it is missing.
fn own_dir(path: &Path, user: u32) -> Result<(), String> {
    let made = make_dir(path, 0o755);
    let of = match (fs::symlink_metadata(path), made) {
        (Ok(of), _) => of,
        (Err(_), Err(error)) | (Err(error), Ok(())) => {
            return Err(format!("cannot be made ({error})"));
        }
    };
    if !of.is_dir() {
        return Err("is not a directory".into());
    }
    safe(&of, user, false)
}

/// Makes a directory of just this mode, whatever the umask.
fn make_dir(path: &Path, mode: RawMode) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// The loader cannot map a library that lies where nothing may be run.
fn may_be_run(dir: &Path) -> Result<(), String> {
    match rustix::fs::statvfs(dir) {
        Ok(of) if of.f_flag.contains(StatVfsMountFlags::NOEXEC) => Err("mounted noexec".into()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether the library is there, can be read by all, and only the user or root may change it.
fn is_there(path: &Path, inside: &Inside, user: u32) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(CWD, path, flags, Mode::empty()) else {
        return false;
    };
    let file = File::from(file);
    file.metadata()
        .is_ok_and(|of| of.mode() & 0o444 == 0o444 && safe(&of, user, false).is_ok())
        && inside.is_in(file)
}

/// Writes it under another name, which then becomes `path`.
fn write(dir: &Path, path: &Path, inside: &Inside) -> io::Result<()> {
    let random = RandomState::new().build_hasher().finish();
    let temporary = dir.join(format!(".{random:016x}"));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    let done = file
        .write_all(inside.bytes)
        .and_then(|()| file.set_permissions(Permissions::from_mode(0o644)))
        .and_then(|()| fs::rename(&temporary, path));
    if done.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    done
}

#[cfg(test)]
mod tests;
