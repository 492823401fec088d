//! Which processes are meant: a process id of ours, and the slot of the segment that is its.

use std::fs;
use std::os::unix::fs::MetadataExt;
use zfolio_host::process_tree::descendants;
use zfolio_host::slots::used;
use zfolio_host::statistics;
use zfolio_runtime::segment::{Counter, ProcessSlot, Segment, Used, state};

/// How the library's file is named, wherever it is.
const LIBRARY: &str = "/libzfolio_preload";

/// A process that is to be held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Target {
    /// Its id in our pid namespace.
    pub(super) pid: u32,
    /// Its command name.
    pub(super) name: String,
    /// The index and turn of its slot.
    pub(super) slot: (usize, u64),
}

/// What is found of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// It is managed.
    Managed(Target),
    /// It has the library, and nothing was ever out: there is nothing to hold.
    AllThere,
    /// It is not managed, and goes on so; why, if that is known.
    Unmanaged(String),
}

/// A process as it is known in its own pid namespace.
struct Inside {
    /// Its id there.
    pid: u32,
    /// The namespace's number; 0: it may not be read.
    namespace: u64,
}

impl Inside {
    fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let ids = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))?;
        Some(Self {
            pid: ids.split_whitespace().next_back()?.parse().ok()?,
            namespace: fs::metadata(format!("/proc/{pid}/ns/pid")).map_or(0, |of| of.ino()),
        })
    }

    /// Whether that is who a slot was claimed by.
    fn has(&self, segment: &Segment, used: &Used<'_>) -> bool {
        let owned = segment.owners[used.index].owned();
        owned.is_some_and(|owned| {
            let same = owned.who.namespace == self.namespace;
            owned.turn == used.turn
                && owned.who.pid == self.pid
                && (same || owned.who.namespace == 0 || self.namespace == 0)
        })
    }
}

/// What process `pid` is in the run.
pub(super) fn find(segment: &Segment, pid: u32) -> Found {
    let Some(inside) = Inside::of(pid) else {
        return Found::Unmanaged(String::new());
    };
    let slots = used(segment);
    // (The last claim is that of what it runs now.)
    let own = slots
        .iter()
        .rev()
        .find(|used| used.turn != 0 && inside.has(segment, used));
    let Some(own) = own else {
        return if has_library(pid) {
            Found::AllThere
        } else {
            Found::Unmanaged(String::new())
        };
    };
    let process = statistics::Process::read(own.slot);
    match process.state {
        state::MANAGING => Found::Managed(Target {
            pid,
            name: process.comm,
            slot: (own.index, own.turn),
        }),
        state::WATCHING => Found::AllThere,
        _ => Found::Unmanaged(process.message),
    }
}

/// Every managed process among `root` and those below it.
pub(super) fn find_all(segment: &Segment, root: u32) -> Vec<Target> {
    let all = std::iter::once(root).chain(descendants(root));
    let managed = all.filter_map(|pid| match find(segment, pid) {
        Found::Managed(target) => Some(target),
        Found::AllThere | Found::Unmanaged(_) => None,
    });
    managed.collect()
}

fn has_library(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.contains(LIBRARY)
}

impl Target {
    /// Its slot, if it is its own still.
    pub(super) fn slot<'a>(&self, segment: &'a Segment) -> Option<&'a ProcessSlot> {
        let mut slots = used(segment).into_iter();
        let own = slots.find(|used| (used.index, used.turn) == self.slot);
        own.map(|used| used.slot)
    }

    /// What it has out now, bytes: as much as it is larger when all is back.
    pub(super) fn out(&self, segment: &Segment) -> u64 {
        use std::sync::atomic::Ordering::Relaxed;
        const OUT: [Counter; 3] = [
            Counter::StoredPages,
            Counter::StandbyPages,
            Counter::BackingPages,
        ];
        let Some(slot) = self.slot(segment) else {
            return 0;
        };
        let pages = OUT.map(|which| slot.counter(which).load(Relaxed));
        let pages = pages.into_iter().fold(0, u64::saturating_add);
        pages.saturating_mul(zfolio_mm::PAGE_SIZE as u64)
    }
}

/// Whether process `pid` is stopped; `None` where there is none, or its first thread has ended.
pub(super) fn is_there(pid: u32) -> Option<bool> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(") ")?;
    let letter = after.chars().next()?;
    (!matches!(letter, 'X' | 'Z')).then_some(matches!(letter, 'T' | 't'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;
    use zfolio_host::segment_file::OwnSegment;

    #[test]
    fn a_process_is_known_by_who_claimed_its_slot() {
        let segment = OwnSegment::create(|_| {}).expect("a segment");
        let me = std::process::id();
        assert_eq!(find(&segment, me), Found::Unmanaged(String::new()));
        let index = segment.claim(me);
        assert_eq!(find(&segment, me), Found::AllThere, "it is watched");
        segment.slots[index].state.store(state::MANAGING, Relaxed);
        let Found::Managed(target) = find(&segment, me) else {
            panic!("it is managed");
        };
        assert_eq!(target.slot, (index, 1));
        segment.slots[index].set(Counter::StoredPages, 3);
        segment.slots[index].set(Counter::StandbyPages, 2);
        assert_eq!(target.out(&segment), 5 << 12);
        // What it has become since is another.
        let next = segment.claim(me);
        segment.slots[next].state.store(state::UNMANAGED, Relaxed);
        segment.slots[next].set_message("why");
        assert_eq!(find(&segment, me), Found::Unmanaged("why".into()));
        segment.retire(index);
        assert!(target.slot(&segment).is_none());
        assert_eq!(is_there(me), Some(false));
        assert_eq!(is_there(u32::MAX), None);
    }
}
