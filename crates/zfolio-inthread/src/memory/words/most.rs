//! How many leaves there may be.

use super::{LEAF, TOP};
use crate::raw::{self, PAGE, nr};

/// Fewest: 256 GiB.
pub(crate) const FEWEST_LEAVES: usize = 1 << 17;
/// Times the machine's memory.
const TIMES: u64 = 8;

/// What `sysinfo` writes, in words: seconds, three loads, memory, ...; the unit of memory is a half of the last.
const INFO: usize = 14;
const MEMORY: usize = 4;
const UNIT: usize = 13;
/// RLIMIT_AS.
const ADDRESSES: usize = 9;

/// Leaves for some times what this machine has of memory, and the fewest at least; no more than those where
/// addresses are limited.
pub(crate) fn most_leaves() -> usize {
    let mut limit = [0_u64; 2];
    let limit_at = limit.as_mut_ptr() as usize;
    let is_known = raw::own(nr::GETRLIMIT, [ADDRESSES, limit_at, 0]) == 0;
    if !is_known || limit[0] != u64::MAX {
        return FEWEST_LEAVES;
    }
    memory_of_machine().map_or(FEWEST_LEAVES, leaves_for)
}

/// Bytes of memory that the machine has.
fn memory_of_machine() -> Option<u64> {
    let mut info = [0_u64; INFO];
    let info_at = info.as_mut_ptr() as usize;
    let is_known = raw::own(nr::SYSINFO, [info_at, 0, 0]) == 0;
    is_known.then(|| info[MEMORY].saturating_mul(info[UNIT] & 0xffff_ffff))
}

/// For a machine of `memory` bytes.
fn leaves_for(memory: u64) -> usize {
    let leaves = memory.saturating_mul(TIMES) / (LEAF * PAGE) as u64;
    usize::try_from(leaves)
        .unwrap_or(TOP)
        .clamp(FEWEST_LEAVES, TOP)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn leaves_go_by_the_memory_of_the_machine() {
        assert_eq!(leaves_for(16 << 30), FEWEST_LEAVES);
        assert_eq!(leaves_for(32 << 30), FEWEST_LEAVES);
        assert_eq!(leaves_for(512 << 30), 2 << 20);
        assert_eq!(leaves_for(u64::MAX), TOP);
    }

    #[test]
    fn the_memory_of_the_machine_is_what_proc_says() {
        let info = std::fs::read_to_string("/proc/meminfo").unwrap();
        let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = total.and_then(|total| total.trim().strip_suffix(" kB"));
        let kib: u64 = kib.unwrap().trim().parse().unwrap();
        assert_eq!(memory_of_machine(), Some(kib << 10));
    }
}
