//! The sources of the workspace as tests read them: files, and the paths they name.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};

pub struct Source {
    /// Below `src`, with `/`.
    pub path: String,
    /// Without comments, and with nothing in its strings.
    pub code: String,
}

impl Source {
    /// Its module, as in `crate::swapin::load`.
    pub fn module(&self) -> String {
        let module = self.path.trim_end_matches(".rs").trim_end_matches("/mod");
        if ["lib", "main"].contains(&module) {
            return "crate".to_owned();
        }
        format!("crate::{}", module.replace('/', "::"))
    }

    /// Every path in it that begins with `crate::` or `super::`, with the former.
    pub fn paths(&self) -> Vec<String> {
        let module = self.module();
        let above = module.rsplit_once("::").map_or("crate", |(above, _)| above);
        let mut found = Vec::new();
        // (What is above a module within a file is that file.)
        let tests = ["\nmod tests {", "\npub(super) mod tests {"];
        let outside = tests.iter().find_map(|begin| self.code.find(begin));
        let outside = outside.unwrap_or(self.code.len());
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

/// The folder in which the workspace's crates lie.
pub fn crates() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("crates lie in a folder").to_owned()
}

/// The sources' folder of a crate.
pub fn src_of(name: &str) -> PathBuf {
    crates().join(name).join("src")
}

/// Code alone: comments and what is in strings would be taken for it.
pub fn strip(text: &str) -> String {
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

/// Every source of a crate.
pub fn of_crate(name: &str) -> Vec<Source> {
    let (root, mut found, mut left) = (src_of(name), Vec::new(), vec![src_of(name)]);
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
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}
