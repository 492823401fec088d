//! Where an experiment's results go: stdout, and the files asked for, which are
//! opened before it starts so that an unwritable path is known then.

use crate::args::BenchFiles;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::outfile::OutFile;
use zfolio_host::shown::Program;

/// The files, open.
pub(crate) struct Results<'a> {
    experiment: &'static str,
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
    /// Opens what was asked for, for this experiment.
    ///
    /// # Errors
    /// When one cannot be created.
    pub(crate) fn open(experiment: &'static str, files: &'a BenchFiles) -> Result<Self, Failure> {
        let open = |option, path: &'a Option<PathBuf>| {
            path.as_deref()
                .map(|path| Wanted::open(option, path))
                .transpose()
        };
        Ok(Self {
            experiment,
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
            let own = json.as_object().cloned().unwrap_or_default();
            let written = serde_json::to_value(Written::new(self.experiment, &own));
            wanted.finish(&format!("{:#}\n", written.unwrap_or_default()))?;
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

/// What `--json` of an experiment writes.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "zfolio bench --json, zfolio advise --json")]
pub(crate) struct Written<'a> {
    zfolio: Program,
    experiment: &'a str,
    /// Seconds since 1970, at the end.
    unix_time: u64,
    kernel: String,
    cpus: usize,
    mem_total: u64,
    load_average: Option<String>,
    /// The command line.
    command: Vec<String>,
    /// What was asked for and what was measured: each experiment's own.
    #[serde(flatten)]
    own: &'a Map<String, Value>,
}

impl<'a> Written<'a> {
    fn new(experiment: &'a str, own: &'a Map<String, Value>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let command = std::env::args_os();
        Self {
            zfolio: Program::THIS,
            experiment,
            unix_time: now.map_or(0, |since| since.as_secs()),
            kernel: machine::kernel_release(),
            cpus: machine::cpus(),
            mem_total: machine::mem_total(),
            load_average: machine::line_of("/proc/loadavg"),
            command: command
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            own,
        }
    }
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
