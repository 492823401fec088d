//! The memory limits of the control groups this process is in, and what is taken of them.
//!
//! Both versions, and all groups above as far as they can be seen: a limit of any of them ends
//! a job. In a container the groups above its own are out of sight; of version 1 the kernel
//! still says what the tightest of them is (`hierarchical_memory_limit`).
//!
//! | | version 1 | version 2 |
//! |---|---|---|
//! | limit | `memory.limit_in_bytes` | `memory.max`, or `memory.high`, above which all are slowed |
//! | usage | `memory.usage_in_bytes` | `memory.current` |
//! | what of it can be dropped | file pages that are neither dirty nor locked nor shared memory | the same |

use std::fs;
use std::path::{Path, PathBuf};

/// The version of a hierarchy: its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

/// A control group, as a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Group {
    dir: PathBuf,
    version: Version,
}

/// What a limited group has now, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The limit.
    pub limit: u64,
    /// All that counts against it and cannot be dropped: anonymous and shared memory, dirty
    /// files, the kernel's own.
    pub taken: u64,
    /// Of this, the anonymous memory of its processes.
    pub anonymous: u64,
}

/// The groups that may have a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    groups: Vec<Group>,
    /// A limit from here on is none. Bytes.
    none_from: u64,
}

impl Limits {
    /// Those of this process, on a machine of so much memory (bytes).
    pub fn here(machine: u64) -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}"));
        let groups = read("cgroup").unwrap_or_default();
        let mounts = read("mountinfo").unwrap_or_default();
        Self::of(&groups, &mounts, machine)
    }

    /// Those of a process with these files of /proc.
    pub fn of(groups: &str, mounts: &str, machine: u64) -> Self {
        let mut found = Vec::new();
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let version = if controllers.is_empty() {
                Version::Two
            } else if controllers.split(',').any(|name| name == "memory") {
                Version::One
            } else {
                continue;
            };
            let mounts = mounts
                .lines()
                .filter_map(|line| Mount::parse(line, version));
            let mounts: Vec<Mount> = mounts.collect();
            let inside = mounts.iter().find_map(|mount| mount.place(path));
            let Some((top, mut dir)) = inside.or_else(|| mounts.first()?.guess(path)) else {
                continue;
            };
            loop {
                found.push(Group {
                    dir: dir.clone(),
                    version,
                });
                if dir == top || !dir.pop() {
                    break;
                }
            }
        }
        Self {
            groups: found,
            none_from: machine,
        }
    }

    /// What each group with a limit has now.
    pub fn read(&self) -> Vec<Use> {
        let groups = self.groups.iter();
        groups
            .filter_map(|group| group.read(self.none_from))
            .collect()
    }

    /// The tightest limit, bytes.
    pub fn tightest(&self) -> Option<u64> {
        let groups = self.groups.iter();
        groups
            .filter_map(Group::limit)
            .filter(|limit| *limit < self.none_from)
            .min()
    }
}

/// A mount of a hierarchy.
struct Mount {
    /// The group that is its root.
    root: String,
    point: PathBuf,
}

impl Mount {
    /// Of a line of mountinfo, if it is a hierarchy of that version with memory in it.
    fn parse(line: &str, version: Version) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut words = filesystem.split(' ');
        let (kind, options) = (words.next()?, words.nth(1).unwrap_or(""));
        let fits = match version {
            Version::One => kind == "cgroup" && options.split(',').any(|word| word == "memory"),
            Version::Two => kind == "cgroup2",
        };
        let mut words = mount.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        fits.then(|| Self {
            root: unescaped(root),
            point: unescaped(point).into(),
        })
    }

    /// Where the group `path` is, with the top of what can be seen.
    fn place(&self, path: &str) -> Option<(PathBuf, PathBuf)> {
        let below = Path::new(path).strip_prefix(&self.root).ok()?;
        let dir = self.point.join(below);
        dir.is_dir().then(|| (self.point.clone(), dir))
    }

    /// Where it may be when its path is another namespace's: the nearest group of that path
    /// that can be seen.
    fn guess(&self, path: &str) -> Option<(PathBuf, PathBuf)> {
        let inside = !path.split('/').any(|part| part == "..");
        let below = if inside {
            path.trim_start_matches('/')
        } else {
            ""
        };
        let mut dir = self.point.join(below);
        while dir != self.point && !dir.is_dir() {
            dir.pop();
        }
        dir.is_dir().then(|| (self.point.clone(), dir))
    }
}

/// A path of mountinfo, where a blank is `\040`.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => {
                path.push(char::from(code));
                path.push_str(&part[3..]);
            }
            None => path.push_str(part),
        }
    }
    path
}

impl Group {
    fn number(&self, file: &str) -> Option<u64> {
        let text = fs::read_to_string(self.dir.join(file)).ok()?;
        text.trim().parse().ok()
    }

    /// Bytes; `None` without one.
    fn limit(&self) -> Option<u64> {
        match self.version {
            Version::One => {
                let above = self.stat().get("hierarchical_memory_limit");
                least(self.number("memory.limit_in_bytes"), above)
            }
            Version::Two => least(self.number("memory.max"), self.number("memory.high")),
        }
    }

    fn stat(&self) -> Stat {
        Stat(fs::read_to_string(self.dir.join("memory.stat")).unwrap_or_default())
    }

    fn read(&self, none_from: u64) -> Option<Use> {
        let limit = self.limit().filter(|limit| *limit < none_from)?;
        let stat = self.stat();
        let get = |name: &str| stat.get(name).unwrap_or(0);
        let (usage, files, unclean, anonymous) = match self.version {
            Version::One => (
                self.number("memory.usage_in_bytes"),
                get("total_active_file") + get("total_inactive_file"),
                get("total_dirty") + get("total_writeback"),
                get("total_rss"),
            ),
            Version::Two => (
                self.number("memory.current"),
                // (Half of what the kernel calls reclaimable of its own: the rest stays.)
                get("active_file") + get("inactive_file") + get("slab_reclaimable") / 2,
                get("file_dirty") + get("file_writeback"),
                get("anon"),
            ),
        };
        // What nobody may read is taken to be half.
        let taken = usage.map_or(limit / 2, |usage| {
            usage.saturating_sub(files.saturating_sub(unclean))
        });
        Some(Use {
            limit,
            taken,
            anonymous: anonymous.min(taken),
        })
    }
}

/// A file of names and numbers.
struct Stat(String);

impl Stat {
    fn get(&self, name: &str) -> Option<u64> {
        self.0.lines().find_map(|line| {
            let (key, value) = line.split_once(' ')?;
            (key == name).then(|| value.trim().parse().ok())?
        })
    }
}

fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MACHINE: u64 = 1 << 40;

    /// A hierarchy on disk.
    struct Fixture(tempfile::TempDir);

    impl Fixture {
        fn new(files: &[(&str, &str)]) -> Self {
            let dir = tempfile::tempdir().expect("a directory");
            for (path, text) in files {
                let path = dir.path().join(path);
                fs::create_dir_all(path.parent().expect("a parent")).expect("made");
                fs::write(path, text).expect("written");
            }
            Self(dir)
        }

        /// A line of mountinfo: `at` of this directory shows the group `root`.
        fn mount(&self, root: &str, at: &str, version: Version) -> String {
            let point = self.0.path().join(at);
            let point = point.to_str().expect("a plain path").replace(' ', "\\040");
            let kind = match version {
                Version::One => "cgroup cgroup rw,memory",
                Version::Two => "cgroup2 cgroup rw",
            };
            format!("30 23 0:26 {root} {point} rw,nosuid shared:4 - {kind}\n")
        }
    }

    fn limits(groups: &str, mounts: &str) -> Vec<u64> {
        let limits = Limits::of(groups, mounts, MACHINE).read();
        limits.iter().map(|of| of.limit).collect()
    }

    #[test]
    fn every_group_above_counts_of_version_two() {
        let fixture = Fixture::new(&[
            ("two/memory.stat", ""),
            ("two/user.slice/memory.max", "max\n"),
            ("two/user.slice/memory.high", "900\n"),
            ("two/user.slice/job/memory.max", "1000\n"),
            ("two/user.slice/job/memory.high", "max\n"),
            ("two/user.slice/job/step/memory.max", "max\n"),
        ]);
        let mount = fixture.mount("/", "two", Version::Two);
        let group = "0::/user.slice/job/step\n";
        assert_eq!(limits(group, &mount), [1000, 900]);
        let tightest = |machine| Limits::of(group, &mount, machine).tightest();
        assert_eq!(tightest(MACHINE), Some(900));
        // A limit that the machine has not the memory for is none.
        assert_eq!(tightest(900), None);
        assert!(limits("0::/\n", &mount).is_empty());
    }

    #[test]
    fn every_group_above_counts_of_version_one() {
        let none = "9223372036854771712\n";
        let fixture = Fixture::new(&[
            ("one/memory.limit_in_bytes", none),
            ("one/a/memory.limit_in_bytes", "700\n"),
            ("one/a/b/memory.limit_in_bytes", none),
            ("two/a/cgroup.procs", ""),
        ]);
        let mounts = fixture.mount("/", "two", Version::Two)
            + "31 23 0:27 / /nowhere rw - cgroup cgroup rw,cpu\n"
            + &fixture.mount("/", "one", Version::One);
        assert_eq!(limits("4:cpu,memory:/a/b\n0::/a\n", &mounts), [700]);
        assert!(limits("4:cpu:/a/b\n0::/a\n", &mounts).is_empty());
    }

    #[test]
    fn in_a_container_its_own_group_is_the_top() {
        let fixture = Fixture::new(&[
            ("my mount/memory.limit_in_bytes", "5000\n"),
            ("my mount/memory.stat", "hierarchical_memory_limit 4000\n"),
            ("two/memory.max", "3000\n"),
        ]);
        // Version 1 without a namespace: the mount shows the container's own group.
        let one = fixture.mount("/podman/c1", "my mount", Version::One);
        assert_eq!(limits("4:memory:/podman/c1\n", &one), [4000]);
        // A path of the host's, which cannot be seen.
        let other = fixture.mount("/elsewhere", "my mount", Version::One);
        assert_eq!(limits("4:memory:/podman/c1\n", &other), [4000]);
        // Version 2 in a namespace of its own, and in one that does not cover the mount.
        let two = fixture.mount("/", "two", Version::Two);
        assert_eq!(limits("0::/\n", &two), [3000]);
        assert_eq!(limits("0::/../../x\n", &two), [3000]);
    }

    #[test]
    fn what_cannot_be_dropped_is_taken() {
        let bytes = |mib: u64| mib * MIB;
        let one = format!(
            "rss 1\ntotal_rss {}\ntotal_active_file {}\ntotal_inactive_file {}\n\
             total_dirty {}\ntotal_writeback {}\n",
            bytes(100),
            bytes(20),
            bytes(30),
            bytes(7),
            bytes(3)
        );
        let two = format!(
            "anon {}\nactive_file {}\ninactive_file {}\nfile_dirty {}\nfile_writeback {}\n\
             slab_reclaimable {}\n",
            bytes(100),
            bytes(20),
            bytes(30),
            bytes(7),
            bytes(3),
            bytes(8)
        );
        let (usage, limit) = (bytes(180).to_string(), bytes(300).to_string());
        let fixture = Fixture::new(&[
            ("one/memory.stat", &one),
            ("one/memory.usage_in_bytes", &usage),
            ("one/memory.limit_in_bytes", &limit),
            ("two/memory.stat", &two),
            ("two/memory.current", &usage),
            ("two/memory.max", &limit),
            ("hidden/memory.max", &limit),
        ]);
        let read = |group: &str, at: &str, version| {
            Limits::of(group, &fixture.mount("/", at, version), MACHINE).read()
        };
        let of = |taken, anonymous| Use {
            limit: bytes(300),
            taken: bytes(taken),
            anonymous: bytes(anonymous),
        };
        assert_eq!(read("4:memory:/\n", "one", Version::One), [of(140, 100)]);
        assert_eq!(read("0::/\n", "two", Version::Two), [of(136, 100)]);
        assert_eq!(read("0::/\n", "hidden", Version::Two), [of(150, 0)]);
    }

    #[test]
    fn this_machine_can_be_asked() {
        let limits = Limits::here(MACHINE);
        assert!(limits.read().iter().all(|of| of.anonymous <= of.taken));
    }
}
