//! Memory control groups, version 1 and 2.
//!
//! Version 2 has `memory.high`: who is above it is slowed down until it is not.
//! Version 1 has only a hard limit, and ends programs where reclaim finds nothing
//! at that instant, which happens to several threads in a small group though
//! there is swap. So its killer is switched off: who would be killed waits, and
//! is given a MiB more until it goes on ([`Group::ease`]). What that comes to is
//! in the group's peak.

use crate::keeper::{Keeper, Kept};
use std::fs;
use std::path::{Path, PathBuf};

/// Where groups with memory limits are made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Groups {
    root: PathBuf,
    version: u8,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
    version: u8,
    limit: Option<u64>,
    /// Bytes above the limit now, and looks in a row that found it waiting.
    extra: u64,
    stuck: u32,
}

/// Given at a time to a group that waits.
const EASE: u64 = 1 << 20;

impl Groups {
    /// The hierarchy that has the memory controller.
    ///
    /// # Errors
    /// When none has.
    pub(super) fn find() -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        Self::among(&mounts, |root| {
            fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default()
        })
        .ok_or_else(|| "no control groups with a memory controller are mounted".to_owned())
    }

    fn among(mounts: &str, controllers: impl Fn(&Path) -> String) -> Option<Self> {
        mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, root, kind, options, ..] = fields[..] else {
                return None;
            };
            let root = PathBuf::from(root);
            let version = match kind {
                "cgroup" if options.split(',').any(|option| option == "memory") => 1,
                "cgroup2" if controllers(&root).split_whitespace().any(|c| c == "memory") => 2,
                _ => return None,
            };
            Some(Self { root, version })
        })
    }

    pub(super) fn version(&self) -> u8 {
        self.version
    }

    /// Lets groups below the root have memory limits.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn prepare(&mut self, keeper: &mut Keeper) -> Result<(), String> {
        let control = self.root.join("cgroup.subtree_control");
        let on = fs::read_to_string(&control).unwrap_or_default();
        if self.version == 2 && !on.split_whitespace().any(|name| name == "memory") {
            // Undone with everything else, in the end.
            let _kept = keeper.set(&control, "+memory", "-memory")?;
        }
        Ok(())
    }

    /// A new group, with a limit in bytes or without.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn create(
        &self,
        keeper: &mut Keeper,
        limit: Option<u64>,
    ) -> Result<(Kept, Group), String> {
        let (kept, path) = keeper.cgroup(&self.root)?;
        let group = Group {
            path,
            version: self.version,
            limit,
            extra: 0,
            stuck: 0,
        };
        if let Some(limit) = limit {
            group
                .set_limit(limit)
                .map_err(|error| format!("{}: {error}", group.path.display()))?;
            if self.version == 1 {
                // Without it, programs are killed: told by their rows.
                let _ = fs::write(group.path.join("memory.oom_control"), "1");
            }
        }
        Ok((kept, group))
    }
}

impl Group {
    /// The file that a process enters the group by.
    pub(super) fn procs(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    fn file(&self, first: &str, second: &str) -> PathBuf {
        self.path
            .join(if self.version == 1 { first } else { second })
    }

    fn set_limit(&self, limit: u64) -> std::io::Result<()> {
        let file = self.file("memory.limit_in_bytes", "memory.high");
        fs::write(file, limit.to_string())
    }

    /// Lets a group go on that waits at its limit, and takes back what it was
    /// given once it does; to be called every few milliseconds.
    pub(super) fn ease(&mut self) {
        let Some(limit) = self.limit.filter(|_| self.version == 1) else {
            return;
        };
        let state = fs::read_to_string(self.path.join("memory.oom_control")).unwrap_or_default();
        if state.lines().any(|line| line == "under_oom 1") {
            self.stuck += 1;
            if self.stuck > 1 {
                self.extra += EASE;
                let _ = self.set_limit(limit + self.extra);
            }
        } else {
            self.stuck = 0;
            if self.extra > 0 && self.set_limit(limit).is_ok() {
                self.extra = 0;
            }
        }
    }

    /// Most memory that was ever charged to it, bytes.
    pub(super) fn peak(&self) -> Option<u64> {
        let file = self.file("memory.max_usage_in_bytes", "memory.peak");
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// What it counted: how often it met its limits, and could not swap.
    pub(super) fn events(&self) -> Vec<(String, u64)> {
        let mut events = Vec::new();
        if self.version == 1 {
            let count = fs::read_to_string(self.path.join("memory.failcnt"));
            let count = count.ok().and_then(|text| text.trim().parse().ok());
            events.extend(count.map(|count| ("memcg_max".to_owned(), count)));
            return events;
        }
        for (file, prefix) in [
            ("memory.events", "memcg_"),
            ("memory.swap.events", "memcg_swap_"),
        ] {
            let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
            events.extend(text.lines().filter_map(|line| {
                let (name, count) = line.split_once(' ')?;
                Some((format!("{prefix}{name}"), count.parse().ok()?))
            }));
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_with_memory_is_found() {
        let find = |mounts: &str, has: &str| Groups::among(mounts, |_| has.to_owned());
        let first = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                     cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                     cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                     cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = find(first, "hugetlb").expect("version 1");
        assert_eq!(
            (found.version, found.root.as_path()),
            (1, Path::new("/sys/fs/cgroup/memory"))
        );
        let second = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        assert_eq!(
            find(second, "cpu memory pids").map(|found| found.version),
            Some(2)
        );
        assert_eq!(find(second, "cpu pids"), None);
        assert_eq!(find("", ""), None);
    }

    #[test]
    fn groups_of_both_versions_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        put("memory.max_usage_in_bytes", "123\n");
        put("memory.failcnt", "4\n");
        put("memory.peak", "456\n");
        put("memory.events", "low 0\nhigh 7\nmax 8\n");
        put("memory.swap.events", "high 0\nmax 0\nfail 9\n");
        let group = |version| Group {
            path: dir.path().to_path_buf(),
            version,
            limit: Some(10 << 20),
            extra: 0,
            stuck: 0,
        };
        assert_eq!(group(1).peak(), Some(123));
        assert_eq!(group(1).events(), [("memcg_max".to_owned(), 4)]);
        assert_eq!(group(2).peak(), Some(456));
        let events = group(2).events();
        for (name, count) in [("memcg_high", 7), ("memcg_max", 8), ("memcg_swap_fail", 9)] {
            assert!(events.contains(&(name.to_owned(), count)), "{events:?}");
        }
        let limit = || fs::read_to_string(dir.path().join("memory.limit_in_bytes")).unwrap();
        let mut first = group(1);
        put("memory.oom_control", "oom_kill_disable 1\nunder_oom 1\n");
        first.ease();
        first.ease();
        first.ease();
        assert_eq!(limit(), (12 << 20).to_string());
        put("memory.oom_control", "oom_kill_disable 1\nunder_oom 0\n");
        first.ease();
        assert_eq!(limit(), (10 << 20).to_string());
    }
}
