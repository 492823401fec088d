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

use crate::options::args::{Cli, Run};
use crate::options::config_file::{self, Entry, Kind, NAME, Not};
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
    if words.get(1).is_none_or(|word| word != "run") {
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
            true => run.1.get_raw(&id)?.next()?.to_string_lossy().into_owned(),
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
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, text).expect("written");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).expect("set");
    }

    /// A directory with a home in it.
    struct Place {
        dir: tempfile::TempDir,
        around: Around,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            let home = dir.path().join("home");
            let around = Around {
                variables: BTreeMap::from([("HOME".into(), home.into())]),
                directory: dir.path().join("here"),
            };
            Self { dir, around }
        }

        fn of_user(self, text: &str) -> Self {
            let path = self.dir.path().join("home/.config/zfolio/zfolio.toml");
            write(&path, text);
            self
        }

        fn of_directory(self, text: &str) -> Self {
            write(&self.dir.path().join("here/zfolio.toml"), text);
            self
        }

        fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
            self.around.variables.insert(name.into(), value.into());
            self
        }

        fn layered(&self, words: &[&str]) -> Result<Layered, String> {
            let all = ["zfolio", "run"].iter().chain(words);
            let words = all.map(OsString::from).collect();
            layered(words, &self.around).map_err(|failure| {
                let text = failure.to_string();
                assert_eq!(failure.status, Status::Usage);
                text.replace(&*self.dir.path().to_string_lossy(), "DIR")
            })
        }

        /// Words of what holds.
        fn words(&self, words: &[&str]) -> Vec<String> {
            let layered = self.layered(words).expect("right");
            let words = layered.words[2..].iter();
            words
                .map(|word| word.to_string_lossy().into_owned())
                .collect()
        }
    }

    #[test]
    fn the_strongest_layer_holds() {
        let place = Place::new()
            .of_user(
                "high = '1G'\nmax = \"8G\"\ncompressor = 'zstd'\nfolio = 65536\nquiet = true\n",
            )
            .of_directory("high = '2G'\n# A note.\nmax = '9G'\n")
            .with("ZFOLIO_HIGH", "3G")
            .with("ZFOLIO_PER_PROCESS", "1")
            .with("ZFOLIO_TIER", "");
        let words = place.words(&["--compressor", "lz4", "--", "job", "--folio", "4K"]);
        let expected = [
            "--high=3G",
            "--per-process",
            "--folio=65536",
            "--max=9G",
            "--quiet",
            "--compressor",
            "lz4",
            "--",
            "job",
            "--folio",
            "4K",
        ];
        assert_eq!(words, expected);
        let layered = place.layered(&["--high", "4G", "x"]).expect("right");
        let from = |option: &str| {
            let (value, place_of) = &layered.given[option];
            let place_of = place_of.replace(&*place.dir.path().to_string_lossy(), "DIR");
            format!("{value} {place_of}")
        };
        assert_eq!(from("high"), "4G command line");
        assert_eq!(from("max"), "9G DIR/here/zfolio.toml:3");
        assert_eq!(
            from("compressor"),
            "zstd DIR/home/.config/zfolio/zfolio.toml:3"
        );
        assert_eq!(from("per-process"), "1 ZFOLIO_PER_PROCESS");
        assert!(layered.told.is_empty());
        // A flag that is off in a stronger layer is off.
        let place = place.with("ZFOLIO_QUIET", "no");
        assert!(!place.words(&["x"]).contains(&"--quiet".into()));
        // What another command is asked for is its own affair.
        let stat = layered_of(&["zfolio", "stat", "1"], &place.around);
        assert_eq!(stat, ["zfolio", "stat", "1"]);
    }

    fn layered_of(words: &[&str], around: &Around) -> Vec<OsString> {
        let words = words.iter().map(OsString::from).collect();
        layered(words, around).expect("right").words
    }

    #[test]
    fn within_a_run_and_where_it_is_asked_for_only_the_command_line_counts() {
        for (name, value) in [(ENV_CONTROL, "/dev/shm/zfolio-1-0.control"), PLAIN] {
            let place = Place::new()
                .of_user("high = '1G'\n")
                .of_directory("hihg = '2G'\n")
                .with("ZFOLIO_MAX", "lots")
                .with(name, value);
            assert_eq!(place.words(&["--group", "a", "x"]), ["--group", "a", "x"]);
        }
    }

    #[test]
    fn a_named_file_is_the_only_one() {
        let place = Place::new()
            .of_user("high = '1G'\n")
            .of_directory("max = '2G'\n");
        let path = place.dir.path().join("other.toml");
        write(&path, "tier = 'auto'\nstats = '/tmp/x'\n");
        let place = place.with("ZFOLIO_CONFIG", &path);
        assert_eq!(place.words(&["x"]), ["--tier=auto", "--stats=/tmp/x", "x"]);
        std::fs::remove_file(&path).expect("removed");
        let told = place.layered(&["x"]).expect_err("not there");
        assert!(
            told.starts_with("zfolio: DIR/other.toml: No such file"),
            "{told}"
        );
        write(&path, "");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o664)).expect("set");
        let told = place.layered(&["x"]).expect_err("not believed");
        assert!(
            told.contains("others may write to it: chmod go-w DIR/other.toml"),
            "{told}"
        );
    }

    #[test]
    fn mistakes_name_the_place_and_what_may_be_meant() {
        for (text, told) in [
            ("hihg = '1G'", ":1: no option `hihg`, but there is `high`; "),
            (
                "\nswap_max = '1G'",
                ":2: no option `swap_max`, but there is `swap-max`; ",
            ),
            ("nonsense = 1", ":1: no option `nonsense`; "),
            ("print-config = true", ":1: no option `print-config`; "),
            (
                "no-folio-compaction = true",
                ":1: no option `no-folio-compaction`",
            ),
            (
                "high = 'lots'",
                ":1: high: invalid value 'lots' for '--high <SIZE>': not a size",
            ),
            (
                "quiet = 'maybe'",
                ":1: quiet: `maybe` is neither true nor false; ",
            ),
            (
                "high = 1.5",
                ":1: high: write it as a string, a whole number, true or false; ",
            ),
            (
                "tier = 'on'",
                ":1: tier: invalid value 'on' for '--tier <WHEN>'",
            ),
            ("high = '1G'\nhigh = '2G'", ":2: duplicate key; "),
            ("high = ", ":1: "),
        ] {
            let place = Place::new().of_user(text);
            let failure = place.layered(&["x"]).expect_err(text);
            let begin = format!("zfolio: DIR/home/.config/zfolio/zfolio.toml{told}");
            assert!(failure.starts_with(&begin), "{failure}\nnot {begin}");
            assert!(!failure.contains('\n'), "{failure}");
        }
        let place = Place::new().with("ZFOLIO_HIGH", "lots");
        let told = place.layered(&["x"]).expect_err("no size");
        assert!(
            told.starts_with("zfolio: ZFOLIO_HIGH: invalid value 'lots'"),
            "{told}"
        );
        // What is stronger is what counts.
        assert_eq!(place.words(&["--high", "1G", "x"]), ["--high", "1G", "x"]);
    }

    #[test]
    fn the_file_of_a_directory_says_nothing_of_files() {
        for option in ["stats", "backing"] {
            let text = format!("{option} = 'file:/tmp'\n");
            let told = Place::new().of_directory(&text).layered(&["x"]);
            let told = told.expect_err("not there");
            let begin =
                format!("zfolio: DIR/here/zfolio.toml:1: {option}: the file of a directory");
            assert!(told.starts_with(&begin), "{told}");
            assert!(Place::new().of_user(&text).layered(&["x"]).is_ok());
        }
        let known = options();
        for option in config_file::OF_DIRECTORY {
            assert!(known.iter().any(|(name, _)| name == option), "{option}");
        }
    }

    #[test]
    fn a_file_that_others_may_write_is_not_read() {
        let place = Place::new().of_directory("high = '1G'\n");
        let path = place.dir.path().join("here/zfolio.toml");
        for mode in [0o664, 0o646, 0o666] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
            let layered = place.layered(&["x"]).expect("it goes on");
            assert!(layered.given.is_empty());
            let [line] = &layered.told[..] else {
                panic!("{:?}", layered.told)
            };
            assert!(
                line.contains("zfolio.toml: not read: others may write to it"),
                "{line}"
            );
        }
        // Nor one that is another's, whoever's the link is; nor one that is no file.
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("set");
            std::os::unix::fs::chown(&path, Some(65534), None).expect("given away");
            let layered = place.layered(&["x"]).expect("it goes on");
            assert!(layered.told[0].ends_with("not read: it belongs to user 65534"));
            let own = place.dir.path().join("own.toml");
            write(&own, "high = '1G'\n");
            std::fs::remove_file(&path).expect("removed");
            symlink(&own, &path).expect("a link");
            assert_eq!(place.words(&["x"])[0], "--high=1G");
            std::os::unix::fs::lchown(&path, Some(65534), None).expect("given away");
            let layered = place.layered(&["x"]).expect("it goes on");
            assert!(layered.told[0].ends_with("not read: it belongs to user 65534"));
        }
        std::fs::remove_file(&path).expect("removed");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("a pipe");
        let layered = place.layered(&["x"]).expect("it goes on");
        assert!(layered.told[0].ends_with("not read: it is no regular file"));
    }

    #[test]
    fn every_option_has_a_default_and_a_variable() {
        let options = options();
        assert!(options.len() > 14, "{options:?}");
        for (name, _) in &options {
            assert!(!default_of(name).is_empty(), "{name}");
        }
        assert_eq!(default_of("compressor"), "auto");
        assert_eq!(default_of("quiet"), "false");
        assert_eq!(variable("swap-max"), "ZFOLIO_SWAP_MAX");
        // None of them is a variable with another meaning.
        for other in ["ZFOLIO_CONTROL", "ZFOLIO_PRELOAD", "ZFOLIO_CONFIG"] {
            assert!(options.iter().all(|(name, _)| variable(name) != other));
        }
    }
}
