//! Whether there is room for what has to come back.

use std::fs;
use zfolio_host::cgroup_limits::Limits;
use zfolio_host::machine::mem_total;

/// Left free besides: the inspector needs some itself. Bytes.
const SPARE: u64 = 32 << 20;

/// Memory that process `pid` could get, bytes: of the machine, and of the groups it is in as far as
/// they can be seen.
pub(super) fn free_for(pid: u32) -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let limits = Limits::of(&groups, &mounts, mem_total()).read();
    let left = limits.iter().map(|of| of.limit.saturating_sub(of.taken));
    left.chain([available(&info).unwrap_or(u64::MAX)])
        .min()
        .unwrap_or(u64::MAX)
}

/// Whether `out` bytes may come back where `free` are.
pub(super) fn is_enough(free: u64, out: u64) -> bool {
    out == 0 || free >= out.saturating_add(SPARE)
}

/// `MemAvailable`, bytes.
fn available(info: &str) -> Option<u64> {
    let of = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = of.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_is_available_and_some_more() {
        let info = "MemTotal:  100 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(available(info), Some(2 << 20));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        assert!(is_enough(0, 0) && is_enough(SPARE + 5, 5));
        assert!(!is_enough(SPARE + 4, 5) && !is_enough(u64::MAX - 1, u64::MAX));
        assert!(free_for(std::process::id()) > 0);
    }
}
