//! No two files of a crate need each other, by whatever way round, in any crate of the
//! workspace. Read from the paths that begin with `crate::` or `super::`, and from what a
//! head names of its own modules. `lib.rs` and `main.rs`, which name everything, are left out.

use sources::{Source, crates, of_crate, strip};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

mod sources;

/// Crates that have circles yet, and how many files are in one at most. To get fewer.
const CIRCLES: [(&str, usize); 2] = [("zfolio", 3), ("zfolio-inthread", 28)];

/// Which files of a crate each of them needs.
fn needs(sources: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
    let files: BTreeMap<String, &str> = sources
        .iter()
        .map(|source| (source.module(), source.path.as_str()))
        .filter(|(module, _)| module != "crate")
        .collect();
    let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.module() != "crate") {
        let all = needs.entry(&source.path).or_default();
        let own = local_paths(source, &files);
        for path in source.paths().into_iter().chain(own) {
            let mut module = path.as_str();
            while !files.contains_key(module) {
                match module.rsplit_once("::") {
                    Some((above, _)) => module = above,
                    None => break,
                }
            }
            if let Some(file) = files.get(module).filter(|file| **file != source.path) {
                all.insert(file);
            }
        }
    }
    needs
}

/// Files that come to need themselves.
fn in_circles<'a>(needs: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<&'a str> {
    let needs_itself = |file: &&&str| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![**file]);
        while let Some(at) = left.pop() {
            left.extend(needs[at].iter().filter(|next| seen.insert(**next)));
        }
        seen.contains(**file)
    };
    needs.keys().filter(needs_itself).copied().collect()
}

/// What a `mod.rs` names of its own modules without `crate::`.
fn local_paths(source: &Source, files: &BTreeMap<String, &str>) -> Vec<String> {
    let uses = source.code.lines().filter_map(|line| {
        let line = line
            .strip_prefix("pub ")
            .or(line.strip_prefix("pub(crate) "))
            .unwrap_or(line);
        line.strip_prefix("use ")?.split("::").next()
    });
    let own = uses.map(|first| format!("{}::{first}", source.module()));
    own.filter(|module| files.contains_key(module)).collect()
}

#[test]
fn no_two_files_of_a_crate_need_each_other() {
    let mut wrong = Vec::new();
    let (mut seen, mut read) = (0, 0);
    for entry in fs::read_dir(crates()).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_str().expect("a name");
        let sources = of_crate(name);
        let left = in_circles(&needs(&sources));
        let most = CIRCLES.iter().find(|(of, _)| *of == name);
        if left.len() > most.map_or(0, |(_, most)| *most) {
            wrong.push(format!("{name} ({}): {}", left.len(), left.join(", ")));
        }
        if most.is_some() && left.is_empty() {
            wrong.push(format!("{name} has none: off the list"));
        }
        read += sources.len();
        seen += 1;
    }
    assert!(seen >= 11 && read > 300, "{read} sources of {seen} crates");
    assert!(wrong.is_empty(), "in a circle:\n{}", wrong.join("\n"));
}

#[test]
fn a_circle_is_found_and_what_is_none_is_not() {
    let source = |path: &str, code: &str| Source {
        path: path.to_owned(),
        code: strip(code),
    };
    let sources = [
        source("a/mod.rs", "mod b;\npub use b::B;\n"),
        source("a/b.rs", "use super::c::C;\n"),
        source("a/c.rs", "use crate::a::B;\n"),
        source("d.rs", "use crate::a::B;\nuse crate::e::E;\n"),
        source("e.rs", "// use crate::d::D;\n"),
        source("lib.rs", "pub use d::D;\n"),
    ];
    let found = in_circles(&needs(&sources));
    assert_eq!(found, ["a/b.rs", "a/c.rs", "a/mod.rs"]);
    assert!(in_circles(&needs(&sources[3..])).is_empty());
}

#[test]
fn paths_are_read_as_they_are_written() {
    let source = Source {
        path: "swapin/load.rs".to_owned(),
        code: strip(
            "use crate::page::{Vpn, address_of};\nuse super::plan::Plan; // crate::control\n\
             fn f() { crate::frames::arena::g(\"crate::faces\", '\"', \"\\\"\"); x::supercrate::y(); }\n\
             use crate::{a::{b, c}, d};\n",
        ),
    };
    let mut paths = source.paths();
    paths.sort();
    let expected = [
        "crate::a::b",
        "crate::a::c",
        "crate::d",
        "crate::frames::arena::g",
        "crate::page::Vpn",
        "crate::page::address_of",
        "crate::swapin::plan::Plan",
    ];
    assert_eq!(paths, expected);
}
