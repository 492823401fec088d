//! Where an experiment's results go: stdout, and the files asked for, which are
//! opened before it starts so that an unwritable path is known then.

use crate::args::BenchFiles;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::outfile::OutFile;

/// The files, open.
pub(crate) struct Results<'a> {
    json: Option<Wanted<'a>>,
    plot: Option<Wanted<'a>>,
}

/// A file, and the option that asked for it.
struct Wanted<'a> {
    option: &'static str,
    path: &'a Path,
    file: OutFile,
}

impl<'a> Results<'a> {
    /// Opens what was asked for.
    ///
    /// # Errors
    /// When one cannot be created.
    pub(crate) fn open(files: &'a BenchFiles) -> Result<Self, Failure> {
        let open = |option, path: &'a Option<PathBuf>| {
            path.as_deref()
                .map(|path| Wanted::open(option, path))
                .transpose()
        };
        Ok(Self {
            json: open("--json", &files.json)?,
            plot: open("--plot", &files.plot)?,
        })
    }

    /// Prints `text`; writes `json` and the drawing, which is only made if it
    /// is wanted.
    ///
    /// # Errors
    /// When a file cannot be written or the drawing not be made.
    pub(crate) fn finish(
        self,
        text: &str,
        json: &Value,
        plot: impl FnOnce() -> Result<String, String>,
    ) -> Result<(), Failure> {
        // Nobody may be reading any more.
        let _ = std::io::stdout().write_all(text.as_bytes());
        if let Some(wanted) = self.json {
            wanted.finish(&format!("{json:#}\n"))?;
        }
        if let Some(wanted) = self.plot {
            let drawing = plot().map_err(|why| {
                Failure::new(
                    Status::Internal,
                    "drawing the plot",
                    why,
                    "leave out --plot",
                )
            })?;
            wanted.finish(&drawing)?;
        }
        Ok(())
    }
}

/// `own`, with what there is to say of the machine, the moment and the command.
pub(crate) fn with_machine(mut own: Value) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let more = [
        ("unix_time", json!(now.map_or(0, |since| since.as_secs()))),
        ("kernel", json!(machine::kernel_release())),
        ("cpus", json!(machine::cpus())),
        ("mem_total", json!(machine::mem_total())),
        ("load_average", json!(machine::line_of("/proc/loadavg"))),
        ("command", json!(std::env::args().collect::<Vec<_>>())),
    ];
    for (key, value) in more {
        own[key] = value;
    }
    own
}

impl<'a> Wanted<'a> {
    fn open(option: &'static str, path: &'a Path) -> Result<Self, Failure> {
        match OutFile::open(path) {
            Ok(file) => Ok(Self { option, path, file }),
            Err(error) => Err(failure(option, path, &error)),
        }
    }

    fn finish(self, text: &str) -> Result<(), Failure> {
        let failed = |error| failure(self.option, self.path, &error);
        self.file.finish(text).map_err(failed)
    }
}

fn failure(option: &str, path: &Path, error: &std::io::Error) -> Failure {
    let what = format!("{option} {}", path.display());
    Failure::new(Status::CannotCreate, what, error, "choose another file")
}
