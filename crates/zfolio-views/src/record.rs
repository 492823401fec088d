//! `zfolio run --record FILE`: a sample a second, in a file that stays small.
//!
//! The first line says what was recorded, each other is a `Sample`. When there are `MOST`, every
//! other is left out, and from then on half as many are taken: counters only grow, so that what
//! happened between two that stay is told by them still. The file is whole at any time.

use crate::config::Config;
use crate::look::Look;
use crate::sample::Sample;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use zfolio_host::exit::{Failure, Status};
use zfolio_host::outfile::OutFile;
use zfolio_host::shown::Program;

/// Most samples of a file: some 2 MiB.
const MOST: usize = 4096;
/// Between two samples at first.
const EVERY: Duration = Duration::from_secs(1);
/// The form of the file.
pub(crate) const FORM: u32 = 1;

/// The first line.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "first line of zfolio run --record")]
pub(crate) struct Header<'a> {
    zfolio: Program,
    record: u32,
    command: &'a [String],
    every_s: u64,
    config: &'a Config,
}

/// What of it a reader needs.
#[derive(Deserialize, Debug)]
pub(crate) struct HeaderRead {
    pub(crate) record: u32,
    pub(crate) command: Vec<String>,
}

/// A file that is being written.
#[derive(Debug)]
struct Recording {
    path: PathBuf,
    file: File,
    command: Vec<String>,
    config: Option<Config>,
    lines: Vec<String>,
    most: usize,
    /// Seconds between two samples.
    every: u64,
}

impl Recording {
    fn open(path: &Path, command: Vec<String>, most: usize) -> io::Result<Self> {
        if path.metadata().is_ok_and(|meta| !meta.is_file()) {
            let why = "not a file: what is written there is thinned later";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // Through a link, as writing to it would go.
        let file = File::create(path)?;
        let path = path.canonicalize()?;
        Ok(Self {
            path,
            file,
            command,
            config: None,
            lines: Vec::new(),
            most,
            every: EVERY.as_secs(),
        })
    }

    fn header(&self) -> io::Result<String> {
        let Some(config) = &self.config else {
            return Ok(String::new());
        };
        let header = Header {
            zfolio: Program::THIS,
            record: FORM,
            command: &self.command,
            every_s: self.every,
            config,
        };
        Ok(serde_json::to_string(&header)? + "\n")
    }

    /// Writes a sample, and thins what there is if it is too much.
    fn add(&mut self, config: &Config, sample: &Sample) -> io::Result<()> {
        if self.config.is_none() {
            self.config = Some(config.clone());
            let header = self.header()?;
            self.file.write_all(header.as_bytes())?;
        }
        let line = serde_json::to_string(sample)? + "\n";
        self.file.write_all(line.as_bytes())?;
        self.lines.push(line);
        if self.lines.len() >= self.most {
            self.thin()?;
        }
        Ok(())
    }

    fn thin(&mut self) -> io::Result<()> {
        // The last stays: its counters are the latest.
        let last = self.lines.len() - 1;
        let mut at = 0;
        self.lines.retain(|_| {
            at += 1;
            (last + 1 - at).is_multiple_of(2)
        });
        self.every *= 2;
        let out = OutFile::open(&self.path)?;
        out.finish(&(self.header()? + &self.lines.concat()))?;
        self.file = OpenOptions::new().append(true).open(&self.path)?;
        Ok(())
    }
}

/// Records until it is told to stop.
#[derive(Debug)]
pub struct Recorder {
    stop: Sender<()>,
    thread: JoinHandle<io::Result<()>>,
}

/// A file that was opened before the program starts.
#[derive(Debug)]
pub struct Record(Recording);

impl Record {
    /// Opens the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(path: &Path, command: Vec<String>) -> Result<Self, Failure> {
        Recording::open(path, command, MOST)
            .map(Self)
            .map_err(|error| {
                let what = format!("--record {}", path.display());
                let mend = "name a file in a directory you may write";
                Failure::new(Status::CannotCreate, what, error, mend)
            })
    }

    /// Takes a sample a second from now on, the first at once.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(self, mut look: Look, started: Instant) -> io::Result<Recorder> {
        let (stop, stopped) = channel();
        let mut recording = self.0;
        let name = thread::Builder::new().name("zfolio-record".into());
        let thread = name.spawn(move || {
            let mut next = Instant::now();
            loop {
                let seen = look.look();
                let sample = Sample::of(&seen, started.elapsed().as_secs_f64());
                recording.add(&seen.config, &sample)?;
                next += Duration::from_secs(recording.every);
                let left = next.saturating_duration_since(Instant::now());
                if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                    let seen = look.look();
                    let sample = Sample::of(&seen, started.elapsed().as_secs_f64());
                    return recording.add(&seen.config, &sample);
                }
            }
        })?;
        Ok(Recorder { stop, thread })
    }
}

impl Recorder {
    /// Takes a last sample.
    ///
    /// # Errors
    /// What kept it, or an earlier one, from being written: what was written is there.
    pub fn finish(self) -> io::Result<()> {
        // (It may have given up.)
        let _ = self.stop.send(());
        let joined = self.thread.join();
        joined.unwrap_or_else(|_| Err(io::Error::other("the recording thread ended")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Counts, Memory};
    use std::fs;

    fn sample(number: u64) -> Sample {
        Sample {
            #[allow(clippy::cast_precision_loss, reason = "small")]
            time_s: number as f64,
            high_bytes: 1,
            processes: 1,
            memory: Memory::default(),
            counts: Counts {
                faults: number,
                ..Counts::default()
            },
        }
    }

    #[test]
    fn what_grows_too_long_is_thinned_and_is_whole_at_any_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record");
        let segment = crate::example::example();
        let config = Config::read(&segment);
        let command = vec!["a \"b\"\n".to_owned()];
        let mut recording = Recording::open(&path, command.clone(), 16).unwrap();
        let mut taken = 0;
        for second in 0..1000 {
            // (As the thread takes them.)
            if second % recording.every != 0 {
                continue;
            }
            taken += 1;
            recording.add(&config, &sample(second)).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let mut lines = text.lines();
            let first: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
            assert_eq!(first["every_s"], recording.every);
            assert_eq!(first["command"][0], command[0]);
            assert_eq!(first["record"], FORM);
            let samples: Vec<Sample> = lines
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            assert!(samples.len() < 16, "{}", samples.len());
            assert_eq!(samples.last(), Some(&sample(second)), "the last is there");
            let times = samples.windows(2);
            assert!(times.into_iter().all(|two| two[0].time_s < two[1].time_s));
        }
        assert!(taken < 150, "fewer are taken as they grow: {taken}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_pipe_is_refused() {
        let told = Record::open(Path::new("/dev/null"), Vec::new()).unwrap_err();
        assert_eq!(told.status, Status::CannotCreate);
    }
}
