//! The rooms of the runtime, of zswap and of the in-thread engine have an order, and nothing in
//! one of them knows what is above.
//!
//! Read from the sources: paths that begin with `crate::` or `super::`, and calls of methods,
//! which no `use` line shows, on `self` and on parameters whose type the signature names.

use methods::calls_up;
use sources::{Source, of_crate, src_of};
use std::collections::BTreeSet;
use std::fs;

mod methods;
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
    &[
        "arena",
        "by_distance",
        "frame_reserve",
        "limits",
        "slot",
        "spans",
        "stats",
    ],
    &["backing"],
    &["entry"],
    &["pool"],
    &["load"],
    &["writeback"],
    &["store"],
    &["second_tier"],
];

/// The rooms of `zfolio-inthread`, bottom to top.
const INTHREAD_ORDER: [&[&str]; 11] = [
    &["raw"],
    &["program_memory", "pins", "call_stacks", "store_wait"],
    &["signal", "cancel"],
    &["threads"],
    &["process"],
    &["memory"],
    // All that there is, in one place.
    &["state"],
    &["seen"],
    &["life"],
    &["answer"],
    &["start"],
];

/// The type of each layer of the runtime, and the rooms in which its methods stand.
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

/// The sources of a crate that has rooms, but for its head.
fn sources(name: &str) -> Vec<Source> {
    let mut found = of_crate(name);
    found.retain(|source| source.path != "lib.rs");
    assert!(found.len() > 30, "the sources are read");
    found
}

/// Crates that have rooms, and their order.
fn crates() -> [(&'static str, &'static [&'static [&'static str]]); 3] {
    [
        ("zfolio-runtime", &ORDER),
        ("zfolio-zswap", &ZSWAP_ORDER),
        ("zfolio-inthread", &INTHREAD_ORDER),
    ]
}

fn rank(order: &[&[&str]], source: &Source) -> usize {
    let room = room_of(source);
    let rank = order.iter().position(|rooms| rooms.contains(&room));
    rank.unwrap_or_else(|| panic!("{}: {room} is no room", source.path))
}

#[test]
fn every_file_is_in_a_room_and_every_room_says_what_it_is_for() {
    for (name, order) in crates() {
        let sources = sources(name);
        let rooms: BTreeSet<&str> = sources.iter().map(room_of).collect();
        let listed: BTreeSet<&str> = order
            .iter()
            .flat_map(|rooms| rooms.iter().copied())
            .collect();
        assert_eq!(rooms, listed, "{name}");
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
    let up = crates().map(|(name, order)| imports_up(&sources(name), order));
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

#[test]
fn methods_of_a_layer_stand_in_its_rooms() {
    let mut layers = BTreeSet::new();
    for source in sources("zfolio-runtime") {
        for (layer, rooms) in LAYERS {
            if source.code.contains(&format!("\nimpl {layer} {{\n")) {
                let here = room_of(&source);
                assert!(rooms.contains(&here), "{}: impl {layer}", source.path);
                layers.insert(layer);
            }
        }
    }
    assert_eq!(layers.len(), LAYERS.len(), "each layer has methods");
}

#[test]
fn no_method_calls_one_of_a_room_above() {
    let mut up = Vec::new();
    for (name, order) in crates() {
        let sources = sources(name);
        let (found, calls) = calls_up(&sources, |source| rank(order, source));
        assert!(calls > 100, "{name}: {calls} calls are found");
        up.extend(found);
    }
    assert!(up.is_empty(), "these call up:\n{}", up.join("\n"));
}

#[test]
fn a_call_that_goes_up_is_found() {
    let source = |path: &str, code: &str| Source {
        path: path.to_owned(),
        code: code.to_owned(),
    };
    let sources = [
        source(
            "pool/a.rs",
            "\nimpl Below {\n    pub(crate) fn low(&self) {}\n}\n",
        ),
        source(
            "pool/b.rs",
            "\nimpl Deref for Above {\n    type Target = Below;\n}\n\
             \nimpl Above {\n    fn calls(&self, other: &Below) {\n        self.low();\n        \
             self.upper();\n        other.highest();\n        self.field.upper();\n    }\n}\n\
             fn free(all: &mut Above) {\n    all\n        .upper();\n    all.low();\n}\n",
        ),
        source("store/c.rs", "\nimpl Above {\n    fn upper(&self) {}\n}\n"),
        source(
            "second_tier/d.rs",
            "\nimpl Below {\n    fn highest(&self) {}\n}\n",
        ),
    ];
    let (up, calls) = calls_up(&sources, |source| rank(&ZSWAP_ORDER, source));
    let expected = [
        "pool/b.rs: Above::upper",
        "pool/b.rs: Below::highest",
        "pool/b.rs: Above::upper",
    ];
    assert_eq!((up, calls), (expected.map(str::to_owned).to_vec(), 5));
}
