//! `zfolio run` without `--high` inside a memory limit: the job lives, though it needs more.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;
use support::{Output, finish, managed, skip, tempdir};

/// What the job needs, about, and what its group may have. MiB.
const NEEDS: u64 = 150;
const LIMIT: u64 = 96;

/// A group with a limit, and one below it that has none; gone with the value.
struct Limited {
    above: PathBuf,
    below: PathBuf,
}

impl Limited {
    /// `None` after saying why it cannot be.
    fn new(limit: u64) -> Option<Self> {
        let made = Self::at(
            &one(),
            "memory.limit_in_bytes",
            "memory.memsw.limit_in_bytes",
            limit,
        )
        .or_else(|| Self::at(&two(), "memory.max", "memory.swap.max", limit));
        if made.is_none() {
            skip("needs root and a hierarchy of control groups that limits memory");
        }
        made
    }

    fn at(top: &Option<PathBuf>, file: &str, swap: &str, limit: u64) -> Option<Self> {
        let above = top
            .as_ref()?
            .join(format!("zfolio-test-{}", std::process::id()));
        let below = above.join("below");
        fs::create_dir(&above).ok()?;
        let this = Self { above, below };
        fs::write(this.above.join(file), limit.to_string()).ok()?;
        // (Not there without swap.)
        let most = if swap == "memory.swap.max" { 0 } else { limit };
        let _ = fs::write(this.above.join(swap), most.to_string());
        let _ = fs::write(this.above.join("cgroup.subtree_control"), "+memory");
        fs::create_dir(&this.below).ok()?;
        Some(this)
    }

    /// Runs a command in the group below, to its end.
    fn finish(&self, command: &Command) -> Output {
        let mut inside = Command::new("sh");
        let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        inside.args(["-c", script]).arg(&self.below);
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            inside.env(name, value.unwrap_or_default());
        }
        finish(&mut inside, "")
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // A process that has ended may still be counted for a moment.
        for _ in 0..50 {
            let _ = fs::remove_dir(&self.below);
            if fs::remove_dir(&self.above).is_ok() || !self.above.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Our own group of version 1, if memory is of that version.
fn one() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let line = groups.lines().find(|line| {
        let mut parts = line.split(':');
        parts
            .nth(1)
            .is_some_and(|of| of.split(',').any(|of| of == "memory"))
    })?;
    let path = line.splitn(3, ':').nth(2)?;
    let dir = Path::new("/sys/fs/cgroup/memory").join(path.trim_start_matches('/'));
    dir.is_dir().then_some(dir)
}

/// The top of version 2, where groups below may have limits.
fn two() -> Option<PathBuf> {
    let top = PathBuf::from("/sys/fs/cgroup");
    let below = fs::read_to_string(top.join("cgroup.subtree_control")).ok()?;
    below
        .split_whitespace()
        .any(|of| of == "memory")
        .then_some(top)
}

#[test]
fn a_job_that_needs_more_than_its_limit_lives() {
    let Some(z) = managed() else { return };
    let Some(group) = Limited::new(LIMIT << 20) else {
        return;
    };
    let script = format!(
        "
import hashlib, os
blocks = [bytes([i % 251]) * 3000 + os.urandom(1000) for i in range({NEEDS} * 256)]
want = [hashlib.md5(b).digest() for b in blocks]
assert all(hashlib.md5(b).digest() == w for b, w in zip(blocks, want))
print('right')
"
    );
    // In a way in which usage is never above `high`: by messages a program that grows as fast
    // as it can is seen some time later.
    let doctor = finish(&mut z.command(["doctor"]), "").stdout;
    let works = |way: &&str| doctor.contains(&format!("--faults {way} works\n"));
    let Some(way) = ["guard", "protect"].into_iter().find(works) else {
        return skip(&format!("no way works that is exact: {doctor}"));
    };
    let dir = tempdir();
    let stats = dir.path().join("stats.json");
    let mut command = z.command(["run", "--faults", way, "--stats"]);
    command.arg(&stats).args(["--", "python3", "-c", &script]);
    let output = group.finish(&command);
    assert_eq!(output.succeeded().stdout, "right\n");
    let text = fs::read_to_string(&stats).expect("statistics");
    let stats: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(stats["config"]["limit_bytes"], LIMIT << 20);
    let high = stats["config"]["high_bytes"].as_u64().expect("a number") >> 20;
    assert!((LIMIT * 3 / 4..LIMIT).contains(&high), "{high} MiB");
    let needed = stats["total"]["program_peak_bytes"].as_u64();
    assert!(needed > Some(LIMIT << 20), "it would have fitted: {stats}");
}
