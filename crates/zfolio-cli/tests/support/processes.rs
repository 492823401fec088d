//! A process and its descendants, as the kernel shows them.

use super::kill_group;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// A process and all its descendants.
fn tree(root: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if let Some(Ok(parent)) = after_name(&entry.path())
            .get(1)
            .map(|word| word.parse::<u32>())
        {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let of = found[next];
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| *parent == of)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    found
}

/// The words of a `stat` file behind the name: state, parent, and so on.
fn after_name(dir: &Path) -> Vec<String> {
    let stat = fs::read_to_string(dir.join("stat")).unwrap_or_default();
    let behind = stat.rsplit(')').next().unwrap_or_default();
    behind.split_whitespace().map(str::to_owned).collect()
}

/// For every process its command and its signals, and for every thread where it sleeps, its state, its
/// system call (with its stack pointer and instruction pointer), the processor time it has had, and the
/// mapping that its instruction pointer is in.
pub fn what_they_wait_in(root: u32) -> String {
    let mut told = String::new();
    for pid in tree(root) {
        let dir = Path::new("/proc").join(pid.to_string());
        let command = fs::read(dir.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let _ = writeln!(told, "{pid}: {command}");
        let mut mappings = BTreeSet::new();
        let tasks = fs::read_dir(dir.join("task"));
        for task in tasks.into_iter().flatten().flatten() {
            let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let stat = after_name(&task.path());
            let word = |at: usize| stat.get(at).map_or("?", String::as_str);
            let call = read("syscall");
            let _ = writeln!(
                told,
                "  {} {} {} ticks {}+{} wchan {} syscall {}",
                task.file_name().display(),
                read("comm").trim(),
                word(0),
                word(11),
                word(12),
                read("wchan").trim(),
                call.trim(),
            );
            for line in read("status").lines() {
                if ["SigPnd", "ShdPnd", "SigBlk"]
                    .iter()
                    .any(|name| line.starts_with(name))
                {
                    let _ = writeln!(told, "    {}", line.replace('\t', " "));
                }
            }
            for line in read("stack").lines().take(8) {
                let _ = writeln!(told, "    {line}");
            }
            mappings.extend(mapping_of(&dir, call.split_whitespace().last()));
        }
        for mapping in mappings {
            let _ = writeln!(told, "  {mapping}");
        }
    }
    told
}

/// The line of `maps` that has a hexadecimal address.
fn mapping_of(dir: &Path, address: Option<&str>) -> Option<String> {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let address = number(address?)?;
    let maps = fs::read_to_string(dir.join("maps")).ok()?;
    maps.lines()
        .find(|line| {
            let range = line
                .split_whitespace()
                .next()
                .and_then(|r| r.split_once('-'));
            range.is_some_and(|(from, to)| {
                number(from).is_some_and(|from| from <= address)
                    && number(to).is_some_and(|to| address < to)
            })
        })
        .map(str::to_owned)
}

/// Kills a process group and all descendants of its leader, whatever group they are in.
pub fn kill_tree(leader: u32) {
    let pids = tree(leader);
    kill_group(leader);
    for pid in pids {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
