//! What the kernel counts, the machine over: /proc/vmstat, and the counters by
//! size of folio.

use std::collections::BTreeMap;
use std::fs;

/// Names of /proc/vmstat that matter to swap.
const VMSTAT: [&str; 12] = [
    "pswpin",
    "pswpout",
    "zswpin",
    "zswpout",
    "zswpwb",
    "thp_swpout",
    "thp_swpout_fallback",
    "pgmajfault",
    "swap_ra",
    "swap_ra_hit",
    "swpin_zero",
    "swpout_zero",
];

/// Directory below /sys/kernel/mm, and how rows name the size.
pub(super) const SIZES: [(&str, &str); 2] = [("64kB", "64kB"), ("2048kB", "2048kB")];
const BY_SIZE: [&str; 3] = ["zswpout", "swpout", "swpout_fallback"];

/// All of them now.
pub(super) fn snapshot() -> BTreeMap<String, u64> {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let mut all: BTreeMap<String, u64> = text
        .lines()
        .filter_map(|line| {
            let (name, count) = line.split_once(' ')?;
            let wanted = VMSTAT.contains(&name);
            wanted.then_some((name.to_owned(), count.parse().ok()?))
        })
        .collect();
    for (dir, size) in SIZES {
        for name in BY_SIZE {
            let path = format!("/sys/kernel/mm/transparent_hugepage/hugepages-{dir}/stats/{name}");
            let count = fs::read_to_string(path).ok();
            if let Some(count) = count.and_then(|text| text.trim().parse().ok()) {
                all.insert(format!("{size}-{name}"), count);
            }
        }
    }
    all
}

/// What was counted since `before`.
pub(super) fn since(before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let now = snapshot().into_iter();
    now.map(|(name, count)| {
        let counted = count.saturating_sub(before.get(&name).copied().unwrap_or(0));
        (name, counted)
    })
    .collect()
}

/// Bytes of zswap's pool.
pub(super) fn zswap_pool() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Zswap:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
