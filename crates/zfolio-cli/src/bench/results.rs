//! Where an experiment's results go: stdout, and the files asked for, which are
//! opened before it starts so that an unwritable path is known then.

use crate::args::BenchFiles;
use crate::exit::{Failure, Status};
use crate::outfile::OutFile;
use serde_json::Value;
use std::io::Write;
use std::path::Path;

/// The files, open.
pub(super) struct Results<'a> {
    json: Option<(&'a Path, OutFile)>,
    plot: Option<(&'a Path, OutFile)>,
}

impl<'a> Results<'a> {
    /// Opens what was asked for.
    ///
    /// # Errors
    /// When one cannot be created.
    pub(super) fn open(files: &'a BenchFiles) -> Result<Self, Failure> {
        let open = |path: &'a Option<std::path::PathBuf>| match path {
            None => Ok(None),
            Some(path) => OutFile::open(path)
                .map(|file| Some((path.as_path(), file)))
                .map_err(|error| failure(path, &error)),
        };
        Ok(Self {
            json: open(&files.json)?,
            plot: open(&files.plot)?,
        })
    }

    /// Prints `text`; writes `json` and the drawing, which is only made if it
    /// is wanted.
    ///
    /// # Errors
    /// When a file cannot be written or the drawing not be made.
    pub(super) fn finish(
        self,
        text: &str,
        json: &Value,
        plot: impl FnOnce() -> Result<String, String>,
    ) -> Result<(), Failure> {
        // Nobody may be reading any more.
        let _ = std::io::stdout().write_all(text.as_bytes());
        if let Some((path, file)) = self.json {
            file.finish(&format!("{json:#}\n"))
                .map_err(|error| failure(path, &error))?;
        }
        if let Some((path, file)) = self.plot {
            let drawing = plot().map_err(|why| {
                Failure::new(
                    Status::Internal,
                    "drawing the plot",
                    why,
                    "leave out --plot",
                )
            })?;
            file.finish(&drawing)
                .map_err(|error| failure(path, &error))?;
        }
        Ok(())
    }
}

fn failure(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Status::CannotCreate,
        path.display(),
        error,
        "choose another file",
    )
}
