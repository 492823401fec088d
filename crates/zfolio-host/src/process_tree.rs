//! Watching a tree of processes from outside: resident memory from /proc, some
//! hundred times a second at first, and some twenty times once that has gone on for long: looking takes
//! processor time too.
//!
//! It measures what the kernel says, not what zfolio says of itself.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two samples, at first and after a while: a 200th of the time that has passed.
const EVERY: Duration = Duration::from_millis(5);
const SELDOM: Duration = Duration::from_millis(50);
const AGE: u32 = 200;

/// The largest process of the tree at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Since watching began.
    pub at: Duration,
    /// The largest descendant.
    pub pid: u32,
    /// Its VmRSS, bytes.
    pub rss: u64,
}

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Watched {
    /// In order of time; only instants at which some descendant lived.
    pub samples: Vec<Sample>,
    /// Largest VmHWM seen of any descendant, bytes: what happened between
    /// samples is in it, but for what came after a process's last sample.
    pub high_water: u64,
    /// The same of the root alone, if it is watched.
    pub root: u64,
}

impl Watched {
    /// Largest VmRSS sampled, bytes.
    pub fn peak(&self) -> u64 {
        self.samples
            .iter()
            .map(|sample| sample.rss)
            .max()
            .unwrap_or(0)
    }

    /// Largest VmRSS sampled from `after` on, bytes.
    #[allow(dead_code, reason = "used by the tests that include this file")]
    pub fn peak_after(&self, after: Duration) -> u64 {
        self.samples
            .iter()
            .filter(|sample| sample.at >= after)
            .map(|sample| sample.rss)
            .max()
            .unwrap_or(0)
    }
}

/// A running watch.
#[derive(Debug)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Watched>,
}

impl Watch {
    /// Watches `root`'s descendants, and `root` itself if `with_root`.
    pub fn start(root: u32, with_root: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || watch(root, with_root, &stopped));
        Self { stop, thread }
    }

    /// Ends the watch.
    pub fn stop(self) -> Watched {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap_or_default()
    }
}

fn watch(root: u32, with_root: bool, stop: &AtomicBool) -> Watched {
    let begin = Instant::now();
    let mut watched = Watched::default();
    while !stop.load(Ordering::Acquire) {
        let mut pids = descendants(root);
        if with_root {
            pids.push(root);
        }
        let sizes = pids
            .into_iter()
            .filter_map(|pid| resident(pid).map(|sizes| (pid, sizes)));
        let mut largest: Option<Sample> = None;
        for (pid, (rss, high_water)) in sizes {
            watched.high_water = watched.high_water.max(high_water);
            if pid == root {
                // Of what it is now: before, it may have been another program.
                watched.root = high_water;
            }
            if largest.is_none_or(|sample| rss > sample.rss) {
                largest = Some(Sample {
                    at: begin.elapsed(),
                    pid,
                    rss,
                });
            }
        }
        watched.samples.extend(largest);
        thread::sleep((begin.elapsed() / AGE).clamp(EVERY, SELDOM));
    }
    watched
}

/// VmRSS and VmHWM of a process, bytes; `None` once it is gone or a zombie.
fn resident(pid: u32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Some((field("VmRSS:")? << 10, field("VmHWM:")? << 10))
}

/// Every process below `root`.
pub fn descendants(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut parents: Option<HashMap<u32, Vec<u32>>> = None;
    let mut next = 0;
    while next < found.len() {
        let pid = found[next];
        next += 1;
        match children(pid) {
            Some(more) => found.extend(more),
            // A kernel without /proc/PID/task/TID/children: ask everybody.
            None => {
                let map = parents.get_or_insert_with(by_parent);
                found.extend(map.get(&pid).into_iter().flatten());
            }
        }
    }
    found.remove(0);
    found
}

fn children(pid: u32) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let path = task.path().join("children");
        match fs::read_to_string(&path) {
            Ok(list) => found.extend(
                list.split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            ),
            Err(_) if task.path().exists() && !path.exists() => return None,
            Err(_) => {}
        }
    }
    Some(found)
}

fn by_parent() -> HashMap<u32, Vec<u32>> {
    let mut map: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        if let Some(parent) = parent {
            map.entry(parent).or_default().push(pid);
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_and_its_child_are_seen() {
        let mut shell = Command::new("sh")
            .stderr(std::process::Stdio::null())
            .args(["-c", "sleep 60; true"])
            .spawn()
            .unwrap();
        let root = shell.id();
        let watch = Watch::start(root, true);
        let own = Instant::now();
        while descendants(root).is_empty() && own.elapsed() < Duration::from_secs(30) {
            thread::sleep(EVERY);
        }
        let grandchildren = descendants(root);
        thread::sleep(100 * EVERY);
        let watched = watch.stop();
        for pid in &grandchildren {
            let _ = Command::new("kill").arg(pid.to_string()).status();
        }
        let _ = shell.wait();
        assert_eq!(grandchildren.len(), 1);
        assert!(0 < watched.root && watched.root <= watched.high_water);
        let (peak, high_water) = (watched.peak(), watched.high_water);
        assert!(
            0 < peak && peak <= high_water,
            "{peak} seen, {high_water} at most: {watched:?}"
        );
        assert!(
            by_parent()
                .values()
                .flatten()
                .any(|pid| *pid == std::process::id())
        );
    }
}
