//! The rooms of the runtime have an order, and nothing in one of them knows what is above.
//!
//! Read from the sources: paths that begin with `crate::` or `super::`, and calls of methods
//! by `self.`, which no `use` line shows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Bottom to top. What has no folder of its own is a file beside `lib.rs`.
const ORDER: [&[&str]; 17] = [
    &["segment"],
    // The vocabulary: numbers, values, traits, open files, words to sleep on.
    &[
        "descriptors",
        "error",
        "fork_handshake",
        "options",
        "page",
        "page_fault",
        "pager",
        "scope",
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

/// Rooms whose files name what is in their own `mod.rs`, which names them. To get fewer, never
/// more. (The layout of the segment is one table, and parts of it have files.)
const NAME_THEIR_HEAD: [&str; 1] = ["segment"];

struct Source {
    /// Below `src`, with `/`.
    path: String,
    /// Without comments, and with nothing in its strings.
    code: String,
}

impl Source {
    /// The room, or the file's own name where it is none.
    fn room(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    fn rank(&self) -> usize {
        rank(self.room()).unwrap_or_else(|| panic!("{}: {} is no room", self.path, self.room()))
    }

    /// Its module, as in `crate::swapin::load`.
    fn module(&self) -> String {
        let module = self.path.trim_end_matches(".rs").trim_end_matches("/mod");
        format!("crate::{}", module.replace('/', "::"))
    }

    /// Every path in it that begins with `crate::` or `super::`, with the former.
    fn paths(&self) -> Vec<String> {
        let module = self.module();
        let above = module.rsplit_once("::").map_or("crate", |(above, _)| above);
        let mut found = Vec::new();
        // (What is above a module within a file is that file.)
        let outside = self.code.find("\nmod tests {").unwrap_or(self.code.len());
        for (begin, code) in [
            ("crate::", &self.code[..]),
            ("super::", &self.code[..outside]),
        ] {
            for (at, _) in code.match_indices(begin) {
                let before = self.code[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                let rest = &self.code[at + begin.len()..];
                let base = if begin == "crate::" { "crate" } else { above };
                expand(base, rest, &mut found);
            }
        }
        found
    }
}

/// Adds the paths that `rest` continues `base` with: one, or a tree in braces.
fn expand(base: &str, rest: &str, found: &mut Vec<String>) {
    let end = rest
        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(rest.len());
    let path = format!("{base}::{}", rest[..end].trim_end_matches(':'));
    let Some(tree) = rest[end..]
        .strip_prefix('{')
        .filter(|_| end == 0 || rest[..end].ends_with("::"))
    else {
        found.push(path);
        return;
    };
    let path = path.trim_end_matches("::").to_owned();
    let (mut depth, mut from) = (0, 0);
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                let part = tree[from..at].trim();
                if !part.is_empty() {
                    expand(&path, part, found);
                }
                from = at + 1;
                if c == '}' {
                    return;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

fn rank(room: &str) -> Option<usize> {
    ORDER.iter().position(|rooms| rooms.contains(&room))
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Code alone: comments and what is in strings would be taken for it.
fn strip(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => {
                chars.by_ref().find(|c| *c == '\n');
                code.push('\n');
            }
            '"' => {
                while let Some(c) = chars.next() {
                    match c {
                        '\\' => drop(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
                code.push_str("\"\"");
            }
            // (A quote in a character, which is no string's.)
            '\'' if chars.peek() == Some(&'"') => drop(chars.nth(1)),
            _ => code.push(c),
        }
    }
    code
}

fn sources() -> Vec<Source> {
    let (root, mut found, mut left) = (src(), Vec::new(), vec![src()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).expect("a source");
                let path = path.strip_prefix(&root).expect("below src");
                found.push(Source {
                    path: path.to_str().expect("a name").replace('\\', "/"),
                    code: strip(&text),
                });
            }
        }
    }
    found.retain(|source| source.path != "lib.rs");
    found.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(found.len() > 80, "the sources are read");
    found
}

#[test]
fn every_file_is_in_a_room_and_every_room_says_what_it_is_for() {
    let rooms: BTreeSet<String> = sources()
        .iter()
        .map(|source| source.room().to_owned())
        .collect();
    let listed: BTreeSet<String> = ORDER
        .iter()
        .flat_map(|rooms| rooms.iter().map(|r| (*r).to_owned()))
        .collect();
    assert_eq!(rooms, listed);
    for room in &rooms {
        let folder = src().join(room);
        if folder.is_dir() && !folder.with_extension("rs").exists() {
            let head = fs::read_to_string(folder.join("mod.rs")).expect("a head");
            let lines = head.lines().take_while(|line| line.starts_with("//!"));
            assert!(lines.count() >= 10, "{room}/mod.rs has a head");
        }
    }
}

#[test]
fn no_import_goes_up() {
    let mut up = Vec::new();
    for source in sources() {
        for path in source.paths() {
            let to = path.split("::").nth(1).unwrap_or_default();
            match rank(to) {
                Some(rank) if rank < source.rank() || to == source.room() => {}
                // (The vocabulary is one room.)
                Some(1) if source.rank() == 1 => {}
                _ => up.push(format!("{}: {path}", source.path)),
            }
        }
    }
    assert!(up.is_empty(), "these go up:\n{}", up.join("\n"));
}

#[test]
fn no_two_files_need_each_other() {
    let sources = sources();
    let files: BTreeMap<String, &str> = sources
        .iter()
        .map(|source| (source.module(), source.path.as_str()))
        .collect();
    let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in &sources {
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
    for room in NAME_THEIR_HEAD {
        let head = format!("{room}/mod.rs");
        let files = needs.iter_mut().filter(|(file, _)| file.starts_with(room));
        let there = files.map(|(_, all)| usize::from(all.remove(head.as_str())));
        assert!(
            there.sum::<usize>() > 0,
            "{room} does so no more: off the list"
        );
    }
    // What needs nothing that is left goes, until nothing does.
    while let Some(free) = needs
        .iter()
        .find(|(_, all)| all.iter().all(|file| !needs.contains_key(file)))
        .map(|(file, _)| *file)
    {
        needs.remove(free);
    }
    // Nor is in a circle what nothing that is left needs.
    while let Some(last) = needs
        .keys()
        .find(|file| needs.values().all(|all| !all.contains(*file)))
        .copied()
    {
        needs.remove(last);
    }
    let left = needs.keys().copied().collect::<Vec<_>>();
    assert!(
        left.is_empty(),
        "in a circle, or between two: {}",
        left.join(", ")
    );
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
                rooms.contains(&source.room()),
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
                    homes.entry(&name[..end]).or_default().insert(source.rank());
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
                if home.is_some_and(|rank| *rank > source.rank()) {
                    up.push(format!("{}: self.{}()", source.path, &call[..end]));
                }
            }
        }
    }
    assert!(calls > 500, "calls are found: {calls}");
    assert!(up.is_empty(), "these call up:\n{}", up.join("\n"));
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
