//! Processes of the tree that zfolio never reached, told at the end.
//!
//! A process is reached by two things it inherits: the library that its loader
//! preloads, and the control segment that the library opens. A sandbox with a
//! /dev of its own, a cleared environment, a static program have one or none of
//! them, and nobody inside can say so. So the tree is looked at from outside,
//! and the kernel alone is asked: what a process has mapped.
//!
//! Only what exceeds `high` is told: the sum of the anonymous memory of those
//! that were not reached, at the instant when it was largest. Small processes
//! (an eighth of `high` each) are not looked at closely.
//!
//! A process is known by its id, when it started, and where its stack begins: the
//! last changes with exec, after which it may be reached or not anew. Nothing is
//! done to anybody here, so a mistaken identity is at worst a wrong line.

use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zfolio_host::exit::one_line;
use zfolio_host::owners::own_id_in_proc;
use zfolio_host::process_tree::descendants;
use zfolio_host::size::{human, short};

/// Between two looks at least; and in a long run, of which a 50th passes in between, no more than that.
const EVERY: Duration = Duration::from_millis(100);
const SELDOM: Duration = Duration::from_millis(400);
const AGE: u32 = 50;
/// Looking takes at most this part of the time.
const SHARE: u32 = 50;
/// Looks at one process without a sign of zfolio, before it counts: its loader may
/// not have come to the library yet.
const LOOKS: u32 = 2;
/// Processes told of by name.
const NAMED: usize = 3;

/// A program image: see the module.
type Image = (u32, u64, u64);

/// A process that was not reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct Stranger {
    /// Process id, as `zfolio run` sees it.
    pub(crate) pid: u32,
    /// Command name.
    pub(crate) comm: String,
    /// Most anonymous memory seen, bytes.
    #[serde(rename = "anonymous_bytes")]
    pub(crate) used: u64,
    /// What kept zfolio out.
    pub(crate) why: &'static str,
    #[serde(skip)]
    looks: u32,
}

/// Looks at a tree some times a second.
#[derive(Debug)]
pub(crate) struct Unreached {
    began: Instant,
    next: Instant,
    segment: PathBuf,
    library: PathBuf,
    high: u64,
    seen: HashMap<Image, Stranger>,
    /// Most that the unreached had together.
    most: u64,
}

impl Unreached {
    /// For a run with this segment, library and `high` (bytes), from `now` on.
    pub(crate) fn new(segment: &Path, library: &Path, high: u64, now: Instant) -> Self {
        Self {
            began: now,
            next: now,
            segment: segment.into(),
            library: library.into(),
            high,
            seen: HashMap::new(),
            most: 0,
        }
    }

    /// Looks at what runs below this process, if it is time.
    pub(crate) fn look(&mut self, now: Instant) {
        if now >= self.next {
            // (As /proc has us, which may be another namespace's.)
            if let Some(root) = own_id_in_proc() {
                self.look_below(root);
            }
            let pause = (now.saturating_duration_since(self.began) / AGE).clamp(EVERY, SELDOM);
            self.next = now + pause.max(now.elapsed() * SHARE);
        }
    }

    fn look_below(&mut self, root: u32) {
        let mut together = 0;
        for pid in descendants(root) {
            let Some((image, used)) = image(pid) else {
                continue;
            };
            if used < self.high / 8 {
                continue;
            }
            let Some(why) = self.why_unreached(pid) else {
                self.seen.remove(&image);
                continue;
            };
            let stranger = self.seen.entry(image).or_insert_with(|| Stranger {
                pid,
                comm: String::new(),
                used: 0,
                why,
                looks: 0,
            });
            stranger.looks += 1;
            stranger.why = why;
            stranger.used = stranger.used.max(used);
            stranger.comm = fs::read_to_string(format!("/proc/{pid}/comm"))
                .map_or(String::new(), |name| name.trim_end().to_owned());
            if stranger.looks >= LOOKS {
                together += used;
            }
        }
        self.most = self.most.max(together);
    }

    /// What keeps zfolio out of a process; none if it is in, or if the process
    /// has gone or hides what it has mapped.
    fn why_unreached(&self, pid: u32) -> Option<&'static str> {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&read("maps")).into_owned();
        if maps.is_empty() || has_mapped(&maps, &self.segment) {
            return None;
        }
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let sees = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path)).exists();
        let environment = read("environ");
        let library = self.library.as_os_str().as_encoded_bytes();
        let asked = environment
            .windows(library.len())
            .any(|part| part == library);
        Some(if has_mapped(&maps, &self.library) {
            if sees(&self.segment) {
                "its environment does not name the control segment, or it may not open it"
            } else {
                "the directory of the control segment is another one in its sandbox \
                 (bwrap: --bind /dev/shm /dev/shm)"
            }
        } else if !asked {
            "its environment was cleared of LD_PRELOAD"
        } else if !sees(&self.library) {
            "the library is not to be seen in its sandbox"
        } else if maps.contains("/ld-linux-x86-64.so.2") {
            "its loader did not take the library (set-user-ID?)"
        } else {
            "it is linked statically, or with another C library"
        })
    }

    /// Those that are worth a line, the largest first.
    pub(crate) fn finish(self) -> Vec<Stranger> {
        if self.most <= self.high {
            return Vec::new();
        }
        let mut seen: Vec<Stranger> = self.seen.into_values().collect();
        seen.retain(|stranger| stranger.looks >= LOOKS);
        seen.sort_by_key(|stranger| (u64::MAX - stranger.used, stranger.pid));
        seen
    }
}

/// Lines on those that were not reached.
pub(crate) fn lines(strangers: &[Stranger], high: u64) -> Vec<String> {
    let named = strangers.iter().take(NAMED).map(|stranger| {
        format!(
            "zfolio: process {} ({}) used {} (high {}) and could not be managed: {}",
            stranger.pid,
            stranger.comm,
            human(stranger.used),
            short(high),
            stranger.why
        )
    });
    let more = strangers.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("zfolio: and {more} smaller ones as well"));
    named.chain(more).map(|line| one_line(&line)).collect()
}

/// Which image runs in a process, and how much anonymous memory it has, bytes;
/// none once it has gone.
fn image(pid: u32) -> Option<(Image, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    // The fields are numbered from 1, of which two come before these.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let anonymous = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    let anonymous: u64 = anonymous.split_whitespace().next()?.parse().ok()?;
    Some(((pid, field(22)?, field(28)?), anonymous << 10))
}

/// Whether `maps` has the file at `path`, by its number: a sandbox may have it
/// under another name.
fn has_mapped(maps: &str, path: &Path) -> bool {
    let Ok(file) = fs::metadata(path) else {
        return true; // gone meanwhile: nothing can be said
    };
    let number = file.ino().to_string();
    maps.lines()
        .any(|line| line.split_whitespace().nth(4) == Some(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A file that nobody has mapped.
    fn nowhere(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("zfolio-{name}-{}", std::process::id()));
        fs::write(&path, "x").unwrap();
        path
    }

    fn child() -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000").env_clear().stdin(Stdio::null());
        command.spawn().unwrap()
    }

    /// What is told of a child after `looks` looks.
    fn told(high: u64, looks: u32, segment: &Path) -> (Vec<Stranger>, u32) {
        let library = nowhere("library");
        let mut child = child();
        let mut unreached = Unreached::new(segment, &library, high, Instant::now());
        let begin = Instant::now();
        while image(child.id()).is_none_or(|(_, used)| used < 8192)
            && begin.elapsed() < Duration::from_secs(30)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        (0..looks).for_each(|_| unreached.look_below(std::process::id()));
        let pid = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = fs::remove_file(library);
        let mut told = unreached.finish();
        told.retain(|stranger| stranger.pid == pid);
        (told, pid)
    }

    #[test]
    fn who_has_neither_library_nor_segment_is_told_with_a_reason() {
        let segment = nowhere("segment");
        let (told, pid) = told(4096, LOOKS, &segment);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].used > 4096 && told[0].pid == pid, "{told:?}");
        let lines = lines(&told, 4096);
        assert!(lines[0].contains("cleared of LD_PRELOAD"), "{lines:?}");
        let _ = fs::remove_file(segment);
    }

    #[test]
    fn nobody_else_is() {
        let segment = nowhere("other");
        assert_eq!(told(1 << 30, LOOKS, &segment).0, [], "small enough");
        assert_eq!(told(4096, LOOKS - 1, &segment).0, [], "maybe still loading");
        let _ = fs::remove_file(segment);
        let mapped = fs::canonicalize("/proc/self/exe").unwrap();
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(has_mapped(&maps, &mapped));
    }
}
