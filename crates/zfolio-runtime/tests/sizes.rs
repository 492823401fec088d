//! No source is longer than can be read at once, and no type has many fields that anybody may
//! touch, in any crate of the workspace. Nothing is excepted.

use sources::{Source, crates, of_crate, src_of};
use std::fs;

mod sources;

/// Most lines of a source. A module of tests in a file of its own may be longer.
const LINES: usize = 500;
/// Most fields of a type of which some are seen outside its room.
const FIELDS: usize = 12;

fn names() -> Vec<String> {
    let entries = fs::read_dir(crates()).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| name.into_string().expect("a name"))
        .collect()
}

/// Whether a source is a module that its parent declares for tests alone.
fn is_of_tests(source: &Source, sources: &[Source]) -> bool {
    let module = source.module();
    let Some((above, name)) = module.rsplit_once("::") else {
        return false;
    };
    let declared = [
        format!("#[cfg(test)]\nmod {name};"),
        format!("#[cfg(test)]\npub(super) mod {name};"),
        format!("#[cfg(test)]\npub(crate) mod {name};"),
    ];
    let parent = sources.iter().find(|parent| parent.module() == above);
    parent.is_some_and(|parent| declared.iter().any(|words| parent.code.contains(words)))
}

#[test]
fn a_module_for_tests_is_told_from_one_that_is_not() {
    let source = |path: &str, code: &str| Source {
        path: path.to_owned(),
        code: code.to_owned(),
    };
    let sources = [
        source("lib.rs", "mod a;\n#[cfg(test)]\nmod rig;\n"),
        source("a.rs", "#[cfg(test)]\nmod model;\nmod b;\n"),
        source("a/model.rs", ""),
        source("a/b.rs", ""),
        source("rig.rs", ""),
    ];
    let found = sources.iter().filter(|of| is_of_tests(of, &sources));
    let found: Vec<&str> = found.map(|of| of.path.as_str()).collect();
    assert_eq!(found, ["a/model.rs", "rig.rs"]);
}

#[test]
fn no_source_is_too_long() {
    let (mut long, mut read) = (Vec::new(), 0);
    for name in names() {
        let sources = of_crate(&name);
        for source in &sources {
            let text = fs::read_to_string(src_of(&name).join(&source.path)).expect("a source");
            read += 1;
            let lines = text.lines().count();
            if lines > LINES && !is_of_tests(source, &sources) {
                long.push(format!("{name}/src/{}: {lines} lines", source.path));
            }
        }
    }
    assert!(read > 300, "{read} sources are read");
    assert!(long.is_empty(), "above {LINES} lines:\n{}", long.join("\n"));
}

/// A type with named fields: its name, and how far each of them is seen (`""`: in its module).
struct Fields<'a> {
    name: &'a str,
    seen: Vec<&'a str>,
}

/// The visibility that a line begins with, and the rest of it.
fn visibility(line: &str) -> (&str, &str) {
    let Some(rest) = line.strip_prefix("pub") else {
        return ("", line);
    };
    let end = match rest.strip_prefix('(') {
        Some(_) => rest.find(')').map_or(rest.len(), |at| at + 1),
        None => 0,
    };
    (&line[..3 + end], rest[end..].trim_start())
}

/// The types of a source. Sources are formatted: a type's own fields stand four blanks further
/// in than it does.
fn types(source: &Source) -> Vec<Fields<'_>> {
    let mut found: Vec<Fields<'_>> = Vec::new();
    // How far in the type stands that is being read, and whether its fields have begun.
    let mut open: Option<(usize, bool)> = None;
    for line in source.code.lines() {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        if let Some((of, begun)) = &mut open {
            let (of, within) = (*of, *begun);
            *begun |= line.ends_with('{');
            if !within {
                // (Bounds of what it is made for.)
                continue;
            }
            if depth == of && text.starts_with('}') {
                open = None;
            } else if depth == of + 4 {
                let (seen, rest) = visibility(text);
                let name = rest.find(':').map_or("", |at| &rest[..at]);
                let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '#';
                if !name.is_empty() && name.chars().all(is_name) {
                    let last = found.last_mut().expect("the type that is open");
                    last.seen.push(seen);
                }
            }
            continue;
        }
        let (_, rest) = visibility(text);
        if let Some(rest) = rest.strip_prefix("struct ") {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
            let name = &rest[..end.unwrap_or(rest.len())];
            if !rest.trim_end().ends_with([';', '}']) && !rest.contains('(') {
                open = Some((depth, line.ends_with('{')));
                found.push(Fields {
                    name,
                    seen: Vec::new(),
                });
            }
        }
    }
    found
}

/// Whether a field with that visibility is seen outside the room that `source` is in: the folder
/// below `src`, or the file where it is in none.
fn leaves_the_room(source: &Source, seen: &str) -> bool {
    let depth = source.path.matches('/').count() - usize::from(source.path.ends_with("/mod.rs"));
    match seen {
        "" | "pub(self)" => false,
        "pub(super)" => depth == 0,
        _ => match seen.strip_prefix("pub(in ") {
            Some(path) => path.matches("super").count() > depth || !path.starts_with("super"),
            None => true,
        },
    }
}

/// Types with too many fields, of which some are seen outside their room.
fn too_open(source: &Source) -> Vec<String> {
    let many = types(source);
    let many = many.iter().filter(|of| of.seen.len() > FIELDS);
    many.filter(|of| of.seen.iter().any(|seen| leaves_the_room(source, seen)))
        .map(|of| format!("{} ({} fields)", of.name, of.seen.len()))
        .collect()
}

#[test]
fn a_type_of_many_fields_keeps_them_to_its_room() {
    let (mut open, mut count) = (Vec::new(), 0);
    for name in names() {
        for source in of_crate(&name) {
            count += types(&source).len();
            let found = too_open(&source);
            open.extend(
                found
                    .iter()
                    .map(|of| format!("{name}/src/{}: {of}", source.path)),
            );
        }
    }
    assert!(count > 500, "{count} types are read");
    assert!(
        open.is_empty(),
        "above {FIELDS} fields, and seen outside:\n{}",
        open.join("\n")
    );
}

#[test]
fn what_is_seen_outside_is_told_from_what_is_not() {
    let with = |path: &str, first: &str, more: usize| Source {
        path: path.to_owned(),
        code: format!(
            "struct Small {{ one: u8 }}\nstruct Pair(u8, u8);\npub struct Large<T>\nwhere\n    T: Copy,\n{{\n    \
             {first} first: T,\n{}}}\n\nfn f() {{\n    let x = 1;\n}}\n",
            "    field: u8,\n".repeat(more)
        ),
    };
    let is_open = |path: &str, first: &str| too_open(&with(path, first, FIELDS)).len() == 1;
    for first in ["pub", "pub(crate)", "pub(in crate::a)"] {
        assert!(is_open("a/b.rs", first), "{first}");
    }
    assert!(!is_open("a/b.rs", "") && !is_open("a.rs", ""));
    // (Seen by the folder, or by the crate.)
    assert!(!is_open("a/b.rs", "pub(super)") && !is_open("a/b/mod.rs", "pub(super)"));
    assert!(is_open("a.rs", "pub(super)") && is_open("a/mod.rs", "pub(super)"));
    assert!(!is_open("a/b/c.rs", "pub(in super::super)"));
    assert!(is_open("a/b.rs", "pub(in super::super)"));
    let few = with("a/b.rs", "pub", FIELDS - 1);
    assert_eq!(types(&few)[0].seen.len(), FIELDS);
    assert!(too_open(&few).is_empty());
}
