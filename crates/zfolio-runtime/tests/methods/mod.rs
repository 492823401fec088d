//! Calls of methods as they are read from sources: which type's, and where that method stands.
//!
//! Of a call's receiver the type is known where it is `self` in an `impl` block, and where it
//! is a parameter (`state: &State`). A method that the type does not have is looked for in the
//! type that it derefs to.

use crate::sources::Source;
use std::collections::BTreeMap;

/// The methods of each type: in which source each stands.
struct Methods<'a> {
    homes: BTreeMap<(&'a str, &'a str), &'a Source>,
    /// What a type derefs to.
    below: BTreeMap<&'a str, &'a str>,
}

/// An `impl` block that begins a line: whose it is, of which trait, and what is in it.
struct Block<'a> {
    of: &'a str,
    with: Option<&'a str>,
    body: &'a str,
}

/// The word that `text` begins with.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// The name of a type, without what leads to it and what it is made for.
fn type_name(text: &str) -> &str {
    let end = text.find(['<', ' ', '{']).unwrap_or(text.len());
    text[..end].rsplit("::").next().unwrap_or_default()
}

/// Without a list of parameters in angle brackets that it begins with.
fn after_generics(text: &str) -> &str {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 => return text[at..].trim_start(),
            _ => {}
        }
    }
    text
}

fn blocks(source: &Source) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    for (at, _) in source.code.match_indices("\nimpl") {
        let rest = &source.code[at + "\nimpl".len()..];
        if !rest.starts_with([' ', '<']) {
            continue;
        }
        let (Some(open), Some(end)) = (rest.find('{'), rest.find("\n}")) else {
            continue;
        };
        let head = after_generics(rest[..open].trim_start());
        let (with, of) = match head.split_once(" for ") {
            Some((with, of)) => (Some(type_name(with)), of),
            None => (None, head),
        };
        found.push(Block {
            of: type_name(of),
            with,
            body: rest.get(open..end).unwrap_or_default(),
        });
    }
    found
}

/// The functions in a text: each from its name to where the next begins.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    let begins = text.match_indices("fn ").map(|(at, _)| at);
    let begins: Vec<usize> = begins
        .filter(|at| text[..*at].ends_with([' ', '\n']) || *at == 0)
        .collect();
    let ends = begins.iter().skip(1).copied().chain([text.len()]);
    let pairs: Vec<(usize, usize)> = begins.iter().copied().zip(ends).collect();
    pairs.into_iter().map(|(from, to)| &text[from + 3..to])
}

/// Parameters that are references to a type: their names and its name.
fn parameters(function: &str) -> Vec<(&str, &str)> {
    let head = &function[..function.find('{').unwrap_or(function.len())];
    let mut found = Vec::new();
    for (at, _) in head.match_indices(": &") {
        let before = &head[..at];
        let begin = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_'));
        let name = &before[begin.map_or(0, |at| at + 1)..];
        let mut of = &head[at + 3..];
        if let Some(lifetime) = of.strip_prefix('\'') {
            of = lifetime[word(lifetime).len()..].trim_start();
        }
        let of = of.strip_prefix("mut ").unwrap_or(of);
        found.push((name, word(of)));
    }
    found
}

/// What is called on `receiver` in a text.
fn called<'a>(text: &'a str, receiver: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(receiver) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.') {
            continue;
        }
        let rest = text[at + receiver.len()..].trim_start();
        let Some(rest) = rest.strip_prefix('.') else {
            continue;
        };
        let name = word(rest);
        if rest[name.len()..].starts_with(['(', ':']) {
            found.push(name);
        }
    }
    found
}

impl<'a> Methods<'a> {
    fn of(sources: &'a [Source]) -> Self {
        let (mut homes, mut below) = (BTreeMap::new(), BTreeMap::new());
        for source in sources {
            for block in blocks(source) {
                if block.with == Some("Deref") {
                    let target = block.body.split("type Target = ").nth(1);
                    below.insert(block.of, target.map_or("", |text| word(text)));
                }
                if block.with.is_some() {
                    continue;
                }
                for function in functions(block.body) {
                    homes.insert((block.of, word(function)), source);
                }
            }
        }
        Self { homes, below }
    }

    /// Whose a method is that is called on `of`, and where it stands.
    fn find(&self, of: &'a str, name: &str) -> Option<(&'a str, &'a Source)> {
        let mut of = of;
        loop {
            if let Some(source) = self.homes.get(&(of, name)) {
                return Some((of, source));
            }
            of = self.below.get(of)?;
        }
    }
}

/// Calls of methods that stand in a source of a higher rank, and how many calls were found.
pub(crate) fn calls_up(
    sources: &[Source],
    rank: impl Fn(&Source) -> usize,
) -> (Vec<String>, usize) {
    let methods = Methods::of(sources);
    let (mut up, mut calls) = (Vec::new(), 0);
    let is_test = |source: &&Source| source.path.ends_with("tests.rs");
    for source in sources.iter().filter(|source| !is_test(source)) {
        // (A module of tests within a file looks where it likes.)
        let end = source
            .code
            .find("\nmod tests {")
            .unwrap_or(source.code.len());
        let mut note = |of, names: Vec<&str>| {
            for name in names {
                let Some((owner, home)) = methods.find(of, name) else {
                    continue;
                };
                calls += 1;
                if rank(home) > rank(source) {
                    up.push(format!("{}: {owner}::{name}", source.path));
                }
            }
        };
        for block in blocks(source) {
            note(block.of, called(block.body, "self"));
        }
        for function in functions(&source.code[..end]) {
            for (name, of) in parameters(function) {
                note(of, called(function, name));
            }
        }
    }
    (up, calls)
}
