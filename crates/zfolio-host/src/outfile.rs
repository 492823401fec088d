//! A file that appears whole: opened before the program starts, so that an
//! unwritable path is known then, and renamed into place at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file to be.
#[derive(Debug)]
pub struct OutFile {
    file: File,
    /// Temporary name and final name; `None` when written in place, because
    /// the path is a device or a pipe.
    rename: Option<(PathBuf, PathBuf)>,
}

impl OutFile {
    /// Opens a temporary file beside `path` (or `path` itself, if it is
    /// something other than a regular file).
    ///
    /// # Errors
    /// When neither can be opened for writing.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Ok(meta) = path.metadata() {
            if meta.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            if !meta.is_file() {
                let file = OpenOptions::new().write(true).open(path)?;
                return Ok(Self { file, rename: None });
            }
        }
        // Through a link, as writing to it would go.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)?;
        Ok(Self {
            file,
            rename: Some((temporary, path)),
        })
    }

    /// Writes `content` and gives the file its name.
    ///
    /// # Errors
    /// As the system says; then the old file, if any, is as it was.
    pub fn finish(mut self, content: impl AsRef<[u8]>) -> io::Result<()> {
        self.file.write_all(content.as_ref())?;
        self.file.flush()?;
        match &self.rename {
            Some((temporary, path)) => fs::rename(temporary, path),
            None => Ok(()),
        }
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.rename {
            // Renamed already, usually.
            let _ = fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        fs::write(&path, "old").unwrap();
        let out = OutFile::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        out.finish("new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        drop(OutFile::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "no temporary is left"
        );
    }

    #[test]
    fn unwritable_paths_are_known_at_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(OutFile::open(dir.path()).is_err());
        assert!(OutFile::open(&dir.path().join("no/such")).is_err());
        OutFile::open(Path::new("/dev/null"))
            .unwrap()
            .finish("gone")
            .unwrap();
    }
}
