//! Some words are easily given to several things. Each of them is one type or constant in all
//! of the workspace, tests and fuzzer included.

use sources::{crates, strip};
use std::fs;
use std::path::{Path, PathBuf};

mod sources;

/// Each means one thing.
const ONCE: [&str; 6] = ["Clock", "Core", "PATIENCE", "Run", "Step", "Worker"];
/// What can have such a name.
const KINDS: [&str; 7] = [
    "struct", "enum", "trait", "type", "union", "const", "static",
];
/// A room is a folder of a crate: only the tests that check them have the word in their code.
const OF_ROOMS: [&str; 3] = [
    "zfolio-runtime/tests/rooms.rs",
    "zfolio-runtime/tests/docs.rs",
    "zfolio-cli/tests/rooms.rs",
];

/// Every source of the workspace, by its path, without comments and strings.
fn all() -> Vec<(PathBuf, String)> {
    let fuzz = crates().with_file_name("fuzz");
    let (mut found, mut left) = (Vec::new(), vec![crates(), fuzz]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                left.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).expect("a source");
                found.push((path, strip(&text)));
            }
        }
    }
    found
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
}

/// How often `name` is defined in `code`.
fn defined(code: &str, name: &str) -> usize {
    let pairs = words(code).zip(words(code).skip(1));
    pairs
        .filter(|(kind, word)| *word == name && KINDS.contains(kind))
        .count()
}

#[test]
fn a_name_that_means_one_thing_is_defined_once() {
    let all = all();
    assert!(all.len() > 600, "{} sources are read", all.len());
    for name in ONCE {
        let of = |(path, code): &(PathBuf, String)| vec![path.clone(); defined(code, name)];
        let places: Vec<PathBuf> = all.iter().flat_map(of).collect();
        assert_eq!(places.len(), 1, "{name}: {places:#?}");
    }
}

#[test]
fn a_room_is_a_folder_of_a_crate() {
    let has = |code: &str| words(code).any(|word| ["room", "rooms", "Room"].contains(&word));
    let all = all();
    let with = all.iter().filter(|(_, code)| has(code));
    let with: Vec<&Path> = with.map(|(path, _)| path.as_path()).collect();
    let (of_rooms, others): (Vec<&Path>, Vec<&Path>) = with
        .into_iter()
        .partition(|path| OF_ROOMS.iter().any(|own| path.ends_with(own)));
    assert_eq!(of_rooms.len(), OF_ROOMS.len());
    assert!(others.is_empty(), "a buffer, a capacity: {others:#?}");
}

#[test]
fn definitions_are_told_from_uses() {
    let code =
        "pub(crate) struct Step<T>(T);\nfn f(step: Step<u8>) {}\nenum Steps {}\ntype Step = u8;\n";
    assert_eq!((defined(code, "Step"), defined(code, "Steps")), (2, 1));
    assert_eq!(defined(code, "T"), 0);
}
