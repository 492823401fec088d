//! What cannot leave a process, since its mapping is not managed, and why not.

use super::counter::Counter;
use super::process_slot::ProcessSlot;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use zfolio_sys::procfs::{Mapping, PagemapOf};
use zfolio_sys::syscall::Kernel;

/// Why a mapping is not managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Shared with other processes, a file or not.
    Shared,
    /// A private mapping of a file.
    File,
    /// Anonymous and executable.
    Executable,
    /// Anonymous, to be read only.
    ReadOnly,
    /// Anonymous, and nobody may touch it now.
    NoAccess,
    /// As managed memory is, but the main stack, a library's variables, or small.
    Apart,
}

impl Why {
    /// Every reason, with the counter of its bytes.
    const COUNTERS: [(Self, Counter); 6] = [
        (Self::Shared, Counter::StaysShared),
        (Self::File, Counter::StaysFile),
        (Self::Executable, Counter::StaysExecutable),
        (Self::ReadOnly, Counter::StaysReadOnly),
        (Self::NoAccess, Counter::StaysNoAccess),
        (Self::Apart, Counter::StaysApart),
    ];

    /// The reason of a mapping that is not managed.
    #[must_use]
    pub fn of(mapping: &Mapping<'_>) -> Self {
        match mapping.perms {
            [_, _, _, b's'] => Self::Shared,
            _ if mapping.inode != 0 => Self::File,
            [_, _, b'x', _] => Self::Executable,
            [_, b'w', _, _] => Self::Apart,
            [b'r', ..] => Self::ReadOnly,
            _ => Self::NoAccess,
        }
    }
}

/// Addresses that are looked at, of all mappings and of each: reservations of terabytes are not
/// looked at to their end.
const LOOK_BYTES: usize = 64 << 30;
const MAPPING_BYTES: usize = 8 << 30;

/// A look at the mappings that are not managed: resident bytes, by reason. (Managed ones may have
/// pages that are locked or pinned besides: `Counter::Unmovable`.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Staying {
    bytes: [usize; Why::COUNTERS.len()],
    /// Addresses still to be looked at.
    budget: usize,
}

impl Default for Staying {
    fn default() -> Self {
        Self {
            bytes: Default::default(),
            budget: LOOK_BYTES,
        }
    }
}

impl Staying {
    /// Looks at (a part of) a mapping.
    pub fn look<K: Kernel>(&mut self, pagemap: PagemapOf<K>, range: Range<usize>, why: Why) {
        let most = range.start.saturating_add(self.budget.min(MAPPING_BYTES));
        let part = range.start..range.end.min(most);
        self.budget -= part.len();
        self.add(why, pagemap.resident(part, why == Why::Shared));
    }

    fn add(&mut self, why: Why, bytes: usize) {
        self.bytes[why as usize] += bytes;
    }

    /// Takes off what of it is ours.
    pub fn remove(&mut self, why: Why, bytes: usize) {
        let found = &mut self.bytes[why as usize];
        *found = found.saturating_sub(bytes);
    }

    fn is_more_than(&self, told: &[u64]) -> bool {
        self.bytes.iter().sum::<usize>() as u64 > told.iter().sum()
    }

    /// Says so in the process's slot, if it is more than was said there.
    pub fn tell(&self, slot: &ProcessSlot) {
        let told = Why::COUNTERS.map(|(_, which)| slot.counter(which).load(Ordering::Relaxed));
        if self.is_more_than(&told) {
            slot.update(|| {
                for (why, which) in Why::COUNTERS {
                    slot.set(which, self.bytes[why as usize] as u64);
                }
            });
        }
    }
}

/// Between two looks, ns: and this many times what the last one took.
const LOOK_NS: u64 = 250_000_000;
const LOOK_SHARE: u64 = 100;

/// When the next look is due, by the monotonic clock, ns. One looks at a time.
#[derive(Debug, Default)]
pub struct Looks(AtomicU64);

impl Looks {
    /// Whether one is due.
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.0.load(Ordering::Relaxed)
    }

    /// The same; the caller takes it then.
    pub fn begins(&self, now: u64) -> bool {
        let due = self.0.load(Ordering::Relaxed);
        let (orders, taken) = (Ordering::Relaxed, u64::MAX);
        now >= due && self.0.compare_exchange(due, taken, orders, orders).is_ok()
    }

    /// It ended, having begun at `begun`.
    pub fn ends(&self, begun: u64, now: u64) {
        let took = now.saturating_sub(begun);
        let wait = LOOK_NS.max(took.saturating_mul(LOOK_SHARE));
        self.0.store(now.saturating_add(wait), Ordering::Relaxed);
    }

    /// In the child of a fork: who was looking is a thread of the parent's.
    pub fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zfolio_mm::PAGE_SIZE;

    #[test]
    fn reasons_are_told_from_the_mapping() {
        let why = |perms: &[u8], inode| {
            Why::of(&Mapping {
                start: 0,
                end: PAGE_SIZE,
                perms,
                inode,
                name: b"",
            })
        };
        assert_eq!(why(b"rw-s", 0), Why::Shared);
        assert_eq!(why(b"rw-s", 7), Why::Shared);
        assert_eq!(why(b"r-xp", 7), Why::File);
        assert_eq!(why(b"rwxp", 0), Why::Executable);
        assert_eq!(why(b"r-xp", 0), Why::Executable);
        assert_eq!(why(b"r--p", 0), Why::ReadOnly);
        assert_eq!(why(b"---p", 0), Why::NoAccess);
        assert_eq!(why(b"rw-p", 0), Why::Apart);
    }

    #[test]
    fn every_reason_has_its_counter_in_its_place() {
        for (at, (why, _)) in Why::COUNTERS.iter().enumerate() {
            assert_eq!(*why as usize, at);
        }
    }

    #[test]
    fn the_look_that_found_most_is_told() {
        let mut found = Staying::default();
        assert!(!found.is_more_than(&[0, 0]));
        found.add(Why::ReadOnly, 100);
        found.add(Why::Apart, 20);
        assert!(found.is_more_than(&[0, 119]));
        assert!(!found.is_more_than(&[60, 60]));
        found.remove(Why::Apart, 30);
        assert!(found.is_more_than(&[99]));
        assert!(!found.is_more_than(&[100]));
    }

    #[test]
    fn one_looks_at_a_time_and_for_a_hundredth_of_it() {
        let looks = Looks::default();
        assert!(looks.begins(5));
        assert!(!looks.begins(1 << 60), "somebody looks");
        looks.ends(5, 10_000_005);
        assert!(!looks.begins(1_010_000_004));
        assert!(looks.begins(1_010_000_005));
        looks.ends(1_010_000_005, 1_010_000_006);
        assert!(!looks.begins(1_010_000_006 + LOOK_NS - 1));
        assert!(looks.begins(1_010_000_006 + LOOK_NS));
        looks.forget();
        assert!(looks.begins(0));
    }
}
