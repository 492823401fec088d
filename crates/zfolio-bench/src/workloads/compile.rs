//! The compiler on a generated file: memory of its own making, in pieces.

use super::lines::{check, fingerprint, tell};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Compiles a file of so many functions once.
pub(super) fn run(functions: usize, dir: &Path) -> Result<(), String> {
    let (source, object) = (dir.join("generated.c"), dir.join("generated.o"));
    fs::write(&source, generated(functions)).map_err(|error| error.to_string())?;
    let begin = Instant::now();
    let compiled = Command::new("cc")
        .args(["-O0", "-g0", "-c", "generated.c", "-o", "generated.o"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cc: {error}"))?;
    let seconds = begin.elapsed().as_secs_f64();
    if !compiled.status.success() {
        let said = String::from_utf8_lossy(&compiled.stderr);
        return Err(format!("cc: {}", said.lines().next().unwrap_or("failed")));
    }
    let object = fs::read(&object).map_err(|error| error.to_string())?;
    tell("compile", seconds, "s");
    check(&format!("{:x}", fingerprint(&object)));
    Ok(())
}

/// Functions that call the one before them, each with a table.
fn generated(functions: usize) -> String {
    let mut text = String::from("struct point { int x, y, tag; struct point *next; };\n");
    for at in 0..functions {
        let (a, b, c) = (at % 7 + 2, at % 11 + 3, at * 37 % 101);
        let numbers: Vec<String> = (0..64).map(|i| (at * i % 997).to_string()).collect();
        let _ = write!(
            text,
            "static const int t{at}[] = {{{}}};\n\
             int f{at}(struct point *p, int n) {{\n",
            numbers.join(", ")
        );
        if let Some(before) = at.checked_sub(1) {
            let _ = writeln!(text, "\tif (p->x > {c}) n += f{before}(p->next, n / 2);");
        }
        let _ = write!(
            text,
            "\tp->x += t{at}[n & 63] * {a};\n\
             \tp->tag ^= n << {};\n\
             \treturn p->y - n * {b};\n}}\n",
            at % 5
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_generated_compiles() {
        if !crate::rig::is_installed("cc") {
            eprintln!("SKIPPED: no cc here");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        run(5, dir.path()).unwrap();
        assert!(run(5, &dir.path().join("absent")).is_err());
    }
}
