//! What shows the run while it lasts: metrics that are served, and a record.
//!
//! Both are opened before the program starts, and are threads of their own after: the program
//! waits for neither, and what fails in them then is told, and ends nothing.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use zfolio_host::exit::{Failure, Status};
use zfolio_views::address::Address;
use zfolio_views::args::WhileRunning;
use zfolio_views::look::{EndedTotal, Look};
use zfolio_views::metrics::serve::{Listening, Serving};
use zfolio_views::record::{Record, Recorder};

/// What is open.
#[derive(Debug)]
pub(crate) struct Beside {
    listening: Option<Listening>,
    record: Option<Record>,
}

/// What goes on.
#[derive(Debug, Default)]
pub(crate) struct Going {
    serving: Option<(Address, Serving)>,
    recorder: Option<Recorder>,
    failures: Vec<String>,
}

/// Whether a command in a group of another run asks for what that run alone can do.
///
/// # Errors
/// When it does.
pub(crate) fn check_within(asked: &WhileRunning) -> Result<(), Failure> {
    let option = match asked {
        WhileRunning {
            metrics: Some(_), ..
        } => "--metrics",
        WhileRunning {
            record: Some(_), ..
        } => "--record",
        _ => return Ok(()),
    };
    let why = "is of a whole run, and this is a group of the run around";
    Err(Failure::new(
        Status::Usage,
        option,
        why,
        "give it to that run",
    ))
}

impl Beside {
    /// Opens what was asked for. Called while this process has one thread.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(crate) fn open(asked: &WhileRunning, command: &[OsString]) -> Result<Self, Failure> {
        let words = command
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        let listening = asked.metrics.as_ref().map(Listening::open).transpose()?;
        let record = asked.record.as_deref();
        let record = record.map(|path| Record::open(path, words.collect()));
        Ok(Self {
            listening,
            record: record.transpose()?,
        })
    }

    /// Begins, with the run at `segment`.
    pub(crate) fn start(self, segment: &Path, ended: &EndedTotal, started: Instant) -> Going {
        let mut going = Going::default();
        let look = || Look::open(segment).map(|look| look.with(Arc::clone(ended)));
        if let Some(listening) = self.listening {
            let address = listening.address().clone();
            match look().and_then(|look| listening.serve(look)) {
                Ok(serving) => going.serving = Some((address, serving)),
                Err(error) => going.failures.push(format!("zfolio: --metrics: {error}")),
            }
        }
        if let Some(record) = self.record {
            match look().and_then(|look| record.start(look, started)) {
                Ok(recorder) => going.recorder = Some(recorder),
                Err(error) => going.failures.push(format!("zfolio: --record: {error}")),
            }
        }
        going
    }
}

impl Going {
    /// What is told at the start.
    pub(crate) fn told(&self, quiet: bool) -> Vec<String> {
        let mut lines = self.failures.clone();
        if let Some((address, _)) = self.serving.as_ref().filter(|_| !quiet) {
            lines.push(format!("zfolio: metrics at {address}"));
        }
        lines
    }

    /// Ends both: what is told of what failed.
    pub(crate) fn finish(self) -> Vec<String> {
        let recorded = self.recorder.map_or(Ok(()), Recorder::finish);
        let line = recorded.map_err(|error| format!("zfolio: --record was cut short: {error}"));
        line.err().into_iter().collect()
    }
}
