//! The control segment is no way in: what a member that gave up its privileges writes there
//! ends nobody, misleads nobody, and leaves no trace on a terminal.

mod memory;
mod support;

use memory::compiled;
use std::process::{Command, Stdio};

#[test]
fn a_hostile_member_ends_nobody() {
    let (Some(z), Some(path)) = (support::real(), compiled("hostile_member")) else {
        return;
    };
    let path = path.to_str().expect("a plain path");
    let mut stranger = Command::new("sleep")
        .arg("600")
        .stdout(Stdio::null())
        .spawn()
        .expect("sleep runs");
    let victim = stranger.id().to_string();
    let seconds = std::env::var("ZFOLIO_HOSTILE_SECONDS").unwrap_or_else(|_| "12".into());
    let output = z.run_with(&["--high", "32M"], &[path, &victim, &seconds], "");
    let lives = stranger.try_wait().expect("a child").is_none();
    let _ = stranger.kill();
    let _ = stranger.wait();
    assert!(lives, "the stranger was ended: {}", output.stderr);
    output.succeeded();
    assert!(!output.stdout.contains("head is writable"));
    let control = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(!output.stderr.contains(control), "{:?}", output.stderr);
}
