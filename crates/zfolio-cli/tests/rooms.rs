//! The command is four crates, `zfolio-cli` above `zfolio-bench` and `zfolio-views` above `zfolio-host`; the modules
//! of each have an order, and none knows what is above it.
//!
//! Read from the sources: paths that begin with `crate::` or `super::`, and what a file imports of
//! its own modules. Modules of tests are left out: they may look anywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A crate of the command, and its modules from bottom to top.
struct Order {
    name: &'static str,
    rooms: &'static [&'static [&'static str]],
}

/// Bottom to top. The last module of a crate is the file that declares the others.
const CRATES: [Order; 4] = [
    Order {
        name: "zfolio-host",
        rooms: &[
            &[
                "size",
                "compressor",
                "engine_attributes",
                "exit",
                "outfile",
                "histogram",
                "controller",
                "schema",
            ],
            &[
                "standard_output",
                "cgroup_limits",
                "uffd_probe",
                "process_time",
                "process_tree",
                "elf",
            ],
            &["machine"],
            &["target"],
            &["segment_file"],
            &[
                "find_run",
                "slots",
                "held",
                "group_state",
                "engine_queues",
                "class_table",
            ],
            &["statistics", "owners"],
            &["shown", "staying", "store_totals"],
            &["lib"],
        ],
    },
    Order {
        name: "zfolio-views",
        rooms: &[
            &["address", "config", "help", "slowdown"],
            &["args"],
            &["look"],
            &["document", "sample"],
            &["metrics", "record", "stat", "top"],
            &["plot", "schema"],
            &["lib"],
        ],
    },
    Order {
        name: "zfolio-bench",
        rooms: &[
            &["sequence", "args"],
            &["output"],
            &["corpus", "keeper"],
            &["rig"],
            &["workloads"],
            &["experiments"],
            &["lib"],
        ],
    },
    Order {
        name: "zfolio-cli",
        rooms: &[
            &["own"],
            &["options"],
            &["preload", "fitting"],
            &["tree"],
            &["slowdown"],
            &["supervise", "requests"],
            &["report"],
            &[
                "run", "set", "compact", "inspect", "doctor", "demo", "manual",
            ],
            &["schema"],
            &["main"],
        ],
    },
];

/// Lines of a file, tests among them.
const LONGEST: usize = 500;

struct Source {
    /// Below `src`, with `/`.
    path: String,
    /// Without comments and tests, and with nothing in its strings.
    code: String,
    lines: usize,
}

impl Source {
    fn room(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Its module, as in `crate::run::settings`; of a crate's first file `crate`.
    fn module(&self) -> String {
        if ["lib.rs", "main.rs"].contains(&self.path.as_str()) {
            return "crate".to_owned();
        }
        let module = self.path.trim_end_matches(".rs").trim_end_matches("/mod");
        format!("crate::{}", module.replace('/', "::"))
    }

    /// Every path in it that begins with `crate::` or `super::`, from the crate.
    fn paths(&self) -> Vec<String> {
        let module = self.module();
        let above = module.rsplit_once("::").map_or("crate", |(above, _)| above);
        let twice = above.rsplit_once("::").map_or("crate", |(above, _)| above);
        let mut found = Vec::new();
        for (begin, base) in [
            ("crate::", "crate"),
            ("super::super::", twice),
            ("super::", above),
        ] {
            for (at, _) in self.code.match_indices(begin) {
                let before = self.code[..at].chars().next_back();
                if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                let rest = &self.code[at + begin.len()..];
                if !rest.starts_with("super::") {
                    expand(base, rest, &mut found);
                }
            }
        }
        found
    }

    /// What it imports of modules it declares, which is written without `crate::`.
    fn own_paths(&self, files: &BTreeMap<String, &str>) -> Vec<String> {
        let imports = self.code.lines().filter_map(|line| {
            let line = line.trim_start_matches("pub(crate) ");
            let line = line.trim_start_matches("pub ");
            line.strip_prefix("use ")?.split("::").next()
        });
        let called = self.code.split("::").filter_map(|before| {
            let word = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_'));
            word.into_iter().next().filter(|word| !word.is_empty())
        });
        let own = imports
            .chain(called)
            .map(|first| format!("{}::{first}", self.module()));
        own.filter(|module| files.contains_key(module)).collect()
    }
}

/// Adds the paths that `rest` continues `base` with: one, or a tree in braces.
fn expand(base: &str, rest: &str, found: &mut Vec<String>) {
    let end = rest
        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(rest.len());
    let path = format!("{base}::{}", rest[..end].trim_end_matches(':'));
    let path = path.trim_end_matches("::").to_owned();
    let Some(tree) = rest[end..].strip_prefix('{') else {
        found.push(path);
        return;
    };
    let (mut depth, mut from) = (0, 0);
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                let part = tree[from..at].trim();
                if part == "self" {
                    found.push(path.clone());
                } else if !part.is_empty() {
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

/// Without comments, and with nothing between the quotes of strings.
fn strip(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        if rest.starts_with("//") {
            taken = rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
            taken = rest[1..].find("'").map_or(rest.len(), |at| at + 2);
        } else if c == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            taken = end.map_or(rest.len(), |end| end + 2);
            code.push_str("\"\"");
        } else {
            code.push(c);
        }
        rest = &rest[taken..];
    }
    code
}

/// `text` without its module of tests, which is the last thing in a file.
fn without_tests(text: &str) -> &str {
    let end = text.find("#[cfg(test)]\nmod tests {");
    &text[..end.unwrap_or(text.len())]
}

fn crates() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("beside the other crates").to_owned()
}

/// The sources of a crate, but for files that are tests.
fn sources(name: &str) -> Vec<Source> {
    let src = crates().join(name).join("src");
    let (mut folders, mut found) = (vec![src.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("a text");
            let below = path.strip_prefix(&src).expect("below src");
            let below = below.to_str().expect("a name").to_owned();
            let is_test = below.ends_with("tests.rs") || below == "example.rs";
            if below.ends_with(".rs") && !is_test {
                found.push(Source {
                    path: below,
                    lines: text.lines().count(),
                    code: strip(without_tests(&text)),
                });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(found.len() > 5, "the sources of {name} are read");
    found
}

fn rank(order: &Order, room: &str) -> Option<usize> {
    order.rooms.iter().position(|rooms| rooms.contains(&room))
}

#[test]
fn no_crate_needs_one_above() {
    for (at, order) in CRATES.iter().enumerate() {
        let manifest = fs::read_to_string(crates().join(order.name).join("Cargo.toml"));
        let manifest = manifest.expect("a manifest");
        let needs = |name: &str| {
            let mut lines = manifest.lines();
            lines.any(|line| {
                line.starts_with(&format!("{name}.")) || line.starts_with(&format!("{name} "))
            })
        };
        for above in &CRATES[at + 1..] {
            assert!(!needs(above.name), "{} needs {}", order.name, above.name);
        }
        assert!(at == 0 || needs(CRATES[0].name), "{}", order.name);
    }
}

#[test]
fn every_module_has_its_place() {
    for order in &CRATES {
        let sources = sources(order.name);
        let rooms: BTreeSet<&str> = sources.iter().map(Source::room).collect();
        let listed = order.rooms.iter().flat_map(|rooms| rooms.iter().copied());
        assert_eq!(rooms, listed.collect(), "{}", order.name);
    }
}

#[test]
fn no_import_goes_up() {
    let (mut up, mut count) = (Vec::new(), 0);
    for order in &CRATES {
        for source in sources(order.name) {
            for path in source.paths() {
                count += 1;
                let room = path.split("::").nth(1).unwrap_or_default();
                let own = rank(order, source.room());
                match rank(order, room) {
                    Some(rank) if Some(rank) < own || room == source.room() => {}
                    _ => up.push(format!("{}: {}: {path}", order.name, source.path)),
                }
            }
        }
    }
    assert!(count > 300, "imports are found: {count}");
    assert!(up.is_empty(), "these go up:\n{}", up.join("\n"));
}

#[test]
fn no_two_files_need_each_other() {
    let mut edges = 0;
    for order in &CRATES {
        let sources = sources(order.name);
        let files: BTreeMap<String, &str> = sources
            .iter()
            .map(|source| (source.module(), source.path.as_str()))
            .collect();
        let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for source in &sources {
            let all = needs.entry(&source.path).or_default();
            for path in source.paths().into_iter().chain(source.own_paths(&files)) {
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
        edges += needs.values().map(BTreeSet::len).sum::<usize>();
        let left = in_circles(needs);
        assert!(
            left.is_empty(),
            "{}: in a circle, or between two: {}",
            order.name,
            left.join(", ")
        );
    }
    assert!(edges > 150, "needs are found: {edges}");
}

/// What is left of a graph when all is taken away that needs nothing, or that nothing needs.
fn in_circles<'a>(mut needs: BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<&'a str> {
    while let Some(free) = needs
        .iter()
        .find(|(_, all)| all.iter().all(|file| !needs.contains_key(file)))
        .map(|(file, _)| *file)
    {
        needs.remove(free);
    }
    while let Some(last) = needs
        .keys()
        .find(|file| needs.values().all(|all| !all.contains(*file)))
        .copied()
    {
        needs.remove(last);
    }
    needs.into_keys().collect()
}

#[test]
fn no_file_is_too_long() {
    for order in &CRATES {
        for source in sources(order.name) {
            let (path, lines) = (&source.path, source.lines);
            assert!(lines <= LONGEST, "{}: {path}: {lines} lines", order.name);
        }
    }
}

#[test]
fn paths_are_read_as_they_are_written() {
    let source = Source {
        path: "rig/search.rs".to_owned(),
        lines: 0,
        code: strip(without_tests(
            "use crate::page::{self, Vpn};\nuse super::plan::Plan; // crate::control\n\
             fn f() { crate::a::g(\"crate::b\", '\"', \"\\\"\"); x::supercrate::y(); }\n\
             use crate::{a::{b, c}, d};\nuse super::super::e;\n\
             #[cfg(test)]\nmod tests { use crate::not; }\n",
        )),
    };
    let mut paths = source.paths();
    paths.sort();
    let expected = [
        "crate::a::b",
        "crate::a::c",
        "crate::a::g",
        "crate::d",
        "crate::e",
        "crate::page",
        "crate::page::Vpn",
        "crate::rig::plan::Plan",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn circles_are_found() {
    let graph = |pairs: &[(&'static str, &'static str)]| {
        let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in pairs {
            needs.entry(from).or_default().insert(to);
            needs.entry(to).or_default();
        }
        in_circles(needs)
    };
    assert!(graph(&[("a", "b"), ("b", "c"), ("a", "c")]).is_empty());
    assert_eq!(
        graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]),
        ["b", "c"]
    );
}
