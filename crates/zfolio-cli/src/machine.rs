//! What this machine says of itself: memory, limits, kernel, /proc files.

use std::fs;
use std::path::{Path, PathBuf};

/// A one-line file of /proc or /sys, trimmed; `None` when it cannot be read.
pub(crate) fn line_of(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// A field of /proc/self/status, such as `Seccomp`.
pub(crate) fn status_field(name: &str) -> Option<String> {
    field(&fs::read_to_string("/proc/self/status").ok()?, name)
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key == name).then(|| value.trim().to_owned())
    })
}

/// `MemTotal`, bytes.
pub(crate) fn mem_total() -> u64 {
    let info = rustix::system::sysinfo();
    #[allow(
        clippy::useless_conversion,
        reason = "the field's width differs by target"
    )]
    u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit))
}

/// Memory available to us, bytes: `MemTotal` or the tightest control group
/// limit above us, whichever is less.
pub(crate) fn available() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = cgroup_limit(&groups, Path::new("/sys/fs/cgroup"));
    mem_total().min(limit.unwrap_or(u64::MAX))
}

/// The tightest memory limit of the groups in `groups` (/proc/self/cgroup)
/// and of their parents, bytes. Looks at version 2 (memory.max) and version 1
/// (memory.limit_in_bytes). Inside a container the path may not exist below
/// its own mount; then the parents that do exist are read, up to the mount.
fn cgroup_limit(groups: &str, mount: &Path) -> Option<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, file) = if controllers.is_empty() {
            (mount.to_path_buf(), "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            (mount.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        let mut dir: PathBuf = root.join(path.trim_start_matches('/'));
        loop {
            let limit = fs::read_to_string(dir.join(file)).ok();
            limits.extend(limit.and_then(|text| text.trim().parse::<u64>().ok()));
            if dir == root || !dir.pop() {
                break;
            }
        }
    }
    limits.into_iter().min()
}

/// Kernel release, such as `6.8.0-45-generic`.
pub(crate) fn kernel_release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// Major and minor version of a release.
pub(crate) fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Processors this process may use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_parse() {
        assert_eq!(kernel_version("6.18.44-fc-v595"), Some((6, 18)));
        assert_eq!(kernel_version("6.8.0-45-generic"), Some((6, 8)));
        assert_eq!(kernel_version("7.0-rc1"), Some((7, 0)));
        assert_eq!(kernel_version("unknown"), None);
    }

    #[test]
    fn this_machine_answers() {
        assert!(mem_total() > 1 << 20);
        assert!(available() <= mem_total());
        assert!(kernel_version(&kernel_release()).is_some());
        assert!(status_field("Pid").is_some());
        assert_eq!(
            field("Name:\ta: b\nPid:\t7\n", "Name").as_deref(),
            Some("a: b")
        );
    }

    #[test]
    fn the_tightest_group_limit_counts() {
        let mount = tempfile::tempdir().unwrap();
        let put = |dir: &str, file: &str, text: &str| {
            let dir = mount.path().join(dir);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(file), text).unwrap();
        };
        put("", "cgroup.procs", "");
        put("a", "memory.max", "1000\n");
        put("a/b", "memory.max", "max\n");
        assert_eq!(cgroup_limit("0::/a/b\n", mount.path()), Some(1000));
        assert_eq!(cgroup_limit("0::/\n", mount.path()), None);
        put("memory", "memory.limit_in_bytes", "9223372036854771712\n");
        put("memory/x", "memory.limit_in_bytes", "500\n");
        assert_eq!(
            cgroup_limit("4:cpu,memory:/x\n0::/a/b\n", mount.path()),
            Some(500)
        );
        // A container's view: the path is not below its own mount.
        assert_eq!(
            cgroup_limit("4:memory:/x/far/away\n", mount.path()),
            Some(500)
        );
    }
}
