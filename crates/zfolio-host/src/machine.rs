//! What this machine says of itself: memory, kernel, /proc files.

use crate::cgroup_limits::Limits;
use std::fs;

/// A one-line file of /proc or /sys, trimmed; `None` when it cannot be read.
pub fn line_of(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// A field of /proc/self/status, such as `Seccomp`.
pub fn status_field(name: &str) -> Option<String> {
    field(&fs::read_to_string("/proc/self/status").ok()?, name)
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key == name).then(|| value.trim().to_owned())
    })
}

/// `MemTotal`, bytes.
pub fn mem_total() -> u64 {
    let info = rustix::system::sysinfo();
    #[allow(
        clippy::useless_conversion,
        reason = "the field's width differs by target"
    )]
    u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit))
}

/// Memory available to us, bytes: `MemTotal` or the tightest control group
/// limit above us, whichever is less.
pub fn available() -> u64 {
    let machine = mem_total();
    Limits::here(machine).tightest().unwrap_or(machine)
}

/// Kernel release, such as `6.8.0-45-generic`.
pub fn kernel_release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// Major and minor version of a release.
pub fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// What all processors together have been idle since the machine began, in hundredths of a
/// second; those that wait for a device are.
pub fn idle_ticks() -> Option<u64> {
    idle_of(&fs::read_to_string("/proc/stat").ok()?)
}

fn idle_of(stat: &str) -> Option<u64> {
    // cpu user nice system idle iowait ...
    let mut words = stat.lines().next()?.split_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let mut idle = words.skip(3).map(str::parse::<u64>);
    Some(idle.next()?.ok()? + idle.next()?.ok()?)
}

/// Processors this process may use.
pub fn cpus() -> usize {
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
}
