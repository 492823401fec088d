//! The rooms of the runtime, and those of zswap, have an order, and nothing in one of them knows what is above.
//!
//! Read from the sources: paths that begin with `crate::` or `super::`, and calls of methods
//! by `self.`, which no `use` line shows.

use sources::{Source, of_crate, src_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

mod sources;

/// Bottom to top. What has no folder of its own is a file beside `lib.rs`.
const ORDER: [&[&str]; 18] = [
    &["segment"],
    // The vocabulary: numbers, values, traits, open files, words to sleep on.
    &[
        "descriptors",
        "error",
        "fork_handshake",
        "kernel",
        "options",
        "page",
        "page_fault",
        "pager",
        "scope",
        "serve_loop",
        "wakeups",
    ],
    &["policy"],
    &["events"],
    &["frames"],
    &["health"],
    &["budget"],
    &["address_space"],
    &["transfer"],
    &["swapin"],
    &["swapout"],
    &["upkeep"],
    &["fork"],
    &["protect"],
    &["faults"],
    &["control"],
    &["faces"],
    // For tests alone: a manager on a fake kernel.
    &["rig"],
];

/// The rooms of `zfolio-zswap`, bottom to top.
const ZSWAP_ORDER: [&[&str]; 8] = [
    // The vocabulary.
    &["arena", "frame_reserve", "limits", "slot", "spans", "stats"],
    &["backing"],
    &["entry"],
    &["pool"],
    &["load"],
    &["writeback"],
    &["store"],
    &["second_tier"],
];

/// The type of each layer, and the rooms in which its methods stand.
const LAYERS: [(&str, &[&str]); 9] = [
    ("Physical", &["frames"]),
    ("Health", &["health"]),
    ("Memory", &["budget"]),
    ("Space", &["address_space"]),
    ("Transfer", &["transfer", "swapin"]),
    ("Swap", &["swapout", "faults"]),
    ("Upkeep", &["upkeep"]),
    ("Forks", &["fork"]),
    ("Manager", &["control", "faces"]),
];

/// The room of a file, or its own name where it is in none.
fn room_of(source: &Source) -> &str {
    let first = source.path.split('/').next().unwrap_or_default();
    first.strip_suffix(".rs").unwrap_or(first)
}

fn rank_of(source: &Source) -> usize {
    let room = room_of(source);
    rank(room).unwrap_or_else(|| panic!("{}: {room} is no room", source.path))
}

fn sources() -> Vec<Source> {
    let mut found = of_crate("zfolio-runtime");
    found.retain(|source| source.path != "lib.rs");
    assert!(found.len() > 80, "the sources are read");
    found
}

fn rank(room: &str) -> Option<usize> {
    ORDER.iter().position(|rooms| rooms.contains(&room))
}

#[test]
fn every_file_is_in_a_room_and_every_room_says_what_it_is_for() {
    let rooms: BTreeSet<String> = sources()
        .iter()
        .map(|source| room_of(source).to_owned())
        .collect();
    let listed: BTreeSet<String> = ORDER
        .iter()
        .flat_map(|rooms| rooms.iter().map(|r| (*r).to_owned()))
        .collect();
    assert_eq!(rooms, listed);
    for name in ["zfolio-runtime", "zfolio-zswap"] {
        for entry in fs::read_dir(src_of(name)).expect("a folder") {
            let folder = entry.expect("an entry").path();
            if folder.is_dir() && !folder.with_extension("rs").exists() {
                let head = fs::read_to_string(folder.join("mod.rs")).expect("a head");
                let lines = head.lines().take_while(|line| line.starts_with("//!"));
                assert!(lines.count() >= 10, "{} has a head", folder.display());
            }
        }
    }
}

/// Paths of `sources` that lead to a room above the one they stand in.
fn imports_up(sources: &[Source], order: &[&[&str]]) -> Vec<String> {
    let rank = |room: &str| order.iter().position(|rooms| rooms.contains(&room));
    let mut up = Vec::new();
    // (What stands in a file of its own and is a test looks down from the top, as the rig does.)
    let is_test = |source: &&Source| source.path.ends_with("/tests.rs");
    for source in sources.iter().filter(|source| !is_test(source)) {
        let room = room_of(source);
        let own = rank(room).unwrap_or_else(|| panic!("{}: {room} is no room", source.path));
        for path in source.paths() {
            let to = path.split("::").nth(1).unwrap_or_default();
            match rank(to) {
                Some(rank) if rank < own || to == room => {}
                // (Files beside each other are one room.)
                Some(rank) if rank == own && order[own].len() > 1 => {}
                // (A constant of the crate's head.)
                None if to.chars().all(|c| c.is_ascii_uppercase() || c == '_') => {}
                _ => up.push(format!("{}: {path}", source.path)),
            }
        }
    }
    up
}

#[test]
fn no_import_goes_up() {
    let mut zswap = of_crate("zfolio-zswap");
    zswap.retain(|source| source.path != "lib.rs");
    assert!(zswap.len() > 30, "the sources are read");
    let up = [
        imports_up(&sources(), &ORDER),
        imports_up(&zswap, &ZSWAP_ORDER),
    ];
    let up = up.concat();
    assert!(up.is_empty(), "these go up:\n{}", up.join("\n"));
}

#[test]
fn an_import_that_goes_up_is_found() {
    let source = |path: &str, code: &str| Source {
        path: path.to_owned(),
        code: code.to_owned(),
    };
    let sources = [
        source("pool/a.rs", "use crate::store::B;\nuse super::c::D;\n"),
        source("pool/a/tests.rs", "use crate::store::B;\n"),
        source("store/b.rs", "use crate::pool::A;\nuse crate::MAX;\n"),
    ];
    let up = imports_up(&sources, &ZSWAP_ORDER);
    assert_eq!(up, ["pool/a.rs: crate::store::B"]);
}

/// The blocks `impl Layer { ... }` of a source: of which layer, and what is in it.
fn layer_blocks(source: &Source) -> Vec<(&'static str, &str)> {
    let mut blocks = Vec::new();
    for (layer, _) in LAYERS {
        let begin = format!("\nimpl {layer} {{\n");
        for (at, _) in source.code.match_indices(&begin) {
            let body = &source.code[at + begin.len()..];
            blocks.push((layer, &body[..body.find("\n}").unwrap_or(body.len())]));
        }
    }
    blocks
}

#[test]
fn no_method_calls_one_of_a_room_above() {
    let sources = sources();
    let mut homes: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    let mut layers = BTreeSet::new();
    for source in &sources {
        for (layer, block) in layer_blocks(source) {
            let rooms = LAYERS
                .iter()
                .find(|(name, _)| *name == layer)
                .expect("listed")
                .1;
            assert!(
                rooms.contains(&room_of(source)),
                "{}: impl {layer}",
                source.path
            );
            layers.insert(layer);
            for line in block.lines() {
                let Some((before, name)) = line.split_once("fn ") else {
                    continue;
                };
                if line.starts_with("    ") && !before[4..].starts_with(' ') {
                    let end = name.find(['(', '<']).unwrap_or(name.len());
                    homes
                        .entry(&name[..end])
                        .or_default()
                        .insert(rank_of(source));
                }
            }
        }
    }
    assert_eq!(layers.len(), LAYERS.len(), "each layer has methods");
    assert!(homes.len() > 200, "methods are found");
    let (mut up, mut calls) = (Vec::new(), 0);
    for source in &sources {
        for (_, block) in layer_blocks(source) {
            for call in block.split("self.").skip(1) {
                let end = call
                    .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .unwrap_or(call.len());
                if !call[end..].starts_with('(') {
                    continue;
                }
                calls += 1;
                let home = homes.get(&call[..end]).and_then(|ranks| ranks.first());
                if home.is_some_and(|rank| *rank > rank_of(source)) {
                    up.push(format!("{}: self.{}()", source.path, &call[..end]));
                }
            }
        }
    }
    assert!(calls > 500, "calls are found: {calls}");
    assert!(up.is_empty(), "these call up:\n{}", up.join("\n"));
}
