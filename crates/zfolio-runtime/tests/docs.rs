//! Every source that the documents name is there: who follows a path by its files finds them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/zfolio-runtime lies in the repository")
        .to_owned()
}

/// Files of `folder` and below it that end with `ext`, from the repository's root.
fn files(folder: &str, ext: &str) -> Vec<String> {
    let (root, mut left, mut found) = (repository(), vec![repository().join(folder)], Vec::new());
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                left.push(path);
            } else if path.extension().is_some_and(|found| found == ext) {
                let path = path.strip_prefix(&root).expect("below the root");
                found.push(path.to_str().expect("a name").to_owned());
            }
        }
    }
    found
}

/// The paths in `text` that end with `.rs`.
fn named(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c)))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| {
            word.strip_suffix(".rs")
                .is_some_and(|name| !name.is_empty())
        })
        .collect()
}

/// Whether `path` is `name`, or ends with it where a part begins.
fn is_named(path: &str, name: &str) -> bool {
    let whole = path.strip_suffix(name);
    whole.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

#[test]
fn every_source_that_a_document_names_exists() {
    let sources: Vec<String> = ["crates", "python", "fuzz"]
        .into_iter()
        .flat_map(|folder| files(folder, "rs"))
        .collect();
    let documents = files("docs", "md");
    assert!(sources.len() > 200 && documents.len() > 20);
    let (mut missing, mut count) = (Vec::new(), 0);
    for document in &documents {
        let text = fs::read_to_string(repository().join(document)).expect("a document");
        for name in named(&text) {
            count += 1;
            if !sources.iter().any(|path| is_named(path, name)) {
                missing.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(count > 100, "names are found: {count}");
    assert!(
        missing.is_empty(),
        "there is no such file:\n{}",
        missing.join("\n")
    );
}

#[test]
fn each_step_of_the_swap_paths_is_a_file_of_a_room() {
    let text = fs::read_to_string(repository().join("docs/swap-paths.md")).expect("a document");
    let steps = text
        .lines()
        .filter(|line| line.starts_with("    ") && line.contains(" -> "));
    let mut count = 0;
    for name in steps.flat_map(|line| named(line)) {
        let path = repository().join("crates/zfolio-runtime/src").join(name);
        let (room, _) = name.split_once('/').expect("a room and a file");
        assert!(path.is_file() && !room.is_empty(), "{name}");
        count += 1;
    }
    assert!(count >= 15, "steps are found: {count}");
}

#[test]
fn a_name_is_no_part_of_another() {
    assert!(is_named("crates/a/src/load.rs", "load.rs"));
    assert!(is_named("crates/a/src/load.rs", "src/load.rs"));
    assert!(!is_named("crates/a/src/reload.rs", "load.rs"));
    let found = named("in `load.rs`, src/move_in.rs. And `.rs` files");
    assert_eq!(
        found.into_iter().collect::<Vec<_>>(),
        ["load.rs", "src/move_in.rs"]
    );
}
