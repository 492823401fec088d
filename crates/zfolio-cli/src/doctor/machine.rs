//! What the machine allows that all ways need: huge pages, mappings, memory.

use super::check::{Check, Level};
use super::place::Place;
use crate::fitting::Fitting;
use std::time::Instant;
use zfolio_host::machine::line_of;
use zfolio_host::size::human;

/// Mappings below which registering many ranges may run out.
const FEW_MAPPINGS: u64 = 65_530;

/// All of them.
pub(super) fn checks() -> Vec<Check> {
    vec![
        place(),
        limit(),
        huge_pages(),
        mappings(),
        overcommit(),
        memlock(),
    ]
}

fn place() -> Check {
    Check::new("place", Level::Ok, Place::here().words(), "")
}

/// The limit that a run without `--high` keeps under.
pub(super) fn memory_limit() -> Option<u64> {
    let fitting = Fitting::find(None, Instant::now());
    fitting.chosen().limit
}

fn limit() -> Check {
    let found = memory_limit().map_or("none but the machine's memory".to_owned(), |limit| {
        format!("{}: zfolio run keeps under it by itself", human(limit))
    });
    Check::new("memory limit", Level::Ok, found, "")
}

fn huge_pages() -> Check {
    const NAME: &str = "transparent huge pages";
    let setting = line_of("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = setting
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(word, _)| word);
    match chosen {
        Some("never") => {
            let mend = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
            Check::new(NAME, Level::Warn, "never: moves are 4 KiB each", mend)
        }
        Some(word) => Check::new(NAME, Level::Ok, word, ""),
        None => Check::new(
            NAME,
            Level::Warn,
            "not in this kernel",
            "boot one with CONFIG_TRANSPARENT_HUGEPAGE=y",
        ),
    }
}

fn mappings() -> Check {
    const NAME: &str = "vm.max_map_count";
    let found = line_of("/proc/sys/vm/max_map_count").unwrap_or_default();
    let level = match found.parse::<u64>() {
        Ok(count) if count >= FEW_MAPPINGS => Level::Ok,
        _ => Level::Warn,
    };
    Check::new(NAME, level, found, "sudo sysctl vm.max_map_count=262144")
}

fn overcommit() -> Check {
    const NAME: &str = "vm.overcommit_memory";
    let found = line_of("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    if found == "2" {
        let found = "2: reserving address space may be refused";
        return Check::new(
            NAME,
            Level::Warn,
            found,
            "sudo sysctl vm.overcommit_memory=0",
        );
    }
    Check::new(NAME, Level::Ok, found, "")
}

fn memlock() -> Check {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    let found = limit.map_or("unlimited".to_owned(), human);
    Check::new(
        "memlock limit",
        Level::Ok,
        format!("{found} (locked memory is left alone)"),
        "",
    )
}
