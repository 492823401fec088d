//! What holds for an option of `zfolio run`: the command line, then the environment, then the
//! file of the directory, then the user's file, then the default.
//!
//! Each option that the command line does not have and a lower layer has is put onto the
//! command line, after `run`, so that one parser judges them all, and together. That a value is
//! wrong is told before, with where it stands.
//!
//! Within a run, nothing but the command line counts. The variables of the user who started the
//! run outside are in the environment of everything in it, and the directory's file is there as
//! well: a `zfolio run --group link` in a Makefile would give each group the `high` that was
//! meant for all. `ZFOLIO_CONFIG=none` has the same effect anywhere.

use crate::options::args::Cli;
use crate::options::config_file::{self, Entry, Kind, NAME, Not};
use crate::options::run_args::Run;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args as _, CommandFactory};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use zfolio_host::PLAIN;
use zfolio_host::exit::{Failure, Status};
use zfolio_runtime::segment::ENV_CONTROL;

/// A command line with what holds besides.
#[derive(Debug, Default)]
pub(crate) struct Layered {
    /// All its words.
    pub(crate) words: Vec<OsString>,
    /// For each option that is given somewhere: what, and where.
    pub(crate) given: BTreeMap<String, (String, String)>,
    /// A line for each file that was not believed.
    pub(crate) told: Vec<String>,
}

/// What a command line is surrounded by.
#[derive(Debug)]
pub(crate) struct Around {
    variables: BTreeMap<OsString, OsString>,
    directory: PathBuf,
}

impl Around {
    /// This process's.
    pub(crate) fn here() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            directory: PathBuf::new(),
        }
    }

    /// A variable that is set, and not to nothing.
    fn variable(&self, name: &str) -> Option<&OsStr> {
        let value = self.variables.get(OsStr::new(name))?;
        (!value.is_empty()).then_some(value)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(PathBuf::from)
    }

    /// The files to be read, the strongest first.
    fn files(&self) -> Vec<(PathBuf, Kind)> {
        if let Some(named) = self.path(PLAIN.0) {
            return vec![(named, Kind::Named)];
        }
        let directory = (self.directory.join(NAME), Kind::Directory);
        let user = config_file::of_user(self.path("HOME"), self.path("XDG_CONFIG_HOME"));
        let mut files = vec![directory];
        files.extend(user.map(|path| (path, Kind::User)));
        files
    }
}

/// The options of `run` that may be given elsewhere, and whether each takes a value.
pub(crate) fn options() -> Vec<(String, bool)> {
    let run = Run::augment_args(clap::Command::new("run"));
    let shown = run.get_arguments().filter(|arg| !arg.is_hide_set());
    shown
        .filter_map(|arg| Some((arg.get_long()?.to_owned(), arg.get_action().takes_values())))
        .filter(|(name, _)| name != "print-config")
        .collect()
}

/// The variable of an option.
pub(crate) fn variable(option: &str) -> String {
    format!("ZFOLIO_{}", option.to_uppercase().replace('-', "_"))
}

/// Finds what holds for a command line, if it is one of `run`.
///
/// # Errors
/// A file or a variable is wrong, in one line.
pub(crate) fn layered(words: Vec<OsString>, around: &Around) -> Result<Layered, Failure> {
    if words.get(1).is_none_or(|word| word != "run") || is_for_help(&words) {
        return Ok(Layered {
            words,
            ..Layered::default()
        });
    }
    let options = options();
    let mut layers = Layered {
        given: on_command_line(&words, &options),
        ..Layered::default()
    };
    let mut put = Vec::new();
    let plain = around
        .variable(PLAIN.0)
        .is_some_and(|value| value == PLAIN.1);
    if !plain && around.variable(ENV_CONTROL).is_none() {
        around.tell_of_slips(&options, &mut layers.told);
        let entries = around.entries(&options, &mut layers.told)?;
        for (name, takes_value) in &options {
            if layers.given.contains_key(name) {
                continue;
            }
            let from = around.of_environment(name);
            let from = from.or_else(|| {
                let mut of_files = entries.iter();
                of_files.find(|entry| entry.option == *name).cloned()
            });
            let Some(Entry { value, place, .. }) = from else {
                continue;
            };
            let word = word(name, *takes_value, &value);
            let word = word.map_err(|why| {
                let mend = "zfolio run --help has what options take";
                Failure::new(Status::Usage, &place, why, mend)
            })?;
            put.extend(word);
            layers.given.insert(name.clone(), (value, place));
        }
    }
    let (begin, rest) = words.split_at(2);
    layers.words = [begin, &put, rest].concat();
    Ok(layers)
}

impl Around {
    /// A line for each variable that is named like an option's but for one letter. (Others that begin
    /// like those are not ours to judge: Kubernetes makes `ZFOLIO_PORT` of a service's name.)
    fn tell_of_slips(&self, options: &[(String, bool)], told: &mut Vec<String>) {
        let known: Vec<String> = options.iter().map(|(name, _)| variable(name)).collect();
        for name in self.variables.keys().filter_map(|name| name.to_str()) {
            let is_ours = name.starts_with("ZFOLIO_") && self.variable(name).is_some();
            if !is_ours || known.iter().any(|of| of == name) {
                continue;
            }
            let slip = |of: &&String| strsim::damerau_levenshtein(of, name) == 1;
            if let Some(meant) = known.iter().find(slip) {
                told.push(format!(
                    "zfolio: {name}: no option has this name, but there is {meant}"
                ));
            }
        }
    }

    /// What variable an option has, as an entry.
    fn of_environment(&self, option: &str) -> Option<Entry> {
        let place = variable(option);
        let value = self.variable(&place)?.to_string_lossy().into_owned();
        Some(Entry {
            option: option.to_owned(),
            value,
            place,
        })
    }

    /// What the files have, the strongest first. Each value is one that its option takes.
    fn entries(
        &self,
        options: &[(String, bool)],
        told: &mut Vec<String>,
    ) -> Result<Vec<Entry>, Failure> {
        let names: Vec<String> = options.iter().map(|(name, _)| name.clone()).collect();
        let mut all = Vec::new();
        for (path, kind) in self.files() {
            match config_file::read(&path, kind, &names) {
                Ok(entries) => all.extend(entries),
                Err(Not::There) => {}
                Err(Not::Believed(line)) => told.push(line),
                Err(Not::Right(failure)) => return Err(failure),
            }
        }
        for Entry {
            option,
            value,
            place,
        } in &all
        {
            let takes_value = options.iter().any(|(name, takes)| name == option && *takes);
            word(option, takes_value, value).map_err(|why| {
                let mend = "zfolio run --help has what options take";
                Failure::new(Status::Usage, format!("{place}: {option}"), why, mend)
            })?;
        }
        Ok(all)
    }
}

/// Whether help is asked for, which is given whatever files say.
fn is_for_help(words: &[OsString]) -> bool {
    let parsed = Cli::command().try_get_matches_from(words);
    parsed.is_err_and(|error| error.kind() == ErrorKind::DisplayHelp)
}

/// What the command line itself has.
fn on_command_line(
    words: &[OsString],
    options: &[(String, bool)],
) -> BTreeMap<String, (String, String)> {
    // Whatever else is wrong in it is told later.
    let lenient = Cli::command().mut_subcommand("run", |run| run.ignore_errors(true));
    let matches = lenient.ignore_errors(true).try_get_matches_from(words);
    let Some(run) = matches.ok().and_then(|mut all| all.remove_subcommand()) else {
        return BTreeMap::new();
    };
    let given = options.iter().filter_map(|(name, takes_value)| {
        let id = name.replace('-', "_");
        if run.1.value_source(&id) != Some(ValueSource::CommandLine) {
            return None;
        }
        let value = match takes_value {
            true => {
                let all = run.1.get_raw(&id)?.map(|value| value.to_string_lossy());
                all.collect::<Vec<_>>().join(" ")
            }
            false => "true".to_owned(),
        };
        Some((name.clone(), (value, "command line".to_owned())))
    });
    given.collect()
}

/// The word that gives an option its value; none for `false`.
fn word(name: &str, takes_value: bool, value: &str) -> Result<Option<OsString>, String> {
    if !takes_value {
        return match value.to_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(Some(format!("--{name}").into())),
            "false" | "no" | "off" | "0" => Ok(None),
            _ => Err(format!("`{value}` is neither true nor false")),
        };
    }
    let word = OsString::from(format!("--{name}={value}"));
    let run = Run::augment_args(clap::Command::new("run"));
    let words = [OsStr::new("run"), &word, OsStr::new("cmd")];
    match run.try_get_matches_from(words) {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::ValueValidation | ErrorKind::InvalidValue
            ) =>
        {
            let text = error.render().to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let words: Vec<&str> = first.split_whitespace().collect();
            let told = words.join(" ");
            Err(told.strip_prefix("error: ").unwrap_or(&told).to_owned())
        }
        // (What it needs besides may be given elsewhere.)
        _ => Ok(Some(word)),
    }
}

/// The default of an option, as text.
pub(crate) fn default_of(option: &str) -> String {
    let run = Run::augment_args(clap::Command::new("run"));
    let mut args = run.get_arguments();
    let Some(arg) = args.find(|arg| arg.get_long() == Some(option)) else {
        return String::new();
    };
    if !arg.get_action().takes_values() {
        return "false".into();
    }
    let values = arg.get_default_values().iter();
    let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
    match (values.is_empty(), option) {
        (true, "folio") => "64K".into(),
        (true, _) => "none".into(),
        (false, _) => values.join(","),
    }
}

#[cfg(test)]
mod tests;
