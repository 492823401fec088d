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
        .of_user("high = '1G'\nmax = \"8G\"\ncompressor = 'zstd'\nfolio = 65536\nquiet = true\n")
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
    // Help is given whatever files say; that of the program is the program's.
    let place = place.of_directory("hihg = '2G'\n");
    let help = layered_of(&["zfolio", "run", "--high", "1G", "--help"], &place.around);
    assert_eq!(help.len(), 5);
    assert!(place.layered(&["ls", "--help"]).is_err());
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
        let begin = format!("zfolio: DIR/here/zfolio.toml:1: {option}: the file of a directory");
        assert!(told.starts_with(&begin), "{told}");
        assert!(Place::new().of_user(&text).layered(&["x"]).is_ok());
    }
    // Every option is one of these or those.
    let known = options().into_iter().map(|(name, _)| name);
    let known: std::collections::BTreeSet<String> = known.collect();
    let of_files = ["stats", "backing", "metrics", "record"];
    let listed = config_file::OF_DIRECTORY.into_iter().chain(of_files);
    assert_eq!(
        listed
            .map(String::from)
            .collect::<std::collections::BTreeSet<_>>(),
        known
    );
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
    // None of them is a variable with another meaning, nor near to one.
    let others = [
        "ZFOLIO_CONTROL",
        "ZFOLIO_PRELOAD",
        "ZFOLIO_CONFIG",
        "ZFOLIO_REGIONS",
        "ZFOLIO_SERVING",
        "ZFOLIO_EMBED",
    ];
    for other in others {
        let far = |name| strsim::damerau_levenshtein(&variable(name), other);
        assert!(options.iter().all(|(name, _)| far(name) > 1), "{other}");
    }
}

#[test]
fn a_variable_that_is_one_letter_off_is_told_of_and_what_is_another_s_is_not() {
    let place = Place::new()
        .with("ZFOLIO_HIHG", "1G")
        .with("ZFOLIO_MAXPOOL", "30")
        .with("ZFOLIO_PORT", "tcp://10.0.0.1")
        .with("ZFOLIO_FOLIOS", "")
        .with("ZFOLIO_HIGH", "2G");
    let layered = place.layered(&["x"]).expect("it goes on");
    let lines = [
        "zfolio: ZFOLIO_HIHG: no option has this name, but there is ZFOLIO_HIGH",
        "zfolio: ZFOLIO_MAXPOOL: no option has this name, but there is ZFOLIO_MAX_POOL",
    ];
    assert_eq!(layered.told, lines);
    assert_eq!(place.words(&["x"])[0], "--high=2G");
    // Where variables do not count, nor do these.
    let place = place.with("ZFOLIO_CONFIG", "none");
    assert!(place.layered(&["x"]).expect("it goes on").told.is_empty());
}
